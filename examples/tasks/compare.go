package main

import (
	"cmp"
	"context"
	stdsql "database/sql"
	"fmt"
	"io"
	"strings"
	"time"

	entsql "entgo.io/ent/dialect/sql"

	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/examples/internal/console"
	"github.com/entcounter/entcounter/examples/tasks/ent"
	"github.com/entcounter/entcounter/examples/tasks/ent/group"
	"github.com/entcounter/entcounter/examples/tasks/ent/task"
	"github.com/entcounter/entcounter/examples/tasks/ent/user"
	"github.com/entcounter/entcounter/internal/accounting"
)

// shown is how many filters, and how many wrong ones, are printed.
const shown = 8

// report is what filters say, and what asking for them took.
type report struct {
	unit    string // of rows
	sums    map[string]*sum
	samples []answer
	wrong   []answer // the first that differ
	wrongs  int
	numbers numbers
}

// numbers are those of all tasks, also the deleted ones.
type numbers struct {
	Tasks    int64             `sql:"tasks"`
	Distinct int64             `sql:"distinct_numbers"`
	First    entcounter.Amount `sql:"first_number"`
	Last     entcounter.Amount `sql:"last_number"`
}

// consecutive reports whether each number from 1 on is there once.
func (n numbers) consecutive() bool {
	return n.Distinct == n.Tasks && int64(n.Last) == n.Tasks && (n.Tasks == 0 || n.First == 1)
}

func (n *numbers) read(ctx context.Context, tx *ent.Tx) error {
	var rows []numbers
	err := tx.Task.Query().
		Aggregate(
			ent.As(ent.Count(), "tasks"),
			ent.As(func(s *entsql.Selector) string { return "COUNT(DISTINCT " + s.C(task.FieldNumber) + ")" }, "distinct_numbers"),
			ent.As(ent.Min(task.FieldNumber), "first_number"),
			ent.As(ent.Max(task.FieldNumber), "last_number"),
		).
		Scan(ctx, &rows)
	if err == nil && len(rows) > 0 {
		*n = rows[0]
	}
	return err
}

// sum is what asking the filters of one counter took.
type sum struct {
	filters               int
	byCounter, byScanning cost
}

// cost is what an answer took.
type cost struct {
	accounting.Usage
	time time.Duration
}

func (c *cost) add(o cost) {
	c.Rows += o.Rows
	c.Steps += o.Steps
	c.time += o.time
}

// answer is a filter with what the counter and what COUNT(*) says.
type answer struct {
	filter          filter
	stored, scanned int64
}

// compare asks for a filter for each status, group, assignee and day there is, and for a number of random ones of
// which none was asked before, in one snapshot.
func (a *app) compare(ctx context.Context, number int) (*report, error) {
	return a.compareThese(ctx, func(ctx context.Context, tx *ent.Tx, ask func(filter) error) error {
		asked := make(map[string]bool)
		for try := 0; len(asked) < number && try < 10*number && len(a.groups) > 0; try++ {
			f := a.random()
			if key := f.String(); !asked[key] {
				asked[key] = true
				if err := ask(f); err != nil {
					return err
				}
			}
		}
		return beside(ctx, tx, ask)
	}, filter{})
}

// beside asks for what the grid shows beside its filters.
func beside(ctx context.Context, tx *ent.Tx, ask func(filter) error) error {
	for _, s := range statuses {
		if err := ask(filter{statuses: []task.Status{s}}); err != nil {
			return err
		}
	}
	groups, err := tx.Group.Query().Order(group.ByID()).IDs(ctx)
	if err != nil {
		return err
	}
	for _, id := range groups {
		if err := ask(filter{groups: []int{id}}); err != nil {
			return err
		}
	}
	users, err := tx.User.Query().Order(user.ByID()).IDs(ctx)
	if err != nil {
		return err
	}
	for _, id := range append([]int{unassigned}, users...) {
		if err := ask(filter{assignees: []int{id}}); err != nil {
			return err
		}
	}
	first, err := tx.Task.Query().Order(task.ByCreatedAt()).First(ctx)
	if err != nil {
		if ent.IsNotFound(err) {
			return nil
		}
		return err
	}
	for at := first.CreatedAt; !at.After(now().AddDate(0, 0, 1)); at = at.AddDate(0, 0, 1) {
		day := entcounter.Day.Of(at)
		if err := ask(filter{from: day, to: day}); err != nil {
			return err
		}
	}
	return nil
}

