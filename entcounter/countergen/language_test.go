package countergen

import (
	"slices"
	"strings"
	"testing"
	"time"

	"entgo.io/ent"
	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"github.com/entcounter/entcounter/entcounter"
)

// TestLanguageErrors declares what cannot be counted.
func TestLanguageErrors(t *testing.T) {
	count := entcounter.Count("count")
	with := func(options ...entcounter.Option) []schema.Annotation {
		return []schema.Annotation{fileCounter(append([]entcounter.Option{entcounter.Key("status")}, options...)...)}
	}
	tests := []struct {
		name        string
		annotations []schema.Annotation
		change      func(testGraph)
		want        string
	}{
		{"path over an unknown edge", with(entcounter.Key("owner.name"), count), nil, `key field "owner.name": File has no edge "owner": it has dataset, parent, tags`},
		{"path to an unknown field", with(entcounter.Key("dataset.color"), count), nil, `key field "color" does not exist in Dataset: it has name`},
		{"path over a many-to-many edge", with(entcounter.Key("tags.name"), count), func(g testGraph) { manyTags(g) }, `the edge "tags" of File leads to many rows: count the pairs of it with entcounter.Over("tags")`},
		{"path over an edge to many", with(entcounter.Key("tags.name"), count), nil, `the edge "tags" of File leads to many rows: declare the counter on Tag`},
		{"path over an edge that is kept elsewhere", with(entcounter.Key("cover.name"), count), func(g testGraph) {
			file := g["File"]
			file.edges = append(file.edges, edge.To("cover", Tag.Type).Unique())
			g["File"] = file
			tag := g["Tag"]
			tag.edges = append(tag.edges, edge.From("covered", File.Type).Ref("cover").Unique())
			g["Tag"] = tag
		}, `the column of the edge "cover" is in the table of Tag: declare the counter on Tag`},
		{"own id", with(entcounter.Key("id"), count), nil, `key field "id" is the primary key, which is different in each row`},
		{"Over an unknown edge", with(entcounter.Over("labels"), count), nil, `Over("labels"): File has no such edge: it has dataset, parent, tags`},
		{"Over an edge that is not many-to-many", with(entcounter.Over("dataset"), count), nil, `Over("dataset"): the edge is not many-to-many: count the rows of File or of Dataset`},
		{"generated column", with(entcounter.Key("large"), count), func(g testGraph) {
			file := g["File"]
			file.fields = append(file.fields, field.String("large").Optional().SchemaType(map[string]string{dialect.MySQL: "varchar(5) GENERATED ALWAYS AS (size > 10)"}))
			g["File"] = file
		}, `key field "large": the database changes it by itself (varchar(5) GENERATED ALWAYS AS (size > 10))`},
		{"column that an update touches", with(entcounter.Bucket("day", entcounter.Day, "touched"), count), func(g testGraph) {
			file := g["File"]
			file.fields = append(file.fields, field.Time("touched").Optional().Annotations(entsql.DefaultExprs(map[string]string{dialect.MySQL: "CURRENT_TIMESTAMP on  update CURRENT_TIMESTAMP"})))
			g["File"] = file
		}, `key field "touched": the database changes it by itself`},
		{"sum of a generated column", with(entcounter.Sum("twice", "twice")), func(g testGraph) {
			file := g["File"]
			file.fields = append(file.fields, field.Int("twice").Optional().SchemaType(map[string]string{dialect.SQLite: "integer as (size * 2)"}))
			g["File"] = file
		}, `measure "twice": field "twice": the database changes it by itself`},
		{"period of what is no time", with(entcounter.Bucket("day", entcounter.Day, "size"), count), nil, `key field "day": field "size" is of type int64, and only a time has periods`},
		{"unknown period", with(entcounter.Bucket("day", "decade", "seen_at"), count), nil, `key field "day": the period "decade" is none of entcounter.Hour, Day, Week, Month`},
		{"time as a key", with(entcounter.Key("seen_at"), count), nil, `key field "seen_at" is of type time.Time`},
		{"NullAs of a column that is not there", with(entcounter.NullAs("raw", "-"), count), nil, `NullAs("raw"): the key has no column of this name before it`},
		{"NullAs of another kind", with(entcounter.Key("raw"), entcounter.NullAs("raw", 7), count), func(g testGraph) {}, `NullAs("raw"): the value 7 does not fit the column "raw" of type string`},
		{"NullAs of a value that is not in the enum", with(entcounter.NullAs("status", "Gone"), count), nil, `NullAs("status"): "Gone" is no value of the enum "status": it has New, Copied`},
		{"NullAs of a number that does not fit", with(entcounter.Key("dataset_id"), entcounter.NullAs("dataset_id", "x"), count), nil, `NullAs("dataset_id"): the value "x" does not fit the column "dataset_id" of type int`},
		{"NullAs of a literal", with(entcounter.Literal("kind", "file"), entcounter.NullAs("kind", "x"), count), nil, `key field "kind" is a literal, which is never NULL`},
		{"condition on an unknown field", with(count, entcounter.Where(entcounter.IsNull("deleted_at"))), nil, `condition field "deleted_at" does not exist in File`},
		{"condition that follows the clock", with(count, entcounter.Where(entcounter.GT("seen_at", time.Now().Add(-24*time.Hour)))), nil, `condition GT("seen_at") compares a time with a constant: a row would be counted or not as time passes`},
		{"the way out of it", with(count, entcounter.Where(entcounter.GT("seen_at", time.Now()))), nil, `Count by a period with entcounter.Bucket`},
		{"condition on a float", with(count, entcounter.Where(entcounter.EQ("score", 1.5))), nil, `condition EQ("score"): floating-point numbers are not exactly equal often enough`},
		{"condition on JSON", with(count, entcounter.Where(entcounter.EQ("meta", "x"))), nil, `does not fit the column "meta" of type json.RawMessage`},
		{"condition with nil", with(count, entcounter.Where(entcounter.EQ("raw", nil))), nil, `compares with nil, which nothing equals: use entcounter.IsNull`},
		{"condition with a value that is not in the enum", with(entcounter.Count("gone", entcounter.In("status", "New", "Gone"))), nil, `measure "gone": In("status"): "Gone" is no value of the enum "status"`},
		{"condition of order on an enum", with(count, entcounter.Where(entcounter.LT("status", "New"))), nil, `an enum has no order that all databases agree on`},
		{"condition without values", with(count, entcounter.Where(entcounter.In("status"))), nil, `In("status") has no values to compare with`},
		{"combination of nothing", with(count, entcounter.Where(entcounter.Or())), nil, `entcounter.Or has no conditions`},
		{"unknown operator", with(count, entcounter.Where(entcounter.Condition{Op: "like", Field: "raw"})), nil, `the operator "like" does not exist`},
		{"condition on a value with a scanner", with(count, entcounter.Where(entcounter.EQ("scanned", "x"))), nil, `the field has an external ValueScanner`},
		{"decimal of an integer column", with(entcounter.SumDecimal("cents", "size", 2)), nil, `measure "cents": field "size": it is no decimal on every database`},
		{"decimal with a scale that is none", with(entcounter.SumDecimal("cents", "size", 99)), nil, `a scale of 99: it is the number of decimal places, from 0 to 15`},
		{"two types without a literal", []schema.Annotation{fileCounter(entcounter.Key("status"), count)}, func(g testGraph) {
			tag := g["Tag"]
			tag.fields = append(tag.fields, field.Enum("status").Values("New"))
			tag.annotations = []schema.Annotation{fileCounter(entcounter.Key("status"), count)}
			g["Tag"] = tag
		}, `tell their rows apart by a key column entcounter.Literal in each`},
		{"two types with one literal", []schema.Annotation{fileCounter(entcounter.Literal("kind", "x"), count)}, func(g testGraph) {
			tag := g["Tag"]
			tag.annotations = []schema.Annotation{fileCounter(entcounter.Literal("kind", "x"), count)}
			g["Tag"] = tag
		}, `key field "kind" is the literal "x" in type File too`},
		{"two types with other columns", []schema.Annotation{fileCounter(entcounter.Literal("kind", "file"), count)}, func(g testGraph) {
			tag := g["Tag"]
			tag.annotations = []schema.Annotation{fileCounter(entcounter.Literal("kind", "tag"), entcounter.Key("name"), count)}
			g["Tag"] = tag
		}, `type File declares a counter of this name with other columns (kind, count, here kind, name, count)`},
		{"two types with columns of other types", []schema.Annotation{fileCounter(entcounter.Literal("kind", "file"), entcounter.KeyAs("name", "dataset_id"), count)}, func(g testGraph) {
			tag := g["Tag"]
			tag.annotations = []schema.Annotation{fileCounter(entcounter.Literal("kind", "tag"), entcounter.Key("name"), count)}
			g["Tag"] = tag
		}, `key field "name" differs from that of type File in its type, string and int`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := fileGraph(test.annotations...)
			if test.change != nil {
				test.change(g)
			}
			_, err := newPlan(g.load(t, "Dataset", "File", "Tag"))
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("error lacks %q: %v", test.want, err)
			}
			if !strings.Contains(err.Error(), `counter "File"`) {
				t.Errorf("error does not name the counter: %v", err)
			}
		})
	}
}

