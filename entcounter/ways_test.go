package entcounter

import (
	"context"
	stdsql "database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
	"entgo.io/ent/schema/field"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"
)

var (
	waysSeed  = flag.Uint64("ways.seed", 0, "seed of TestWaysAgree, 0 for a new one")
	waysSteps = flag.Int("ways.steps", 1000, "steps of TestWaysAgree")
)

// waysSchema counts rows in one counter, and rows and sizes in another.
func waysSchema(imagesOnly bool) *Schema {
	key := []Column{
		{Name: "dataset_id", Type: field.TypeInt, Faithful: true, Bits: 64},
		{Name: "status", Type: field.TypeString, Faithful: true},
	}
	size := Column{Name: "size", Type: field.TypeInt16, Faithful: true, Bits: 16}
	id := Column{Name: "id", Type: field.TypeInt, Faithful: true, Bits: 64}
	return &Schema{
		imagesOnly: imagesOnly,
		Counters: []*Definition{
			{
				Name: "Count", Table: "count_counters", Journal: "count_counter_journal", Key: key,
				Measures: []Measure{{Name: "count", Delta: "count_delta"}},
				Sources:  []*Source{{Table: "files", Key: termsOf(key...), Measures: []Summand{{}}}},
			},
			{
				Name: "Sum", Table: "sum_counters", Journal: "sum_counter_journal", Key: key[:1],
				Measures: []Measure{{Name: "count", Delta: "count_delta"}, {Name: "bytes", Delta: "bytes_delta"}},
				Sources:  []*Source{{Table: "files", Key: termsOf(key[:1]...), Measures: []Summand{{}, {Term: Term{Column: size}}}}},
			},
		},
		Tables: map[string]*Table{
			"files": {Name: "files", ID: []Column{id}, Defaults: []string{"status"}},
		},
	}
}

type waysDB struct {
	schema *Schema
	drv    *sql.Driver
}

func newWaysDB(t *testing.T, imagesOnly bool) *waysDB {
	db, err := stdsql.Open("sqlite", "file:"+t.TempDir()+"/ways.db?_pragma=synchronous(OFF)&_pragma=journal_mode(WAL)")
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	for _, ddl := range []string{
		"CREATE TABLE files (id INTEGER PRIMARY KEY AUTOINCREMENT, dataset_id INTEGER, status TEXT DEFAULT 'new', size INTEGER, name TEXT)",
		"CREATE TABLE count_counter_journal (id INTEGER PRIMARY KEY AUTOINCREMENT, dataset_id INTEGER NOT NULL, status TEXT NOT NULL, count_delta INTEGER NOT NULL, inserted_at TEXT NOT NULL)",
		"CREATE TABLE sum_counter_journal (id INTEGER PRIMARY KEY AUTOINCREMENT, dataset_id INTEGER NOT NULL, count_delta INTEGER NOT NULL, bytes_delta INTEGER NOT NULL, inserted_at TEXT NOT NULL)",
	} {
		_, err := db.Exec(ddl)
		require.NoError(t, err)
	}
	return &waysDB{schema: waysSchema(imagesOnly), drv: sql.OpenDB(dialect.SQLite, db)}
}

func (w *waysDB) dump(t *testing.T, query string) string {
	rows, err := w.drv.DB().Query(query)
	require.NoError(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t, err)
	var b strings.Builder
	for rows.Next() {
		values := make([]any, len(columns))
		dest := make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		require.NoError(t, rows.Scan(dest...))
		fmt.Fprintln(&b, values...)
	}
	require.NoError(t, rows.Err())
	return b.String()
}

// op is one random mutation, the same on both databases.
type op struct {
	text string
	run  func(ctx context.Context, w *waysDB, drv dialect.Driver) (int, error)
}

