// Package schema is that of a content management system whose pages show counts.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"

	"github.com/entcounter/entcounter/entcounter"
)

// Collection is a kind of entries, such as posts.
type Collection struct {
	ent.Schema
}

// Fields of the Collection.
func (Collection) Fields() []ent.Field {
	return []ent.Field{
		field.String("slug").
			MaxLen(40).
			Unique(),
	}
}

// Edges of the Collection.
func (Collection) Edges() []ent.Edge {
	return []ent.Edge{
		edge.To("entries", Entry.Type),
	}
}

// Entry is a draft until it is published, at once or by a sweep when its time has come. It is deleted softly, and
// later for good.
type Entry struct {
	ent.Schema
}

// Annotations of the Entry: what the dashboard and the editor show.
func (Entry) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("Entry",
			entcounter.Key("collection_id"),
			entcounter.Where(entcounter.IsNull("deleted_at")),
			entcounter.Count("total"),
			entcounter.Count("published", entcounter.EQ("status", "published")),
			entcounter.Count("draft", entcounter.EQ("status", "draft")),
			entcounter.Count("scheduled", entcounter.NotNull("scheduled_at")),
		),
		entcounter.Counter("Term",
			entcounter.Over("terms"),
			entcounter.KeyAs("taxonomy_id", "terms.taxonomy_id"),
			entcounter.KeyAs("term_id", "terms.id"),
			entcounter.Where(entcounter.IsNull("deleted_at")),
			entcounter.Count("total"),
			entcounter.Count("visible", entcounter.EQ("status", "published")),
		),
	}
}

// Fields of the Entry.
func (Entry) Fields() []ent.Field {
	return []ent.Field{
		field.Int("collection_id"),
		field.String("title").
			MaxLen(100),
		field.Enum("status").
			Values("draft", "published").
			Default("draft"),
		field.Time("scheduled_at").
			Optional().
			Nillable(),
		field.Time("deleted_at").
			Optional().
			Nillable(),
	}
}

// Edges of the Entry.
func (Entry) Edges() []ent.Edge {
	return []ent.Edge{
		edge.From("collection", Collection.Type).
			Ref("entries").
			Field("collection_id").
			Unique().
			Required(),
		edge.To("terms", Term.Type),
	}
}

// Indexes of the Entry.
func (Entry) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("scheduled_at"), // the sweep's
	}
}

// Taxonomy is a set of terms, such as categories.
type Taxonomy struct {
	ent.Schema
}

// Fields of the Taxonomy.
func (Taxonomy) Fields() []ent.Field {
	return []ent.Field{
		field.String("name").
			MaxLen(40).
			Unique(),
	}
}

// Edges of the Taxonomy.
func (Taxonomy) Edges() []ent.Edge {
	return []ent.Edge{
		edge.To("terms", Term.Type),
	}
}

// Term is what entries are found by.
type Term struct {
	ent.Schema
}

// Fields of the Term.
func (Term) Fields() []ent.Field {
	return []ent.Field{
		field.Int("taxonomy_id"),
		field.String("name").
			MaxLen(40),
	}
}

// Edges of the Term.
func (Term) Edges() []ent.Edge {
	return []ent.Edge{
		edge.From("taxonomy", Taxonomy.Type).
			Ref("terms").
			Field("taxonomy_id").
			Unique().
			Required(),
		edge.From("entries", Entry.Type).
			Ref("terms"),
	}
}

// Indexes of the Term.
func (Term) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("taxonomy_id", "name").Unique(),
	}
}
