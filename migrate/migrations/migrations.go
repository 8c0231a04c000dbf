// Package migrations holds the versioned migrations of this repository's schema, in a form that Atlas reads.
package migrations

import (
	"embed"
	"fmt"
	"io/fs"
	"path"

	"ariga.io/atlas/sql/migrate"
	"entgo.io/ent/dialect"
)

//go:embed mysql postgres sqlite
var files embed.FS

// Folder returns the name of the folder for an ent dialect. MySQL and MariaDB share one: for the types of this
// schema ent asks the same of both, and a test holds the folder against either server. A schema with UUIDs needs
// two, since ent uses MariaDB's own type for them, which MySQL does not have.
func Folder(name string) (string, error) {
	switch name {
	case dialect.MySQL, dialect.Postgres:
		return name, nil
	case dialect.SQLite:
		return "sqlite", nil
	default:
		return "", fmt.Errorf("migrations: no folder for the dialect %q", name)
	}
}

// Dir returns the migrations for an ent dialect, as they were when the program was built.
func Dir(name string) (migrate.Dir, error) {
	folder, err := Folder(name)
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(files, folder)
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	dir := &migrate.MemDir{}
	for _, e := range entries {
		data, err := fs.ReadFile(files, path.Join(folder, e.Name()))
		if err == nil {
			err = dir.WriteFile(e.Name(), data)
		}
		if err != nil {
			return nil, fmt.Errorf("migrations: %w", err)
		}
	}
	dir.SetPath(folder)
	return dir, nil
}
