package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/entcounter/entcounter/internal/testdb"
)

// markdown implements [report].
func (r *Results) markdown(plots []plot) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("%s\n```sh\n%s\n```\n", madeOn(r.Made, r.Machine), r.Command)
	p("Each measurement lasts %s, and there are %d rounds. In a round every variant is measured once, one after the other. Numbers are medians with, in brackets, the range.", r.Duration, r.Rounds)
	p("Ratios are taken within a round.")
	if r.Quick {
		p("There was little data (`-quick`): no more than a hint.")
	}
	if r.Failed != "" {
		p("**It ended before everything was measured**: %s.", r.Failed)
	}
	if r.exact() {
		p("After each measurement the counts that a variant keeps were compared with the files: all were right.\n")
	} else {
		p("After each measurement the counts that a variant keeps were compared with the files: **some were wrong**, as marked.\n")
	}
	describeServers(p, r.Servers)
	describe := func(title string, all []Described) {
		p("\n| %s | |\n| --- | --- |", title)
		for _, d := range all {
			p("| %s | %s |", d.Name, d.Doc)
		}
	}
	describe("variant", r.Variants)
	describe("load", r.Loads)
	for _, s := range r.Servers {
		p("\n## %s", s.Name)
		r.throughputs(p, s)
		for _, one := range plots {
			if one.database == s.Name {
				p("\n![%s](benchmarks/%s)\n\n%s", one.title, one.file, r.by(s, one.flags))
			}
		}
		r.latencies(p, s)
		r.conflicts(p, s)
		r.foldings(p, s)
		r.statements(p, s)
		r.reads(p, s)
	}
	return b.String()
}

type printer func(format string, args ...any)

// madeOn tells when and where results were made, for the command to follow.
func madeOn(made time.Time, m Machine) string {
	return fmt.Sprintf("Made on %s on %s, %d cores (%s, %s), shared by the servers and the clients, by\n",
		made.Format("2 January 2006"), fallback(m.Processor, "an unknown processor"), m.Cores, m.System, m.Go)
}

func describeServers(p printer, servers []Server) {
	p("| database | version | commits | settings |\n| --- | --- | --- | --- |")
	for _, s := range servers {
		settings := make([]string, 0, len(s.Settings))
		for _, name := range slices.Sorted(maps.Keys(s.Settings)) {
			settings = append(settings, name+"="+s.Settings[name])
		}
		commits := "durable"
		if !s.Durable {
			commits = "**not durable**"
		}
		p("| %s | %s | %s | %s |", s.Name, s.Version, commits, strings.Join(settings, ", "))
	}
}

// by names the command that makes one table or plot.
func (r *Results) by(s Server, flags string) string {
	command := fmt.Sprintf("go run ./bench -databases %s -duration %s -rounds %d", s.Name, r.Duration, r.Rounds)
	if strings.Contains(r.Command, "-postgres18") && s.Name == string(testdb.Postgres) {
		command += " -postgres18"
	}
	if s.Settings["driver"] != "" {
		command += " -interpolate"
	}
	if r.Quick {
		command += " -quick"
	}
	if !strings.Contains(flags, "-clients") {
		command += " -clients " + strings.Trim(strings.ReplaceAll(fmt.Sprint(r.Clients), " ", ","), "[]")
	}
	return "By `" + command + flags + "`"
}

// table writes one that has a column for each variant. A row that has nothing in any cell is left out, and so is a table
// without rows.
func (r *Results) table(p printer, title, first string, loads []Described, s Server, cell func(group) string) {
	var lines []string
	for _, l := range loads {
		for _, n := range r.clientsOf(s.Name, l.Name) {
			line, empty := fmt.Sprintf("| %s | %d |", l.Name, n), true
			for _, v := range r.variantsBut() {
				text := cell(group{s.Name, l.Name, v.Name, n})
				empty = empty && text == ""
				line += " " + fallback(text, "–") + " |"
			}
			if !empty {
				lines = append(lines, line)
			}
		}
	}
	if lines == nil {
		return
	}
	head, rule := "| "+first+" | clients |", "| --- | ---: |"
	for _, v := range r.variantsBut() {
		head += " " + v.Name + " |"
		rule += " ---: |"
	}
	p("\n### %s\n\n%s\n\n%s\n%s\n%s", title, r.by(s, ""), head, rule, strings.Join(lines, "\n"))
}

