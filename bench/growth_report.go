package main

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/entcounter/entcounter/internal/testdb"
)

func (*Growth) page() page {
	return page{name: "growth", title: "How cost grows", begin: "<!-- begin: go run ./bench -growth -out docs -->"}
}

// markdown implements [report].
func (g *Growth) markdown(plots []plot) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("%s\n```sh\n%s\n```\n", madeOn(g.Made, g.Machine), g.Command)
	p("It took %s. Reads and writes are measured for %s at a time, in %d rounds. In a round everything that is compared is measured once, one after the other. Numbers are medians of the rounds with, in brackets, the range; ratios are taken within a round.", g.Took, g.Duration, g.Rounds)
	if g.Quick {
		p("There was little data (`-quick`): no more than a hint.")
	}
	if g.wrong() == nil {
		p("All counts were right.\n")
	} else {
		p("**Not all could be measured, or was right:**\n")
		for _, f := range g.Failures {
			p("- %s, %s: %s", f.Database, f.Part, strings.ReplaceAll(f.Error, "\n", "; "))
		}
		p("")
	}
	describeServers(p, g.Servers)
	tables := map[string]func(printer){
		partDepth: g.depthTable, partKeys: g.keysTable, partWrites: g.writesTable, partFolds: g.foldsTable, partRows: g.rowsTable,
	}
	for _, part := range growthParts {
		if !slices.ContainsFunc(g.Points, func(p Point) bool { return p.Part == part.name }) {
			continue
		}
		p("\n## %s\n", strings.ToUpper(part.doc[:1])+part.doc[1:])
		tables[part.name](p)
		for _, one := range plots {
			if strings.HasPrefix(one.file, part.name+"-") {
				p("\n![%s](growth/%s)", one.title, one.file)
			}
		}
	}
	return b.String()
}

// lines calls write for each database and size that a part has, and writes a table of what that returns.
func (g *Growth) lines(p printer, part string, head []string, write func(database string, size int64) []string) {
	rule := "| --- |" + strings.Repeat(" ---: |", len(head)-1)
	p("| %s |\n%s", strings.Join(head, " | "), rule)
	for _, s := range g.Servers {
		for _, size := range g.sizesOf(s.Name, part, "") {
			if cells := write(s.Name, size); cells != nil {
				p("| %s | %s |", s.Name, strings.Join(cells, " | "))
			}
		}
	}
}

func p50(p Point) float64 { return p.Latency.P50 }

// millis writes the median and the 99th percentile of the latency.
func (g *Growth) millis(at Place) string {
	median, high := g.over(at, p50), g.over(at, func(p Point) float64 { return p.Latency.P99 })
	if median.n == 0 {
		return "–"
	}
	return fmt.Sprintf("%.3g / %.3g", median.median/1000, high.median/1000)
}

// rowsReadAt writes how many rows a read takes.
func (g *Growth) rowsReadAt(at Place) string {
	for _, r := range g.Reads {
		if r.Place != at {
			continue
		}
		if r.Steps > 0 {
			return fmt.Sprintf("%d (%d steps)", r.Rows, r.Steps)
		}
		return fmt.Sprint(r.Rows)
	}
	return "–"
}

// readTable compares reads with that of a row by its primary key.
func (g *Growth) readTable(p printer, part, size string, subjects ...string) {
	head := []string{"database", size, readBare + ", ms"}
	for _, s := range subjects {
		head = append(head, s+", ms", "ratio")
	}
	g.lines(p, part, head, func(database string, n int64) []string {
		base := Place{Database: database, Part: part, Subject: readBare, Size: n}
		cells := []string{thousands(n), g.millis(base)}
		for _, s := range subjects {
			at := base
			at.Subject = s
			cells = append(cells, g.millis(at), fallback(ratio(g.ratios(at, base, p50)), "–"))
		}
		return cells
	})
	head = []string{"database", size, readBare}
	p("\nRows that the database reads for one of them:\n")
	g.lines(p, part, append(head, subjects...), func(database string, n int64) []string {
		at := Place{Database: database, Part: part, Subject: readBare, Size: n}
		cells := []string{thousands(n), g.rowsReadAt(at)}
		for _, at.Subject = range subjects {
			cells = append(cells, g.rowsReadAt(at))
		}
		return cells
	})
	p("")
	for _, s := range g.Servers {
		if i := slices.IndexFunc(g.Reads, func(r PointReads) bool { return r.Database == s.Name }); i >= 0 {
			unit := g.Reads[i].Unit
			if s.Name == string(testdb.SQLite) {
				unit += "; steps of its virtual machine are all that it does"
			}
			p("- %s: %s.", s.Name, unit)
		}
	}
}

