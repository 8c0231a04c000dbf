package countergen

import (
	"database/sql"
	"strings"
	"testing"

	"entgo.io/ent"
	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/entc/gen"
	"entgo.io/ent/entc/load"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
	"github.com/entcounter/entcounter/entcounter"
)

// Types that edges of test schemas name.
type (
	Dataset struct{ ent.Schema }
	File    struct{ ent.Schema }
	Tag     struct{ ent.Schema }
)

// testType is the schema of one type, written in a test.
type testType struct {
	ent.Schema
	fields      []ent.Field
	edges       []ent.Edge
	indexes     []ent.Index
	annotations []schema.Annotation
}

func (s testType) Fields() []ent.Field              { return s.fields }
func (s testType) Edges() []ent.Edge                { return s.edges }
func (s testType) Indexes() []ent.Index             { return s.indexes }
func (s testType) Annotations() []schema.Annotation { return s.annotations }

// testGraph is a graph of types by name.
type testGraph map[string]testType

// load brings the types to the form in which ent's loader hands them on, and
// builds the graph from them.
func (types testGraph) load(t *testing.T, names ...string) *gen.Graph {
	t.Helper()
	storage, err := gen.NewStorage("sql")
	if err != nil {
		t.Fatal(err)
	}
	var schemas []*load.Schema
	for _, name := range names {
		buf, err := load.MarshalSchema(types[name])
		if err != nil {
			t.Fatal(err)
		}
		s, err := load.UnmarshalSchema(buf)
		if err != nil {
			t.Fatal(err)
		}
		s.Name = name
		schemas = append(schemas, s)
	}
	g, err := gen.NewGraph(&gen.Config{
		Target:  t.TempDir(),
		Package: "example.com/app/ent",
		Storage: storage,
	}, schemas...)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// fileGraph is the schema of the README: datasets of files.
func fileGraph(annotations ...schema.Annotation) testGraph {
	return testGraph{
		"Dataset": {
			fields: []ent.Field{field.String("name").Unique()},
			edges:  []ent.Edge{edge.To("files", File.Type).Annotations(entsql.OnDelete(entsql.Cascade))},
		},
		"File": {
			fields: []ent.Field{
				field.Int("dataset_id"),
				field.String("path"),
				field.Int64("size"),
				field.Enum("status").Values("New", "Copied"),
				field.Float("score").Optional(),
				field.Time("seen_at").Optional(),
				field.JSON("meta", map[string]string{}).Optional(),
				field.Bytes("digest").Optional(),
				field.Bytes("sum").MaxLen(32).Optional(),
				field.Text("notes").Optional(),
				field.String("long").MaxLen(700).Optional(),
				field.String("pending").Optional(),
				field.String("raw").Optional().SchemaType(map[string]string{dialect.MySQL: "text"}),
				field.String("scanned").Optional().ValueScanner(field.ValueScannerFunc[string, *sql.NullString]{}),
			},
			edges: []ent.Edge{
				edge.From("dataset", Dataset.Type).Ref("files").Field("dataset_id").Unique().Required(),
				edge.To("parent", File.Type).Unique(),
				edge.To("tags", Tag.Type),
			},
			annotations: annotations,
		},
		"Tag": {fields: []ent.Field{field.String("name")}},
	}
}

// counters declares one valid counter of files, changed by the options.
func fileCounter(options ...entcounter.Option) schema.Annotation {
	return entcounter.Counter("File", options...)
}

func TestDeclarationErrors(t *testing.T) {
	key := entcounter.Key("dataset_id", "status")
	count := entcounter.Count("count")
	both := func(a, b schema.Annotation) []schema.Annotation { return []schema.Annotation{a, b} }
	tests := []struct {
		name        string
		annotations []schema.Annotation
		change      func(testGraph)
		want        []string // parts of the error
	}{
		{
			name:        "unknown key field",
			annotations: []schema.Annotation{fileCounter(entcounter.Key("dataset_id", "state"), count)},
			want:        []string{"type File", `counter "File"`, `key field "state" does not exist in File`, "status"},
		},
		{
			name:        "edge with a field as key field",
			annotations: []schema.Annotation{fileCounter(entcounter.Key("dataset"), count)},
			want:        []string{`key field "dataset" is an edge: use its field "dataset_id"`},
		},
		{
			name:        "edge without a field as key field",
			annotations: []schema.Annotation{fileCounter(entcounter.Key("parent"), count)},
			want:        []string{`key field "parent" is an edge without a field`, `declare a field "parent_id"`, `Field("parent_id") to the edge "parent"`},
		},
		{
			name:        "column of an edge as key field",
			annotations: []schema.Annotation{fileCounter(entcounter.Key("file_parent"), count)},
			want:        []string{`key field "file_parent" is an edge without a field`},
		},
		{
			name:        "edge of another table as key field",
			annotations: []schema.Annotation{fileCounter(entcounter.Key("tags"), count)},
			want:        []string{`key field "tags" is an edge whose column is not in the table of File`},
		},
		{
			name:        "primary key as key field",
			annotations: []schema.Annotation{fileCounter(entcounter.Key("id"), count)},
			want:        []string{`key field "id" is the primary key`},
		},
		{
			name:        "no key",
			annotations: []schema.Annotation{fileCounter(count)},
			want:        []string{"it has no key", "entcounter.Key"},
		},
		{
			name:        "key field twice",
			annotations: []schema.Annotation{fileCounter(entcounter.Key("status", "status"), count)},
			want:        []string{`key field "status" is listed twice`},
		},
		{
			name:        "too many key fields",
			annotations: []schema.Annotation{fileCounter(entcounter.Key(strings.Split("abcdefghijklmnopq", "")...), count)},
			want:        []string{"the key has 17 fields, and an index no more than 16"},
		},
		{
			name:        "float key field",
			annotations: []schema.Annotation{fileCounter(entcounter.Key("score"), count)},
			want:        []string{`key field "score" is of type float64`, "use an integer"},
		},
		{
			name:        "time key field",
			annotations: []schema.Annotation{fileCounter(entcounter.Key("seen_at"), count)},
			want:        []string{`key field "seen_at" is of type time.Time`, "store the day in a field of its own"},
		},
		{
			name:        "JSON key field",
			annotations: []schema.Annotation{fileCounter(entcounter.Key("meta"), count)},
			want:        []string{`key field "meta" is of type json.RawMessage`, "in a field of its own"},
		},
		{
			name:        "bytes key field without a limit",
			annotations: []schema.Annotation{fileCounter(entcounter.Key("digest"), count)},
			want:        []string{`key field "digest" is of type []byte`, "add MaxLen"},
		},
		{
			name:        "text key field",
			annotations: []schema.Annotation{fileCounter(entcounter.Key("notes"), count)},
			want:        []string{"an index no more than 3072", `key field "notes" alone takes`, "limit it with MaxLen"},
		},
		{
			name:        "key too long",
			annotations: []schema.Annotation{fileCounter(entcounter.Key("long", "path"), count)},
			want:        []string{"the key takes 3820 bytes", `key field "long" alone takes 2800`},
		},
		{
			name:        "key field of a database type without a limit",
			annotations: []schema.Annotation{fileCounter(entcounter.Key("raw"), count)},
			want:        []string{`key field "raw" cannot be indexed`, `"text"`},
		},
		{
			name:        "key field with a value scanner",
			annotations: []schema.Annotation{fileCounter(entcounter.Key("scanned"), count)},
			want:        []string{`key field "scanned" has an external ValueScanner`, "GoType"},
		},
		{
			name:        "reserved key field",
			annotations: []schema.Annotation{fileCounter(entcounter.Key("pending"), count)},
			want:        []string{`key field "pending": the generated tables have a column of this name`, "rename the field"},
		},
		{
			name:        "literal named like a generated type",
			annotations: []schema.Annotation{fileCounter(entcounter.Literal("scope", "file"), count)},
			want:        []string{`key field "scope": its values need a Go type Scope`, "give the column another name"},
		},
		{
			name:        "key fields with one column",
			annotations: []schema.Annotation{fileCounter(entcounter.Key("status", "other"), count)},
			change: func(g testGraph) {
				f := g["File"]
				f.fields = append(f.fields, field.String("other").StorageKey("Status"))
				g["File"] = f
			},
			want: []string{`key field "status" and key field "other" are stored in columns of one name`},
		},
		{
			name:        "no measure",
			annotations: []schema.Annotation{fileCounter(key)},
			want:        []string{"it has no measure", "entcounter.Count or entcounter.Sum"},
		},
		{
			name:        "measure twice",
			annotations: []schema.Annotation{fileCounter(key, count, entcounter.Sum("count", "size"))},
			want:        []string{`measure "count" is declared twice`},
		},
		{
			name:        "measure named like a key field",
			annotations: []schema.Annotation{fileCounter(key, entcounter.Count("status"))},
			want:        []string{`measure "status" has the name of a key field`},
		},
		{
			name:        "reserved measure",
			annotations: []schema.Annotation{fileCounter(key, entcounter.Count("updated_at"))},
			want:        []string{`measure "updated_at": the generated tables have a column of this name`},
		},
		{
			name:        "measure that is no field name",
			annotations: []schema.Annotation{fileCounter(key, entcounter.Count("Count"))},
			want:        []string{`measure "Count": the name must be in the style of a field's`},
		},
		{
			name:        "measure named like another's delta",
			annotations: []schema.Annotation{fileCounter(key, count, entcounter.Count("count_delta"))},
			want:        []string{`measure "count_delta" needs a column "count_delta", which is taken by measure "count"`},
		},
		{
			name:        "measure with a long name",
			annotations: []schema.Annotation{fileCounter(key, entcounter.Count(strings.Repeat("n", 60)))},
			want:        []string{"the name is 3 bytes too long for a column"},
		},
		{
			name:        "measure named like a method",
			annotations: []schema.Annotation{fileCounter(key, entcounter.Count("unwrap"))},
			want:        []string{`measure "unwrap": ent generates a method named Unwrap`},
		},
		{
			name:        "measure named like a predicate",
			annotations: []schema.Annotation{fileCounter(key, entcounter.Count("not"))},
			want:        []string{`measure "not": the generated name Not is taken by ent's Not`},
		},
		{
			name:        "measure named like another's predicate",
			annotations: []schema.Annotation{fileCounter(key, count, entcounter.Count("count_in"))},
			want:        []string{`measure "count_in": the generated name CountIn is taken by measure "count"`},
		},
		{
			name:        "sum of an unknown field",
			annotations: []schema.Annotation{fileCounter(key, entcounter.Sum("bytes", "length"))},
			want:        []string{`measure "bytes": field "length" does not exist in File`},
		},
		{
			name:        "sum of floats",
			annotations: []schema.Annotation{fileCounter(key, entcounter.Sum("score", "score"))},
			want:        []string{`measure "score": field "score" is of type float64`, "store an integer"},
		},
		{
			name:        "sum of JSON",
			annotations: []schema.Annotation{fileCounter(key, entcounter.Sum("metas", "meta"))},
			want:        []string{`measure "metas": field "meta" is of type json.RawMessage: only an integer can be summed`},
		},
		{
			name:        "counter twice on one type",
			annotations: both(fileCounter(key, count), fileCounter(key, count)),
			want:        []string{"type File", `counter "File": it is declared twice`},
		},
		{
			name:        "counter on two types",
			annotations: []schema.Annotation{fileCounter(key, count)},
			change: func(g testGraph) {
				d := g["Dataset"]
				d.annotations = []schema.Annotation{entcounter.Counter("File", entcounter.Key("name"), count)}
				g["Dataset"] = d
			},
			want: []string{`type File: counter "File": type Dataset declares a counter of this name too`},
		},
		{
			name:        "counters that differ in case",
			annotations: both(fileCounter(key, count), entcounter.Counter("FILE", key, count)),
			want:        []string{`counter "FILE"`, `FILECounters, which is taken by counter "File" of type File`},
		},
		{
			name:        "counter without a name",
			annotations: []schema.Annotation{entcounter.Counter("", key, count)},
			want:        []string{"exported Go identifier"},
		},
		{
			name:        "counter named in lower case",
			annotations: []schema.Annotation{entcounter.Counter("file", key, count)},
			want:        []string{`counter "file": the name must be an exported Go identifier`},
		},
		{
			name:        "a journal of one partition",
			annotations: []schema.Annotation{entcounter.Counter("File", key, count, entcounter.PartitionJournal(1))},
			want:        []string{"the journal cannot have 1 partitions: give PartitionJournal 2 to 1024"},
		},
		{
			name:        "counter with a long name",
			annotations: []schema.Annotation{entcounter.Counter("F"+strings.Repeat("i", 66), key, count)},
			want:        []string{"the name is 3 bytes too long: shorten it to 64"},
		},
		{
			name:        "type of that name",
			annotations: []schema.Annotation{entcounter.Counter("Tag", key, count)},
			change: func(g testGraph) {
				g["TagCounters"] = testType{fields: []ent.Field{field.String("name")}}
			},
			want: []string{`TagCounters, which is taken by type TagCounters`, "name the counter differently"},
		},
		{
			name:        "table of that name",
			annotations: []schema.Annotation{fileCounter(key, count)},
			change: func(g testGraph) {
				g["Other"] = testType{annotations: []schema.Annotation{entsql.Table("file_counter_journal")}}
			},
			want: []string{`"file_counter_journal", which is taken by the table`},
		},
		{
			name:        "table of locks",
			annotations: []schema.Annotation{fileCounter(key, count)},
			change: func(g testGraph) {
				g["CounterLock"] = testType{}
			},
			want: []string{`a table named "counter_locks", which is taken by the table`},
		},
		{
			name:        "type named Counters",
			annotations: []schema.Annotation{fileCounter(key, count)},
			change:      func(g testGraph) { g["Counters"] = testType{} },
			want:        []string{"type Counters takes the name of the generated method Client.Counters"},
		},
		{
			name:        "type named EntCounter",
			annotations: []schema.Annotation{fileCounter(key, count)},
			change:      func(g testGraph) { g["EntCounter"] = testType{} },
			want:        []string{"type EntCounter takes the name of the generated file"},
		},
		{
			name:        "read index beside the key",
			annotations: []schema.Annotation{fileCounter(key, count, entcounter.ReadIndex("path"))},
			want:        []string{`read index field "path" is not part of the key (dataset_id, status)`},
		},
		{
			name:        "read index without fields",
			annotations: []schema.Annotation{fileCounter(key, count, entcounter.ReadIndex())},
			want:        []string{"a read index has no fields"},
		},
		{
			name:        "read index field twice",
			annotations: []schema.Annotation{fileCounter(key, count, entcounter.ReadIndex("status", "status"))},
			want:        []string{`read index field "status" is listed twice`},
		},
		{
			name:        "read index twice",
			annotations: []schema.Annotation{fileCounter(key, count, entcounter.ReadIndex("status"), entcounter.ReadIndex("status"))},
			want:        []string{"the read index (status) is declared twice"},
		},
		{
			name:        "read beside the key",
			annotations: []schema.Annotation{fileCounter(key, count, entcounter.Reads("path"))},
			want:        []string{`field "path" of a declared read is not part of the key (dataset_id, status)`},
		},
		{
			name:        "read without fields",
			annotations: []schema.Annotation{fileCounter(key, count, entcounter.Reads())},
			want:        []string{"a declared read has no fields"},
		},
		{
			name:        "read field twice",
			annotations: []schema.Annotation{fileCounter(key, count, entcounter.Reads("status", "status"))},
			want:        []string{`field "status" of a declared read is listed twice`},
		},
		{
			name:        "table left out",
			annotations: []schema.Annotation{entsql.Skip(), fileCounter(key, count)},
			change: func(g testGraph) {
				g["Dataset"] = testType{}
				f := g["File"]
				f.edges = nil
				g["File"] = f
			},
			want: []string{"left out by entsql.Skip"},
		},
		{
			name:        "foreign key that sets a default",
			annotations: []schema.Annotation{fileCounter(key, count)},
			change: func(g testGraph) {
				d := g["Dataset"]
				d.edges = []ent.Edge{edge.To("files", File.Type).Annotations(entsql.OnDelete(entsql.SetDefault))}
				g["Dataset"] = d
			},
			want: []string{`sets column "dataset_id" to its default`, "entsql.OnDelete"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			types := fileGraph(tt.annotations...)
			if tt.change != nil {
				tt.change(types)
			}
			names := []string{"Dataset", "File", "Tag"}
			for name := range types {
				if name != "Dataset" && name != "File" && name != "Tag" {
					names = append(names, name)
				}
			}
			g := types.load(t, names...)
			p, err := newPlan(g)
			if err == nil {
				_, err = p.withViews(g)
			}
			if err == nil {
				t.Fatal("no error")
			}
			text := err.Error()
			if !strings.HasPrefix(text, "entcounter: type ") {
				t.Errorf("error does not begin with the type: %s", text)
			}
			for _, part := range tt.want {
				if !strings.Contains(text, part) {
					t.Errorf("error lacks %q: %s", part, text)
				}
			}
		})
	}
}

func TestDeclarationOnView(t *testing.T) {
	g := fileGraph().load(t, "Dataset", "File", "Tag")
	view := &load.Schema{
		Name: "Size", View: true,
		Fields:      []*load.Field{{Name: "size", Info: &field.TypeInfo{Type: field.TypeInt64}}},
		Annotations: map[string]any{entcounter.AnnotationName: entcounter.Counter("Size", entcounter.Key("size"), entcounter.Count("count"))},
	}
	g, err := gen.NewGraph(g.Config, append([]*load.Schema{view}, g.Schemas...)...)
	if err != nil {
		t.Fatal(err)
	}
	_, err = newPlan(g)
	if err == nil || !strings.Contains(err.Error(), "Size is a view: declare the counter on the type whose rows are written") {
		t.Errorf("unexpected error: %v", err)
	}
}

func TestDeclarationOnGremlin(t *testing.T) {
	g := fileGraph(fileCounter(entcounter.Key("status"), entcounter.Count("count"))).load(t, "Dataset", "File", "Tag")
	storage, err := gen.NewStorage("gremlin")
	if err != nil {
		t.Fatal(err)
	}
	g.Storage = storage
	_, err = newPlan(g)
	if err == nil || !strings.Contains(err.Error(), "counters and sequences need an SQL database") {
		t.Errorf("unexpected error: %v", err)
	}
}

// Names that ent or the generated types use elsewhere are no obstacle.
func TestOddNames(t *testing.T) {
	types := testGraph{"Group": {
		fields: []ent.Field{
			field.Int("order"), field.String("scope").MaxLen(20), field.Bool("select"), field.Enum("key").Values("a", "b"),
			field.Int("group").StorageKey("Group Column"), field.Bytes("delta").MaxLen(16),
		},
		indexes: []ent.Index{index.Fields("order")},
		annotations: []schema.Annotation{entcounter.Counter("Group",
			entcounter.Key("order", "scope", "select", "key", "group", "delta"),
			entcounter.Count("measures"), entcounter.Count("totals"), entcounter.Count("value"), entcounter.Count("label"), entcounter.Count("table"),
		)},
	}}
	g := types.load(t, "Group")
	p, err := newPlan(g)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.withViews(g); err != nil {
		t.Fatal(err)
	}
}

// Tables in several database schemas are refused, whether types are annotated or the
// client is to say where they are.
func TestDatabaseSchemas(t *testing.T) {
	counter := fileCounter(entcounter.Key("dataset_id"), entcounter.Count("count"))
	refused := func(g *gen.Graph) {
		t.Helper()
		_, err := newPlan(g)
		for _, want := range []string{"type File", "entsql.Schema", "sql/schemaconfig", "search_path"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not say %q: %v", want, err)
			}
		}
	}
	g := fileGraph(counter).load(t, "Dataset", "File", "Tag")
	if _, err := newPlan(g); err != nil {
		t.Fatal(err)
	}
	g.Features = append(g.Features, gen.FeatureSchemaConfig)
	refused(g)
	types := fileGraph(counter)
	for name, typ := range types {
		typ.annotations = append(typ.annotations, entsql.Schema("archive"))
		types[name] = typ
	}
	refused(types.load(t, "Dataset", "File", "Tag"))
}
