// Package schema is that of the repository, with a counter that counts rows only.
package schema

import (
	"entgo.io/ent/schema"

	"github.com/entcounter/entcounter/entcounter"
	sums "github.com/entcounter/entcounter/schema"
)

// Dataset is a named collection of files.
type Dataset struct {
	sums.Dataset
}

// File is one file of a dataset.
type File struct {
	sums.File
}

// Annotations of the File.
func (File) Annotations() []schema.Annotation {
	return []schema.Annotation{
		entcounter.Counter("File",
			entcounter.Key("dataset_id", "status"),
			entcounter.Count("count"),
		),
	}
}
