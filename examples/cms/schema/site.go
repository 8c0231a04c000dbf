package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"

	"github.com/entcounter/entcounter/entcounter"
)

// site counts the rows of a type that the dashboard shows one number of. All such types share a counter.
func site(entity string) []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("Site",
			entcounter.Literal("entity", entity),
			entcounter.Count("total"),
		),
	}
}

// Media is an uploaded file.
type Media struct {
	ent.Schema
}

// Annotations of the Media.
func (Media) Annotations() []schema.Annotation { return site("media") }

// Fields of the Media.
func (Media) Fields() []ent.Field {
	return []ent.Field{
		field.String("name").
			MaxLen(100),
	}
}

// User may sign in.
type User struct {
	ent.Schema
}

// Annotations of the User.
func (User) Annotations() []schema.Annotation { return site("user") }

// Fields of the User.
func (User) Fields() []ent.Field {
	return []ent.Field{
		field.String("email").
			MaxLen(100).
			Unique(),
	}
}
