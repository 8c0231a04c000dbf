package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
	"entgo.io/ent/schema/mixin"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/integration/types"
	"github.com/google/uuid"
)

// TierMixin adds a field that the database has a default for, and its counter.
type TierMixin struct{ mixin.Schema }

// Fields of the TierMixin.
func (TierMixin) Fields() []ent.Field {
	return []ent.Field{
		field.String("tier").MaxLen(30).Optional().Annotations(entsql.Default("free")),
		field.Int8("level").Optional().Annotations(entsql.DefaultExprs(map[string]string{
			dialect.MySQL: "3", dialect.Postgres: "1 + 2", dialect.SQLite: "(1 + 2)",
		})),
	}
}

// Annotations of the TierMixin.
func (TierMixin) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("TaskTier", entcounter.Key("tier"), entcounter.Count("count"), entcounter.Sum("levels", "level")),
	}
}

// Task is counted in many ways, under parents of every kind.
type Task struct{ ent.Schema }

// Mixin of the Task.
func (Task) Mixin() []ent.Mixin { return []ent.Mixin{TierMixin{}} }

// Annotations of the Task.
func (Task) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("Task",
			entcounter.Key("project_id", "state"),
			entcounter.Count("count"),
			entcounter.Sum("bytes", "size"),
			entcounter.Sum("weight", "weight"),
			entcounter.Sum("retries", "retries"),
		),
		entcounter.Counter("Owner", entcounter.Key("owner_id"), entcounter.Count("tasks")),
		entcounter.Counter("Review", entcounter.Key("reviewer_id", "state"), entcounter.Count("tasks"), entcounter.ReadIndex("state")),
	}
}

// Fields of the Task.
func (Task) Fields() []ent.Field {
	return []ent.Field{
		field.UUID("project_id", uuid.UUID{}),
		field.Int("owner_id").Optional().Nillable(),
		field.Int("reviewer_id").Optional().Nillable(),
		field.Enum("state").GoType(types.State("")).Default(string(types.Open)),
		field.Int64("size").Default(0),
		field.Int("weight").Optional().Nillable(),
		field.Uint32("retries").Default(0),
		field.String("code").MaxLen(50).Optional().Nillable().Unique(),
		field.String("note").Optional(),
		field.JSON("labels", []string{}).Optional(),
	}
}

// Edges of the Task.
func (Task) Edges() []ent.Edge {
	return []ent.Edge{
		edge.From("project", Project.Type).Ref("tasks").Unique().Required().Field("project_id"),
		edge.From("owner", User.Type).Ref("owned").Unique().Field("owner_id"),
		edge.From("reviewer", User.Type).Ref("reviewed").Unique().Field("reviewer_id"),
		edge.To("attachments", Attachment.Type).Annotations(entsql.OnDelete(entsql.Cascade)),
		edge.To("blocks", Task.Type).From("blocked_by"),
	}
}

// Attachment is the third level below a tenant, with the names that SQL has taken.
type Attachment struct{ ent.Schema }

// Annotations of the Attachment.
func (Attachment) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entsql.Annotation{Table: "group"},
		entcounter.Counter("Attachment", entcounter.Key("order", "key"), entcounter.Count("rows"), entcounter.Sum("count", "count"), entcounter.Sum("table", "size")),
		entcounter.Counter("Upload", entcounter.Key("task_id", "uploader_id"), entcounter.Count("select")),
	}
}

// Fields of the Attachment.
func (Attachment) Fields() []ent.Field {
	return []ent.Field{
		field.UUID("id", uuid.UUID{}).Default(uuid.New).StorageKey("attachment_uuid"),
		field.Int("order"),
		field.String("key").MaxLen(60),
		field.Uint8("count").Default(0),
		field.Uint64("size").StorageKey("where"),
		field.Int("task_id").StorageKey("from").Optional().Nillable(),
		field.Int("uploader_id").Optional().Nillable(),
	}
}

// Edges of the Attachment.
func (Attachment) Edges() []ent.Edge {
	return []ent.Edge{
		edge.From("task", Task.Type).Ref("attachments").Unique().Field("task_id"),
		edge.From("uploader", User.Type).Ref("uploads").Unique().Field("uploader_id"),
	}
}

// Indexes of the Attachment.
func (Attachment) Indexes() []ent.Index {
	return []ent.Index{index.Fields("order", "key", "task_id").Unique()}
}