func (g *Growth) depthTable(p printer) {
	p("One key has all rows of the journal, and the others have none. Time is that of a read by the generated client, median / p99 in milliseconds, by one client; the ratio is that of the medians.\n")
	g.readTable(p, partDepth, "journal rows", readQuiet, readDeep)
}

func (g *Growth) keysTable(p printer) {
	p("The journal is empty. A scope has %s keys, or all if there are fewer. Which key, page or scope is read is chosen at random.\n", thousands(tenantKeys))
	g.readTable(p, partKeys, "keys", readKey, readPage, readScope, readAll)
}

func (g *Growth) writesTable(p printer) {
	p("One transition of one row, pinned by its old key, which changes all counters of its type. All clients' rows have the same keys. Nothing folds meanwhile. Throughput is in operations a second without counters, and relative to that; latency is median / p99 in milliseconds.\n")
	var numbers []int
	for _, pt := range g.Points {
		if pt.Part == partWrites && !slices.Contains(numbers, pt.Clients) {
			numbers = append(numbers, pt.Clients)
		}
	}
	slices.SortFunc(numbers, cmp.Compare[int])
	head := []string{"database", "transition", "clients"}
	for _, one := range grown {
		switch {
		case one.shape == bareShape:
			head = append(head, "no counter")
		case one.columns == 2:
			head = append(head, fmt.Sprintf("%d × 2 columns", one.counters))
		default:
			head = append(head, fmt.Sprintf("%d × %d", one.counters, one.columns))
		}
	}
	table := func(cell func(at, base Place) string) {
		p("| %s |\n| --- | --- |%s", strings.Join(head, " | "), strings.Repeat(" ---: |", len(head)-2))
		for _, s := range g.Servers {
			for _, where := range []string{writeTx, writeAlone} {
				for _, n := range numbers {
					base := Place{s.Name, partWrites, where + " " + bareShape, 0, n}
					if g.over(base, Point.throughput).n == 0 {
						continue
					}
					line := fmt.Sprintf("| %s | %s | %d |", s.Name, where, n)
					for _, one := range grown {
						line += " " + fallback(cell(Place{s.Name, partWrites, where + " " + one.shape, one.counters, n}, base), "–") + " |"
					}
					p("%s", line)
				}
			}
		}
	}
	table(func(at, base Place) string {
		if at == base {
			return number(g.over(at, Point.throughput))
		}
		return ratio(g.ratios(at, base, Point.throughput))
	})
	p("")
	table(func(at, _ Place) string { return g.millis(at) })
	p("")
	for _, s := range g.Servers {
		deadlocks, retries := 0, 0
		for _, pt := range g.Points {
			if pt.Database == s.Name {
				deadlocks += pt.Deadlocks
				retries += pt.Retries
			}
		}
		p("- %s: %d transitions were run again because of deadlocks, %d because of other conflicts.", s.Name, deadlocks, retries)
	}
}

func (g *Growth) foldsTable(p printer) {
	p("The journal has %s rows when a measurement begins. Latency is that of one fold, median / p99 in milliseconds.\n", thousands(g.Rows/10))
	var subjects []string
	for _, pt := range g.Points {
		if pt.Part == partFolds && !slices.Contains(subjects, pt.Subject) {
			subjects = append(subjects, pt.Subject)
		}
	}
	head := []string{"database", "batch"}
	for _, s := range subjects {
		head = append(head, "journal of "+s+": rows/s", "one fold, ms")
	}
	g.lines(p, partFolds, head, func(database string, n int64) []string {
		cells := []string{thousands(n)}
		for _, s := range subjects {
			at := Place{Database: database, Part: partFolds, Subject: s, Size: n}
			cells = append(cells, fallback(number(g.over(at, Point.rowRate)), "–"), g.millis(at))
		}
		return cells
	})
	g.foldsBesideWriters(p, subjects)
}

