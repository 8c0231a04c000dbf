package countergen

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"entgo.io/ent"
	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/dialect/sql"
	sqlschema "entgo.io/ent/dialect/sql/schema"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/testdb"
	"github.com/google/uuid"
)

// columnGraph has a key column of every type, in tables with and without a
// collation of their own.
func columnGraph() testGraph {
	fields := []ent.Field{
		field.Int("int"), field.Int8("int8"), field.Int16("int16"), field.Int32("int32"), field.Int64("int64"),
		field.Uint("uint"), field.Uint8("uint8"), field.Uint16("uint16"), field.Uint32("uint32"), field.Uint64("uint64"),
		field.Bool("bool"), field.Enum("enum").Values("a", "b").Default("a"), field.UUID("uuid", uuid.UUID{}),
		field.String("text").MaxLen(40), field.Bytes("bytes").MaxLen(16), field.String("optional").MaxLen(40).Optional(),
		field.String("collated").MaxLen(40).Annotations(entsql.Annotation{Collation: "utf8mb4_bin"}).
			SchemaType(map[string]string{dialect.Postgres: `varchar`, dialect.SQLite: "text"}),
		field.String("typed").SchemaType(map[string]string{dialect.MySQL: "varchar(30)", dialect.Postgres: "varchar(30)"}),
		field.Int("serial").SchemaType(map[string]string{dialect.Postgres: "bigserial"}),
	}
	key := make([]string, len(fields))
	for i, f := range fields {
		key[i] = f.Descriptor().Name
	}
	// An index has no more than 16 columns in MySQL.
	counters := func(name string) []schema.Annotation {
		return []schema.Annotation{
			entcounter.Counter(name, entcounter.Key(key[:10]...), entcounter.Count("count"), entcounter.Sum("sum", "uint64"),
				entcounter.ReadIndex("uint", "int"), entcounter.ReadIndex(key[1:9]...)),
			entcounter.Counter(name+"Text", entcounter.Key(key[10:]...), entcounter.Count("count"), entcounter.ReadIndex("text", "enum")),
		}
	}
	return testGraph{
		"Plain": {fields: fields, annotations: counters("Plain")},
		"Latin": {fields: fields, annotations: append(counters("Latin"),
			entsql.Annotation{Charset: "utf8mb4", Collation: "utf8mb4_general_ci"})},
	}
}

// The generated tables can be created on every database, and a second run finds
// nothing to change.
func TestMigrate(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		types := columnGraph()
		if db.Kind == testdb.Postgres || db.Kind == testdb.SQLite {
			// Only MySQL knows these collations.
			for name, typ := range types {
				typ.fields = append(typ.fields[:0:0], typ.fields...)
				typ.fields[16] = field.String("collated").MaxLen(40)
				types[name] = typ
			}
		}
		g := types.load(t, "Plain", "Latin")
		p, err := newPlan(g)
		if err != nil {
			t.Fatal(err)
		}
		tables, err := g.Tables()
		if err != nil {
			t.Fatal(err)
		}
		tables = append(tables, p.Migrate...)
		ctx := context.Background()
		drv := sql.OpenDB(db.Dialect, db.DB(t))
		create := func(drv dialect.Driver) {
			t.Helper()
			m, err := sqlschema.NewMigrate(drv, sqlschema.WithDropColumn(true), sqlschema.WithDropIndex(true))
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Create(ctx, tables...); err != nil {
				t.Fatal(err)
			}
		}
		create(drv)
		var again bytes.Buffer
		create(&sqlschema.WriteDriver{Driver: drv, Writer: &again})
		if statements := strings.TrimSpace(strings.NewReplacer("BEGIN;", "", "COMMIT;", "").Replace(again.String())); statements != "" {
			t.Errorf("creating the tables again changes them:\n%s", statements)
		}
	})
}

