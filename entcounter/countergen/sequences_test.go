package countergen

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
	"github.com/entcounter/entcounter/entcounter"
)

// numberedGraph is a type of numbered rows.
func numberedGraph(annotations ...schema.Annotation) testGraph {
	return testGraph{
		"Dataset": {edges: []ent.Edge{edge.To("files", File.Type)}},
		"File": {
			fields: []ent.Field{
				field.Int("dataset_id").Immutable(),
				field.Enum("kind").Values("a", "b").Immutable(),
				field.String("path").Immutable(),
				field.Int("number").Optional().Immutable(),
				field.Int8("small").Optional().Immutable().Unique(),
				field.Int("required").Immutable(),
				field.Int("mutable").Optional(),
				field.Int("mutable_scope"),
				field.Int("optional_scope").Optional().Immutable(),
				field.Int("next_number").Immutable(),
				field.Int("defaulted").Optional().Immutable().Default(1),
				field.Int("typed").Optional().Immutable().SchemaType(map[string]string{"mysql": "decimal(10,2)"}),
				field.Float("score").Optional().Immutable(),
				field.String("name").Optional().Immutable(),
				field.Text("notes").Immutable(),
				field.Int("by_hand").Optional().Immutable(),
			},
			edges: []ent.Edge{
				edge.From("dataset", Dataset.Type).Ref("files").Field("dataset_id").Unique().Required().Immutable(),
				edge.To("parent", File.Type).Unique(),
				edge.To("tags", Tag.Type),
			},
			indexes: []ent.Index{
				index.Fields("kind", "dataset_id", "number").Unique(),
				index.Fields("dataset_id", "number").Unique(),
				index.Fields("number", "kind").Unique(),
				index.Fields("kind", "by_hand").Unique().Annotations(entsql.IndexWhere("by_hand > 0")),
				index.Fields("path", "number"),
				index.Fields("number", "notes").Unique(),
			},
			annotations: annotations,
		},
		"Tag": {fields: []ent.Field{field.String("name")}},
	}
}

func TestSequenceErrors(t *testing.T) {
	per := entcounter.Per
	sequence := func(field string, options ...entcounter.SequenceOption) []schema.Annotation {
		return []schema.Annotation{entcounter.Sequence(field, options...)}
	}
	for _, tt := range []struct {
		name        string
		annotations []schema.Annotation
		change      func(testGraph)
		want        string
	}{
		{"unknown field", sequence("nummer"), nil, `sequence "nummer": field "nummer" does not exist in File: it has dataset_id, kind`},
		{"primary key", sequence("id"), nil, `field "id" is the primary key: use another field`},
		{"edge", sequence("dataset"), nil, `field "dataset" is an edge: use its field "dataset_id"`},
		{"field of an edge", sequence("dataset_id"), nil, "the field is that of an edge: use a field of its own"},
		{"not an integer", sequence("name"), nil, "the field is of type string: only an integer can hold numbers"},
		{"float", sequence("score"), nil, "only an integer can hold numbers"},
		{"required", sequence("required"), nil, "callers do not set it: add Optional()"},
		{"mutable", sequence("mutable"), nil, "the field can be changed by an update: add Immutable()"},
		{"default", sequence("defaulted"), nil, "the field has a default, which would be taken for a number: remove it"},
		{"database type", sequence("typed"), nil, "remove SchemaType"},
		{"twice", append(sequence("number", per("dataset_id")), sequence("number", per("kind", "dataset_id"))...), nil, "it is declared twice: remove one of the two"},
		{"start", sequence("number", per("dataset_id"), entcounter.Start(-3)), nil, "it starts at -3: entcounter.Start takes a positive number"},
		{"start too great", sequence("small", entcounter.Start(128)), nil, "it starts at 128, which a field of type int8 cannot hold: use a larger type"},
		{"unknown scope", sequence("number", per("data")), nil, `scope field "data" does not exist in File`},
		{"edge as scope", sequence("number", per("dataset")), nil, `scope field "dataset" is an edge: use its field "dataset_id"`},
		{"edge without a field as scope", sequence("number", per("parent")), nil, `declare a field "parent_id", add Field("parent_id") to the edge "parent"`},
		{"edge of another table as scope", sequence("number", per("tags")), nil, "is an edge whose column is not in the table of File"},
		{"optional scope", sequence("number", per("optional_scope")), nil, `scope field "optional_scope" is optional, and a row without it would belong to no scope: make it required`},
		{"mutable scope", sequence("number", per("mutable_scope")), nil, `scope field "mutable_scope" can be changed by an update`},
		{"scope twice", sequence("number", per("kind", "kind")), nil, `scope field "kind" is listed twice`},
		{"own scope", sequence("number", per("number")), nil, "the field is part of its own scope"},
		{"float as scope", sequence("number", per("score")), nil, `scope field "score" is of type float64`},
		{"text as scope", sequence("number", per("notes")), nil, "the scope takes more than the 3072 bytes that an index can have"},
		{"reserved scope", sequence("number", per("next_number")), nil, `scope field "next_number": the generated table has a column of this name: rename the field`},
		{"too many", sequence("number", per(strings.Split("abcdefghijklmnopq", "")...)), nil, "the scope has 17 fields, and an index no more than 16"},
		{"no index", sequence("by_hand", per("dataset_id")), nil, `add index.Fields("dataset_id", "by_hand").Unique() to the indexes of File, with the number last`},
		{"index that is not unique", sequence("number", per("path")), nil, `add index.Fields("path", "number").Unique()`},
		{"index with the number first", sequence("number", per("kind")), nil, `add index.Fields("kind", "number").Unique()`},
		{"partial index", sequence("by_hand", per("kind")), nil, `add index.Fields("kind", "by_hand").Unique()`},
		{"no unique field", sequence("number"), nil, "add Unique() to the field"},
		{"taken table", sequence("small"), func(g testGraph) {
			g["FileSmallSequence"] = testType{annotations: []schema.Annotation{entsql.Table("file_small_sequence")}}
		}, `the generated table would be named "file_small_sequence", which is taken by the table "file_small_sequence"`},
		{"taken file", sequence("small"), func(g testGraph) { g["Entcounter"] = testType{} }, "takes the name of the generated file entcounter.go"},
		{"skipped table", append(sequence("small"), entsql.Skip()), func(g testGraph) {
			f := g["File"]
			f.edges, f.indexes, g["Dataset"] = nil, nil, testType{} // with which ent cannot skip a table
			g["File"] = f
		}, "a numbered table must be part of the schema"},
		{"numbers as scope", append(sequence("small"), sequence("number", per("small"))...), nil, `scope field "small" is optional`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			types := numberedGraph(tt.annotations...)
			names := []string{"Dataset", "File", "Tag"}
			if tt.change != nil {
				tt.change(types)
			}
			for name := range types {
				if name != "Dataset" && name != "File" && name != "Tag" {
					names = append(names, name)
				}
			}
			_, err := newPlan(types.load(t, names...))
			if err == nil {
				t.Fatal("no error")
			}
			if text := err.Error(); !strings.HasPrefix(text, "entcounter: type File: sequence ") || !strings.Contains(text, tt.want) {
				t.Errorf("error %s\nwant %s", text, tt.want)
			}
		})
	}
}