// foldsBesideWriters compares what folds can move with what writers can journal.
func (g *Growth) foldsBesideWriters(p printer, subjects []string) {
	const batch = 5_000
	one := grown[1] // with one counter
	head := []string{"database", "clients", "journalled rows/s"}
	for _, s := range subjects {
		head = append(head, "fold of "+s+" ÷ that")
	}
	var lines []string
	for _, s := range g.Servers {
		written := Place{Database: s.Name, Part: partWrites, Subject: writeTx + " " + one.shape, Size: one.counters}
		for _, pt := range g.Points {
			if pt.Database == s.Name && pt.Part == partWrites {
				written.Clients = max(written.Clients, pt.Clients)
			}
		}
		rate := g.over(written, Point.journalRate)
		if rate.n == 0 || rate.median == 0 {
			continue
		}
		line := fmt.Sprintf("| %s | %d | %s |", s.Name, written.Clients, number(rate))
		for _, subject := range subjects {
			folded := g.over(Place{Database: s.Name, Part: partFolds, Subject: subject, Size: batch}, Point.rowRate)
			if folded.n == 0 {
				line += " – |"
				continue
			}
			line += fmt.Sprintf(" %.1f |", folded.median/rate.median)
		}
		lines = append(lines, line)
	}
	if lines == nil {
		return
	}
	p("\nWhat writers journal in transactions of one transition, while nothing folds, and how many times as many rows a fold with batches of %s moves while nobody writes:\n", thousands(batch))
	p("| %s |\n| --- |%s\n%s", strings.Join(head, " | "), strings.Repeat(" ---: |", len(head)-1), strings.Join(lines, "\n"))
}

func (g *Growth) rowsTable(p printer) {
	p("Rows are short, %s to a key at least, and counted by an index. A fold is of a tenth as many journal rows, of all keys, with batches of the default size.\n", thousands(10))
	subjects := []string{doBuild, doVerify, doRebuild, doRebuildWrong, doFold}
	head := append([]string{"database", "counted rows"}, subjects...)
	cells := func(cell func(Place) string) func(string, int64) []string {
		return func(database string, n int64) []string {
			list := []string{thousands(n)}
			for _, s := range subjects {
				list = append(list, fallback(cell(Place{Database: database, Part: partRows, Subject: s, Size: n}), "–"))
			}
			return list
		}
	}
	p("Seconds, and rows a second:\n")
	g.lines(p, partRows, head, cells(func(at Place) string {
		s := g.over(at, func(p Point) float64 { return p.Seconds })
		if s.n == 0 {
			return ""
		}
		return s.format("%.3g") + ", " + number(spreadOf([]float64{g.over(at, Point.rowRate).median}))
	}))
	if !slices.ContainsFunc(g.Points, func(p Point) bool { return p.Memory != nil }) {
		return
	}
	p("\nMemory in MiB, as Linux tells it (`VmHWM`, reset before each): what this process had when it began → at most; and at most the server, of PostgreSQL its largest process. A server's includes the buffers that it has touched. On SQLite the database is in this process.\n")
	g.lines(p, partRows, head, cells(func(at Place) string {
		var before, process, server []float64
		for _, pt := range g.Points {
			if pt.Place == at && pt.Memory != nil {
				before = append(before, float64(pt.Memory.Before)/(1<<20))
				process = append(process, float64(pt.Memory.Process)/(1<<20))
				server = append(server, float64(pt.Memory.Server)/(1<<20))
			}
		}
		if before == nil {
			return ""
		}
		text := fmt.Sprintf("%.0f → %.0f", spreadOf(before).median, slices.Max(process))
		if most := slices.Max(server); most > 0 {
			text += fmt.Sprintf("; %.0f", most)
		}
		return text
	}))
}

