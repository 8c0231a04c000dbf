package entcounter

import (
	"context"
	stdsql "database/sql"
	"testing"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
	"entgo.io/ent/schema/field"
	"github.com/stretchr/testify/require"
)

// idleDriver is a driver and a transaction that does nothing. A query finds one row, a statement changes one.
type idleDriver struct{}

func (idleDriver) Exec(_ context.Context, _ string, _, v any) error {
	if res, ok := v.(*sql.Result); ok {
		*res = oneChanged{}
	}
	return nil
}

func (idleDriver) Query(_ context.Context, _ string, _, v any) error {
	v.(*sql.Rows).ColumnScanner = new(oneRow)
	return nil
}

func (d idleDriver) Tx(context.Context) (dialect.Tx, error) { return d, nil }
func (idleDriver) Dialect() string                          { return dialect.MySQL }
func (idleDriver) Close() error                             { return nil }
func (idleDriver) Commit() error                            { return nil }
func (idleDriver) Rollback() error                          { return nil }

type oneChanged struct{}

func (oneChanged) LastInsertId() (int64, error) { return 1, nil }
func (oneChanged) RowsAffected() (int64, error) { return 1, nil }

// oneRow has 1 in each integer column, and "new" in each of another type.
type oneRow struct {
	sql.ColumnScanner
	read bool
}

func (r *oneRow) Next() bool {
	first := !r.read
	r.read = true
	return first
}

func (*oneRow) Scan(dest ...any) error {
	for _, d := range dest {
		switch d := d.(type) {
		case *stdsql.NullInt64: // of ent
			d.Int64, d.Valid = 1, true
		case *cell: // of the hooks
			d.value = "new"
			if d.column.Type.Integer() {
				d.value = int64(1)
			}
		}
	}
	return nil
}

func (*oneRow) Columns() ([]string, error) { return []string{"id"}, nil }
func (*oneRow) Err() error                 { return nil }
func (*oneRow) Close() error               { return nil }

// benchNode is a table's specification as generated code makes it.
func benchNode(table string) *sqlgraph.NodeSpec {
	return &sqlgraph.NodeSpec{
		Table:   table,
		Columns: []string{"id", "dataset_id", "status", "size", "name"},
		ID:      &sqlgraph.FieldSpec{Column: "id", Type: field.TypeInt, Value: 1},
	}
}

// setting is an update of one row that sets a column.
func setting(table, column string, value any) *sqlgraph.UpdateSpec {
	return &sqlgraph.UpdateSpec{
		Node:       benchNode(table),
		Fields:     sqlgraph.FieldMut{Set: []*sqlgraph.FieldSpec{{Column: column, Type: field.TypeString, Value: value}}},
		ScanValues: func(columns []string) ([]any, error) { return []any{new(stdsql.NullInt64)}, nil },
		Assign:     func(columns []string, values []any) error { return nil },
	}
}

// pinning fixes the whole key.
func pinning(s *sql.Selector) {
	s.Where(sql.And(sql.EQ(s.C("dataset_id"), 1), sql.EQ(s.C("status"), "old"), sql.EQ(s.C("id"), 1)))
}

