// The page of the console. What it shows comes over one stream of events. Keys are data of
// users: they get into the page as text only.

const token = document.querySelector("meta[name=token]").content;
const operate = document.querySelector("meta[name=operate]").content === "true";
const connection = document.getElementById("connection");
const overview = document.getElementById("overview");
const detail = document.getElementById("detail");

let samples = 300;
let counters = []; // in the order of the declaration
let shown = null; // the counter whose details are on the page, with its elements

// --- elements

function h(name, attributes, ...children) {
	const e = document.createElement(name);
	set(e, attributes);
	e.append(...children.flat().filter((c) => c !== null && c !== undefined));
	return e;
}

function svg(name, attributes, ...children) {
	const e = document.createElementNS("http://www.w3.org/2000/svg", name);
	set(e, attributes);
	e.append(...children);
	return e;
}

function set(e, attributes) {
	for (const [name, value] of Object.entries(attributes ?? {})) {
		if (name.startsWith("on")) {
			e.addEventListener(name.slice(2), value);
		} else if (value === true) {
			e.setAttribute(name, "");
		} else if (value !== false && value !== null && value !== undefined) {
			e.setAttribute(name, value);
		}
	}
}

// --- numbers and times

const plain = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

// count writes an integer, also one that is a text because JavaScript's numbers are too small.
const count = (n) => plain.format(typeof n === "string" ? BigInt(n) : n);
const rate = (n) => (n > 0 && n < 10 ? n.toFixed(1) : short.format(Math.round(n)));
const plural = (n, one, many) => (n === 1 ? `1 ${one}` : `${count(n)} ${many}`);

