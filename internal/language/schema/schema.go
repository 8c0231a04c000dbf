// Package schema declares counters in every way there is.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"github.com/entcounter/entcounter/entcounter"
)

// Country is where users are.
type Country struct{ ent.Schema }

// Fields of the Country.
func (Country) Fields() []ent.Field {
	return []ent.Field{field.String("code").MaxLen(8), field.Bool("union").Default(false)}
}

// User owns and reviews pieces.
type User struct{ ent.Schema }

// Fields of the User.
func (User) Fields() []ent.Field {
	return []ent.Field{field.String("name").MaxLen(40).Unique(), field.Int("level").Default(0), field.Int("country_id").Optional()}
}

// Edges of the User.
func (User) Edges() []ent.Edge {
	return []ent.Edge{
		edge.To("country", Country.Type).Field("country_id").Unique(),
		edge.To("owned", Piece.Type),
		edge.To("reviewed", Piece.Type),
	}
}

// Project has parcels.
type Project struct{ ent.Schema }

// Fields of the Project.
func (Project) Fields() []ent.Field {
	return []ent.Field{field.String("name").MaxLen(40).Unique(), field.Enum("state").Values("open", "closed").Default("open")}
}

// Edges of the Project.
func (Project) Edges() []ent.Edge {
	return []ent.Edge{edge.To("parcels", Parcel.Type)}
}

// Parcel has pieces, which go with it.
type Parcel struct{ ent.Schema }

// Annotations of the Parcel.
func (Parcel) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("Stage",
			entcounter.Literal("entity", "Parcel"),
			entcounter.Key("project_id", "stage"),
			entcounter.Count("count"),
			entcounter.Sum("total", "weight"),
		),
	}
}

// Fields of the Parcel.
func (Parcel) Fields() []ent.Field {
	return []ent.Field{
		field.Enum("status").Values("new", "sent", "done").Default("new"),
		field.Enum("stage").Values("raw", "cooked").Default("raw"),
		field.Int64("weight").Default(0),
		field.Int("project_id").Optional(),
		field.String("label").MaxLen(40).Optional(),
	}
}

// Edges of the Parcel.
func (Parcel) Edges() []ent.Edge {
	return []ent.Edge{
		edge.From("project", Project.Type).Ref("parcels").Field("project_id").Unique(),
		edge.To("pieces", Piece.Type).Annotations(entsql.OnDelete(entsql.Cascade)),
	}
}

// Piece is counted by what it belongs to.
type Piece struct{ ent.Schema }

// Annotations of the Piece.
func (Piece) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("Status",
			entcounter.Key("parcel.status"),
			entcounter.Count("count"),
			entcounter.Sum("bytes", "size"),
			entcounter.Sum("weight", "parcel.weight"),
		),
		entcounter.Counter("Project",
			entcounter.KeyAs("project_id", "parcel.project.id"),
			entcounter.Key("parcel.project.state", "kind"),
			entcounter.NullAs("kind", "none"),
			entcounter.Where(entcounter.IsNull("deleted_at")),
			entcounter.Count("total"),
			entcounter.Count("large", entcounter.GTE("size", 50)),
			entcounter.Count("shown", entcounter.EQ("published", true), entcounter.NEQ("parcel.status", "new")),
			entcounter.Sum("bytes", "size", entcounter.In("kind", "a", "b")),
		),
		entcounter.Counter("Stage",
			entcounter.Literal("entity", "Piece"),
			entcounter.KeyAs("project_id", "parcel.project_id"),
			entcounter.Key("stage"),
			entcounter.Count("count"),
			entcounter.Sum("total", "size"),
		),
		entcounter.Counter("Owner",
			entcounter.KeyAs("owner_country", "owner.country.code"),
			entcounter.KeyAs("reviewer_country", "reviewer.country.code"),
			entcounter.NullAs("reviewer_country", "-"),
			entcounter.Count("count"),
			entcounter.Sum("levels", "reviewer.level"),
		),
		entcounter.Counter("Day",
			entcounter.Bucket("day", entcounter.Day, "made_at"),
			entcounter.Key("published"),
			entcounter.Count("count"),
			entcounter.Sum("bytes", "size"),
		),
		entcounter.Counter("Period",
			entcounter.Bucket("month", entcounter.Month, "made_at"),
			entcounter.Bucket("week", entcounter.Week, "made_at"),
			entcounter.Bucket("hour", entcounter.Hour, "local_at"),
			entcounter.NullAs("hour", "never"),
			entcounter.Count("count"),
		),
		// What Go can tell by itself.
		entcounter.Counter("Content",
			entcounter.Key("stage"),
			entcounter.Where(entcounter.IsNull("deleted_at")),
			entcounter.Count("total"),
			entcounter.Count("published", entcounter.EQ("published", true)),
			entcounter.Count("scheduled", entcounter.NotNull("scheduled_at"), entcounter.Not(entcounter.EQ("published", true))),
			entcounter.Sum("middling", "size", entcounter.Or(entcounter.In("size", 10, 20), entcounter.And(entcounter.GT("size", 30), entcounter.LTE("size", 60)))),
		),
		entcounter.Counter("Assignee",
			entcounter.Key("owner_piece"),
			entcounter.NullAs("owner_piece", 0),
			entcounter.Count("count"),
			entcounter.Sum("bytes", "size", entcounter.NotIn("stage", "raw")),
		),
		entcounter.Counter("Price",
			entcounter.Key("stage"),
			entcounter.SumDecimal("cents", "price", 2),
			entcounter.Count("priced", entcounter.NotNull("price")),
		),
	}
}

