package entcounter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
	"github.com/entcounter/entcounter/internal/testdb"
)

// node is what ent generates for a counter.
type node struct {
	count
	updatedAt time.Time
	pending   int64
}

// nodesSpec returns the query that ent's generated code makes.
func (f *fixture) nodesSpec(nodes *[]node, predicate func(*sql.Selector)) *sqlgraph.QuerySpec {
	d := f.def
	columns := slices.Concat(d.keyNames(), d.measureNames(), []string{ColumnUpdatedAt, ColumnPending})
	spec := sqlgraph.NewQuerySpec(d.Table, columns, nil)
	spec.Predicate = predicate
	spec.Order = func(s *sql.Selector) { s.OrderBy(s.C(d.Key[0].Name), s.C(d.Key[1].Name)) }
	spec.ScanValues = func(columns []string) ([]any, error) {
		values := make([]any, len(columns))
		for i, c := range columns {
			switch c {
			case d.Key[1].Name:
				values[i] = new(sql.NullString)
			case ColumnUpdatedAt:
				values[i] = new(sql.NullTime)
			case d.Key[0].Name, d.Measures[0].Name, d.Measures[1].Name, ColumnPending:
				values[i] = new(sql.NullInt64)
			default:
				values[i] = new(sql.UnknownType)
			}
		}
		return values, nil
	}
	spec.Assign = func(columns []string, values []any) error {
		var n node
		for i, c := range columns {
			switch v := values[i].(type) {
			case *sql.NullString:
				n.status = v.String
			case *sql.NullTime:
				n.updatedAt = v.Time
			case *sql.NullInt64:
				*map[string]*int64{d.Key[0].Name: &n.dataset, d.Measures[0].Name: &n.count.count, d.Measures[1].Name: &n.bytes, ColumnPending: &n.pending}[c] = v.Int64
			default:
				return fmt.Errorf("unexpected %T for %s", v, c)
			}
		}
		*nodes = append(*nodes, n)
		return nil
	}
	return spec
}

func (f *fixture) schema() *Schema { return &Schema{Counters: []*Definition{f.def}} }

// nodes runs that query.
func (f *fixture) nodes(tb testing.TB, drv dialect.Driver, predicate func(*sql.Selector)) []node {
	tb.Helper()
	var nodes []node
	if err := f.schema().QueryNodes(tb.Context(), drv, f.nodesSpec(&nodes, predicate)); err != nil {
		tb.Fatal(err)
	}
	return nodes
}

func countsOf(nodes []node) []count {
	var counts []count
	for _, n := range nodes {
		counts = append(counts, n.count)
	}
	return counts
}

// zones are DSNs of one database whose drivers read and write times differently.
func zones(db *testdb.Database) map[string]*testdb.Database {
	with := func(params map[string]string) *testdb.Database {
		return &testdb.Database{Kind: db.Kind, Dialect: db.Dialect, Driver: db.Driver, DSN: db.WithParams(params)}
	}
	switch db.Dialect {
	case dialect.MySQL:
		return map[string]*testdb.Database{
			"UTC":       db,
			"loc":       with(map[string]string{"loc": "America/New_York", "parseTime": "true"}),
			"no parse":  with(map[string]string{"parseTime": "false"}),
			"session":   with(map[string]string{"time_zone": "'+05:30'"}),
			"loc, text": with(map[string]string{"loc": "America/New_York", "parseTime": "true", "interpolateParams": "true"}),
		}
	case dialect.Postgres:
		return map[string]*testdb.Database{
			"UTC":     db,
			"session": with(map[string]string{"timezone": "America/New_York"}),
			"simple":  with(map[string]string{"default_query_exec_mode": "simple_protocol"}),
		}
	}
	return map[string]*testdb.Database{"UTC": db, "zone": with(map[string]string{"_timezone": "America/New_York"})}
}

