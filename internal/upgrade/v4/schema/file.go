// Package schema is the schema of the program after the counted table and a key column were renamed.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
	"github.com/entcounter/entcounter/entcounter"
)

// Document is what was a File, in a collection in place of a dataset.
type Document struct{ ent.Schema }

// Annotations of the Document.
func (Document) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("File",
			entcounter.Key("collection_id", "status"),
			entcounter.Count("count"),
			entcounter.Sum("bytes", "size"),
		),
	}
}

// Fields of the Document.
func (Document) Fields() []ent.Field {
	return []ent.Field{
		field.Int("collection_id"),
		field.String("status").MaxLen(20),
		field.String("kind").MaxLen(20),
		field.Int64("size"),
	}
}

// Indexes of the Document.
func (Document) Indexes() []ent.Index {
	return []ent.Index{index.Fields("collection_id", "status")}
}
