package entcounter

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
	"github.com/entcounter/entcounter/internal/testdb"
)

// fullScans returns the tables that a plan reads from end to end.
func (f *fixture) fullScans(t *testing.T, query string, args []any) (scanned []string, plan string) {
	t.Helper()
	explain := map[string]string{dialect.MySQL: "EXPLAIN ", dialect.Postgres: "EXPLAIN ", dialect.SQLite: "EXPLAIN QUERY PLAN "}[f.db.Dialect]
	if f.db.Kind == testdb.MySQL {
		explain = "EXPLAIN FORMAT=TRADITIONAL "
	}
	rows, err := f.pool.QueryContext(t.Context(), explain+query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var (
		lines      strings.Builder
		subqueries = make(map[string]int) // SQLite: which are scanned once they have been run
	)
	for rows.Next() {
		values, dest := make([]stdsql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		if err := rows.Scan(dest...); err != nil {
			t.Fatal(err)
		}
		row := make(map[string]string)
		for i, c := range columns {
			row[strings.ToLower(c)] = values[i].String
		}
		switch f.db.Dialect {
		case dialect.MySQL:
			fmt.Fprintf(&lines, "%s %s: type %s, key %s, rows %s, extra %s\n", row["select_type"], row["table"], row["type"], row["key"], row["rows"], row["extra"])
			if row["type"] == "ALL" || row["type"] == "index" {
				scanned = append(scanned, row["table"])
			}
		case dialect.Postgres:
			fmt.Fprintln(&lines, row["query plan"])
			if m := regexp.MustCompile(`Seq Scan on (\w+)`).FindStringSubmatch(row["query plan"]); m != nil {
				scanned = append(scanned, m[1])
			}
		case dialect.SQLite:
			fmt.Fprintln(&lines, row["detail"])
			if m := regexp.MustCompile(`^(SCAN|CO-ROUTINE|MATERIALIZE) (\w+)`).FindStringSubmatch(row["detail"]); m != nil {
				if m[1] != "SCAN" {
					subqueries[m[2]]++
				} else if subqueries[m[2]]--; subqueries[m[2]] < 0 {
					scanned = append(scanned, m[2])
				}
			}
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return scanned, lines.String()
}

// What is restricted to a scope or to keys reads only that, by index, in every
// table.
func TestPlans(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		f := newFixture(t, db)
		f.fill(t, 300, 10)
		if _, err := f.Rebuild(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		f.foldAll(t)
		f.journal(t, delta(7, "rare", 1, 1))
		f.foldAll(t)
		for round := range 3 {
			var deltas []Delta
			for dataset := range int64(300) {
				for _, status := range loadStatuses {
					deltas = append(deltas, delta(dataset+1, status, int64(round), 1))
				}
			}
			f.journal(t, deltas...)
		}
		for _, table := range []string{"files", "file_counters", "file_counter_journal", "counter_locks"} {
			f.exec(t, map[string]string{dialect.MySQL: "ANALYZE TABLE ", dialect.Postgres: "ANALYZE ", dialect.SQLite: "ANALYZE "}[db.Dialect]+table)
		}
		s := f.Handle.sql
		statements := map[string]func(w *writer){
			"lock row":            func(w *writer) { writeLock(w, "File", lockRebuild) },
			"rebuild of a scope":  func(w *writer) { drift(w, s, f.def, region{prefix: []any{7}}, difference, 50_000) },
			"verify of a key":     func(w *writer) { drift(w, s, f.def, region{prefix: []any{7, "new"}}, bothSides, 0) },
			"delete a scope":      func(w *writer) { deleteByScope(w, f.def.Journal, f.def, []any{7}) },
			"delete its counters": func(w *writer) { deleteByScope(w, f.def.Table, f.def, []any{7}) },
		}
		if s, ok := s.(mysqlSQL); ok {
			statements["delete most of the journal by id"] = func(w *writer) {
				ids := make([]int64, 3500)
				for i := range ids {
					ids[i] = int64(i + 1)
				}
				s.deleteJournal(w, f.def, ids)
			}
		}
		for name, predicate := range map[string]func(*sql.Selector){
			"read a key":    func(s *sql.Selector) { s.Where(sql.And(sql.EQ(s.C("dataset_id"), 7), sql.EQ(s.C("status"), "new"))) },
			"read a prefix": func(s *sql.Selector) { s.Where(sql.EQ(s.C("dataset_id"), 7)); s.Where(sql.GT("count", 0)) },
			"read 100 keys": func(s *sql.Selector) {
				keys := make([][]any, 100)
				for i := range keys {
					keys[i] = []any{int64(i + 1), loadStatuses[i%4]}
				}
				lookup, err := f.def.Lookup(keys)
				if err != nil {
					t.Fatal(err)
				}
				lookup.Predicate(s)
			},
		} {
			statements[name] = func(w *writer) {
				outer := sql.Dialect(db.Dialect).Select(f.def.keyNames()...).From(sql.Table(f.def.Table))
				f.def.Source(t.Context(), f.drv, outer, predicate)
				predicate(outer)
				query, args := outer.Query()
				w.sql(query)
				w.args = args
			}
		}
		// By a read index on each table.
		for _, table := range []string{f.def.Table, f.def.Journal} {
			f.exec(t, "CREATE INDEX "+table+"_by_status ON "+table+" (status)")
		}
		for name, read := range map[string]func(drv dialect.Driver, spec *sqlgraph.QuerySpec) error{
			"total of lists": func(drv dialect.Driver, spec *sqlgraph.QuerySpec) error {
				spec.Predicate = func(s *sql.Selector) {
					s.Where(sql.And(sql.In(s.C("dataset_id"), 7, 8, 9), sql.In(s.C("status"), "new", "copied")))
				}
				return f.def.RollUp(t.Context(), drv, spec)
			},
			"totals of a prefix": func(drv dialect.Driver, spec *sqlgraph.QuerySpec) error {
				spec.Predicate = func(s *sql.Selector) { s.Where(sql.EQ(s.C("dataset_id"), 7)) }
				return f.def.RollUp(t.Context(), drv, spec, "status")
			},
			"totals by a read index": func(drv dialect.Driver, spec *sqlgraph.QuerySpec) error {
				spec.Predicate = func(s *sql.Selector) { s.Where(sql.EQ(s.C("status"), "rare")) }
				return f.def.RollUp(t.Context(), drv, spec, "dataset_id")
			},
			"keys with counts, by a read index": func(drv dialect.Driver, spec *sqlgraph.QuerySpec) error {
				spec.Predicate = func(s *sql.Selector) {
					s.Where(sql.And(sql.EQ(s.C("status"), "rare"), sql.GT(s.C("count"), 0)))
				}
				return f.def.RollUp(t.Context(), drv, spec, "dataset_id")
			},
			"distribution within a prefix": func(drv dialect.Driver, spec *sqlgraph.QuerySpec) error {
				spec.Predicate = func(s *sql.Selector) { s.Where(sql.EQ(s.C("dataset_id"), 7)) }
				_, err := f.def.distribute(t.Context(), drv, spec, "status", "count", []float64{0.5})
				return err
			},
			"page": func(drv dialect.Driver, spec *sqlgraph.QuerySpec) error {
				spec.Predicate, spec.Order, spec.Limit = f.def.After([]any{int64(290), "failed"}), nil, 10
				return f.schema().QueryNodes(t.Context(), drv, spec)
			},
		} {
			statements[name] = func(w *writer) {
				var nodes []node
				drv := &lastQuery{Driver: f.drv}
				spec := f.nodesSpec(&nodes, nil)
				spec.Order = nil
				if err := read(drv, spec); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				w.sql(drv.query)
				w.args = drv.args
			}
		}
		for name, write := range statements {
			w := newWriter(s)
			write(w)
			scanned, plan := f.fullScans(t, w.String(), w.args)
			for _, table := range scanned {
				switch table {
				case "files", "file_counters", "file_counter_journal", "j":
					t.Errorf("%s reads all of %s:\n%s", name, table, plan)
				case "counter_locks":
					if db.Dialect == dialect.MySQL {
						t.Errorf("%s locks all of %s:\n%s", name, table, plan)
					}
				}
			}
		}

		// A page from the start of the key reads no more of the counter table than it
		// has keys.
		var nodes []node
		drv := &lastQuery{Driver: f.drv}
		spec := f.nodesSpec(&nodes, nil)
		spec.Limit = 10
		if err := f.schema().QueryNodes(t.Context(), drv, spec); err != nil {
			t.Fatal(err)
		}
		_, plan := f.fullScans(t, drv.query, drv.args)
		want := map[string]string{
			dialect.MySQL:    `file_counters: type index, key PRIMARY, rows \d+, extra \n`,
			dialect.Postgres: `Limit[^\n]*\n[^\n]*Index Scan using file_counters_pkey`,
			dialect.SQLite:   `SCAN file_counters USING INDEX sqlite_autoindex_file_counters_1`,
		}[db.Dialect]
		if !regexp.MustCompile(want).MatchString(plan) {
			t.Errorf("no step of the plan of a page is %s:\n%s", want, plan)
		}
	})
}

// lastQuery is a driver that remembers the last query.
type lastQuery struct {
	dialect.Driver
	query string
	args  []any
}

func (l *lastQuery) Query(ctx context.Context, query string, args, v any) error {
	l.query, l.args = query, args.([]any)
	return l.Driver.Query(ctx, query, args, v)
}
