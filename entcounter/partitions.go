package entcounter

import (
	"ariga.io/atlas/sql/mysql"
	atlas "ariga.io/atlas/sql/schema"
	"entgo.io/ent/dialect/sql/schema"
)

// WithTableOptions makes migrations create the tables with the options of their
// annotations, among them the partitions that [PartitionJournal] asks for.
//
// It is needed for versioned migrations that are made by replaying them
// (schema.ModeReplay) on MySQL and MariaDB: ent then reads the desired tables back
// from a database, and where one has partitions it reads the word "partitioned",
// which no server takes as an option. Elsewhere it changes nothing.
func WithTableOptions(tables ...*schema.Table) schema.MigrateOption {
	return schema.WithDiffHook(func(next schema.Differ) schema.Differ {
		return schema.DiffFunc(func(current, desired *atlas.Schema) ([]atlas.Change, error) {
			for _, t := range tables {
				read, ok := desired.Table(t.Name)
				if !ok || t.Annotation == nil {
					continue
				}
				for _, attr := range read.Attrs {
					if options, ok := attr.(*mysql.CreateOptions); ok {
						options.V = t.Annotation.Options
					}
				}
			}
			return next.Diff(current, desired)
		})
	})
}