function duration(seconds) {
	if (seconds <= 0) return "none";
	if (seconds < 0.1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
	if (seconds < 10) return `${seconds.toFixed(1)} s`;
	if (seconds < 120) return `${Math.round(seconds)} s`;
	if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
	if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
	return `${Math.round(seconds / 86400)} days`;
}

const clock = (at) => new Date(at).toLocaleTimeString("en", { hour12: false });

function when(at) {
	if (!at) return "never";
	const date = new Date(at);
	const today = date.toDateString() === new Date().toDateString();
	return today ? clock(at) : `${date.toLocaleDateString("en", { day: "numeric", month: "short", year: "numeric" })}, ${clock(at)}`;
}

const difference = (stored, actual) => {
	const d = BigInt(stored) - BigInt(actual);
	return (d > 0n ? "+" : "") + plain.format(d);
};

const scopeText = (counter, scope) => scope.map((v, i) => `${counter.key[i].name}=${v}`).join(" ");

// --- what the server says

function connect() {
	const source = new EventSource("events");
	const on = (name, handle) => source.addEventListener(name, (e) => handle(JSON.parse(e.data)));
	source.onerror = () => {
		say("reconnecting", false);
		if (source.readyState === EventSource.CLOSED) setTimeout(connect, 3000);
	};
	on("state", (state) => {
		say("live", true);
		samples = state.samples;
		counters = state.counters.map((c, i) => ({ ...c, ...state.seen[i], jobs: [], verdict: null }));
		for (const v of state.verdicts) find(v.counter).verdict = v;
		for (const j of state.jobs) find(j.counter).jobs.unshift(j);
		choose();
	});
	on("sample", (seen) => {
		const counter = find(seen.counter);
		seen.points = counter.points.concat(seen.points.filter((p) => p.at > (counter.points.at(-1)?.at ?? 0))).slice(-samples);
		Object.assign(counter, seen);
		drawOverview();
		if (shown?.counter === counter) drawSample();
	});
	on("job", (job) => {
		const counter = find(job.counter);
		const i = counter.jobs.findIndex((j) => j.id === job.id);
		if (i >= 0) counter.jobs[i] = job;
		else counter.jobs.unshift(job);
		const ended = counter.jobs.filter((j) => j.state !== "running").slice(4);
		counter.jobs = counter.jobs.filter((j) => !ended.includes(j));
		if (shown?.counter === counter) drawJobs(job);
	});
	on("verdict", (verdict) => {
		const counter = find(verdict.counter);
		counter.verdict = verdict;
		drawOverview();
		if (shown?.counter === counter) drawVerdict();
	});
}

function say(text, live) {
	if (connection.textContent !== text) connection.textContent = text;
	connection.classList.toggle("live", live);
}

const find = (name) => counters.find((c) => c.name === name);

async function post(path, body) {
	const response = await fetch(path, {
		method: "POST",
		headers: { "Content-Type": "application/json", "X-Counterconsole-Token": token },
		body: JSON.stringify(body),
	});
	const answer = await response.json().catch(() => ({}));
	if (!response.ok) throw new Error(answer.error ?? `the server answers ${response.status}`);
	return answer;
}

// --- overview

// choose shows the counter that the address names, or the first one.
function choose() {
	const name = decodeURIComponent(location.hash.slice(1));
	const counter = find(name) ?? counters[0];
	drawOverview();
	build(counter);
}

// state is that of the last sample, unless the last verify knows better.
function stateOf(counter) {
	if (counter.state.level === "good" && counter.verdict?.keys > 0) {
		return { name: "drift", level: "bad", advice: "The last verify found keys that differ from the rows. Rebuild mends them." };
	}
	return counter.state;
}

const chip = (state) => h("span", { class: `chip ${state.level}` }, state.name);

function drawOverview() {
	overview.hidden = counters.length < 2;
	if (overview.hidden) return;
	counters.forEach((counter, i) => {
		const link = overview.children[i] ?? overview.appendChild(h("a", { href: `#${encodeURIComponent(counter.name)}` }));
		set(link, { "aria-current": counter === (shown?.counter ?? null) ? "true" : null });
		if (counter !== shown?.counter) link.removeAttribute("aria-current");
		const waiting = counter.points.at(-1)?.journal ?? 0;
		const oldest = counter.points.at(-1)?.oldest ?? 0;
		link.replaceChildren(
			h("span", { class: "name" }, h("span", {}, counter.name), chip(stateOf(counter))),
			spark(counter.points.map((p) => p.journal)),
			h("span", { class: "said" }, waiting ? `${count(waiting)} waiting, oldest ${duration(oldest)}` : "nothing waits"),
		);
	});
}

function spark(values) {
	const high = Math.max(1, ...values);
	const x = (i) => (i / Math.max(1, values.length - 1)) * 100;
	const y = (v) => 27 - (v / high) * 25;
	const path = values.map((v, i) => `${i ? "L" : "M"}${x(i).toFixed(2)} ${y(v).toFixed(2)}`).join("");
	return svg("svg", { class: "spark", viewBox: "0 0 100 28", preserveAspectRatio: "none", "aria-hidden": "true" },
		svg("path", { class: "area", d: path && `${path}V28H0Z` }),
		svg("path", { class: "curve", d: path, "vector-effect": "non-scaling-stroke" }));
}

// --- details

function build(counter) {
	shown?.plots?.forEach((p) => p.end());
	const keep = shown?.counter.name === counter.name ? shown.scope() : [];
	const inputs = counter.key.map((column, i) => field(column, i));
	const parts = {
		counter,
		chip: h("span", {}),
		advice: h("p", { class: "advice", role: "status" }),
		stats: h("dl", { class: "stats" }),
		plots: [
			plot("Rows waiting in the journal", (p) => p.journal, (v) => short.format(v), (p) => plural(p.journal, "row", "rows"), (p) => `, ${rate(p.in)} in and ${rate(p.out)} out a second`),
			plot("Age of the oldest row", (p) => p.oldest, duration, (p) => duration(p.oldest), () => ""),
		],
		problem: h("p", { class: "problem", role: "alert", hidden: true }),
		jobs: h("ul", { class: "jobs" }),
		said: h("p", { class: "unseen", role: "status" }),
		verdict: h("section", { class: "panel", "aria-labelledby": "verdict-title" }),
		hot: h("section", { class: "panel", "aria-labelledby": "hot-title" }),
		inputs,
		scope() {
			const values = inputs.map((input) => input.value);
			const end = values.findLastIndex((v) => v !== "");
			return values.slice(0, end + 1);
		},
	};
	shown = parts;
	const work = h("section", { class: "panel", "aria-labelledby": "work-title" },
		h("h3", { id: "work-title" }, "Verify and repair"),
		h("p", { class: "sub" }, `Verify and Rebuild read all rows of a scope: ${counter.key.length > 1 ? "the first columns of the key" : "a value of the key"}, or nothing for the whole counter. Writers go on meanwhile.`),
		h("form", { onsubmit: (e) => { e.preventDefault(); start("verify"); } },
			h("fieldset", { "aria-label": "Scope" }, inputs.map((input, i) => h("label", {}, counter.key[i].name, input))),
			h("div", { class: "buttons" },
				h("button", { type: "submit", "data-action": "verify" }, "Verify"),
				h("button", { type: "button", class: "quiet", "data-action": "rebuild", onclick: () => start("rebuild") }, "Rebuild"),
				h("button", { type: "button", class: "quiet", "data-action": "fold", onclick: () => start("fold") }, "Fold"))),
		parts.problem, parts.jobs);
	detail.replaceChildren(
		h("div", { class: "heading" }, h("h2", {}, counter.name), parts.chip),
		h("p", { class: "sub" }, `by ${counter.key.map((k) => k.name).join(", ")}`),
		parts.advice, parts.stats,
		h("div", { class: "panel plots" }, parts.plots.map((p) => p.element)),
		operate ? work : "",
		h("div", { class: "columns" }, parts.verdict, parts.hot),
		parts.said);
	keep.forEach((v, i) => { if (inputs[i]) inputs[i].value = v; });
	follow();
	drawOverview();
	drawSample();
	drawJobs(null);
	drawVerdict();
}

// field is the input of a key column. It can be filled when those before it are.
function field(column, i) {
	const attributes = { "data-column": column.name, oninput: follow };
	if (column.values) {
		return h("select", attributes, h("option", { value: "" }, "any"), column.values.map((v) => h("option", { value: v }, v)));
	}
	return h("input", { ...attributes, type: "text", inputmode: column.number ? "numeric" : null, placeholder: "any", autocomplete: "off", spellcheck: "false" });
}

function follow() {
	let open = true;
	for (const input of shown.inputs) {
		input.disabled = !open;
		if (!open) input.value = "";
		open = open && input.value !== "";
	}
}

function drawSample() {
	const { counter } = shown;
	drawState();
	const last = counter.points.at(-1) ?? { journal: 0, oldest: 0, in: 0, out: 0 };
	const stats = [
		["Keys", count(counter.keys) + (counter.allKeys ? "" : "+")],
		["Waiting rows", count(last.journal)],
		["Oldest", duration(last.oldest)],
		["Journalled", `${rate(last.in)}/s`],
		["Folded", `${rate(last.out)}/s`],
		["Last fold", when(counter.lastFold)],
	];
	if (counter.built) stats.push(["Built", when(counter.built)]);
	if (counter.garbage !== null) {
		stats.push([counter.history ? "Unpurged transactions" : "Dead rows", count(counter.garbage)]);
	}
	shown.stats.replaceChildren(...stats.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
	shown.plots.forEach((p) => p.draw(counter.points));
	drawHot();
}

function drawHot() {
	const { counter } = shown;
	const title = h("h3", { id: "hot-title" }, "Hottest keys");
	if (counter.hot.length === 0) {
		shown.hot.replaceChildren(title, h("p", { class: "sub" }, "No key has had rows waiting."));
		return;
	}
	shown.hot.replaceChildren(title,
		h("p", { class: "sub" }, "Journal rows that a read of the key has to add: now, and on average over the plots."),
		table(["key", "now", "mean"], counter.hot.map((hot) => [keyCell(counter, hot.key), number(count(hot.now)), number(rate(hot.mean))])));
}

// table has rows of cells. On a phone, one that stacks shows each row as lines. A row without
// a key belongs to the one above it.
function table(heads, rows, stack) {
	const numeric = (i) => (rows[0]?.[i]?.class ?? "").includes("number");
	return h("table", { class: stack ? "stack" : null },
		h("thead", {}, h("tr", {}, heads.map((head, i) => h("th", { scope: "col", class: numeric(i) ? "number" : null }, head)))),
		h("tbody", {}, rows.map((cells, r) => h("tr", { class: rows[r + 1]?.[0].children.length === 0 ? "open" : null }, cells.map((cell, i) => h("td", { class: cell.class, "data-head": heads[i] || null }, cell.children))))));
}

const number = (text, more) => ({ class: `number ${more ?? ""}`.trim(), children: [text] });

const keyCell = (counter, key) => ({
	class: "value",
	children: [h("span", {}, key.map((v, i) => [i ? ", " : "", counter.key.length > 1 ? h("span", { class: "sub" }, `${counter.key[i].name} `) : "", visible(v)]).flat())],
});

// visible writes a value so that what cannot be seen is.
function visible(v) {
	if (v === "") return "(empty)";
	return v.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (c) => `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`);
}

// --- work

async function start(action, scope) {
	const { counter } = shown;
	scope ??= action === "fold" ? [] : shown.scope();
	const confirmed = action === "rebuild" && scope.length === 0;
	problem("");
	if (confirmed && !(await confirmRebuild(counter))) return;
	try {
		const answer = await post("start", { action, counter: counter.name, scope, confirmed });
		if (answer.joined) shown.said.textContent = "This is under way already.";
	} catch (e) {
		problem(e.message);
	}
}

function problem(text) {
	shown.problem.textContent = text;
	shown.problem.hidden = !text;
}

function confirmRebuild(counter) {
	const dialog = document.getElementById("confirm");
	dialog.querySelector("h2").textContent = `Rebuild all of ${counter.name}?`;
	dialog.querySelector("p").textContent = counter.state.name === "redeclared"
		? "It was built by another declaration than this program's. A program with that one cannot read the counter any more."
		: "All rows that it counts are read. Folded journal rows stay in the way of reads until that ends, so on a large table a scope at a time is kinder.";
	dialog.returnValue = "no";
	dialog.showModal();
	return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

const doing = { fold: "Fold", verify: "Verify", rebuild: "Rebuild" };

function drawJobs(changed) {
	const { counter } = shown;
	const focused = document.activeElement?.dataset?.cancel;
	shown.jobs.replaceChildren(...counter.jobs.map((job) => {
		const scope = job.scope.length ? ` ${visible(scopeText(counter, job.scope))}` : "";
		const running = job.state === "running";
		const said = running
			? `${job.phase || "starting"}, ${duration(job.seconds)}${job.total > 0 ? `, ${count(job.done)} of ${count(job.total)}` : job.done ? `, ${plural(job.done, "key differs", "keys differ")}` : ""}`
			: `${job.message} ${clock(job.started)}, took ${duration(job.seconds)}`;
		const bar = h("progress", { "aria-label": doing[job.action] + scope, max: job.total > 0 ? job.total : null, value: job.total > 0 ? job.done : null });
		return h("li", { "data-state": job.state },
			h("div", {}, h("span", {}, doing[job.action] + scope), h("div", { class: job.state === "failed" ? "failed" : "sub" }, said)),
			running ? h("button", { class: "quiet small", type: "button", "data-cancel": job.id, onclick: () => post("cancel", { id: job.id }).catch((e) => problem(e.message)) }, "Cancel") : "",
			running ? bar : "");
	}));
	shown.jobs.hidden = counter.jobs.length === 0;
	if (focused) shown.jobs.querySelector(`[data-cancel="${CSS.escape(focused)}"]`)?.focus();
	if (changed && changed.state !== "running") shown.said.textContent = `${doing[changed.action]}: ${changed.message}`;
}

function drawVerdict() {
	const { counter } = shown;
	const { verdict } = counter;
	const title = h("h3", { id: "verdict-title" }, "Drift");
	drawState();
	if (!verdict) {
		shown.verdict.replaceChildren(title, h("p", { class: "sub" }, operate ? "Not verified by this process yet." : "Nobody has verified it in this process yet."));
		return;
	}
	const where = verdict.scope.length ? visible(scopeText(counter, verdict.scope)) : "the whole counter";
	if (verdict.keys === 0) {
		shown.verdict.replaceChildren(title, h("p", { class: "exact" }, `Exact: no key of ${where} differed at ${when(verdict.at)}.`));
		return;
	}
	const rows = verdict.drift.flatMap((drift) => drift.measures.map((m, i) => {
		const cells = [
			i ? { class: null, children: [] } : keyCell(counter, drift.key),
			{ class: null, children: [m.name] },
			number(count(m.stored)),
			number(count(m.actual)),
			number(difference(m.stored, m.actual), "off"),
		];
		if (operate) {
			cells.push({ class: "act", children: i ? [] : [h("button", { type: "button", class: "quiet small", "aria-label": `Rebuild ${visible(scopeText(counter, drift.key))}`, onclick: () => start("rebuild", drift.key) }, "Rebuild")] });
		}
		return cells;
	}));
	const more = verdict.keys - verdict.drift.length;
	shown.verdict.replaceChildren(title,
		h("p", { class: "sub" }, `${plural(verdict.keys, "key", "keys")} of ${where} differed at ${when(verdict.at)}.`),
		table(["key", "measure", "counter", "rows", "off by", ...(operate ? [""] : [])], rows, true),
		more > 0 ? h("p", { class: "sub" }, `${count(more)} more are not listed.`) : "");
}

function drawState() {
	const state = stateOf(shown.counter);
	const next = chip(state);
	shown.chip.replaceWith(next);
	shown.chip = next;
	if (shown.advice.textContent !== state.advice) shown.advice.textContent = state.advice;
	shown.advice.hidden = !state.advice;
}

// --- plots

// plot is a figure of a value over time, which tells more where it is pointed at.
function plot(title, value, label, tell, tellMore) {
	const readout = h("span", { class: "readout" });
	const picture = svg("svg", { class: "plot", role: "img", tabindex: "0", "aria-label": title });
	const element = h("figure", {}, h("figcaption", {}, h("span", {}, title), readout), picture);
	const margin = { left: 46, right: 6, top: 8, bottom: 20 };
	let points = [];
	let pointed = null; // a point's index, or null for the last one
	let width = 0;

	function scale() {
		const height = 168;
		const from = points[0]?.at ?? 0;
		const span = Math.max(1, (points.at(-1)?.at ?? 0) - from);
		const high = nice(Math.max(...points.map(value), 1e-9));
		return {
			height, high, from, span,
			x: (at) => margin.left + ((at - from) / span) * (width - margin.left - margin.right),
			y: (v) => height - margin.bottom - (v / high) * (height - margin.top - margin.bottom),
		};
	}

	function draw() {
		width = picture.clientWidth;
		if (!width) return;
		const s = scale();
		picture.setAttribute("viewBox", `0 0 ${width} ${s.height}`);
		const parts = [];
		for (const share of [0, 0.5, 1]) {
			const y = s.y(s.high * share);
			parts.push(svg("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: y, y2: y }));
			const text = svg("text", { x: margin.left - 8, y: y + 4, "text-anchor": "end" });
			text.textContent = share === 0 ? "0" : label(s.high * share);
			parts.push(text);
		}
		if (points.length > 1) {
			const line = points.map((p, i) => `${i ? "L" : "M"}${s.x(p.at).toFixed(1)} ${s.y(value(p)).toFixed(1)}`).join("");
			const ground = s.y(0).toFixed(1);
			parts.push(
				svg("path", { class: "area", d: `${line}V${ground}H${margin.left}Z` }),
				svg("path", { class: "curve", d: line }));
			for (const [at, anchor, x] of [[points[0].at, "start", margin.left], [points.at(-1).at, "end", width - margin.right]]) {
				const text = svg("text", { x, y: s.height - 3, "text-anchor": anchor });
				text.textContent = clock(at);
				parts.push(text);
			}
		}
		const point = points[pointed ?? points.length - 1];
		if (point && pointed !== null) {
			parts.push(svg("g", { class: "cursor" },
				svg("line", { x1: s.x(point.at), x2: s.x(point.at), y1: margin.top, y2: s.y(0) }),
				svg("circle", { cx: s.x(point.at), cy: s.y(value(point)), r: 4.5 })));
		}
		picture.replaceChildren(...parts);
		const said = point ? tell(point) : "";
		readout.textContent = pointed !== null && point ? `${clock(point.at)}: ${said}${tellMore(point)}` : said;
		picture.setAttribute("aria-label", `${title}: ${said}`);
	}

	function point(x) {
		if (points.length === 0) return;
		const s = scale();
		let best = 0;
		points.forEach((p, i) => {
			if (Math.abs(s.x(p.at) - x) < Math.abs(s.x(points[best].at) - x)) best = i;
		});
		pointed = best;
		draw();
	}

	picture.addEventListener("pointermove", (e) => point(e.clientX - picture.getBoundingClientRect().left));
	picture.addEventListener("pointerleave", () => { pointed = null; draw(); });
	picture.addEventListener("blur", () => { pointed = null; draw(); });
	picture.addEventListener("keydown", (e) => {
		const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
		if (!step) return;
		e.preventDefault();
		pointed = Math.min(points.length - 1, Math.max(0, (pointed ?? points.length - 1) + step));
		draw();
	});
	const sizes = new ResizeObserver(draw);
	sizes.observe(picture);
	return {
		element,
		draw(all) {
			if (pointed !== null) pointed = Math.max(0, pointed - (points.length === all.length ? 1 : 0));
			points = all;
			draw();
		},
		end: () => sizes.disconnect(),
	};
}

// nice returns a round number that is not below v.
function nice(v) {
	if (v <= 1) return 1;
	const power = 10 ** Math.floor(Math.log10(v));
	return [1, 2, 4, 6, 8, 10].map((m) => m * power).find((n) => n >= v);
}

window.addEventListener("hashchange", choose);
connect();