// A table of a sequence compares scopes as the numbered one does.
func TestSequenceTable(t *testing.T) {
	g := numberedGraph(
		entcounter.Sequence("number", entcounter.Per("dataset_id", "kind"), entcounter.Start(7)),
		entcounter.Sequence("small"),
		entsql.Annotation{Charset: "utf8mb4", Collation: "utf8mb4_bin"},
	).load(t, "Dataset", "File", "Tag")
	p, err := newPlan(g)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Migrate) != 2 || len(p.Tables) != 1 || p.Tables[0].Name != "files" {
		t.Fatalf("%d tables of %d sequences, %d to know", len(p.Migrate), len(p.Sequences), len(p.Tables))
	}
	numbers, small := p.Migrate[0], p.Migrate[1]
	if numbers.Name != "file_number_sequence" || len(numbers.PrimaryKey) != 2 || len(numbers.PrimaryKey[1].Enums) != 2 ||
		numbers.Annotation == nil || numbers.Annotation.Collation != "utf8mb4_bin" {
		t.Errorf("table %+v", numbers)
	}
	if small.Name != "file_small_sequence" || small.PrimaryKey[0].Name != "id" || small.PrimaryKey[0].Increment {
		t.Errorf("table %+v", small)
	}
	if d := p.Sequences[0].Definition; d.Start != 7 || d.Name != "File.number" || d.Numbered != "files" {
		t.Errorf("definition %+v", d)
	}
	if d := p.Sequences[1].Definition; d.Start != 1 || len(d.Scope) != 0 {
		t.Errorf("definition %+v", d)
	}
}

// A schema may have sequences and no counter.
func TestSequencesOnly(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a module")
	}
	t.Parallel()
	dir := newApp(t)
	for _, name := range []string{"app_test.go", "schema/schema.go", "kind/kind.go"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	const src = `package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
	"github.com/entcounter/entcounter/entcounter"
)

type Invoice struct{ ent.Schema }

func (Invoice) Annotations() []schema.Annotation {
	return []schema.Annotation{entcounter.Sequence("serial")}
}

func (Invoice) Fields() []ent.Field {
	return []ent.Field{field.Uint64("serial").Optional().Nillable().Immutable().Unique()}
}
`
	if err := os.WriteFile(filepath.Join(dir, "schema", "schema.go"), []byte(src), 0o644); err != nil {
		t.Fatal(err)
	}
	entDir := filepath.Join(dir, "ent")
	command(t, entDir, "go", "run", "entc.go")
	command(t, dir, "go", "vet", "./...")
	for name, content := range contents(t, entDir) {
		if strings.Contains(content, "counter_locks") {
			t.Errorf("%s has a table of counters", name)
		}
	}
}
