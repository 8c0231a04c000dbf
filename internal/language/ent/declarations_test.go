// The tests of random declarations are here because the schema that the generated code
// works by is internal to it.
package ent_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	entsql "entgo.io/ent/dialect/sql"
	sqlschema "entgo.io/ent/dialect/sql/schema"
	"entgo.io/ent/entc/gen"
	"entgo.io/ent/entc/load"
	entschema "entgo.io/ent/schema"

	entgo "entgo.io/ent"

	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/entcounter/countergen"
	"github.com/entcounter/entcounter/internal/language/draw"
	"github.com/entcounter/entcounter/internal/language/ent"
	"github.com/entcounter/entcounter/internal/language/ent/internal/sqlgraph"
	"github.com/entcounter/entcounter/internal/language/ent/migrate"
	"github.com/entcounter/entcounter/internal/language/schema"
	"github.com/entcounter/entcounter/internal/testdb"
)

var (
	seedFlag   = flag.Uint64("seed", 0, "seed of the random tests (default: a new one, which is printed)")
	stepsFlag  = flag.Int("steps", 120, "steps of a random test in each round")
	roundsFlag = flag.Int("rounds", 6, "rounds of a random test on each database, each with other declarations")
)

func TestMain(m *testing.M) { os.Exit(testdb.Main(m)) }

// types are those of the schema, with the fields that declarations draw from.
var types = map[string]entgo.Interface{
	"Country": schema.Country{}, "User": schema.User{}, "Project": schema.Project{}, "Parcel": schema.Parcel{}, "Piece": schema.Piece{},
	"Term": schema.Term{}, "Entry": schema.Entry{}, "Tag": schema.Tag{}, "Tagging": schema.Tagging{}, "Node": schema.Node{},
}

// base is a type that counters are declared on.
type base struct {
	name, over string
	keys       []string // paths
	null       map[string]any
	times      []string
	integers   []string
	conditions []entcounter.Condition
}

var bases = []base{
	{
		name:     "Piece",
		keys:     []string{"kind", "stage", "published", "owner_piece", "parcel.status", "parcel.id", "parcel.project.state", "parcel.project_id", "owner.country.code", "owner.level", "reviewer.name", "reviewer.country.union"},
		null:     map[string]any{"kind": "none", "owner_piece": 0, "parcel_status": "new", "reviewer_name": "-", "parcel_id": -1},
		times:    []string{"made_at", "local_at", "scheduled_at"},
		integers: []string{"size", "parcel.weight", "owner.level", "reviewer.level"},
		conditions: []entcounter.Condition{
			entcounter.IsNull("deleted_at"), entcounter.NotNull("scheduled_at"), entcounter.EQ("published", true), entcounter.NEQ("stage", "raw"),
			entcounter.In("kind", "a", "b"), entcounter.LT("kind", "b"), entcounter.GTE("size", 30), entcounter.NotIn("size", 10, 20), entcounter.EQ("parcel.status", "done"),
			entcounter.IsNull("parcel.project_id"), entcounter.EQ("owner.country.union", true), entcounter.GT("reviewer.level", 2), entcounter.NotNull("parcel.id"),
		},
	},
	{
		name:     "Parcel",
		keys:     []string{"status", "stage", "project_id", "label", "project.name", "project.state"},
		null:     map[string]any{"label": "-", "project_id": 0, "project_state": "open"},
		integers: []string{"weight"},
		conditions: []entcounter.Condition{
			entcounter.EQ("status", "new"), entcounter.GT("weight", 3), entcounter.IsNull("label"), entcounter.EQ("project.state", "open"), entcounter.NotNull("project_id"),
		},
	},
	{
		name:       "User",
		keys:       []string{"level", "country_id", "country.code", "country.union"},
		null:       map[string]any{"country_id": 0, "country_code": "-"},
		integers:   []string{"level"},
		conditions: []entcounter.Condition{entcounter.LTE("level", 2), entcounter.EQ("country.code", "c1"), entcounter.IsNull("country_id")},
	},
	{
		name: "Entry", over: "terms",
		keys:       []string{"status", "terms.id", "terms.name", "terms.taxonomy"},
		integers:   []string{"words"},
		conditions: []entcounter.Condition{entcounter.IsNull("deleted_at"), entcounter.EQ("status", "published"), entcounter.NEQ("terms.name", "c2"), entcounter.GT("words", 4)},
	},
	{
		name: "Entry", over: "friends",
		keys:       []string{"status", "friends.status", "friends.id"},
		integers:   []string{"words", "friends.words"},
		conditions: []entcounter.Condition{entcounter.IsNull("friends.deleted_at"), entcounter.LT("words", 9)},
	},
	{
		name:       "Tagging",
		keys:       []string{"tag_id", "entry.status", "tag.name", "rank"},
		integers:   []string{"rank", "entry.words"},
		conditions: []entcounter.Condition{entcounter.NotNull("entry.deleted_at"), entcounter.EQ("tag.name", "c1")},
	},
	{
		name:       "Node",
		keys:       []string{"color", "parent.color", "parent.id", "parent.parent.color", "parent.parent.size"},
		null:       map[string]any{"parent_color": "none", "parent_id": 0, "parent_parent_color": "none", "parent_parent_size": 0},
		integers:   []string{"size", "parent.size", "parent.parent.size"},
		conditions: []entcounter.Condition{entcounter.EQ("color", "red"), entcounter.IsNull("parent.id"), entcounter.GT("parent.size", 2), entcounter.NEQ("parent.parent.color", "blue")},
	},
}