func randomOp(r *rand.Rand) op {
	pick := func(values ...any) any { return values[r.IntN(len(values))] }
	var (
		datasets = []any{int64(1), int64(2), int64(3)}
		statuses = []any{"new", "copying", "copied"}
	)
	fields := func(create bool) []*sqlgraph.FieldSpec {
		var f []*sqlgraph.FieldSpec
		set := func(p float64, column string, t field.Type, v any) {
			if r.Float64() < p {
				f = append(f, &sqlgraph.FieldSpec{Column: column, Type: t, Value: v})
			}
		}
		p := 0.4
		if create {
			p = 0.8
		}
		set(p, "dataset_id", field.TypeInt, pick(append(datasets, nil)...))
		set(p, "status", field.TypeString, pick(statuses...))
		set(p, "size", field.TypeInt16, pick(int64(0), int64(-5), int64(100), int64(40000)))
		set(0.3, "name", field.TypeString, pick("a", "b"))
		return f
	}
	predicate := func() (string, func(*sql.Selector)) {
		var preds []func(*sql.Selector) *sql.Predicate
		var text []string
		and := func(p float64, name string, pred func(*sql.Selector) *sql.Predicate) {
			if r.Float64() < p {
				preds, text = append(preds, pred), append(text, name)
			}
		}
		d, s, n := pick(datasets...), pick(statuses...), r.IntN(60)
		and(0.5, fmt.Sprint("dataset=", d), func(q *sql.Selector) *sql.Predicate { return sql.EQ(q.C("dataset_id"), d) })
		and(0.5, fmt.Sprint("status=", s), func(q *sql.Selector) *sql.Predicate { return sql.EQ(q.C("status"), s) })
		and(0.3, fmt.Sprint("id>", n), func(q *sql.Selector) *sql.Predicate { return sql.GT(q.C("id"), n) })
		and(0.2, "status in", func(q *sql.Selector) *sql.Predicate { return sql.In(q.C("status"), "new", s) })
		and(0.1, "or", func(q *sql.Selector) *sql.Predicate {
			return sql.Or(sql.EQ(q.C("dataset_id"), d), sql.EQ(q.C("status"), s))
		})
		and(0.1, "not", func(q *sql.Selector) *sql.Predicate { return sql.Not(sql.EQ(q.C("status"), s)) })
		and(0.1, "sub-query", func(q *sql.Selector) *sql.Predicate {
			return sql.In(q.C("id"), sql.Select("id").From(sql.Table("files")).Where(sql.EQ("name", "a")))
		})
		return strings.Join(text, " and "), func(q *sql.Selector) {
			for _, p := range preds {
				q.Where(p(q))
			}
		}
	}
	id := func() *sqlgraph.FieldSpec { return &sqlgraph.FieldSpec{Column: "id", Type: field.TypeInt} }
	describe := func(fields []*sqlgraph.FieldSpec) string {
		var parts []string
		for _, f := range fields {
			parts = append(parts, fmt.Sprintf("%s=%v", f.Column, f.Value))
		}
		return strings.Join(parts, " ")
	}
	switch n := r.IntN(10); {
	case n < 3:
		f := fields(true)
		return op{"create " + describe(f), func(ctx context.Context, w *waysDB, drv dialect.Driver) (int, error) {
			return 1, w.schema.CreateNode(ctx, drv, &sqlgraph.CreateSpec{Table: "files", ID: id(), Fields: f})
		}}
	case n < 4:
		batch := [][]*sqlgraph.FieldSpec{fields(true), fields(true), fields(true)}
		return op{"batch " + describe(batch[0]) + "; " + describe(batch[1]) + "; " + describe(batch[2]), func(ctx context.Context, w *waysDB, drv dialect.Driver) (int, error) {
			spec := &sqlgraph.BatchCreateSpec{}
			for _, f := range batch {
				spec.Nodes = append(spec.Nodes, &sqlgraph.CreateSpec{Table: "files", ID: id(), Fields: f})
			}
			return 3, w.schema.BatchCreate(ctx, drv, spec)
		}}
	case n < 8:
		text, where := predicate()
		f := fields(false)
		var add []*sqlgraph.FieldSpec
		if r.IntN(4) == 0 && !strings.Contains(describe(f), "size") {
			add = append(add, &sqlgraph.FieldSpec{Column: "size", Type: field.TypeInt16, Value: pick(int64(1), int64(-3), int64(32000))})
		}
		var modifiers []func(*sql.UpdateBuilder)
		switch r.IntN(8) {
		case 0:
			modifiers = append(modifiers, func(u *sql.UpdateBuilder) { u.Set("dataset_id", sql.Expr("id % 3")) })
		case 1:
			modifiers = append(modifiers, func(u *sql.UpdateBuilder) { u.Set("name", sql.Expr("'x'")) })
		}
		return op{fmt.Sprintf("update %s add %s modifiers %d where %s", describe(f), describe(add), len(modifiers), text), func(ctx context.Context, w *waysDB, drv dialect.Driver) (int, error) {
			spec := sqlgraph.NewUpdateSpec("files", []string{"id"}, id())
			spec.Fields.Set, spec.Fields.Add, spec.Modifiers, spec.Predicate = f, add, modifiers, where
			return w.schema.UpdateNodes(ctx, drv, spec)
		}}
	case n < 9:
		f, target := fields(false), int64(r.IntN(80))
		return op{fmt.Sprintf("update one %d %s", target, describe(f)), func(ctx context.Context, w *waysDB, drv dialect.Driver) (int, error) {
			node := id()
			node.Value = target
			spec := sqlgraph.NewUpdateSpec("files", []string{"id"}, node)
			spec.Fields.Set = f
			spec.ScanValues = func(columns []string) ([]any, error) { return []any{new(int64)}, nil }
			spec.Assign = func([]string, []any) error { return nil }
			err := w.schema.UpdateNode(ctx, drv, spec)
			if _, ok := err.(*sqlgraph.NotFoundError); ok {
				return 0, nil
			}
			return 1, err
		}}
	default:
		text, where := predicate()
		return op{"delete where " + text, func(ctx context.Context, w *waysDB, drv dialect.Driver) (int, error) {
			return w.schema.DeleteNodes(ctx, drv, &sqlgraph.DeleteSpec{Node: &sqlgraph.NodeSpec{Table: "files", ID: id()}, Predicate: where})
		}}
	}
}