func TestQueryNodes(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		made := newFixture(t, db)
		made.exec(t, "INSERT INTO `files` (`dataset_id`, `status`, `size`) VALUES (1, 'new', 1)")
		made.journal(t, delta(7, "new", 3, 60))
		made.foldAll(t)
		time.Sleep(5 * time.Millisecond)
		made.journal(t, delta(7, "new", -2, -30))
		time.Sleep(5 * time.Millisecond)
		made.journal(t, delta(7, "copied", 2, 30))
		time.Sleep(5 * time.Millisecond)
		made.journal(t, delta(8, "new", 1, 1), delta(8, "new", 0, 5))
		all := []count{{7, "copied", 2, 30}, {7, "new", 1, 30}, {8, "new", 1, 6}}
		var first []node
		for name, db := range zones(db) {
			t.Run(name, func(t *testing.T) {
				pool := db.DB(t)
				f := &fixture{Handle: made.Handle, db: db, pool: pool, drv: sql.OpenDB(db.Dialect, pool)}
				nodes := f.nodes(t, f.drv, nil)
				wantEqual(t, countsOf(nodes), all)
				for i, pending := range []int64{1, 1, 2} {
					if nodes[i].pending != pending {
						t.Errorf("%v has %d rows pending, want %d", nodes[i].count, nodes[i].pending, pending)
					}
				}
				for _, n := range nodes {
					if age := time.Since(n.updatedAt); age < 0 || age > time.Minute || n.updatedAt.Location() != time.UTC {
						t.Errorf("%v was updated at %v, %v ago", n.count, n.updatedAt, age)
					}
				}
				if !nodes[1].updatedAt.Before(nodes[0].updatedAt) || !nodes[0].updatedAt.Before(nodes[2].updatedAt) {
					t.Errorf("updated at %v, %v, %v", nodes[0].updatedAt, nodes[1].updatedAt, nodes[2].updatedAt)
				}
				if first == nil {
					first = nodes
				}
				wantEqual(t, nodes, first)

				for what, test := range map[string]struct {
					predicate func(*sql.Selector)
					want      []count
				}{
					"key":          {func(s *sql.Selector) { s.Where(sql.EQ(s.C("status"), "new")) }, all[1:]},
					"prefix":       {func(s *sql.Selector) { s.Where(sql.EQ("dataset_id", 7)) }, all[:2]},
					"keys":         {func(s *sql.Selector) { s.Where(sql.In(s.C("dataset_id"), 8, 9)) }, all[2:]},
					"measure":      {func(s *sql.Selector) { s.Where(sql.LT(s.C("bytes"), 30)) }, all[2:]},
					"both":         {func(s *sql.Selector) { s.Where(sql.Or(sql.EQ("count", 2), sql.EQ("dataset_id", 8))) }, []count{all[0], all[2]}},
					"pending":      {func(s *sql.Selector) { s.Where(sql.GT(s.C("pending"), 1)) }, all[2:]},
					"nothing":      {func(s *sql.Selector) { s.Where(sql.In(s.C("dataset_id"))) }, nil},
					"raw":          {func(s *sql.Selector) { s.Where(sql.ExprP("count + 1 = 3")) }, all[:1]},
					"pattern":      {func(s *sql.Selector) { s.Where(sql.HasPrefix(s.C("status"), "cop")) }, all[:1]},
					"since":        {func(s *sql.Selector) { s.Where(sql.GT(s.C("updated_at"), nodes[0].updatedAt)) }, all[2:]},
					"from":         {func(s *sql.Selector) { s.Where(sql.GTE(s.C("updated_at"), nodes[0].updatedAt)) }, []count{all[0], all[2]}},
					"at":           {func(s *sql.Selector) { s.Where(sql.EQ(s.C("updated_at"), nodes[2].updatedAt)) }, all[2:]},
					"before, zone": {func(s *sql.Selector) { s.Where(sql.LT(s.C("updated_at"), inZone(nodes[2].updatedAt))) }, all[:2]},
					"until, or": {func(s *sql.Selector) {
						u := inZone(nodes[1].updatedAt)
						s.Where(sql.Or(sql.LTE(s.C("updated_at"), &u), sql.EQ("dataset_id", 9)))
						s.Where(sql.In(s.C("status"), sql.Select("status").From(sql.Table("files"))))
					}, all[1:2]},
				} {
					nodes := f.nodes(t, f.drv, test.predicate)
					if fmt.Sprint(countsOf(nodes)) != fmt.Sprint(test.want) {
						t.Errorf("%s: got %v, want %v", what, countsOf(nodes), test.want)
					}
					n, err := f.schema().CountNodes(t.Context(), f.drv, &sqlgraph.QuerySpec{
						Node: &sqlgraph.NodeSpec{Table: f.def.Table}, Predicate: test.predicate,
					})
					if err != nil || n != len(test.want) {
						t.Errorf("%s: counted %d, %v; want %d", what, n, err, len(test.want))
					}
				}

				var nodesByTime []node
				spec := f.nodesSpec(&nodesByTime, nil)
				spec.Order = func(s *sql.Selector) { s.OrderBy(sql.Desc(s.C("updated_at")), s.C("status")) }
				spec.Unique, spec.Limit, spec.Offset = true, 1, 1
				if err := f.schema().QueryNodes(t.Context(), f.drv, spec); err != nil {
					t.Fatal(err)
				}
				wantEqual(t, countsOf(nodesByTime), all[:1])
			})
		}
	})
}

