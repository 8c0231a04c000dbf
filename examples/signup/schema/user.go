// Package schema is the schema of the signup example.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
	"github.com/entcounter/entcounter/entcounter"
)

// User is somebody who has signed up.
type User struct {
	ent.Schema
}

// Annotations of the User.
func (User) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("User",
			entcounter.Key("plan"),
			entcounter.Count("users"),
			entcounter.Sum("changes", "changes"),
		),
	}
}

// Fields of the User.
func (User) Fields() []ent.Field {
	return []ent.Field{
		field.String("email").
			NotEmpty().
			MaxLen(100).
			Unique().
			Immutable(),
		field.Enum("plan").
			Values("free", "paid").
			Default("free"),
		field.Int("changes").
			Default(0).
			Comment("How often the user was changed."),
	}
}