// compareThese asks for the given filter and those that ask is called with, in one snapshot.
func (a *app) compareThese(ctx context.Context, filters func(ctx context.Context, tx *ent.Tx, ask func(filter) error) error, first filter) (_ *report, err error) {
	account, err := accounting.Open(ctx, a.source.Source)
	if err != nil {
		return nil, err
	}
	client := ent.NewClient(ent.Driver(entsql.OpenDB(a.source.Dialect, account.DB)))
	defer func() { err = cmp.Or(err, client.Close()) }()
	if err := client.CheckCounters(ctx); err != nil { // now, so that it is in no account
		return nil, err
	}
	tx, err := client.BeginTx(ctx, &stdsql.TxOptions{Isolation: stdsql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	r := &report{unit: account.Unit(), sums: make(map[string]*sum)}
	ask := func(f filter) error {
		answer := answer{filter: f}
		var byCounter, byScanning cost
		ways := []struct {
			answer *int64
			cost   *cost
			ask    func(context.Context, *ent.Tx) (int64, error)
		}{{&answer.stored, &byCounter, f.stored}, {&answer.scanned, &byScanning, f.scanned}}
		for _, w := range ways {
			var err error
			w.cost.Usage, err = account.Of(ctx, tx, func() (err error) {
				started := time.Now()
				*w.answer, err = w.ask(ctx, tx)
				w.cost.time = time.Since(started)
				return err
			})
			if err != nil {
				return fmt.Errorf("asking for %s: %w", f, err)
			}
		}
		r.add(answer, byCounter, byScanning)
		return nil
	}
	if err := ask(first); err != nil {
		return nil, err
	}
	if err := filters(ctx, tx, ask); err != nil {
		return nil, err
	}
	return r, r.numbers.read(ctx, tx)
}

// right reports whether nothing is wrong.
func (r *report) right() bool { return r.wrongs == 0 && r.numbers.consecutive() }

func (r *report) add(a answer, byCounter, byScanning cost) {
	s := r.sums[a.filter.counter()]
	if s == nil {
		s = new(sum)
		r.sums[a.filter.counter()] = s
	}
	s.filters++
	s.byCounter.add(byCounter)
	s.byScanning.add(byScanning)
	if len(r.samples) < shown {
		r.samples = append(r.samples, a)
	}
	if a.stored != a.scanned {
		r.wrongs++
		if len(r.wrong) < shown {
			r.wrong = append(r.wrong, a)
		}
	}
}

// print writes the report.
func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "\n%11s %11s  %s\n", "counter", "COUNT(*)", "filter")
	for _, a := range r.samples {
		fmt.Fprintf(w, "%11s %11s  %s\n", console.Comma(a.stored), console.Comma(a.scanned), a.filter)
	}
	total := sum{}
	for _, name := range []string{"Task", "Day", "DayTask"} {
		if s := r.sums[name]; s != nil {
			total.filters += s.filters
			total.byCounter.add(s.byCounter)
			total.byScanning.add(s.byScanning)
		}
	}
	row := func(name string, filters int, what func(cost) string, s sum) {
		fmt.Fprintf(w, "%-22s %8s %14s %14s\n", name, console.Comma(int64(filters)), what(s.byCounter), what(s.byScanning))
	}
	rows := func(c cost) string { return console.Comma(c.Rows) }
	steps := func(c cost) string { return console.Comma(c.Steps) }
	duration := func(c cost) string { return c.time.Round(100 * time.Microsecond).String() }
	fmt.Fprintf(w, "\n%-22s %8s %14s %14s\n", "to answer them", "filters", "counter", "COUNT(*)")
	for _, name := range []string{"Task", "Day", "DayTask"} {
		s := r.sums[name]
		if s == nil {
			continue
		}
		row("by "+name+"Counters", s.filters, duration, *s)
	}
	row("time", total.filters, duration, total)
	if total.byScanning.Steps > 0 { // most rows are found by an index, and SQLite does not tell how many
		row("machine steps", total.filters, steps, total)
		fmt.Fprintf(w, "machine steps: %s\n", accounting.StepsUnit)
	} else {
		row("rows read", total.filters, rows, total)
		fmt.Fprintf(w, "rows: %s\n", r.unit)
	}
	fmt.Fprintln(w)
	if n := r.numbers; n.consecutive() {
		fmt.Fprintf(w, "numbers    1 to %s, each once\n", console.Comma(int64(n.Last)))
	} else {
		fmt.Fprintf(w, "WRONG      %s tasks have %s numbers from %d to %d\n", console.Comma(n.Tasks), console.Comma(n.Distinct), n.First, n.Last)
	}
	if r.wrongs == 0 {
		fmt.Fprintf(w, "exact      %s filters in one snapshot: every number is right\n", console.Comma(int64(total.filters)))
		return
	}
	fmt.Fprintf(w, "WRONG      %s of %s filters differ in one snapshot\n%s", console.Comma(int64(r.wrongs)), console.Comma(int64(total.filters)), wrongLines(r.wrong))
}

func wrongLines(wrong []answer) string {
	var b strings.Builder
	for _, a := range wrong {
		fmt.Fprintf(&b, "%11s %11s  %s\n", console.Comma(a.stored), console.Comma(a.scanned), a.filter)
	}
	return b.String()
}
