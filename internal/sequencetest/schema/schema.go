// Package schema has types that sequences number: per parent beside a counter, over
// all rows, and by odd scopes.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
	"github.com/entcounter/entcounter/entcounter"
)

// Project is what tasks are numbered in.
type Project struct {
	ent.Schema
}

// Fields of the Project.
func (Project) Fields() []ent.Field {
	return []ent.Field{
		field.String("name"),
	}
}

// Edges of the Project.
func (Project) Edges() []ent.Edge {
	return []ent.Edge{
		edge.To("tasks", Task.Type).
			Annotations(entsql.OnDelete(entsql.Cascade)),
	}
}

// Task has a number in its project, and is counted.
type Task struct {
	ent.Schema
}

// Annotations of the Task.
func (Task) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Sequence("number", entcounter.Per("project_id")),
		entcounter.Counter("Task",
			entcounter.Key("project_id", "done"),
			entcounter.Count("count"),
			entcounter.Sum("numbers", "number"),
		),
	}
}

// Fields of the Task.
func (Task) Fields() []ent.Field {
	return []ent.Field{
		field.Int("project_id").
			Immutable(),
		field.Int("number").
			Optional().
			Immutable(),
		field.String("title").
			MaxLen(100),
		field.Bool("done").
			Default(false),
	}
}

// Edges of the Task.
func (Task) Edges() []ent.Edge {
	return []ent.Edge{
		edge.From("project", Project.Type).
			Ref("tasks").
			Field("project_id").
			Unique().
			Required().
			Immutable(),
		edge.To("subtasks", Task.Type).
			From("parent").
			Unique(),
		edge.To("tags", Tag.Type).
			Through("taggings", Tagging.Type),
	}
}

// Indexes of the Task.
func (Task) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("project_id", "number").Unique(),
		index.Fields("project_id", "title").Unique(),
	}
}

// Tag is what tasks are tagged with.
type Tag struct {
	ent.Schema
}

// Fields of the Tag.
func (Tag) Fields() []ent.Field {
	return []ent.Field{
		field.String("name"),
	}
}

// Edges of the Tag.
func (Tag) Edges() []ent.Edge {
	return []ent.Edge{
		edge.From("tasks", Task.Type).
			Ref("tags").
			Through("taggings", Tagging.Type),
	}
}

// Tagging is the place of a tag in a task's list of tags.
type Tagging struct {
	ent.Schema
}

// Annotations of the Tagging.
func (Tagging) Annotations() []schema.Annotation {
	return []schema.Annotation{
		field.ID("task_id", "tag_id"),
		entcounter.Sequence("place", entcounter.Per("task_id")),
	}
}

// Fields of the Tagging.
func (Tagging) Fields() []ent.Field {
	return []ent.Field{
		field.Int("task_id").
			Immutable(),
		field.Int("tag_id").
			Immutable(),
		field.Int("place").
			Optional().
			Immutable(),
	}
}

// Edges of the Tagging.
func (Tagging) Edges() []ent.Edge {
	return []ent.Edge{
		edge.To("task", Task.Type).
			Field("task_id").
			Unique().
			Required().
			Immutable(),
		edge.To("tag", Tag.Type).
			Field("tag_id").
			Unique().
			Required().
			Immutable(),
	}
}

// Indexes of the Tagging.
func (Tagging) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("task_id", "place").Unique(),
	}
}

// Note is a Task that no sequence numbers and no counter counts: what a create
// costs without.
type Note struct {
	ent.Schema
}

// Fields of the Note.
func (Note) Fields() []ent.Field {
	return []ent.Field{
		field.Int("project_id").
			Immutable(),
		field.Int("number").
			Optional().
			Immutable(),
		field.String("title").
			MaxLen(100),
	}
}

// Indexes of the Note.
func (Note) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("project_id", "number").Unique(),
		index.Fields("project_id", "title").Unique(),
	}
}

// NumberedNote is a Note with a sequence.
type NumberedNote struct {
	ent.Schema
}

// Annotations of the NumberedNote.
func (NumberedNote) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Sequence("number", entcounter.Per("project_id")),
	}
}

// Fields of the NumberedNote.
func (NumberedNote) Fields() []ent.Field { return Note{}.Fields() }

// Indexes of the NumberedNote.
func (NumberedNote) Indexes() []ent.Index { return Note{}.Indexes() }

// Invoice has a number among all invoices.
type Invoice struct {
	ent.Schema
}

// Annotations of the Invoice.
func (Invoice) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Sequence("serial", entcounter.Start(1000)),
	}
}

// Fields of the Invoice.
func (Invoice) Fields() []ent.Field {
	return []ent.Field{
		field.Int64("serial").
			Optional().
			Nillable().
			Immutable().
			Unique(),
		field.String("customer").
			Optional().
			MaxLen(100).
			Unique(),
	}
}

// Door is a small number with a type of its own.
type Door int8

// Room has two numbers, with odd scopes and names.
type Room struct {
	ent.Schema
}

// Annotations of the Room.
func (Room) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Sequence("door", entcounter.Per("wing", "floor")),
		entcounter.Sequence("key", entcounter.Per("wing")),
	}
}

// Fields of the Room.
func (Room) Fields() []ent.Field {
	return []ent.Field{
		field.Enum("wing").
			Values("north", "south").
			StorageKey("group").
			Immutable(),
		field.String("floor").
			MaxLen(20).
			StorageKey("order").
			Immutable(),
		field.Int8("door").
			GoType(Door(0)).
			Optional().
			Immutable(),
		field.Uint32("key").
			Optional().
			Immutable(),
	}
}

// Indexes of the Room.
func (Room) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("floor", "wing", "door").Unique(),
		index.Fields("wing", "key").Unique(),
	}
}