func inZone(t time.Time) time.Time { return t.In(time.FixedZone("here", -7*3600)) }

// Grouping and aggregates, as ent's generated code makes them.
func TestSource(t *testing.T) {
	for name, def := range map[string]*Definition{"plain": fileCounter(), "reserved words": oddCounter()} {
		t.Run(name, func(t *testing.T) {
			testdb.Each(t, func(t *testing.T, db *testdb.Database) {
				f := newFixtureOf(t, db, def)
				f.journal(t, delta(7, "new", 3, 60), delta(8, "new", 1, 1))
				f.foldAll(t)
				f.journal(t, delta(7, "new", -2, -30), delta(7, "copied", 2, 30))
				table := sql.Dialect(db.Dialect).Table(def.Table)
				predicate := func(s *sql.Selector) { s.Where(sql.EQ(s.C(def.Key[0].Name), 7)) }
				newSelector := func() *sql.Selector {
					s := sql.Dialect(db.Dialect).Select(table.Columns(def.keyNames()...)...).From(table)
					def.Source(t.Context(), f.drv, s, predicate)
					predicate(s)
					return s
				}
				scan := func(s *sql.Selector, v any) {
					t.Helper()
					query, args := s.Query()
					if n := strings.Count(query, quoteName(quoteOf(db.Dialect), def.Key[0].Name)+" = "); n != 3 {
						t.Errorf("the condition is in the statement %d times, not in both halves and outside: %s", n, query)
					}
					var rows sql.Rows
					if err := f.drv.Query(t.Context(), query, args, &rows); err != nil {
						t.Fatalf("%s: %v", query, err)
					}
					defer rows.Close()
					if err := sql.ScanSlice(rows, v); err != nil {
						t.Fatalf("%s: %v", query, err)
					}
				}
				var sums []struct {
					Count   int64
					Bytes   int64
					Updated Time
					Pending int64
				}
				s := newSelector()
				scan(s.Select(sql.As(sql.Sum(s.C(def.Measures[0].Name)), "count"), sql.As(sql.Sum(s.C(def.Measures[1].Name)), "bytes"),
					sql.As(sql.Max(s.C(ColumnUpdatedAt)), "updated"), sql.As(sql.Sum(s.C(ColumnPending)), "pending")), &sums)
				if len(sums) != 1 || sums[0].Count != 3 || sums[0].Bytes != 60 || sums[0].Pending != 2 || time.Since(time.Time(sums[0].Updated)).Abs() > time.Minute {
					t.Errorf("got %+v", sums)
				}
				var groups []struct {
					Status string
					Count  int
				}
				s = newSelector()
				status := s.C(def.Key[1].Name)
				scan(s.Select(sql.As(status, "status"), sql.As(sql.Sum(s.C(def.Measures[0].Name)), "count")).GroupBy(status).OrderBy(status), &groups)
				wantEqual(t, fmt.Sprint(groups), "[{copied 2} {new 1}]")
				// The columns that were selected before the source was put in place.
				var keys []string
				s = newSelector()
				scan(s.Select(s.SelectedColumns()[1]).OrderBy(status), &keys)
				wantEqual(t, keys, []string{"copied", "new"})
			})
		})
	}
}

