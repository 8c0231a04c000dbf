package counterconsole

import (
	"context"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	entsql "entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/schema"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/entcounter"
	integration "github.com/entcounter/entcounter/internal/integration/ent"
	"github.com/entcounter/entcounter/internal/integration/ent/migrate"
	_ "github.com/entcounter/entcounter/internal/integration/ent/runtime"
	"github.com/entcounter/entcounter/internal/testbrowser"
	"github.com/entcounter/entcounter/internal/testdb"
)

var screenshots = flag.String("screenshots", "", "write pictures of the console to this `folder`")

// evil is a key that would do something if it got into the page as anything but text.
const evil = `<img src onerror=document.title=1>&amp;`

// browser is a tab that shows the console.
type browser struct {
	*testing.T
	ctx      context.Context
	mu       sync.Mutex
	problems []string // of scripts, and of what the policy forbids
}

func newBrowser(t *testing.T, url string) *browser {
	b := &browser{T: t, ctx: testbrowser.New(t, 3*time.Minute)}
	err := chromedp.Listen(b.ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *cdpruntime.EventExceptionThrown:
			b.problems = append(b.problems, e.ExceptionDetails.Text+" "+describe(e.ExceptionDetails))
		case *log.EventEntryAdded:
			b.problems = append(b.problems, e.Entry.Text)
		case *page.EventJavascriptDialogOpening:
			b.problems = append(b.problems, e.Message)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(b.ctx, log.Enable, cdp.Empty{}); err != nil {
		t.Fatal(err)
	}
	b.run(chromedp.EmulateViewport(1200, 900), chromedp.Navigate(url), chromedp.WaitVisible(".connection.live"))
	return b
}

func describe(e *cdpruntime.ExceptionDetails) string {
	if e.Exception == nil {
		return ""
	}
	return e.Exception.Description
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.picture("failed")
		b.Fatal(err)
	}
}

// click clicks on an element that is visible.
func (b *browser) click(selector string) {
	b.Helper()
	b.run(chromedp.WaitVisible(selector), chromedp.Click(selector))
}

// eval returns the value of an expression.
func eval[T any](b *browser, expression string) T {
	b.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return value
}

// until waits until the text of an element contains another.
func (b *browser) until(selector, text string) {
	b.Helper()
	got := ""
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		got = eval[string](b, fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector))
		if strings.Contains(got, text) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	b.picture("failed")
	b.Fatalf("%s does not show %q:\n%s", selector, text, got)
}

// media sets what the visitor prefers.
func (b *browser) media(scheme string) {
	b.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	if err != nil {
		b.Fatal(err)
	}
}

// picture writes a screenshot of the whole page.
func (b *browser) picture(name string) {
	b.Helper()
	if *screenshots == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.Fatal(err)
	}
	if err := os.MkdirAll(*screenshots, 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*screenshots, name+".png"), png, 0o644); err != nil {
		b.Fatal(err)
	}
}

// audit checks what must hold of the page whatever it shows: it fits the width, texts are
// readable, and what can be operated has a name.
const audit = `(() => {
	const problems = [];
	const root = document.documentElement;
	if (root.scrollWidth > root.clientWidth) {
		const wide = [...document.body.querySelectorAll("*")].filter((e) => e.getBoundingClientRect().right > root.clientWidth + 1);
		problems.push("wider than the window: " + wide.slice(0, 5).map((e) => e.tagName + "." + e.getAttribute("class")).join(", "));
	}
	const parse = (c) => { const [r, g, b, a = 1] = c.match(/[\d.]+/g).map(Number); return { r, g, b, a }; };
	const over = (f, g) => ({ r: f.r * f.a + g.r * (1 - f.a), g: f.g * f.a + g.g * (1 - f.a), b: f.b * f.a + g.b * (1 - f.a), a: 1 });
	const behind = (e) => e === null ? { r: 255, g: 255, b: 255, a: 1 } : over(parse(getComputedStyle(e).backgroundColor), parse(getComputedStyle(e).backgroundColor).a === 1 ? { r: 0, g: 0, b: 0 } : behind(e.parentElement));
	const light = ({ r, g, b }) => { const l = [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * l[0] + 0.7152 * l[1] + 0.0722 * l[2]; };
	const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	let seen = 0;
	while (texts.nextNode()) {
		const e = texts.currentNode.parentElement;
		if (!texts.currentNode.data.trim() || !e.checkVisibility() || e.closest("noscript, dialog:not([open]), .unseen")) continue;
		const style = getComputedStyle(e);
		const ground = behind(e);
		const contrast = ratio(over(parse(e instanceof SVGElement ? style.fill : style.color), ground), ground);
		seen++;
		if (contrast < 4.5) problems.push(contrast.toFixed(2) + " contrast: " + texts.currentNode.data.trim().slice(0, 40));
	}
	if (seen < 20) problems.push("only " + seen + " texts");
	for (const e of document.querySelectorAll("button, a, input, select, progress, [tabindex], [role=img]")) {
		if (e.checkVisibility() && !(e.getAttribute("aria-label") || e.labels?.length || e.textContent.trim())) problems.push("no name: " + e.outerHTML.slice(0, 80));
	}
	const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
	if (new Set(ids).size !== ids.length) problems.push("an id twice");
	return problems;
})()`

