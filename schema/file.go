package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/edge"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
	"github.com/entcounter/entcounter/entcounter"
)

// File is one file of a dataset on its way from New to Copied or Failed.
type File struct {
	ent.Schema
}

// Annotations of the File.
func (File) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("File",
			entcounter.Key("dataset_id", "status"),
			entcounter.Count("count"),
			entcounter.Sum("bytes", "size"),
		),
	}
}

// Fields of the File.
func (File) Fields() []ent.Field {
	return []ent.Field{
		field.Int("dataset_id"),
		field.String("path").
			NotEmpty().
			MaxLen(700). // as long as the unique index below allows on MySQL
			Comment("Path of the file below the root of its dataset."),
		field.Int64("size").
			NonNegative().
			Comment("Size in bytes."),
		field.Enum("status").
			Values("New", "Copying", "Copied", "Failed").
			Default("New"),
	}
}

// Edges of the File.
func (File) Edges() []ent.Edge {
	return []ent.Edge{
		edge.From("dataset", Dataset.Type).
			Ref("files").
			Field("dataset_id").
			Unique().
			Required(),
	}
}

// Indexes of the File.
func (File) Indexes() []ent.Index {
	return []ent.Index{
		index.Fields("dataset_id", "path").Unique(),
		index.Fields("dataset_id", "status"),
	}
}
