package main

import (
	"cmp"
	"context"
	stdsql "database/sql"
	"fmt"
	"io"
	"maps"

	entsql "entgo.io/ent/dialect/sql"

	"github.com/entcounter/entcounter/examples/cms/ent"
	"github.com/entcounter/entcounter/examples/cms/ent/collection"
	"github.com/entcounter/entcounter/examples/cms/ent/taxonomy"
	"github.com/entcounter/entcounter/examples/cms/ent/term"
	"github.com/entcounter/entcounter/examples/internal/console"
	"github.com/entcounter/entcounter/internal/accounting"
)

// shown is how many wrong numbers are printed.
const shown = 20

// report is what both pages show, and what that took.
type report struct {
	unit      string // of rows
	views     []view
	dashboard []line
	editor    []line // taxonomies
	wrong     []line // the first places that differ
	wrongs    int
	before    int64 // journal rows that were added up when the pages were first compared
}

// view is one page as shown in both ways.
type view struct {
	name            string
	stored, scanned counts
	pending         int64
	byCounters      accounting.Usage
	byScanning      accounting.Usage
}

// line is a place, or several, with what the counters and what COUNT(*) say.
type line struct {
	name            string
	places          int
	stored, scanned numbers
}

func (l *line) add(v view, p place) {
	l.places++
	l.stored.add(v.stored[p])
	l.scanned.add(v.scanned[p])
}

func (n *numbers) add(o numbers) {
	n.total += o.total
	n.published += o.published
	n.draft += o.draft
	n.scheduled += o.scheduled
}

// compare shows both pages in both ways, in one snapshot.
func (a *app) compare(ctx context.Context) (r *report, err error) {
	r = new(report)
	account, err := accounting.Open(ctx, a.source.Source)
	if err != nil {
		return r, err
	}
	client := ent.NewClient(ent.Driver(entsql.OpenDB(a.source.Dialect, account.DB)))
	defer func() { err = cmp.Or(err, client.Close()) }()
	if err := client.CheckCounters(ctx); err != nil { // now, so that it is in no account
		return r, err
	}
	tx, err := client.BeginTx(ctx, &stdsql.TxOptions{Isolation: stdsql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return r, err
	}
	defer func() { _ = tx.Rollback() }()
	r.unit = account.Unit()
	for _, p := range a.pages() {
		v := view{name: p.name, stored: make(counts), scanned: make(counts)}
		v.byCounters, err = account.Of(ctx, tx, func() (err error) {
			v.pending, err = p.stored(ctx, tx, v.stored)
			return err
		})
		if err != nil {
			return r, err
		}
		v.byScanning, err = account.Of(ctx, tx, func() error { return p.scanned(ctx, tx, v.scanned) })
		if err != nil {
			return r, err
		}
		r.views = append(r.views, v)
	}
	r.diff()
	return r, r.name(ctx, tx)
}

// pending is how many journal rows were added up.
func (r *report) pending() (n int64) {
	for _, v := range r.views {
		n += v.pending
	}
	return n
}

// diff finds the places whose numbers differ.
func (r *report) diff() {
	for _, v := range r.views {
		places := maps.Clone(v.stored)
		maps.Copy(places, v.scanned)
		for p := range places {
			if v.stored[p] == v.scanned[p] {
				continue
			}
			r.wrongs++
			if len(r.wrong) < shown {
				l := line{name: fmt.Sprintf("%s %d", p.kind, p.id)}
				l.add(v, p)
				r.wrong = append(r.wrong, l)
			}
		}
	}
}

// name makes the lines of the report. A page has a number for each collection and term that there is.
func (r *report) name(ctx context.Context, tx *ent.Tx) error {
	dashboard, editor := r.views[0], r.views[1]
	collections, err := tx.Collection.Query().Order(collection.ByID()).All(ctx)
	if err != nil {
		return err
	}
	for _, c := range collections {
		l := line{name: c.Slug}
		l.add(dashboard, place{"collection", c.ID})
		r.dashboard = append(r.dashboard, l)
	}
	for _, kind := range []string{"media", "user"} {
		l := line{name: kind}
		l.add(dashboard, place{kind, 0})
		r.dashboard = append(r.dashboard, l)
	}
	taxonomies, err := tx.Taxonomy.Query().Order(taxonomy.ByID()).All(ctx)
	if err != nil {
		return err
	}
	for _, t := range taxonomies {
		terms, err := tx.Term.Query().Where(term.TaxonomyID(t.ID)).IDs(ctx)
		if err != nil {
			return err
		}
		l := line{name: t.Name}
		for _, id := range terms {
			l.add(editor, place{"term", id})
		}
		r.editor = append(r.editor, l)
	}
	return nil
}

// print writes the report.
func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "\n%-14s %11s %11s %11s %11s\n", "dashboard", "total", "published", "draft", "scheduled")
	for _, l := range r.dashboard {
		n := l.stored
		if l.name == "media" || l.name == "user" {
			fmt.Fprintf(w, "%-14s %11s\n", l.name, console.Comma(n.total))
			continue
		}
		fmt.Fprintf(w, "%-14s %11s %11s %11s %11s\n", l.name,
			console.Comma(n.total), console.Comma(n.published), console.Comma(n.draft), console.Comma(n.scheduled))
	}
	fmt.Fprintf(w, "\n%-14s %11s %11s %11s\n", "editor", "terms", "entries", "visible")
	for _, l := range r.editor {
		fmt.Fprintf(w, "%-14s %11s %11s %11s\n", l.name,
			console.Comma(int64(l.places)), console.Comma(l.stored.total), console.Comma(l.stored.published))
	}

	fmt.Fprintf(w, "\n%-14s %11s %14s %14s\n", "rows read", "by COUNT(*)", "from counters", "of the journal")
	var sum view
	for _, v := range r.views {
		fmt.Fprintf(w, "%-14s %11s %14s %14s\n", v.name,
			console.Comma(v.byScanning.Rows), console.Comma(v.byCounters.Rows), console.Comma(v.pending))
		sum.byScanning.Rows += v.byScanning.Rows
		sum.byCounters.Rows += v.byCounters.Rows
		sum.byScanning.Steps += v.byScanning.Steps
		sum.byCounters.Steps += v.byCounters.Steps
		sum.pending += v.pending
	}
	fmt.Fprintf(w, "%-14s %11s %14s %14s\n", "both",
		console.Comma(sum.byScanning.Rows), console.Comma(sum.byCounters.Rows), console.Comma(sum.pending))
	if sum.byScanning.Steps > 0 {
		fmt.Fprintf(w, "%-14s %11s %14s\n", "machine steps", console.Comma(sum.byScanning.Steps), console.Comma(sum.byCounters.Steps))
	}
	fmt.Fprintf(w, "rows: %s\n", r.unit)
	if sum.byScanning.Steps > 0 {
		fmt.Fprintf(w, "machine steps: %s\n", accounting.StepsUnit)
	}

	places := 0
	for _, v := range r.views {
		places += len(v.scanned)
	}
	if r.wrongs == 0 {
		fmt.Fprintf(w, "\nexact      %s places, with %s journal rows and after folding: every number is right\n",
			console.Comma(int64(places)), console.Comma(r.before))
		return
	}
	fmt.Fprintf(w, "\nWRONG      %d places differ in one snapshot\n", r.wrongs)
	for _, l := range r.wrong {
		fmt.Fprintf(w, "%-14s counters %+v, COUNT(*) %+v\n", l.name, l.stored, l.scanned)
	}
}