// declare draws a counter.
func declare(r *rand.Rand, name string) (string, entschema.Annotation) {
	b := bases[r.IntN(len(bases))]
	options := []entcounter.Option{entcounter.Count("count_of_all")}
	if b.over != "" {
		options = append(options, entcounter.Over(b.over))
	}
	keys := slices.Clone(b.keys)
	r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for _, key := range keys[:1+r.IntN(min(3, len(keys)))] {
		options = append(options, entcounter.Key(key))
		column := strings.ReplaceAll(key, ".", "_")
		if null, ok := b.null[column]; ok && r.IntN(2) == 0 {
			options = append(options, entcounter.NullAs(column, null))
		}
	}
	if len(b.times) > 0 && r.IntN(2) == 0 {
		periods := entcounter.Periods()
		options = append(options, entcounter.Bucket("period", periods[r.IntN(len(periods))], b.times[r.IntN(len(b.times))]))
		if r.IntN(2) == 0 {
			options = append(options, entcounter.NullAs("period", "never"))
		}
	}
	if r.IntN(2) == 0 {
		options = append(options, entcounter.Where(condition(r, b, 2)))
	}
	options = append(options,
		entcounter.Count("count_of_some", condition(r, b, 2)),
		entcounter.Sum("sum_of_all", b.integers[r.IntN(len(b.integers))]),
		entcounter.Sum("sum_of_some", b.integers[r.IntN(len(b.integers))], condition(r, b, 1)))
	return b.name, entcounter.Counter(name, options...)
}

// condition draws a condition of some depth.
func condition(r *rand.Rand, b base, depth int) entcounter.Condition {
	one := b.conditions[r.IntN(len(b.conditions))]
	if depth == 0 {
		return one
	}
	switch r.IntN(4) {
	case 0:
		return entcounter.And(one, condition(r, b, depth-1))
	case 1:
		return entcounter.Or(one, condition(r, b, depth-1))
	case 2:
		return entcounter.Not(condition(r, b, depth-1))
	}
	return one
}

// graph builds the graph of the types with the given declarations and no others.
func graph(declared map[string][]entschema.Annotation) (*gen.Graph, error) {
	storage, err := gen.NewStorage("sql")
	if err != nil {
		return nil, err
	}
	var schemas []*load.Schema
	for _, name := range slices.Sorted(maps.Keys(types)) {
		buf, err := load.MarshalSchema(types[name])
		if err != nil {
			return nil, err
		}
		s, err := load.UnmarshalSchema(buf)
		if err != nil {
			return nil, err
		}
		s.Name = name
		delete(s.Annotations, entcounter.AnnotationName)
		if all := declared[name]; len(all) > 0 {
			merged := all[0].(entcounter.Annotation)
			for _, a := range all[1:] {
				merged = merged.Merge(a).(entcounter.Annotation)
			}
			if s.Annotations == nil {
				s.Annotations = make(map[string]any)
			}
			s.Annotations[entcounter.AnnotationName] = merged
		}
		schemas = append(schemas, s)
	}
	return gen.NewGraph(&gen.Config{Target: os.TempDir(), Package: "example.com/ent", Storage: storage}, schemas...)
}