// pages audits what is shown, at a desk and on a phone, light and dark.
func (b *browser) pages(name string) {
	b.Helper()
	for _, scheme := range []string{"light", "dark"} {
		b.media(scheme)
		for _, size := range []struct {
			name          string
			width, height int64
		}{{"desk", 1200, 900}, {"phone", 360, 760}} {
			b.run(chromedp.EmulateViewport(size.width, size.height))
			where := strings.Join([]string{name, size.name, scheme}, "-")
			time.Sleep(50 * time.Millisecond) // plots follow the width
			if problems := eval[[]string](b, audit); len(problems) > 0 {
				b.Errorf("%s: %s", where, strings.Join(problems, "\n"))
			}
			b.picture(where)
		}
	}
	b.media("light")
	b.run(chromedp.EmulateViewport(1200, 900))
}

// blobs returns the client of a schema with a counter by text, with only its tables.
func blobs(t *testing.T, db *testdb.Database) *integration.Client {
	t.Helper()
	client := integration.NewClient(integration.Driver(entsql.OpenDB(db.Dialect, db.DB(t))))
	var tables []*schema.Table
	for _, table := range migrate.Tables {
		if slices.Contains([]string{"blobs", "blob_counters", "blob_counter_journal", entcounter.LockTable}, table.Name) {
			tables = append(tables, table)
		}
	}
	if err := migrate.Create(t.Context(), client.Schema, tables); err != nil {
		t.Fatal(err)
	}
	return client
}

