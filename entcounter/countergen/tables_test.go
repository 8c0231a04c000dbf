package countergen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ariga.io/atlas/sql/migrate"
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

// Names that are too long, or would be taken, end in a hash. They are those of before as long as the
// declaration is.
func TestNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("VeryLong", 7)
	types := testGraph{"File": {
		fields: []ent.Field{field.Int("a_b"), field.Int("c"), field.Int("a"), field.Int("b_c"), field.Int("key")},
		annotations: []schema.Annotation{
			entcounter.Counter("File", entcounter.Key("a_b", "c", "a", "b_c", "key"), entcounter.Count("count"),
				entcounter.ReadIndex("key"), entcounter.ReadIndex("a_b", "c"), entcounter.ReadIndex("a", "b_c")),
			entcounter.Counter(long+"A", entcounter.Key("a"), entcounter.Count("count")),
			entcounter.Counter(long+"B", entcounter.Key("a", "c"), entcounter.Count("count"), entcounter.ReadIndex("c")),
		},
	}}
	var tables []*sqlschema.Table
	names := func() (all []string) {
		g := types.load(t, "File")
		p, err := newPlan(g)
		if err != nil {
			t.Fatal(err)
		}
		owned, err := g.Tables()
		if err != nil {
			t.Fatal(err)
		}
		tables = append(owned, p.Migrate...)
		for _, table := range p.Migrate {
			all = append(all, table.Name)
			for _, idx := range table.Indexes {
				all = append(all, idx.Name)
			}
		}
		return all
	}
	got := names()
	for i, name := range got {
		if len(name) > maxIdentifier || slices.Contains(got[:i], name) {
			t.Errorf("%s is too long, or there twice", name)
		}
	}
	for _, name := range []string{"file_counters_by_key", "file_counter_journal_by_key", "file_counters_by_a_b_c"} {
		if !slices.Contains(got, name) {
			t.Errorf("%s is missing", name)
		}
	}
	if again := names(); !slices.Equal(got, again) {
		t.Errorf("names %v, and then %v", got, again)
	}
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		m, err := sqlschema.NewMigrate(sql.OpenDB(db.Dialect, db.DB(t)))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Create(t.Context(), tables...); err != nil {
			t.Fatal(err)
		}
	})
}

// typeGraph has a key column of every type that a schema can ask of a database, in a table with every kind of
// collation that the database knows.
func typeGraph(kind testdb.Kind) testGraph {
	collation, charset := "NOCASE", ""
	switch kind {
	case testdb.MySQL, testdb.MariaDB:
		collation, charset = "latin1_german2_ci", "latin1"
	case testdb.Postgres:
		collation = "C"
	}
	size := uint8(0)
	fields := []ent.Field{
		field.Int("int"), field.Int8("int8"), field.Uint8("uint8"), field.Int16("int16"), field.Uint16("uint16"), field.Int32("int32"),
		field.Uint32("uint32"), field.Uint64("uint64"), field.Bool("bool"), field.UUID("uuid", uuid.UUID{}),
		field.Enum("enum").NamedValues("A", "a", "B", "b c"), field.Enum("optional_enum").Values("x").Optional().Nillable(),
		field.String("text").MaxLen(40), field.String("nillable").MaxLen(7).Optional().Nillable(), field.String("unlimited"),
		field.String("collated").MaxLen(12).Annotations(entsql.Annotation{Collation: collation}),
		field.String("stored").MaxLen(9).StorageKey("stored_elsewhere"), field.String("defaulted").MaxLen(9).Default("x").Annotations(entsql.Default("x")),
		field.Bytes("bytes").MaxLen(16).SchemaType(map[string]string{dialect.MySQL: "binary(16)"}),
		field.String("fixed").SchemaType(map[string]string{dialect.MySQL: "char(5)", dialect.Postgres: "char(5)", dialect.SQLite: "char(5)"}),
		field.String("sized").SchemaType(map[string]string{dialect.MySQL: "varchar(31)", dialect.Postgres: "varchar(31)", dialect.SQLite: "varchar(31)"}),
		field.Int("decimal").SchemaType(map[string]string{dialect.MySQL: "decimal(18,0)", dialect.Postgres: "numeric(18,0)", dialect.SQLite: "decimal(18,0)"}),
		field.Int("small").SchemaType(map[string]string{dialect.MySQL: "smallint unsigned", dialect.Postgres: "smallint"}),
		field.Int("serial").SchemaType(map[string]string{dialect.Postgres: "bigserial"}),
		field.Uint8("custom").GoType(size),
	}
	key := make([]string, len(fields))
	for i, f := range fields {
		key[i] = f.Descriptor().Name
	}
	counters := func(name string) []schema.Annotation {
		return []schema.Annotation{
			entcounter.Counter(name, entcounter.Key(key[:13]...), entcounter.Count("count"), entcounter.Sum("sum", "int"), entcounter.Sum("small_sum", "int8")),
			entcounter.Counter(name+"Text", entcounter.Key(key[13:]...), entcounter.Count("count")),
		}
	}
	types := testGraph{"Plain": {fields: fields, annotations: counters("Plain")}}
	types["Other"] = testType{fields: fields, annotations: append(counters("Other"), entsql.Annotation{Charset: charset})}
	if charset != "" {
		types["Other"] = testType{fields: fields, annotations: append(counters("Other"), entsql.Annotation{Charset: charset, Collation: charset + "_bin"})}
	}
	return types
}

