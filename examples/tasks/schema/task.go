// Package schema is that of a grid of tasks with a count beside every filter.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"

	"github.com/entcounter/entcounter/entcounter"
)

// Group is what tasks belong to.
type Group struct {
	ent.Schema
}

// Fields of the Group.
func (Group) Fields() []ent.Field {
	return []ent.Field{
		field.String("name").
			MaxLen(40).
			Unique(),
	}
}

// Edges of the Group.
func (Group) Edges() []ent.Edge {
	return []ent.Edge{
		edge.To("tasks", Task.Type),
	}
}

// User is whom tasks are assigned to.
type User struct {
	ent.Schema
}

// Fields of the User.
func (User) Fields() []ent.Field {
	return []ent.Field{
		field.String("name").
			MaxLen(40).
			Unique(),
	}
}

// Edges of the User.
func (User) Edges() []ent.Edge {
	return []ent.Edge{
		edge.To("tasks", Task.Type),
	}
}

// Task has a number, which people call it by, and is deleted softly.
type Task struct {
	ent.Schema
}

// Annotations of the Task. Every filter of the grid, asked before or not, is a sum over rows of one of three
// counters: of the smallest one that has all of the filter's columns.
func (Task) Annotations() []schema.Annotation {
	notDeleted := entcounter.Where(entcounter.IsNull("deleted_at"))
	return []schema.Annotation{
		entcounter.Sequence("number"),
		// Without a day. There are as many rows as combinations, however many tasks.
		entcounter.Counter("Task",
			entcounter.Key("group_id", "status", "assignee_id"),
			entcounter.NullAs("assignee_id", 0),
			notDeleted,
			entcounter.Count("count"),
			entcounter.Reads("group_id"),
			entcounter.Reads("assignee_id"),
			entcounter.ReadIndex("assignee_id"),
		),
		// By day, the list of days that the grid shows.
		entcounter.Counter("Day",
			entcounter.Bucket("created_day", entcounter.Day, "created_at"),
			entcounter.Key("status"),
			notDeleted,
			entcounter.Count("count"),
			entcounter.Reads("created_day"),
		),
		// By day and more: days of a group are one range of an index, and so are those of an assignee.
		entcounter.Counter("DayTask",
			entcounter.Key("group_id"),
			entcounter.Bucket("created_day", entcounter.Day, "created_at"),
			entcounter.Key("assignee_id", "status"),
			entcounter.NullAs("assignee_id", 0),
			notDeleted,
			entcounter.Count("count"),
			entcounter.Reads("group_id", "created_day"),
			entcounter.Reads("assignee_id", "created_day"),
			entcounter.ReadIndex("assignee_id", "created_day"),
		),
	}
}

// Fields of the Task.
func (Task) Fields() []ent.Field {
	return []ent.Field{
		field.Int("number").
			Optional().
			Immutable(),
		field.Int("group_id"),
		field.Int("assignee_id").
			Optional().
			Nillable(),
		field.String("title").
			MaxLen(100),
		field.Enum("status").
			Values("new", "in-progr", "waiting", "done", "cancelled").
			Default("new"),
		field.Time("created_at").
			Immutable(),
		field.Time("deleted_at").
			Optional().
			Nillable(),
	}
}

// Edges of the Task.
func (Task) Edges() []ent.Edge {
	return []ent.Edge{
		edge.From("group", Group.Type).
			Ref("tasks").
			Field("group_id").
			Unique().
			Required(),
		edge.From("assignee", User.Type).
			Ref("tasks").
			Field("assignee_id").
			Unique(),
	}
}

// Indexes of the Task.
func (Task) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("number").Unique(),
		index.Fields("group_id", "status"),
		index.Fields("assignee_id", "status"),
		index.Fields("created_at"),
	}
}