// Fields of the Piece.
func (Piece) Fields() []ent.Field {
	decimal := map[string]string{dialect.MySQL: "decimal(40,2)", dialect.Postgres: "numeric(40,2)", dialect.SQLite: "decimal(40,2)"}
	return []ent.Field{
		field.String("kind").MaxLen(20).Optional().Nillable(),
		field.Enum("stage").Values("raw", "cooked", "eaten").Default("raw"),
		field.Int64("size").Optional().Nillable(),
		field.Bool("published").Default(false),
		field.Time("made_at"),
		field.Time("local_at").Optional().Nillable().SchemaType(map[string]string{dialect.MySQL: "datetime(6)", dialect.Postgres: "timestamp"}),
		field.Time("scheduled_at").Optional().Nillable(),
		field.Time("deleted_at").Optional().Nillable(),
		field.Float("price").Optional().Nillable().SchemaType(decimal),
		field.String("serial").MaxLen(40).Optional().Nillable().Unique(),
		field.String("comment").MaxLen(40).Optional(),
		field.Int("owner_piece").Optional().Nillable(),
	}
}

// Edges of the Piece.
func (Piece) Edges() []ent.Edge {
	return []ent.Edge{
		edge.From("parcel", Parcel.Type).Ref("pieces").Unique(),
		edge.From("owner", User.Type).Ref("owned").Field("owner_piece").Unique(),
		edge.From("reviewer", User.Type).Ref("reviewed").Unique(),
	}
}

// Term is what entries are found by.
type Term struct{ ent.Schema }

// Fields of the Term.
func (Term) Fields() []ent.Field {
	return []ent.Field{field.String("name").MaxLen(40), field.String("taxonomy").MaxLen(20).Default("tag")}
}

// Edges of the Term.
func (Term) Edges() []ent.Edge {
	return []ent.Edge{edge.From("entries", Entry.Type).Ref("terms")}
}

// Entry has terms and, with a rank, tags.
type Entry struct{ ent.Schema }

// Annotations of the Entry.
func (Entry) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("Term",
			entcounter.Over("terms"),
			entcounter.KeyAs("term_id", "terms.id"),
			entcounter.Key("status"),
			entcounter.Where(entcounter.IsNull("deleted_at")),
			entcounter.Count("count"),
			entcounter.Sum("words", "words"),
		),
		entcounter.Counter("Friend",
			entcounter.Over("friends"),
			entcounter.Key("status", "friends.status"),
			entcounter.Count("count"),
		),
	}
}

// Fields of the Entry.
func (Entry) Fields() []ent.Field {
	return []ent.Field{
		field.Enum("status").Values("draft", "published").Default("draft"),
		field.Int("words").Default(0),
		field.Time("deleted_at").Optional().Nillable(),
	}
}

// Edges of the Entry.
func (Entry) Edges() []ent.Edge {
	return []ent.Edge{
		edge.To("terms", Term.Type),
		edge.To("friends", Entry.Type),
		edge.To("tags", Tag.Type).Through("taggings", Tagging.Type),
	}
}

// Tag is what entries are tagged with.
type Tag struct{ ent.Schema }

// Annotations of the Tag.
func (Tag) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("TagEntries",
			entcounter.Over("entries"),
			entcounter.Key("name", "entries.status"),
			entcounter.Count("count"),
		),
	}
}

// Fields of the Tag.
func (Tag) Fields() []ent.Field { return []ent.Field{field.String("name").MaxLen(20)} }

// Edges of the Tag.
func (Tag) Edges() []ent.Edge {
	return []ent.Edge{edge.From("entries", Entry.Type).Ref("tags").Through("taggings", Tagging.Type)}
}

// Tagging is a tag of an entry.
type Tagging struct{ ent.Schema }

// Annotations of the Tagging.
func (Tagging) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("Tagging",
			entcounter.Key("tag_id", "entry.status"),
			entcounter.Count("count"),
			entcounter.Sum("ranks", "rank"),
		),
	}
}

// Fields of the Tagging.
func (Tagging) Fields() []ent.Field {
	return []ent.Field{field.Int("entry_id"), field.Int("tag_id"), field.Int("rank").Default(1)}
}

// Edges of the Tagging.
func (Tagging) Edges() []ent.Edge {
	return []ent.Edge{
		edge.To("entry", Entry.Type).Required().Unique().Field("entry_id").Annotations(entsql.OnDelete(entsql.Cascade)),
		edge.To("tag", Tag.Type).Required().Unique().Field("tag_id").Annotations(entsql.OnDelete(entsql.Cascade)),
	}
}

// Node is one of a tree, counted by its parent and its grandparent.
type Node struct{ ent.Schema }

// Annotations of the Node.
func (Node) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("Tree",
			entcounter.KeyAs("grand_color", "parent.parent.color"),
			entcounter.NullAs("grand_color", "root"),
			entcounter.Key("parent.color", "color"),
			entcounter.Count("count"),
			entcounter.Sum("sizes", "parent.size", entcounter.NEQ("color", "red")),
		),
	}
}

// Fields of the Node.
func (Node) Fields() []ent.Field {
	return []ent.Field{field.String("color").MaxLen(8).Default("red"), field.Int("size").Default(1)}
}

// Edges of the Node.
func (Node) Edges() []ent.Edge {
	return []ent.Edge{edge.To("children", Node.Type).From("parent").Unique()}
}