// A read in a transaction sees its own changes, and they are journalled once.
func TestReadInTransaction(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		f := newFixture(t, db)
		inner, err := f.drv.Tx(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		tx := newTx(inner, db.Dialect)
		drv := dialect.Debug(opDriver{tx: tx}, func(...any) {})
		h := New(f.def, drv)
		if err := h.Journal(t.Context(), delta(7, "new", 1, 10)); err != nil {
			t.Fatal(err)
		}
		wantEqual(t, countsOf(f.nodes(t, drv, nil)), []count{{7, "new", 1, 10}})
		if err := h.Journal(t.Context(), delta(7, "new", 1, 10)); err != nil {
			t.Fatal(err)
		}
		if n, err := f.schema().CountNodes(t.Context(), drv, &sqlgraph.QuerySpec{Node: &sqlgraph.NodeSpec{Table: f.def.Table}}); n != 1 || err != nil {
			t.Errorf("counted %d, %v", n, err)
		}
		selector := sql.Dialect(db.Dialect).Select().From(sql.Table(f.def.Table))
		if err := h.Journal(t.Context(), delta(7, "copied", 1, 10)); err != nil {
			t.Fatal(err)
		}
		f.def.Source(t.Context(), drv, selector, nil)
		if b, err := h.Backlog(t.Context()); b.Rows != 3 || err != nil {
			t.Errorf("backlog %+v, %v: the read did not write what was pending", b, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		wantEqual(t, f.read(t, nil), nil)

		// A transaction that cannot write its deltas does not read without them.
		if inner, err = f.drv.Tx(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = inner.Rollback() }()
		boom := errors.New("boom")
		drv = opDriver{tx: newTx(&faultTx{inner, func(query string) (string, error) {
			if strings.HasPrefix(query, "INSERT") {
				return "", boom
			}
			return query, nil
		}}, db.Dialect)}
		h = New(f.def, drv)
		read := map[string]func() error{
			"QueryNodes": func() error {
				return f.schema().QueryNodes(t.Context(), drv, f.nodesSpec(new([]node), nil))
			},
			"CountNodes": func() error {
				_, err := f.schema().CountNodes(t.Context(), drv, f.nodesSpec(nil, nil))
				return err
			},
			"Source": func() error {
				f.def.Source(t.Context(), drv, selector, nil)
				return selector.Err()
			},
			"Verify": func() error { return h.Verify(t.Context(), nil, nil) },
		}
		if err := h.Journal(t.Context(), delta(7, "new", 1, 10)); err != nil {
			t.Fatal(err)
		}
		for name, read := range read {
			// A selector keeps the text of an error alone.
			if err := read(); err == nil || !strings.Contains(err.Error(), "boom") {
				t.Errorf("%s: got %v", name, err)
			}
		}
	})
}

// A sum that does not fit is an error that says which.
func TestReadOverflow(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		f := newFixture(t, db)
		f.journal(t, delta(7, "new", 1, math.MaxInt64))
		wantEqual(t, countsOf(f.nodes(t, f.drv, nil)), []count{{7, "new", 1, math.MaxInt64}})
		f.journal(t, delta(7, "new", 1, 1))
		err := f.schema().QueryNodes(t.Context(), f.drv, f.nodesSpec(new([]node), nil))
		if !overflows(err) || !strings.HasPrefix(err.Error(), "entcounter: ") || !strings.Contains(err.Error(), "counter File") {
			t.Errorf("got %v", err)
		}
	})
}

// Tables that are no counters are read as ent alone reads them.
func TestQueryNodesPassThrough(t *testing.T) {
	f := newFixture(t, testdb.New(t, testdb.SQLite))
	f.exec(t, "INSERT INTO `files` (`dataset_id`, `status`, `size`) VALUES (7, 'new', 10)")
	var queries []string
	drv := dialect.DebugWithContext(f.drv, func(_ context.Context, v ...any) { queries = append(queries, fmt.Sprint(v...)) })
	spec := sqlgraph.NewQuerySpec("files", []string{"status"}, nil)
	spec.ScanValues = func([]string) ([]any, error) { return []any{new(sql.NullString)}, nil }
	spec.Assign = func([]string, []any) error { return nil }
	if err := f.schema().QueryNodes(t.Context(), drv, spec); err != nil {
		t.Fatal(err)
	}
	if n, err := f.schema().CountNodes(t.Context(), drv, spec); n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	wantEqual(t, queries, []string{
		"driver.Query: query=SELECT `files`.`status` FROM `files` args=[]",
		"driver.Query: query=SELECT COUNT(`files`.`status`) FROM `files` args=[]",
	})
}