// catalogue returns how a database stores the columns of a table: type, size, character set and collation, and
// after a | whether there is NULL and what the default is.
func catalogue(t *testing.T, db *testdb.Database, table string) map[string]string {
	t.Helper()
	query := map[testdb.Kind]string{
		testdb.SQLite: "SELECT name, type, '', '', \"notnull\", COALESCE(dflt_value, '') FROM pragma_table_info('" + table + "')",
		testdb.Postgres: `SELECT attname, format_type(atttypid, atttypmod), '', COALESCE(collname, ''), attnotnull::int,
			COALESCE(pg_get_expr(adbin, adrelid), '') || attidentity::text FROM pg_attribute
			LEFT JOIN pg_collation c ON c.oid = attcollation LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
			WHERE attrelid = '` + table + `'::regclass AND attnum > 0 AND NOT attisdropped`,
	}[db.Kind]
	if query == "" {
		query = `SELECT column_name, column_type, COALESCE(character_set_name, ''), COALESCE(collation_name, ''), is_nullable = 'NO',
			COALESCE(column_default, '') FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '` + table + "'"
	}
	rows, err := db.DB(t).QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	columns := make(map[string]string)
	for rows.Next() {
		var name, typ, charset, collation, fallback string
		var required int
		if err := rows.Scan(&name, &typ, &charset, &collation, &required, &fallback); err != nil {
			t.Fatal(err)
		}
		columns[name] = fmt.Sprintf("%s %s %s|%d %s", typ, charset, collation, required, fallback)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if db.Kind == testdb.SQLite {
		// SQLite tells a collation in the text of the table only.
		var text string
		if err := db.DB(t).QueryRowContext(t.Context(), "SELECT sql FROM sqlite_master WHERE name = '"+table+"'").Scan(&text); err != nil {
			t.Fatal(err)
		}
		for name, column := range columns {
			for line := range strings.Lines(text) {
				if strings.Contains(line, "COLLATE NOCASE") && strings.Contains(line, "`"+name+"` ") {
					columns[name] = strings.Replace(column, "|", "NOCASE|", 1)
				}
			}
		}
	}
	return columns
}

// What decides which values are one key is the same in a counted table and in the tables of its counters: so the
// catalogue of each database says.
func TestCatalogue(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		g := typeGraph(db.Kind).load(t, "Other", "Plain")
		p, err := newPlan(g)
		if err != nil {
			t.Fatal(err)
		}
		tables, err := g.Tables()
		if err != nil {
			t.Fatal(err)
		}
		m, err := sqlschema.NewMigrate(sql.OpenDB(db.Dialect, db.DB(t)))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Create(t.Context(), append(tables, p.Migrate...)...); err != nil {
			t.Fatal(err)
		}
		integer, instant := "bigint  ", "datetime(6)  "
		switch db.Kind {
		case testdb.MariaDB:
			integer = "bigint(20)  "
		case testdb.Postgres:
			instant = "timestamp with time zone  " // in microseconds
		case testdb.SQLite:
			integer, instant = "INTEGER  ", "datetime  "
		}
		for _, c := range p.Counters {
			counted := catalogue(t, db, c.Owner().Table())
			for _, table := range []string{c.Definition.Table, c.Definition.Journal} {
				columns := catalogue(t, db, table)
				for _, k := range c.Key {
					want, _, _ := strings.Cut(counted[k.Column.Name], "|")
					if got := columns[k.Column.Name]; want == "" || got != want+"|1 " {
						t.Errorf("%s: column %s is %q, in the counted table %q", table, k.Column.Name, got, counted[k.Column.Name])
					}
				}
				for _, measure := range c.Definition.Measures {
					name, at := measure.Name, entcounter.ColumnUpdatedAt
					if table == c.Definition.Journal {
						name, at = measure.Delta, entcounter.ColumnInsertedAt
					}
					if got := columns[name]; !strings.EqualFold(got, integer+"|1 ") {
						t.Errorf("%s: column %s is %q", table, name, got)
					}
					if got := columns[at]; got != instant+"|1 " {
						t.Errorf("%s: column %s is %q", table, at, got)
					}
				}
			}
		}
		for _, table := range p.Migrate {
			if len(table.ForeignKeys) > 0 {
				t.Errorf("%s has foreign keys", table.Name)
			}
		}
	})
}