// manyTags makes the tags of files a many-to-many edge.
func manyTags(g testGraph) {
	tag := g["Tag"]
	tag.edges = append(tag.edges, edge.From("files", File.Type).Ref("tags"))
	g["Tag"] = tag
}

// TestReachOverPaths describes the tables of paths, and the foreign keys over which a
// deletion changes what is counted by them.
func TestReachOverPaths(t *testing.T) {
	g := fileGraph(fileCounter(entcounter.KeyAs("name", "dataset.name"), entcounter.Count("count")))
	p, err := newPlan(g.load(t, "Dataset", "File", "Tag"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, table := range p.Tables {
		names = append(names, table.Name)
	}
	if want := []string{"datasets", "files"}; !slices.Equal(names, want) {
		t.Errorf("tables %v, want %v", names, want)
	}
	source := p.Counters[0].Definition.Sources[0]
	if len(source.Joins) != 1 || source.Joins[0].Table != "datasets" || source.Joins[0].Column.Name != "dataset_id" || source.Key[0].Join != 1 {
		t.Errorf("source %+v", source)
	}
	if refs := p.Tables[0].ReferencedBy; len(refs) != 1 || refs[0].Table != "files" || refs[0].OnDelete != entcounter.Cascade {
		t.Errorf("datasets are referenced by %+v", refs)
	}
}

// TestPathToAnID needs no join: the column that refers to the row says it.
func TestPathToAnID(t *testing.T) {
	g := fileGraph(fileCounter(entcounter.KeyAs("parent_id", "parent.id"), entcounter.Count("count")))
	p, err := newPlan(g.load(t, "Dataset", "File", "Tag"))
	if err != nil {
		t.Fatal(err)
	}
	source := p.Counters[0].Definition.Sources[0]
	if len(source.Joins) != 0 || source.Key[0].Name != "file_parent" || p.Counters[0].Definition.Key[0].Name != "parent_id" {
		t.Errorf("source %+v of %+v", source, p.Counters[0].Definition)
	}
}

// TestForeignKeyThatSetsADefault is refused on a path, too.
func TestForeignKeyThatSetsADefault(t *testing.T) {
	g := fileGraph(fileCounter(entcounter.Key("dataset.name"), entcounter.Count("count")))
	dataset := g["Dataset"]
	dataset.edges = []ent.Edge{edge.To("files", File.Type).Annotations(entsql.OnDelete(entsql.SetDefault))}
	g["Dataset"] = dataset
	_, err := newPlan(g.load(t, "Dataset", "File", "Tag"))
	if err == nil || !strings.Contains(err.Error(), "sets column") {
		t.Errorf("error %v", err)
	}
}
