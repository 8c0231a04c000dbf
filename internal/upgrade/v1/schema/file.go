// Package schema is the schema of a program that counts nothing yet.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
	"entgo.io/ent/schema/index"
)

// File is one file of a dataset.
type File struct{ ent.Schema }

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
