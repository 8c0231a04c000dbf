package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
)

// Dataset is a named collection of files.
type Dataset struct {
	ent.Schema
}

// Fields of the Dataset.
func (Dataset) Fields() []ent.Field {
	return []ent.Field{
		field.String("name").
			Unique().
			NotEmpty(),
	}
}

// Edges of the Dataset.
func (Dataset) Edges() []ent.Edge {
	return []ent.Edge{
		edge.To("files", File.Type).
			Annotations(entsql.OnDelete(entsql.Cascade)),
	}
}