// TestRandomDeclarations draws declarations, and holds random mutations against a
// recount of what they declare.
func TestRandomDeclarations(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	generated := sqlgraph.CounterSchema
	t.Cleanup(func() { sqlgraph.CounterSchema = generated })
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		journalled := 0
		for round := range uint64(*roundsFlag) {
			if !t.Run(fmt.Sprint(round), func(t *testing.T) { journalled += runRound(t, testdb.New(t, db.Kind), seed+round) }) {
				t.Fatalf("again: go test ./internal/language/ent -run '^TestRandomDeclarations$/^%s$' -seed %d -rounds 1 (on a server: go run ./internal/testdb/with -%[1]s -- in front)", db.Kind, seed+round)
			}
		}
		// A counter that counts nothing would agree with any recount of nothing.
		if journalled == 0 {
			t.Error("nothing was journalled")
		}
	})
}

// runRound runs the steps of a seed, and returns how many rows they journalled.
func runRound(t *testing.T, db *testdb.Database, seed uint64) (journalled int) {
	ctx, r := context.Background(), rand.New(rand.NewPCG(seed, 0))
	declared := make(map[string][]entschema.Annotation)
	for i := range 5 {
		owner, a := declare(r, fmt.Sprintf("Drawn%d", i))
		declared[owner] = append(declared[owner], a)
	}
	g, err := graph(declared)
	if err != nil {
		t.Fatal(err)
	}
	described, tables, err := countergen.Describe(g)
	if err != nil {
		t.Fatal(err)
	}
	sqlgraph.CounterSchema = described
	drv := entsql.OpenDB(db.Dialect, db.DB(t))
	client := ent.NewClient(ent.Driver(drv))
	m, err := sqlschema.NewMigrate(drv)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Create(ctx, append(withoutCounters(), tables...)...); err != nil {
		t.Fatal(err)
	}
	var handles []*entcounter.Handle
	for _, d := range described.Counters {
		handles = append(handles, entcounter.New(d, drv))
	}
	succeeded := 0
	for i := range *stepsFlag {
		d := draw.New(ctx, client, seed, uint64(i+1))
		what, stepErr := d.Run()
		if !draw.Refused(stepErr) {
			t.Fatalf("step %d, %s: %v", i, what, stepErr)
		}
		if stepErr == nil {
			succeeded++
		}
		for n, h := range handles {
			if d.Maybe(30) {
				folded, err := h.Fold(ctx)
				if err != nil {
					t.Fatal(err)
				}
				journalled += folded.Rows
			}
			differs := errors.New("differs from a recount")
			if err := h.Verify(ctx, nil, func(func(...any) error) error { return differs }); err != nil {
				t.Fatalf("step %d, %s (%v): counter %d of\n%+v\n%v", i, what, stepErr, n, declared, err)
			}
		}
	}
	if succeeded < *stepsFlag/3 {
		t.Errorf("only %d of %d steps succeeded", succeeded, *stepsFlag)
	}
	for _, h := range handles {
		b, err := h.Backlog(ctx)
		if err != nil {
			t.Fatal(err)
		}
		journalled += int(b.Rows)
	}
	return journalled
}

// withoutCounters are the tables of the types.
func withoutCounters() []*sqlschema.Table {
	var tables []*sqlschema.Table
	for _, t := range migrate.Tables {
		if t.Name != entcounter.LockTable && !strings.HasSuffix(t.Name, "_counters") && !strings.HasSuffix(t.Name, "_counter_journal") {
			tables = append(tables, t)
		}
	}
	return tables
}