// variantsBut returns the variants that are in tables: those of the load folding have one of their own.
func (r *Results) variantsBut() []Described {
	return slices.DeleteFunc(slices.Clone(r.Variants), func(v Described) bool {
		return v.Name == variantStill || v.Name == variantLooping
	})
}

// compared returns the loads whose variants are compared by throughput.
func (r *Results) compared() []Described {
	return slices.DeleteFunc(slices.Clone(r.Loads), func(l Described) bool { return l.P99 })
}

func (r *Results) throughputs(p printer, s Server) {
	r.table(p, "Throughput: operations a second without counters, and relative to that", "load", r.compared(), s, func(g group) string {
		if g.variant == variantNone {
			return number(r.over(g, Cell.throughput))
		}
		text := ratio(r.ratios(g, variantNone, Cell.throughput))
		if n := r.wrongIn(g); n > 0 && text != "" {
			text += " **wrong**"
		}
		return text
	})
}

// latencies also tells those of the load folding, in its own table.
func (r *Results) latencies(p printer, s Server) {
	r.table(p, "Latency of an operation: median / p99 / p99.9 in milliseconds", "load", r.compared(), s, func(g group) string {
		at := func(value func(Cell) float64) string { return fmt.Sprintf("%.3g", r.over(g, value).median/1000) }
		if r.over(g, p99).n == 0 {
			return ""
		}
		return at(func(c Cell) float64 { return c.Latency.P50 }) + " / " + at(p99) + " / " + at(func(c Cell) float64 { return c.Latency.P999 })
	})
}

func p99(c Cell) float64 { return c.Latency.P99 }

// conflicts tells what got in each other's way, all rounds together. SQLite and PostgreSQL do not count waits.
func (r *Results) conflicts(p printer, s Server) {
	sum := func(value func(Cell) float64) func(group) string {
		return func(g group) string {
			total := 0.0
			for _, c := range r.Cells {
				if g.has(c) {
					total += value(c)
				}
			}
			if total == 0 {
				return ""
			}
			return fmt.Sprintf("%.4g", total)
		}
	}
	r.table(p, "Deadlocks: transactions that clients had to run again", "load", r.compared(), s,
		sum(func(c Cell) float64 { return float64(c.Deadlocks) }))
	r.table(p, "Deadlocks as the server counts them", "load", r.compared(), s, sum(func(c Cell) float64 {
		if c.Server == nil {
			return 0
		}
		return float64(c.Server.Deadlocks)
	}))
	r.table(p, "Other conflicts: transactions that clients had to run again", "load", r.compared(), s,
		sum(func(c Cell) float64 { return float64(c.Retries) }))
	r.table(p, "Waits for row locks as the server counts them", "load", r.compared(), s, sum(func(c Cell) float64 {
		if c.Server == nil || c.Server.LockWaits == nil {
			return 0
		}
		return float64(*c.Server.LockWaits)
	}))
	r.table(p, "Time in waits for row locks as the server counts it, in milliseconds for 1,000 operations", "load", r.compared(), s, func(g group) string {
		seconds := r.over(g, func(c Cell) float64 {
			if c.Server == nil || c.Server.LockWaitSeconds == nil || c.Operations == 0 {
				return 0
			}
			return *c.Server.LockWaitSeconds * 1e6 / float64(c.Operations)
		})
		if seconds.high == 0 {
			return ""
		}
		return fmt.Sprintf("%.3g", seconds.median)
	})
}

