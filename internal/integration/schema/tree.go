package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"github.com/entcounter/entcounter/entcounter"
)

// Node is a tree whose branches fall off when their root goes.
type Node struct{ ent.Schema }

// Annotations of the Node.
func (Node) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("Child", entcounter.Key("parent_id"), entcounter.Count("children"), entcounter.Sum("bytes", "size")),
		entcounter.Counter("Kind", entcounter.Key("kind"), entcounter.Count("count")),
	}
}

// Fields of the Node.
func (Node) Fields() []ent.Field {
	return []ent.Field{
		field.Int("parent_id").Optional().Nillable(),
		field.Enum("kind").Values("leaf", "branch"),
		field.Int32("size").Default(0),
	}
}

// Edges of the Node.
func (Node) Edges() []ent.Edge {
	return []ent.Edge{
		edge.To("children", Node.Type).From("parent").Unique().Field("parent_id"),
	}
}

// Folder is a tree that goes with its root.
type Folder struct{ ent.Schema }

// Annotations of the Folder.
func (Folder) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("Folder", entcounter.Key("parent_id", "shared"), entcounter.Count("count"), entcounter.Sum("quota", "quota")),
	}
}

// Fields of the Folder.
func (Folder) Fields() []ent.Field {
	return []ent.Field{
		field.Int("parent_id").Optional().Nillable(),
		field.Bool("shared").Default(false),
		field.Int64("quota").Optional(),
	}
}

// Edges of the Folder.
func (Folder) Edges() []ent.Edge {
	return []ent.Edge{
		edge.To("children", Folder.Type).Annotations(entsql.OnDelete(entsql.Cascade)),
		edge.From("parent", Folder.Type).Ref("children").Unique().Field("parent_id"),
	}
}

// Route has stops that go with it.
type Route struct{ ent.Schema }

// Fields of the Route.
func (Route) Fields() []ent.Field {
	return []ent.Field{field.String("name").MaxLen(40)}
}

// Edges of the Route.
func (Route) Edges() []ent.Edge {
	return []ent.Edge{
		edge.To("stops", Stop.Type).Annotations(entsql.OnDelete(entsql.Cascade)),
	}
}

// Stop refers to the next one, of any route, which cannot go before it does.
type Stop struct{ ent.Schema }

// Annotations of the Stop.
func (Stop) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("Stop", entcounter.Key("route_id"), entcounter.Count("count"), entcounter.Sum("length", "length")),
	}
}

// Fields of the Stop.
func (Stop) Fields() []ent.Field {
	return []ent.Field{
		field.Int("route_id").Optional().Nillable(),
		field.Int("next_id").Optional().Nillable(),
		field.Int("length").Default(1),
	}
}

// Edges of the Stop.
func (Stop) Edges() []ent.Edge {
	return []ent.Edge{
		edge.From("route", Route.Type).Ref("stops").Unique().Field("route_id"),
		edge.To("feeders", Stop.Type).Annotations(entsql.OnDelete(entsql.NoAction)),
		edge.From("next", Stop.Type).Ref("feeders").Unique().Field("next_id"),
	}
}
