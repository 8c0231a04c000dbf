package entcounter

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
)

var updateGolden = flag.Bool("update", false, "write what the SQL tests expect, rather than compare with it")

// Every statement, as text: what is sent to a server is reviewed where it can be
// read.
func TestSQLText(t *testing.T) {
	for _, name := range []string{dialect.MySQL, dialect.Postgres, dialect.SQLite} {
		t.Run(name, func(t *testing.T) {
			var (
				out  strings.Builder
				s    = sqlFor(name)
				d    = fileCounter()
				rows = []foldedRow{
					{key: []any{int64(7), "new"}, measures: []int64{-2, -30}, updatedAt: "then"},
					{key: []any{int64(7), "copied"}, measures: []int64{2, 30}, updatedAt: "now"},
				}
			)
			show := func(what string, write func(w *writer)) {
				w := newWriter(s)
				write(w)
				if w.Len() > 0 {
					fmt.Fprintf(&out, "-- %s\n%s\n-- %v\n\n", what, w.String(), w.args)
				}
			}
			show("lock row", func(w *writer) { writeLock(w, d.Name, lockFold) })
			show("missing lock rows", func(w *writer) { s.createLocks(w, d.Name) })
			switch s := s.(type) {
			case foldsBySteps:
				show("claim", func(w *writer) { s.claim(w, d, journalPart{batch: 5000}) })
				show("claim but for a key", func(w *writer) { s.claim(w, d, journalPart{batch: 5000, without: [][]any{rows[0].key}}) })
				show("claimed rows", func(w *writer) { s.readJournal(w, d, []int64{3, 5, 8}, journalPart{batch: 5000}) })
				show("add to counter rows", func(w *writer) { s.upsert(w, d, rows) })
				show("delete what was added", func(w *writer) { s.deleteJournal(w, d, []int64{3, 5}) })
			case foldsAtOnce:
				show("fold", func(w *writer) { s.fold(w, d, journalPart{batch: 5000}) })
				show("fold all of a key", func(w *writer) { s.fold(w, d, journalPart{only: rows[0].key}) })
			}
			show("lock row, if it is free", func(w *writer) { s.tryLock(w, d.Name, lockFold) })
			show("fold done", func(w *writer) { writeFolded(w, s, d.Name, 5000, 70*time.Millisecond) })
			show("pause", func(w *writer) { s.pause(w, d.Name) })
			show("deepest key", func(w *writer) { deepest(w, s, d, 100_000) })
			show("negative keys", func(w *writer) { negative(w, d, 1_000_000) })
			show("what deleted rows leave", func(w *writer) { s.garbage(w, d) })
			show("versions of rebuilds", func(w *writer) { readVersions(w, d.Name) })
			show("rebuild done", func(w *writer) { writeRebuilt(w, s, d.Name, 12, "SELECT 1") })
			show("rebuild", func(w *writer) { drift(w, s, d, region{}, difference, 50_000) })
			show("rebuild of a scope", func(w *writer) { drift(w, s, d, region{prefix: []any{int64(7)}}, difference, 50_000) })
			show("verify a scope, odd names", func(w *writer) { drift(w, s, oddCounter(), region{prefix: []any{int64(7), "new"}}, bothSides, 0) })
			show("build of a part", func(w *writer) {
				drift(w, s, d, region{prefix: []any{int64(7)}, values: []any{"new", "copied"}}, differenceAt, 50_000)
			})
			show("indexes", func(w *writer) { s.indexes(w, "files") })
			show("parts of a counter", func(w *writer) { division(w, s, d, nil) })
			show("parts of a part", func(w *writer) { division(w, s, d, []any{int64(7)}) })
			show("delete a scope", func(w *writer) { deleteByScope(w, d.Journal, d, []any{int64(7)}) })
			show("read", func(w *writer) {
				where := conjuncts(name, d.Table, sql.And(sql.EQ("dataset_id", 7), sql.GT("count", 1), sql.In("status", "new", "copied")))
				query, args := sql.Dialect(name).Select().From(d.source(name, where, nil)).Query()
				w.sql(query)
				w.args = args
			})
			show("read of one key", func(w *writer) {
				where := conjuncts(name, d.Table, sql.And(sql.EQ("dataset_id", 7), sql.EQ("status", "new")))
				query, args := sql.Dialect(name).Select().From(d.oneKey(name, where)).Query()
				w.sql(query)
				w.args = args
			})
			for _, q := range []*SequenceDefinition{taskNumbers(), {Name: "Invoice.key", Table: "group", Numbered: "select", Number: Column{Name: "key"}}} {
				scope := []any{int64(7)}[:len(q.Scope)]
				show("draw numbers of "+q.Name, func(w *writer) { s.draw(w, q, scope, 3) })
				show("greatest number", func(w *writer) { greatestNumber(w, q, scope) })
				show("next number", func(w *writer) { setNextNumber(w, q, scope, 42) })
				show("numbers back", func(w *writer) { returnNumbers(w, q, scope, 3) })
			}
			for _, read := range []struct {
				what string
				run  func(drv dialect.Driver, spec *sqlgraph.QuerySpec) error
			}{
				{"page of keys", func(drv dialect.Driver, spec *sqlgraph.QuerySpec) error {
					spec.Predicate, spec.Order, spec.Limit = d.After([]any{7, "new"}), nil, 100
					return (&Schema{Counters: []*Definition{d}}).QueryNodes(t.Context(), drv, spec)
				}},
				{"total", func(drv dialect.Driver, spec *sqlgraph.QuerySpec) error {
					spec.Predicate, spec.Order = sql.FieldIn("status", "new", "copied"), nil
					return d.RollUp(t.Context(), drv, spec)
				}},
				{"largest totals of keys with counts", func(drv dialect.Driver, spec *sqlgraph.QuerySpec) error {
					spec.Predicate, spec.Order, spec.Limit = sql.FieldGT("count", 0), sql.OrderByField("bytes", sql.OrderDesc()).ToFunc(), 10
					return d.RollUp(t.Context(), drv, spec, "dataset_id")
				}},
				{"distribution", func(drv dialect.Driver, spec *sqlgraph.QuerySpec) error {
					spec.Predicate, spec.Order = sql.FieldEQ("status", "new"), nil
					_, err := d.distribute(t.Context(), drv, spec, "dataset_id", "count", []float64{0.5})
					return err
				}},
			} {
				show(read.what, func(w *writer) {
					drv := &textDriver{name: name}
					f := &fixture{Handle: &Handle{def: d}}
					if err := read.run(drv, f.nodesSpec(new([]node), nil)); !errors.Is(err, errOnlyText) {
						t.Fatalf("%s: %v", read.what, err)
					}
					w.sql(drv.query)
					w.args = drv.args
				})
			}
			compareGolden(t, filepath.Join("testdata", name+".sql"), out.String())
		})
	}
}

// taskNumbers is a sequence per project.
func taskNumbers() *SequenceDefinition {
	return &SequenceDefinition{
		Name: "Task.number", Table: "task_number_sequence",
		Numbered: "tasks", Number: Column{Name: "number"}, Scope: []Column{{Name: "project_id"}},
	}
}

// textDriver remembers a query and does not run it.
type textDriver struct {
	dialect.Driver
	name, query string
	args        []any
}

var errOnlyText = errors.New("only text")

func (d *textDriver) Dialect() string { return d.name }

func (d *textDriver) Query(_ context.Context, query string, args, _ any) error {
	d.query, d.args = query, args.([]any)
	return errOnlyText
}

func compareGolden(t *testing.T, path, got string) {
	t.Helper()
	if *updateGolden {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	wantLines := strings.Split(string(want), "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(wantLines) || line != wantLines[i] {
			t.Fatalf("%s:%d: go test -update writes:\n%s", path, i+1, line)
		}
	}
	if string(want) != got {
		t.Errorf("%s has more than go test -update writes", path)
	}
}