// What an operator does: look, verify after something went wrong, rebuild, fold.
func TestBrowser(t *testing.T) {
	ctx := t.Context()
	db := testdb.New(t, testdb.SQLite)
	files, blobs := newClient(t, db), blobs(t, db)
	for i := range 40 {
		blobs.Blob.Create().SetBucket(fmt.Sprint("bucket ", i%5)).SetSize(int64(i)).ExecX(ctx)
	}
	blobs.Blob.Create().SetBucket(evil).SetSize(1).ExecX(ctx)
	counters := files.Counters()
	for _, h := range blobs.Counters() {
		if h.Name() == "Blob" {
			counters = append(counters, h)
		}
	}
	console := newConsole(t, counters, Options{Authorize: Loopback, Interval: 50 * time.Millisecond})
	server := httptest.NewServer(console)
	t.Cleanup(server.Close)
	t.Cleanup(console.Close)
	b := newBrowser(t, server.URL)

	b.until("h2", "File")
	b.until("#overview", "Blob")
	b.until(".chip", "well")
	b.until("#verdict-title + p", "Not verified")
	files.File.Update().Where(file.StatusEQ(file.StatusFailed)).SetStatus(file.StatusNew).ExecX(ctx)
	b.until(".stats", "6")
	for range 15 { // something to plot
		files.File.UpdateOneID(1).SetStatus(file.StatusCopying).ExecX(ctx)
		files.File.UpdateOneID(1).SetStatus(file.StatusNew).ExecX(ctx)
		time.Sleep(20 * time.Millisecond)
	}
	b.until("#hot-title ~ table", "dataset_id 1")

	// A count is wrong, and the page knows only when it is asked to look.
	if _, err := files.ExecContext(ctx, "UPDATE files SET status = 'Copied', size = 7 WHERE dataset_id = 1 AND status = 'New'"); err != nil {
		t.Fatal(err)
	}
	b.click("[data-action=verify]")
	b.until(".jobs", "2 keys differ from the rows.")
	b.until("#verdict-title ~ table", "Copied")
	b.until(".heading .chip", "drift")
	b.pages("drift")

	// One key heals by the button beside it, the rest by a scope.
	b.click(`[aria-label="Rebuild dataset_id=1 status=New"]`)
	b.until(".jobs", "1 key corrected.")
	b.until("#verdict-title + p", "1 key of the whole counter differed")
	b.run(chromedp.SendKeys("[data-column=dataset_id]", "1"))
	b.click("[data-action=rebuild]")
	b.until(".jobs li:first-child", "Rebuild dataset_id=1\n1 key corrected.")
	b.until("#verdict-title + p", "Exact: no key of the whole counter differed")
	b.until(".heading .chip", "well")
	if drift := console.counters[0].Drifts(ctx, nil); len(slices.Collect(keys(drift))) > 0 {
		t.Error("the counter still differs")
	}

	b.click("[data-action=fold]")
	b.until(".jobs li:first-child", "folded.")
	b.until(".stats", "Waiting rows\n0")
	if backlog, err := files.FileCounters.Backlog(ctx); err != nil || backlog.Rows > 0 {
		t.Errorf("%+v %v", backlog, err)
	}
	b.pages("healed")

	// Without a scope it asks first.
	b.run(chromedp.SendKeys("[data-column=dataset_id]", "\b"))
	b.click("[data-action=rebuild]")
	b.until("dialog[open]", "Rebuild all of File?")
	b.picture("dialog")
	b.click("dialog button[value=no]")
	if n := eval[int](b, "[...document.querySelectorAll('.jobs li')].filter((e) => e.innerText.startsWith('Rebuild\\n')).length"); n != 0 {
		t.Error("it rebuilds although the answer was no")
	}
	b.click("[data-action=rebuild]")
	b.click("dialog[open] button[value=yes]")
	b.until(".jobs li:first-child", "Rebuild\n0 keys corrected.")

	// What is wrong with a scope is said, and a field waits for those before it.
	if !eval[bool](b, "document.querySelector('[data-column=status]').disabled") {
		t.Error("status can be given without a dataset")
	}
	b.run(chromedp.SendKeys("[data-column=dataset_id]", "seven"))
	b.click("[data-action=verify]")
	b.until(".problem", `dataset_id: "seven" is no integer: write dataset_id=7`)

	// Keys are text, whatever they look like.
	b.click(`#overview a[href="#Blob"]`)
	b.until("h2", "Blob")
	b.until("#hot-title ~ table", evil)
	if _, err := blobs.ExecContext(ctx, "DELETE FROM blobs"); err != nil {
		t.Fatal(err)
	}
	b.click("[data-action=verify]")
	b.until(".jobs", "6 keys differ")
	b.until("#verdict-title ~ table", evil)
	b.pages("text")
	if title := eval[string](b, "document.title"); title != "Counters" || eval[int](b, "document.images.length") != 0 {
		t.Errorf("a key has got into the page: %s", title)
	}

	// Somebody who can use no pointer reads the plots by keys.
	b.run(chromedp.Focus(".plot"), chromedp.KeyEvent(kb.ArrowLeft), chromedp.KeyEvent(kb.ArrowLeft))
	b.until("figure .readout", ": ")
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, problem := range b.problems {
		if !strings.Contains(problem, "400 (Bad Request)") { // the scope above
			t.Error(problem)
		}
	}
}

// Who may only look finds nothing to click on.
func TestBrowserOfAViewer(t *testing.T) {
	db := testdb.New(t, testdb.SQLite)
	client := newClient(t, db)
	console := newConsole(t, client.Counters(), Options{Authorize: viewOnly, Interval: 50 * time.Millisecond})
	server := httptest.NewServer(console)
	t.Cleanup(server.Close)
	t.Cleanup(console.Close)
	b := newBrowser(t, server.URL)
	b.until("h2", "File")
	b.until("#verdict-title + p", "Nobody has verified")
	if n := eval[int](b, "[...document.querySelectorAll('button')].filter((e) => e.checkVisibility()).length"); n != 0 {
		t.Errorf("%d buttons", n)
	}
	if !eval[bool](b, "document.getElementById('overview').hidden") {
		t.Error("an overview of one counter")
	}
}
