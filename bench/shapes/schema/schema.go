// Package schema declares types that differ in what is counted of them.
package schema

import (
	"fmt"

	"entgo.io/ent"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"

	"github.com/entcounter/entcounter/entcounter"
)

// Entry is what reads, folds and recounts are measured with. Its rows are short.
type Entry struct {
	ent.Schema
}

// Annotations of the Entry.
func (Entry) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("Entry",
			entcounter.Key("tenant", "folder", "status"),
			entcounter.Count("count"),
		),
	}
}

// Fields of the Entry.
func (Entry) Fields() []ent.Field {
	return []ent.Field{
		field.Int("tenant"),
		field.Int("folder"),
		field.Int("status"),
	}
}

// Indexes of the Entry.
func (Entry) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("tenant", "folder", "status"),
	}
}

// shape has the fields and the index of all types whose writes are measured.
type shape struct {
	ent.Schema
}

// Fields of the types: eight that keys begin with, and the one that changes.
func (shape) Fields() []ent.Field {
	fields := []ent.Field{field.Int("status")}
	for i := range 8 {
		fields = append(fields, field.Int(fmt.Sprint("a", i+1)))
	}
	return fields
}

// Indexes of the types.
func (shape) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("a1", "status"),
	}
}

// counters declares n counters, each by the status and a field of its own.
func counters(name string, n int) []schema.Annotation {
	annotations := make([]schema.Annotation, n)
	for i := range annotations {
		annotations[i] = entcounter.Counter(fmt.Sprint(name, i+1),
			entcounter.Key(fmt.Sprint("a", i+1), "status"),
			entcounter.Count("count"),
		)
	}
	return annotations
}

// None has no counter.
type None struct{ shape }

// One has one counter, with two key columns.
type One struct{ shape }

// Annotations of the One.
func (One) Annotations() []schema.Annotation { return counters("One", 1) }

// Two has two counters.
type Two struct{ shape }

// Annotations of the Two.
func (Two) Annotations() []schema.Annotation { return counters("Two", 2) }

// Four has four counters.
type Four struct{ shape }

// Annotations of the Four.
func (Four) Annotations() []schema.Annotation { return counters("Four", 4) }

// Eight has eight counters.
type Eight struct{ shape }

// Annotations of the Eight.
func (Eight) Annotations() []schema.Annotation { return counters("Eight", 8) }

// Narrow has one counter, with one key column.
type Narrow struct{ shape }

// Annotations of the Narrow.
func (Narrow) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("Narrow", entcounter.Key("status"), entcounter.Count("count")),
	}
}

// Wide has one counter, with four key columns.
type Wide struct{ shape }

// Annotations of the Wide.
func (Wide) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("Wide", entcounter.Key("a1", "a2", "a3", "status"), entcounter.Count("count")),
	}
}
