package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/integration/types"
)

// User has tasks, which lose it when it goes (ent's default), a card (O2O), a
// spouse (O2O within the type, counted itself), and teams (M2M).
type User struct{ ent.Schema }

// Annotations of the User.
func (User) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("Marriage", entcounter.Key("spouse_id"), entcounter.Count("count")),
		entcounter.Counter("TenantUser", entcounter.Key("tenant_id"), entcounter.Count("users"), entcounter.Sum("age", "age")),
	}
}

// Fields of the User.
func (User) Fields() []ent.Field {
	return []ent.Field{
		field.String("name"),
		field.Int16("age").Default(0),
		field.Int("spouse_id").Optional().Nillable(),
		field.String("tenant_id").GoType(types.TenantID("")).MaxLen(40).Optional().Nillable(),
	}
}

// Edges of the User.
func (User) Edges() []ent.Edge {
	return []ent.Edge{
		edge.From("tenant", Tenant.Type).Ref("users").Field("tenant_id").Unique(),
		edge.To("owned", Task.Type),
		edge.To("reviewed", Task.Type),
		edge.To("uploads", Attachment.Type),
		edge.To("card", Card.Type).Unique(),
		edge.To("spouse", User.Type).Unique().Field("spouse_id"),
		edge.From("teams", Team.Type).Ref("users").Through("memberships", Membership.Type),
	}
}

// Card is the child of an O2O edge.
type Card struct{ ent.Schema }

// Annotations of the Card.
func (Card) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("Card", entcounter.Key("owner_id"), entcounter.Count("count")),
		entcounter.Counter("CardColor", entcounter.Key("color"), entcounter.Count("count"), entcounter.Sum("owners", "owner_id")),
	}
}

// Fields of the Card.
func (Card) Fields() []ent.Field {
	return []ent.Field{
		field.String("color").MaxLen(50),
		field.Int("owner_id").Optional().Nillable(),
	}
}

// Edges of the Card.
func (Card) Edges() []ent.Edge {
	return []ent.Edge{
		edge.From("owner", User.Type).Ref("card").Unique().Field("owner_id"),
	}
}

// Team has users through memberships.
type Team struct{ ent.Schema }

// Fields of the Team.
func (Team) Fields() []ent.Field {
	return []ent.Field{field.String("name")}
}

// Edges of the Team.
func (Team) Edges() []ent.Edge {
	return []ent.Edge{
		edge.To("users", User.Type).Through("memberships", Membership.Type),
	}
}

// Membership is an edge schema with a composite id.
type Membership struct{ ent.Schema }

// Annotations of the Membership.
func (Membership) Annotations() []schema.Annotation {
	return []schema.Annotation{
		field.ID("team_id", "user_id"),
		entcounter.Counter("Member", entcounter.Key("team_id", "role"), entcounter.Count("count"), entcounter.Sum("score", "score")),
	}
}

// Fields of the Membership.
func (Membership) Fields() []ent.Field {
	return []ent.Field{
		field.Int("user_id"),
		field.Int("team_id"),
		field.Enum("role").Values("member", "admin").Default("member"),
		field.Int("score").Default(1),
	}
}

// Edges of the Membership.
func (Membership) Edges() []ent.Edge {
	return []ent.Edge{
		edge.To("user", User.Type).Unique().Required().Field("user_id").Annotations(entsql.OnDelete(entsql.Cascade)),
		edge.To("team", Team.Type).Unique().Required().Field("team_id").Annotations(entsql.OnDelete(entsql.Cascade)),
	}
}