// A generated table compares keys as the counted one does.
func TestKeyColumns(t *testing.T) {
	p, err := newPlan(columnGraph().load(t, "Plain", "Latin"))
	if err != nil {
		t.Fatal(err)
	}
	columns := make(map[string]int)
	for _, table := range p.Migrate {
		if table.Name == entcounter.LockTable {
			continue
		}
		if a := table.Annotation; strings.HasPrefix(table.Name, "latin") != (a != nil && a.Collation == "utf8mb4_general_ci" && a.Charset == "utf8mb4") {
			t.Errorf("table %s: annotation %v", table.Name, a)
		}
		for name, want := range map[string]sqlschema.Column{
			"text":     {Type: field.TypeString, Size: 40},
			"enum":     {Type: field.TypeEnum, Enums: []string{"a", "b"}},
			"optional": {Type: field.TypeString, Size: 40},
			"collated": {Type: field.TypeString, Size: 40, Collation: "utf8mb4_bin"},
			"uint8":    {Type: field.TypeUint8},
		} {
			got, ok := table.Column(name)
			if !ok {
				continue // of the other counter
			}
			columns[name]++
			switch {
			case got.Type != want.Type, got.Size != want.Size, got.Collation != want.Collation, len(got.Enums) != len(want.Enums),
				got.Nullable, got.Unique, got.Default != nil:
				t.Errorf("table %s: column %s is %+v", table.Name, name, got)
			}
		}
		if c, ok := table.Column("serial"); ok && c.SchemaType[dialect.Postgres] != "bigint" {
			t.Errorf("table %s: column serial is %v", table.Name, c.SchemaType)
		}
		if c, ok := table.Column("bytes"); ok && c.SchemaType[dialect.MySQL] != "varbinary(16)" {
			t.Errorf("table %s: column bytes is %v", table.Name, c.SchemaType)
		}
		for _, index := range table.Indexes {
			if len(index.Name) > maxIdentifier {
				t.Errorf("name of index %s is too long", index.Name)
			}
		}
	}
	for _, name := range []string{"text", "enum", "optional", "collated", "uint8"} {
		if n := columns[name]; n != 4 {
			t.Errorf("column %s is in %d tables", name, n)
		}
	}
}

// reachGraph has foreign keys that lead to a counted table in every way.
func reachGraph() testGraph {
	return testGraph{
		"Account": {
			edges: []ent.Edge{
				edge.To("datasets", Dataset.Type).Annotations(entsql.OnDelete(entsql.Cascade)),
				edge.To("tags", Tag.Type).Annotations(entsql.OnDelete(entsql.Cascade)),
			},
		},
		"Dataset": {
			fields: []ent.Field{field.String("name").Unique(), field.Int("account_id").Optional()},
			edges: []ent.Edge{
				edge.To("files", File.Type).Annotations(entsql.OnDelete(entsql.Cascade)),
				edge.To("kept", File.Type).Annotations(entsql.OnDelete(entsql.Restrict)),
			},
		},
		"File": {
			fields: []ent.Field{
				field.Int("dataset_id"),
				field.Int("owner_id").Optional(),
				field.Int("note_id").Optional(),
				field.Int("parent_id").Optional(),
				field.Enum("status").Values("New", "Copied").Default("New"),
				field.String("path").Unique(),
				field.Time("at").Annotations(entsql.DefaultExpr("CURRENT_TIMESTAMP")),
			},
			edges: []ent.Edge{
				edge.From("dataset", Dataset.Type).Ref("files").Field("dataset_id").Unique().Required(),
				edge.From("keeper", Dataset.Type).Ref("kept").Unique(),
				edge.To("owner", Owner.Type).Field("owner_id").Unique(),
				edge.To("note", Note.Type).Field("note_id").Unique(),
				edge.To("children", File.Type).From("parent").Field("parent_id").Unique(),
				edge.To("tags", Tag.Type),
			},
			annotations: []schema.Annotation{
				entcounter.Counter("File", entcounter.Key("dataset_id", "status"), entcounter.Count("count")),
				entcounter.Counter("OwnedFile", entcounter.Key("owner_id", "parent_id"), entcounter.Count("count")),
			},
		},
		"Owner": {fields: []ent.Field{field.Int("id").StorageKey("owner_no")}},
		"Note":  {},
		"Tag":   {},
		"Far":   {edges: []ent.Edge{edge.To("account", Account.Type).Unique()}},
	}
}

// More types that edges of test schemas name.
type (
	Account struct{ ent.Schema }
	Owner   struct{ ent.Schema }
	Note    struct{ ent.Schema }
)

