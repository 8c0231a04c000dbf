// Package schema is the schema of the program after a counter was added.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
	"github.com/entcounter/entcounter/entcounter"
)

// File is one file of a dataset.
type File struct{ ent.Schema }

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
		field.String("status").MaxLen(20),
		field.String("kind").MaxLen(20),
		field.Int64("size"),
	}
}

// Indexes of the File.
func (File) Indexes() []ent.Index {
	return []ent.Index{index.Fields("dataset_id", "status")}
}
