package entcounter

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
	"entgo.io/ent/schema/field"
	"github.com/stretchr/testify/require"
)

// upsertSchema counts the rows of a table with three ways to conflict: the id, a,
// and (b, c).
func upsertSchema() *Schema {
	column := func(name string) Column { return Column{Name: name, Type: field.TypeInt, Faithful: true, Bits: 64} }
	key := []Column{column("dataset_id")}
	return &Schema{
		Counters: []*Definition{{
			Name: "Sum", Table: "sum_counters", Journal: "sum_counter_journal", Key: key,
			Measures: []Measure{{Name: "count", Delta: "count_delta"}, {Name: "bytes", Delta: "bytes_delta"}},
			Sources:  []*Source{{Table: "items", Key: termsOf(key...), Measures: []Summand{{}, {Term: Term{Column: column("size")}}}}},
		}},
		Tables: map[string]*Table{
			"items": {Name: "items", ID: []Column{column("id")}, Unique: [][]Column{{column("a")}, {column("b"), column("c")}}},
		},
	}
}

func newUpsertDB(t testing.TB) *sql.Driver {
	db, err := stdsql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	db.SetMaxOpenConns(1) // one in-memory database
	t.Cleanup(func() { db.Close() })
	for _, ddl := range []string{
		"CREATE TABLE items (id INTEGER PRIMARY KEY AUTOINCREMENT, a INTEGER UNIQUE, b INTEGER, c INTEGER, dataset_id INTEGER, size INTEGER, UNIQUE (b, c))",
		"CREATE TABLE sum_counter_journal (id INTEGER PRIMARY KEY AUTOINCREMENT, dataset_id INTEGER NOT NULL, count_delta INTEGER NOT NULL, bytes_delta INTEGER NOT NULL, inserted_at TEXT NOT NULL)",
	} {
		_, err := db.Exec(ddl)
		require.NoError(t, err)
	}
	return sql.OpenDB(dialect.SQLite, db)
}

// FuzzUpsert runs random upserts through the hooks and, on a second database,
// through ent itself. Both leave the same rows, or both fail; the journal equals
// the recount either way.
func FuzzUpsert(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed, uint8(12))
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps uint8) {
		var (
			ctx     = context.Background()
			r       = rand.New(rand.NewPCG(seed, 1))
			schema  = upsertSchema()
			counted = newUpsertDB(t)
			plain   = newUpsertDB(t)
			dump    = func(drv *sql.Driver, query string) string { return (&waysDB{drv: drv}).dump(t, query) }
			history []string
		)
		const (
			rows    = "SELECT a, b, c, dataset_id, size FROM items ORDER BY a, b, c, dataset_id, size, id"
			sums    = "SELECT dataset_id, SUM(count_delta), SUM(bytes_delta) FROM sum_counter_journal GROUP BY 1 HAVING SUM(count_delta) <> 0 OR SUM(bytes_delta) <> 0 ORDER BY 1"
			recount = "SELECT dataset_id, COUNT(*), COALESCE(SUM(size), 0) FROM items WHERE dataset_id IS NOT NULL GROUP BY 1 ORDER BY 1"
		)
		for range steps % 30 {
			var fields [][]*sqlgraph.FieldSpec
			size := 1 + r.IntN(4)*r.IntN(2)
			for range size {
				var fs []*sqlgraph.FieldSpec
				for _, column := range []string{"a", "b", "c", "dataset_id", "size"} {
					// ent gives all rows of a batch the same columns.
					if v := r.IntN(6); size > 1 || v > 0 {
						fs = append(fs, &sqlgraph.FieldSpec{Column: column, Type: field.TypeInt, Value: int64(v % 5)})
					}
				}
				fields = append(fields, fs)
			}
			var options []sql.ConflictOption
			name := ""
			switch r.IntN(3) {
			case 0:
				options, name = append(options, sql.ConflictColumns("a")), "a"
			case 1:
				options, name = append(options, sql.ConflictColumns("b", "c")), "b, c"
			}
			switch n := r.IntN(4); {
			case n == 0 || name == "":
				options, name = append(options, sql.DoNothing()), name+" nothing"
			case n == 1:
				options, name = append(options, sql.ResolveWithNewValues()), name+" new values"
			case n == 2:
				options, name = append(options, sql.ResolveWithIgnore()), name+" ignore"
			default:
				a, d := r.IntN(5), r.IntN(5)
				options, name = append(options, sql.ResolveWith(func(u *sql.UpdateSet) { u.Set("a", a).Set("dataset_id", d).Add("size", 3) })), name+fmt.Sprint(" a=", a, " dataset_id=", d)
			}
			run := func(create func(*sqlgraph.CreateSpec) error, batch func(*sqlgraph.BatchCreateSpec) error) error {
				var nodes []*sqlgraph.CreateSpec
				for _, fs := range fields {
					nodes = append(nodes, &sqlgraph.CreateSpec{Table: "items", ID: &sqlgraph.FieldSpec{Column: "id", Type: field.TypeInt}, Fields: fs})
				}
				if len(nodes) == 1 {
					nodes[0].OnConflict = options
					return create(nodes[0])
				}
				return batch(&sqlgraph.BatchCreateSpec{Nodes: nodes, OnConflict: options})
			}
			var text []string
			for _, fs := range fields {
				for _, f := range fs {
					text = append(text, fmt.Sprintf("%s=%v", f.Column, f.Value))
				}
				text = append(text, ";")
			}
			history = append(history, strings.Join(text, " ")+" on conflict "+name)
			before := dump(counted, rows)
			err := run(
				func(n *sqlgraph.CreateSpec) error { return schema.CreateNode(ctx, counted, n) },
				func(b *sqlgraph.BatchCreateSpec) error { return schema.BatchCreate(ctx, counted, b) })
			plainErr := run(
				func(n *sqlgraph.CreateSpec) error { return sqlgraph.CreateNode(ctx, plain, n) },
				func(b *sqlgraph.BatchCreateSpec) error { return sqlgraph.BatchCreate(ctx, plain, b) })
			story := strings.Join(history, "\n")
			require.Equal(t, plainErr == nil, err == nil, "%v, ent alone %v after\n%s", err, plainErr, story)
			if err != nil {
				require.Equal(t, before, dump(counted, rows), story)
			}
			require.Equal(t, dump(plain, rows), dump(counted, rows), story)
			require.Equal(t, dump(counted, recount), dump(counted, sums), story)
		}
	})
}
