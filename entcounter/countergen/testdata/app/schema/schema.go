// Package schema has the types and names that code generation must cope with.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/mixin"
	"example.com/app/kind"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/google/uuid"
)

// Group has names that are reserved in SQL, in Go, by ent, or by generated code.
type Group struct {
	ent.Schema
}

// Annotations of the Group.
func (Group) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entsql.Table("group"),
		entcounter.Counter("Group",
			entcounter.Key("order", "scope", "select", "key", "type", "delta"),
			entcounter.Count("measures"),
			entcounter.Count("totals"),
			entcounter.Sum("value", "range"),
			entcounter.Count("label"),
			entcounter.Count("table"),
			entcounter.ReadIndex("select", "order"),
		),
	}
}

// Fields of the Group.
func (Group) Fields() []ent.Field {
	return []ent.Field{
		field.Int("order"),
		field.String("scope").MaxLen(40),
		field.Bool("select"),
		field.Enum("key").Values("a", "b"),
		field.Int("type").StorageKey("Type Column"),
		field.Bytes("delta").MaxLen(16),
		field.Uint32("range"),
	}
}

// Paint has keys of types that are not built into Go.
type Paint struct {
	ent.Schema
}

// Mixin of the Paint.
func (Paint) Mixin() []ent.Mixin { return []ent.Mixin{countedByColor{}} }

// Annotations of the Paint.
func (Paint) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("Paint",
			entcounter.Key("id_of_batch", "color", "level", "code", "shade"),
			entcounter.Count("count"),
			entcounter.Reads("color", "id_of_batch"),
			entcounter.Reads("level"), // without an index
			entcounter.PartitionJournal(4),
		),
	}
}

// Fields of the Paint.
func (Paint) Fields() []ent.Field {
	return []ent.Field{
		field.UUID("id", uuid.UUID{}).Default(uuid.New),
		field.UUID("id_of_batch", uuid.UUID{}),
		field.Enum("color").GoType(kind.Color("")),
		field.Int8("level").GoType(kind.Level(0)),
		field.String("code").GoType(kind.Code{}),
		field.Enum("shade").Values("light", "dark").Optional().Nillable(),
		field.Int("grams").Default(5),
	}
}

// Edges of the Paint.
func (Paint) Edges() []ent.Edge {
	return []ent.Edge{
		edge.To("shelves", Shelf.Type).Through("placements", Placement.Type),
	}
}

// countedByColor declares a counter beside those of the type that it is mixed
// into.
type countedByColor struct {
	mixin.Schema
}

// Annotations of the mixin.
func (countedByColor) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("Color", entcounter.Key("color"), entcounter.Sum("grams", "grams")),
	}
}

// Shelf is joined with Paint.
type Shelf struct {
	ent.Schema
}

// Fields of the Shelf.
func (Shelf) Fields() []ent.Field {
	return []ent.Field{field.String("name").Optional()}
}

// Edges of the Shelf.
func (Shelf) Edges() []ent.Edge {
	return []ent.Edge{
		edge.From("paints", Paint.Type).Ref("shelves").Through("placements", Placement.Type),
	}
}

// Placement is a counted edge schema with an id of two columns.
type Placement struct {
	ent.Schema
}

// Annotations of the Placement.
func (Placement) Annotations() []schema.Annotation {
	return []schema.Annotation{
		field.ID("paint_id", "shelf_id"),
		entcounter.Counter("Placement", entcounter.Key("shelf_id"), entcounter.Count("paints")),
	}
}

// Fields of the Placement.
func (Placement) Fields() []ent.Field {
	return []ent.Field{
		field.UUID("paint_id", uuid.UUID{}),
		field.Int("shelf_id"),
	}
}

// Edges of the Placement.
func (Placement) Edges() []ent.Edge {
	return []ent.Edge{
		edge.To("paint", Paint.Type).Required().Unique().Field("paint_id"),
		edge.To("shelf", Shelf.Type).Required().Unique().Field("shelf_id"),
	}
}