// Every fast way derives the deltas that the images give: the same random
// mutations, on one database in the fast ways and on another by images only,
// leave equal rows and equal journals, which moreover equal the recount.
func TestWaysAgree(t *testing.T) {
	seed := *waysSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-ways.seed=%d -ways.steps=%d", seed, *waysSteps)
	var (
		ctx   = context.Background()
		r     = rand.New(rand.NewPCG(seed, 0))
		fast  = newWaysDB(t, false)
		plain = newWaysDB(t, true)
	)
	const (
		rows     = "SELECT id, dataset_id, status, size, name FROM files ORDER BY id"
		counts   = "SELECT dataset_id, status, SUM(count_delta) FROM count_counter_journal GROUP BY 1, 2 HAVING SUM(count_delta) <> 0 ORDER BY 1, 2"
		sums     = "SELECT dataset_id, SUM(count_delta), SUM(bytes_delta) FROM sum_counter_journal GROUP BY 1 HAVING SUM(count_delta) <> 0 OR SUM(bytes_delta) <> 0 ORDER BY 1"
		recounts = "SELECT dataset_id, status, COUNT(*) FROM files WHERE dataset_id IS NOT NULL AND status IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2"
		resums   = "SELECT dataset_id, COUNT(*), COALESCE(SUM(size), 0) FROM files WHERE dataset_id IS NOT NULL GROUP BY 1 ORDER BY 1"
		last     = "SELECT COALESCE(MAX(id), 0) FROM %s"
	)
	for step := range *waysSteps {
		o := randomOp(r)
		n1, err := o.run(ctx, fast, fast.drv)
		require.NoError(t, err, "step %d: %s", step, o.text)
		n2, err := o.run(ctx, plain, plain.drv)
		require.NoError(t, err, "step %d: %s", step, o.text)
		require.Equal(t, n2, n1, "affected rows, step %d: %s", step, o.text)
		require.Equal(t, plain.dump(t, rows), fast.dump(t, rows), "step %d: %s", step, o.text)
		for _, q := range [][2]string{{counts, recounts}, {sums, resums}} {
			require.Equal(t, fast.dump(t, q[1]), plain.dump(t, q[0]), "images, step %d: %s", step, o.text)
			require.Equal(t, fast.dump(t, q[1]), fast.dump(t, q[0]), "fast ways, step %d: %s", step, o.text)
		}
		for _, journal := range []string{"count_counter_journal", "sum_counter_journal"} {
			require.Equal(t, plain.dump(t, fmt.Sprintf(last, journal)), fast.dump(t, fmt.Sprintf(last, journal)), "journal rows of %s, step %d: %s", journal, step, o.text)
		}
	}
}