func TestReach(t *testing.T) {
	p, err := newPlan(reachGraph().load(t, "Account", "Dataset", "Far", "File", "Note", "Owner", "Tag"))
	if err != nil {
		t.Fatal(err)
	}
	type reference struct {
		table, column, ref string
		action             entcounter.DeleteAction
	}
	want := map[string][]reference{
		"accounts": {{"datasets", "account_datasets", "id", entcounter.Cascade}},
		"datasets": {{"files", "dataset_id", "id", entcounter.Cascade}},
		"files":    {{"files", "parent_id", "id", entcounter.SetNull}},
		// Its foreign key is no column of a counter, but its edge writes files.
		"notes":  nil,
		"owners": {{"files", "owner_id", "owner_no", entcounter.SetNull}},
	}
	for _, table := range p.Tables {
		references, ok := want[table.Name]
		if !ok {
			t.Errorf("table %s does not concern counters", table.Name)
			continue
		}
		delete(want, table.Name)
		if len(references) != len(table.ReferencedBy) {
			t.Errorf("table %s is referenced by %+v", table.Name, table.ReferencedBy)
			continue
		}
		for i, fk := range table.ReferencedBy {
			if got := (reference{fk.Table, fk.Column.Name, fk.RefColumn.Name, fk.OnDelete}); got != references[i] {
				t.Errorf("table %s is referenced by %+v, not %+v", table.Name, got, references[i])
			}
		}
		if table.Name != "files" {
			continue
		}
		if len(table.Unique) != 1 || len(table.Unique[0]) != 1 || table.Unique[0][0].Name != "path" {
			t.Errorf("unique column sets of files: %v", table.Unique)
		}
		if got := strings.Join(table.Defaults, " "); got != "id status at" {
			t.Errorf("columns of files with a default: %s", got)
		}
	}
	for name := range want {
		t.Errorf("table %s is missing", name)
	}
}

func TestColumns(t *testing.T) {
	p, err := newPlan(columnGraph().load(t, "Plain"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]struct {
		faithful bool
		bits     int
	}{
		"int": {true, 64}, "int8": {true, 8}, "int16": {true, 16}, "int32": {true, 32}, "int64": {true, 64},
		"uint": {true, 64}, "uint8": {true, 8}, "uint16": {true, 16}, "uint32": {true, 32}, "uint64": {true, 64},
		"bool": {true, 0}, "enum": {true, 0}, "uuid": {true, 0}, "text": {true, 0}, "optional": {true, 0},
		"bytes": {false, 0}, "collated": {false, 0}, "typed": {false, 0}, "serial": {false, 64},
	}
	for _, c := range append(p.Counters[0].Definition.Key, p.Counters[1].Definition.Key...) {
		if w := want[c.Name]; c.Faithful != w.faithful || c.Bits != w.bits {
			t.Errorf("column %s: %+v", c.Name, c)
		}
		delete(want, c.Name)
	}
	for name := range want {
		t.Errorf("column %s is missing", name)
	}
}

// Only a unique index over whole columns and all rows tells which row an upsert
// meets.
func TestUniqueIndexes(t *testing.T) {
	table := sqlschema.NewTable("files").
		AddPrimary(&sqlschema.Column{Name: "id", Type: field.TypeInt}).
		AddColumn(&sqlschema.Column{Name: "path", Type: field.TypeString}).
		AddColumn(&sqlschema.Column{Name: "size", Type: field.TypeInt})
	table.AddIndex("whole", true, []string{"path", "size"})
	for name, annotation := range map[string]*entsql.IndexAnnotation{
		"rows":    {Where: "size > 0"},
		"prefix":  {Prefix: 10},
		"columns": {PrefixColumns: map[string]uint{"path": 10}},
	} {
		table.AddIndex(name, true, []string{"path"})
		idx, _ := table.Index(name)
		idx.Annotation = annotation
	}
	unique := describe(table).Unique
	if len(unique) != 1 || len(unique[0]) != 2 {
		t.Fatalf("unique columns %v", unique)
	}
}

// Rows that can refer to each other without a delete action, or whose cascades can,
// are deleted in one statement.
func TestDeleteTogether(t *testing.T) {
	table := func(name string) *sqlschema.Table {
		return sqlschema.NewTable(name).AddPrimary(&sqlschema.Column{Name: "id", Type: field.TypeInt})
	}
	refer := func(from, to *sqlschema.Table, action sqlschema.ReferenceOption) {
		column := &sqlschema.Column{Name: to.Name + "_id", Type: field.TypeInt, Nullable: true}
		from.AddColumn(column).AddForeignKey(&sqlschema.ForeignKey{
			Columns: []*sqlschema.Column{column}, RefTable: to, RefColumns: to.PrimaryKey, OnDelete: action,
		})
	}
	top, middle, ring, leaf, other := table("top"), table("middle"), table("ring"), table("leaf"), table("other")
	refer(middle, top, sqlschema.Cascade)
	refer(ring, middle, sqlschema.Cascade)
	refer(ring, ring, sqlschema.NoAction)
	refer(leaf, middle, sqlschema.Cascade)
	refer(leaf, leaf, sqlschema.SetNull)
	refer(other, leaf, "")
	refer(other, other, sqlschema.Cascade)
	tables := []*sqlschema.Table{top, middle, ring, leaf, other}
	for name, want := range map[string]bool{"top": true, "middle": true, "ring": true, "leaf": false, "other": false} {
		if got := restrictsItself(name, tables); got != want {
			t.Errorf("the rows of %s go together: %v, want %v", name, got, want)
		}
	}
}
