// Package schema has a type for each kind of thing that ent can do to a counted
// row: see the names of the tests in the package above.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"github.com/entcounter/entcounter/internal/integration/types"
	"github.com/google/uuid"
)

// Tenant is at the top: its deletion cascades over two and three levels.
type Tenant struct{ ent.Schema }

// Fields of the Tenant.
func (Tenant) Fields() []ent.Field {
	return []ent.Field{
		field.String("id").GoType(types.TenantID("")).MaxLen(40),
		field.String("name").Optional(),
	}
}

// Edges of the Tenant.
func (Tenant) Edges() []ent.Edge {
	return []ent.Edge{
		edge.To("projects", Project.Type).Annotations(entsql.OnDelete(entsql.Cascade)),
		edge.To("users", User.Type).Annotations(entsql.OnDelete(entsql.Cascade)),
	}
}

// Project has a UUID and tasks that go with it.
type Project struct{ ent.Schema }

// Fields of the Project.
func (Project) Fields() []ent.Field {
	return []ent.Field{
		field.UUID("id", uuid.UUID{}).Default(uuid.New),
		field.String("tenant_id").GoType(types.TenantID("")).MaxLen(40).Optional().Nillable(),
		field.String("title"),
	}
}

// Edges of the Project.
func (Project) Edges() []ent.Edge {
	return []ent.Edge{
		edge.From("tenant", Tenant.Type).Ref("projects").Field("tenant_id").Unique(),
		edge.To("tasks", Task.Type).Annotations(entsql.OnDelete(entsql.Cascade)),
	}
}