// A journal is created with its partitions by every way to migrate, and is left alone afterwards. Only MySQL and
// MariaDB have any.
func TestPartitions(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		g := testGraph{"File": {
			fields: []ent.Field{field.Int("a")},
			annotations: []schema.Annotation{
				entsql.Annotation{Charset: "utf8mb4", Collation: "utf8mb4_general_ci"},
				entcounter.Counter("File", entcounter.Key("a"), entcounter.Count("count"), entcounter.PartitionJournal(5)),
			},
		}}.load(t, "File")
		p, err := newPlan(g)
		if err != nil {
			t.Fatal(err)
		}
		tables, err := g.Tables()
		if err != nil {
			t.Fatal(err)
		}
		tables = append(tables, p.Migrate...)
		drv := sql.OpenDB(db.Dialect, db.DB(t))
		const clause = "PARTITION BY HASH (`id`) PARTITIONS 5"
		partitioned := db.Dialect == dialect.MySQL
		for _, mode := range []sqlschema.Mode{sqlschema.ModeInspect, sqlschema.ModeReplay} {
			dir := &migrate.MemDir{}
			m, err := sqlschema.NewMigrate(drv, sqlschema.WithDir(dir), sqlschema.WithFormatter(migrate.DefaultFormatter),
				sqlschema.WithMigrationMode(mode), entcounter.WithTableOptions(p.Migrate...))
			if err != nil {
				t.Fatal(err)
			}
			if err := m.NamedDiff(t.Context(), "init", tables...); err != nil {
				t.Fatal(err)
			}
			files, err := dir.Files()
			if err != nil || len(files) != 1 {
				t.Fatalf("%d files, error %v", len(files), err)
			}
			if text := string(files[0].Bytes()); strings.Contains(text, clause) != partitioned || strings.Contains(text, "partitioned") {
				t.Errorf("mode %v writes:\n%s", mode, text)
			}
			// The file can be replayed.
			again, err := sqlschema.NewMigrate(drv, sqlschema.WithDir(dir), sqlschema.WithFormatter(migrate.DefaultFormatter),
				sqlschema.WithMigrationMode(sqlschema.ModeReplay), entcounter.WithTableOptions(p.Migrate...), sqlschema.WithErrNoPlan(true))
			if err != nil {
				t.Fatal(err)
			}
			if err := again.NamedDiff(t.Context(), "again", tables...); !errors.Is(err, migrate.ErrNoPlan) {
				t.Errorf("mode %v: a second migration: error %v", mode, err)
			}
		}
		ddl, err := sqlschema.DDL(t.Context(), sqlschema.DDLArgs{Dialect: db.Dialect, Version: "13.0.0", Tables: tables})
		if err != nil || strings.Contains(ddl, clause) != partitioned {
			t.Errorf("error %v, DDL:\n%s", err, ddl)
		}
		for range 2 {
			m, err := sqlschema.NewMigrate(drv)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Create(t.Context(), tables...); err != nil {
				t.Fatal(err)
			}
		}
		if !partitioned {
			return
		}
		var n int
		if err := db.DB(t).QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.partitions WHERE table_schema = DATABASE() "+
			"AND table_name = 'file_counter_journal' AND partition_method = 'HASH' AND partition_expression = '`id`'").Scan(&n); err != nil || n != 5 {
			t.Errorf("%d partitions, error %v", n, err)
		}
	})
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