// foldings compares writers beside folds with those without.
func (r *Results) foldings(p printer, s Server) {
	var lines []string
	for _, l := range r.Loads {
		if !l.P99 {
			continue
		}
		for _, n := range r.clientsOf(s.Name, l.Name) {
			still := group{s.Name, l.Name, variantStill, n}
			looping := group{s.Name, l.Name, variantLooping, n}
			journalled, folded := r.over(still, journalRate), r.over(still, foldRate)
			lines = append(lines, fmt.Sprintf("| %d | %.3g | %.3g | %s | %.0f | %.0f | %s |", n,
				r.over(still, p99).median/1000, r.over(looping, p99).median/1000, ratio(r.ratios(looping, variantStill, p99)),
				journalled.median, folded.median,
				ratio(r.over(still, func(c Cell) float64 { return foldRate(c) / max(journalRate(c), 1) }))))
		}
	}
	if lines == nil {
		return
	}
	p("\n### Folding\n\n%s\n", r.by(s, " -loads folding"))
	p("| clients | p99 without folds, ms | p99 beside one fold after the other, ms | ratio | rows journalled a second | rows folded a second | ratio |")
	p("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n%s", strings.Join(lines, "\n"))
}

// journalRate is how many rows a second the journal has got in a measurement without folds.
func journalRate(c Cell) float64 {
	if c.Folded == nil || c.Folded.Written == 0 {
		return 0
	}
	return float64(c.Folded.Rows) / c.Folded.Written
}

func foldRate(c Cell) float64 {
	if c.Folded == nil || c.Folded.Seconds == 0 {
		return 0
	}
	return float64(c.Folded.Rows) / c.Folded.Seconds
}

func (r *Results) statements(p printer, s Server) {
	var lines []string
	for _, l := range r.compared() {
		line, empty := "| "+l.Name+" |", true
		for _, v := range r.variantsBut() {
			text := ""
			for _, one := range r.Statement {
				if one.Database == s.Name && one.Load == l.Name && one.Variant == v.Name {
					text = fmt.Sprintf("%.3g", one.Number)
				}
			}
			empty = empty && text == ""
			line += " " + fallback(text, "–") + " |"
		}
		if !empty {
			lines = append(lines, line)
		}
	}
	if lines == nil {
		return
	}
	head, rule := "| load |", "| --- |"
	for _, v := range r.variantsBut() {
		head += " " + v.Name + " |"
		rule += " ---: |"
	}
	p("\n### Statements of one operation, BEGIN and COMMIT included\n\n%s\n\n%s\n%s\n%s", r.by(s, ""), head, rule, strings.Join(lines, "\n"))
}

func (r *Results) reads(p printer, s Server) {
	var lines []string
	unit := ""
	for _, one := range r.Reads {
		if one.Database != s.Name {
			continue
		}
		unit = one.Unit
		steps := "–"
		if one.Steps > 0 {
			steps = fmt.Sprint(one.Steps)
		}
		lines = append(lines, fmt.Sprintf("| %s | %d | %s |", one.Variant, one.Rows, steps))
	}
	if lines == nil {
		return
	}
	p("\n### Rows for one read\n\n%s: %s.\n", r.by(s, " -loads "+loadRead), unit)
	p("| variant | rows | steps |\n| --- | ---: | ---: |\n%s", strings.Join(lines, "\n"))
}

// exact reports whether no variant has counted wrong.
func (r *Results) exact() bool { return r.wrong() == nil }

// wrongIn returns how many measurements of a group ended with wrong counts.
func (r *Results) wrongIn(g group) int {
	n := 0
	for _, c := range r.Cells {
		if g.has(c) && c.WrongKeys != nil && *c.WrongKeys > 0 {
			n++
		}
	}
	return n
}

func number(s spread) string {
	if s.n == 0 {
		return ""
	}
	return s.format("%.0f")
}

func ratio(s spread) string {
	if s.n == 0 {
		return ""
	}
	return s.format("%.2f")
}

// format writes the median and, if there is one, the range.
func (s spread) format(verb string) string {
	text := fmt.Sprintf(verb, s.median)
	if s.n > 1 {
		text += fmt.Sprintf(" ("+verb+"–"+verb+")", s.low, s.high)
	}
	return text
}

func fallback(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