// benchCases are mutations, each by the hooks of a schema or, without one, by ent.
var benchCases = []struct {
	name string
	// passes tells that the hooks only look at the mutation.
	passes bool
	run    func(ctx context.Context, s *Schema, drv dialect.Driver) error
}{
	{"create", false, func(ctx context.Context, s *Schema, drv dialect.Driver) error {
		spec := &sqlgraph.CreateSpec{
			Table: "files",
			ID:    &sqlgraph.FieldSpec{Column: "id", Type: field.TypeInt},
			Fields: []*sqlgraph.FieldSpec{
				{Column: "dataset_id", Type: field.TypeInt, Value: 1},
				{Column: "status", Type: field.TypeString, Value: "new"},
				{Column: "size", Type: field.TypeInt16, Value: int16(1)},
			},
		}
		if s == nil {
			return sqlgraph.CreateNode(ctx, drv, spec)
		}
		return s.CreateNode(ctx, drv, spec)
	}},
	{"update one", false, func(ctx context.Context, s *Schema, drv dialect.Driver) error {
		return benchUpdateOne(ctx, s, drv, setting("files", "status", "old"))
	}},
	{"update pinned", false, func(ctx context.Context, s *Schema, drv dialect.Driver) error {
		spec := setting("files", "status", "new")
		spec.Predicate = pinning
		return benchUpdate(ctx, s, drv, spec)
	}},
	{"delete", false, func(ctx context.Context, s *Schema, drv dialect.Driver) (err error) {
		spec := &sqlgraph.DeleteSpec{Node: benchNode("files"), Predicate: pinning}
		if s == nil {
			_, err = sqlgraph.DeleteNodes(ctx, drv, spec)
			return err
		}
		_, err = s.DeleteNodes(ctx, drv, spec)
		return err
	}},
	{"pass through, column not counted", true, func(ctx context.Context, s *Schema, drv dialect.Driver) error {
		spec := setting("files", "name", "new")
		spec.Predicate = pinning
		return benchUpdate(ctx, s, drv, spec)
	}},
	{"pass through, one row", true, func(ctx context.Context, s *Schema, drv dialect.Driver) error {
		return benchUpdateOne(ctx, s, drv, setting("files", "name", "new"))
	}},
	{"pass through, table not counted", true, func(ctx context.Context, s *Schema, drv dialect.Driver) error {
		spec := setting("users", "name", "new")
		spec.Predicate = pinning
		return benchUpdate(ctx, s, drv, spec)
	}},
}

func benchUpdate(ctx context.Context, s *Schema, drv dialect.Driver, spec *sqlgraph.UpdateSpec) (err error) {
	if s == nil {
		_, err = sqlgraph.UpdateNodes(ctx, drv, spec)
		return err
	}
	_, err = s.UpdateNodes(ctx, drv, spec)
	return err
}

func benchUpdateOne(ctx context.Context, s *Schema, drv dialect.Driver, spec *sqlgraph.UpdateSpec) error {
	if s == nil {
		return sqlgraph.UpdateNode(ctx, drv, spec)
	}
	return s.UpdateNode(ctx, drv, spec)
}

// benchSchema counts rows by two columns.
func benchSchema() *Schema {
	s := waysSchema(false)
	s.Counters = s.Counters[:1]
	return s
}

// BenchmarkHooks tells what the hooks themselves cost, outside of a user's transaction, beside ent alone.
//
//	go test ./entcounter -run - -bench Hooks
func BenchmarkHooks(b *testing.B) {
	for _, c := range benchCases {
		for _, variant := range []struct {
			name   string
			schema *Schema
		}{{"ent", nil}, {"entcounter", benchSchema()}} {
			b.Run(c.name+"/"+variant.name, func(b *testing.B) {
				ctx := b.Context()
				b.ReportAllocs()
				for b.Loop() {
					if err := c.run(ctx, variant.schema, idleDriver{}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkPassingThrough tells what it costs to find out that an update of a counted table changes no count.
func BenchmarkPassingThrough(b *testing.B) {
	s, spec, drv := benchSchema(), setting("files", "name", "new"), idleDriver{}
	b.ReportAllocs()
	for b.Loop() {
		if s.keepsNumbers(drv.Dialect(), spec) != nil || !s.updateOf(drv.Dialect(), spec).passes() {
			b.Fatal("the update is counted")
		}
		transactionOf(drv)
	}
}

// Where nothing is counted, the hooks allocate nothing.
func TestPassingThroughAllocatesNothing(t *testing.T) {
	s := benchSchema()
	for _, c := range benchCases {
		t.Run(c.name, func(t *testing.T) {
			allocs := func(s *Schema) float64 {
				return testing.AllocsPerRun(100, func() { require.NoError(t, c.run(t.Context(), s, idleDriver{})) })
			}
			alone, hooked := allocs(nil), allocs(s)
			require.Equal(t, c.passes, hooked == alone, "%v allocations, %v by ent alone", hooked, alone)
		})
	}
}