// thousands writes a number with commas.
func thousands(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// databaseColors are those of lines that compare databases.
var databaseColors = map[testdb.Kind]color.Color{
	testdb.SQLite:   colors["hook"],
	testdb.MariaDB:  colors["entcounter"],
	testdb.MySQL:    colors["slots"],
	testdb.Postgres: colors["trigger"],
}

// plots draws what grows, with a line for each database.
func (g *Growth) plots() ([]plot, error) {
	seconds := func(p Point) float64 { return p.Seconds }
	milliseconds := func(p Point) float64 { return p50(p) / 1000 }
	many := int64(min(manyKeys, g.Rows/100))
	var plots []plot
	for _, one := range []struct {
		file, title, x, y string
		at                Place
		value             func(Point) float64
	}{
		{"depth-deep.svg", "Read of a key by its journal rows", "journal rows of the key", "milliseconds", Place{Part: partDepth, Subject: readDeep}, milliseconds},
		{"depth-quiet.svg", "Read of a key without journal rows, by those of another", "journal rows of the other key", "milliseconds", Place{Part: partDepth, Subject: readQuiet}, milliseconds},
		{"keys-key.svg", "Read of a key by the number of keys", "keys", "milliseconds", Place{Part: partKeys, Subject: readKey}, milliseconds},
		{"keys-page.svg", "Read of a page of 100 keys by the number of keys", "keys", "milliseconds", Place{Part: partKeys, Subject: readPage}, milliseconds},
		{"keys-all.svg", "Total of all keys by their number", "keys", "milliseconds", Place{Part: partKeys, Subject: readAll}, milliseconds},
		{"folds-one.svg", "Fold of one key by the size of a batch", "rows of a batch", "rows a second", Place{Part: partFolds, Subject: keysOf(1)}, Point.rowRate},
		{"folds-many.svg", "Fold of many keys by the size of a batch", "rows of a batch", "rows a second", Place{Part: partFolds, Subject: keysOf(many)}, Point.rowRate},
		{"rows-build.svg", "First build by the number of counted rows", "counted rows", "seconds", Place{Part: partRows, Subject: doBuild}, seconds},
		{"rows-verify.svg", "Verify by the number of counted rows", "counted rows", "seconds", Place{Part: partRows, Subject: doVerify}, seconds},
		{"rows-rebuild.svg", "Rebuild of a right counter by the number of counted rows", "counted rows", "seconds", Place{Part: partRows, Subject: doRebuild}, seconds},
	} {
		image, err := g.curves(one.title, one.x, one.y, one.at, one.value)
		if err != nil {
			return nil, err
		}
		if image != nil {
			plots = append(plots, plot{file: one.file, title: one.title, svg: image})
		}
	}
	image, err := g.writeCurves()
	if err == nil && image != nil {
		plots = append(plots, plot{file: "writes-counters.svg", title: writeTitle, svg: image})
	}
	return plots, err
}

// curves draws a value by size. There is no logarithm of 0: it is drawn at 1.
func (g *Growth) curves(title, x, y string, at Place, value func(Point) float64) ([]byte, error) {
	var all []int64
	lines := make(map[string]plotter.XYs)
	for _, s := range g.Servers {
		at.Database = s.Name
		for _, n := range g.sizesOf(s.Name, at.Part, at.Subject) {
			at.Size = n
			if v := g.over(at, value); v.median > 0 {
				lines[s.Name] = append(lines[s.Name], plotter.XY{X: float64(max(n, 1)), Y: v.median})
				all = append(all, n)
			}
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if len(all) < 2 {
		return nil, nil
	}
	var ticks []gonum.Tick
	for _, n := range all {
		ticks = append(ticks, gonum.Tick{Value: float64(max(n, 1)), Label: thousands(n)})
	}
	p := logarithmic(title, x, y, ticks)
	first, last := ticks[0].Value, ticks[len(ticks)-1].Value
	p.X.Max = last * math.Pow(last/first, 0.08) // room for the last label
	return g.drawn(p, lines)
}

const writeTitle = "Transition in a transaction: throughput relative to no counter"

// writeCurves draws the throughput of the largest number of clients by the number of counters.
func (g *Growth) writeCurves() ([]byte, error) {
	clients := 0
	for _, p := range g.Points {
		clients = max(clients, p.Clients)
	}
	lines := make(map[string]plotter.XYs)
	for _, s := range g.Servers {
		base := Place{s.Name, partWrites, writeTx + " " + bareShape, 0, clients}
		for _, one := range grown {
			if one.counters > 0 && one.columns != 2 {
				continue
			}
			at := Place{s.Name, partWrites, writeTx + " " + one.shape, one.counters, clients}
			if r := g.ratios(at, base, Point.throughput); r.n > 0 {
				lines[s.Name] = append(lines[s.Name], plotter.XY{X: float64(one.counters), Y: r.median})
			}
		}
	}
	if len(lines) == 0 {
		return nil, nil
	}
	p := gonum.New()
	p.Title.Text = writeTitle
	p.X.Label.Text = "counters"
	p.Y.Min = 0
	p.Legend.Left = true
	var ticks []gonum.Tick
	for n := range 9 {
		ticks = append(ticks, gonum.Tick{Value: float64(n), Label: fmt.Sprint(n)})
	}
	p.X.Tick.Marker, p.X.Max = gonum.ConstantTicks(ticks), 8.2
	return g.drawn(p, lines)
}

// drawn draws the lines of databases.
func (g *Growth) drawn(p *gonum.Plot, lines map[string]plotter.XYs) ([]byte, error) {
	for _, s := range g.Servers {
		if err := addLine(p, s.Name, databaseColors[testdb.Kind(s.Name)], lines[s.Name]); err != nil {
			return nil, err
		}
	}
	return svg(p, vg.Points(480), vg.Points(340))
}
