// Package database opens the databases that the examples run on: whatever a DSN on
// the command line means.
package database

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"entgo.io/ent/dialect"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/dsn"
)

// Source is a database to open.
type Source struct{ dsn.Source }

// Parse tells what database the flag -dsn of a program means. An empty one means a SQLite file in the
// user's cache directory, named after the program.
func Parse(text, program string) (Source, error) {
	if text == "" {
		path, err := defaultDatabase(program)
		if err != nil {
			return Source{}, err
		}
		text = "file:" + (&url.URL{Path: path}).EscapedPath()
	}
	src, err := dsn.Parse(text)
	if err != nil {
		return Source{}, fmt.Errorf("-dsn: %w", err)
	}
	return Source{src}, nil
}

// defaultDatabase returns the path of a SQLite file whose folder exists.
func defaultDatabase(program string) (string, error) {
	dir, err := os.UserCacheDir()
	if err == nil {
		dir = filepath.Join(dir, "entcounter")
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, program+".db"), nil
}

// Open connects, and returns the server's version.
func (s Source) Open(ctx context.Context, connections int) (*stdsql.DB, string, error) {
	db, err := stdsql.Open(s.Driver, s.DSN)
	if err != nil {
		return nil, "", fmt.Errorf("opening %s: %w", s.Label, err)
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	version, err := func() (version string, err error) {
		query := "SELECT VERSION()"
		if s.Dialect == dialect.SQLite {
			query = "SELECT 'SQLite ' || sqlite_version()"
		}
		ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		err = db.QueryRowContext(ctx, query).Scan(&version)
		return version, err
	}()
	if err != nil {
		_ = db.Close()
		return nil, "", fmt.Errorf("connecting to %s: %w", s.Label, err)
	}
	version, _, _ = strings.Cut(version, " (")
	return db, version, nil
}

// Build counts rows for counters that cannot be read: those whose rows were there first, and those whose declaration
// has changed since they were built. In a new database there are none.
func Build(ctx context.Context, counters []*entcounter.Handle) error {
	for _, c := range counters {
		err := c.Check(ctx)
		if errors.Is(err, entcounter.ErrNotBuilt) || errors.Is(err, entcounter.ErrDeclarationChanged) {
			_, err = c.Rebuild(ctx, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// MustBeOurs refuses a database with tables of somebody else's that have the names of the given ones, but not
// their columns: creating what is missing would change them.
func (s Source) MustBeOurs(ctx context.Context, db *stdsql.DB, tables map[string][]string) error {
	for table, columns := range tables {
		has := func(what string) bool {
			rows, err := db.QueryContext(ctx, "SELECT "+what+" FROM "+table+" WHERE 1 = 0")
			return err == nil && rows.Close() == nil
		}
		if has("1") && !has(strings.Join(columns, ", ")) && ctx.Err() == nil {
			return fmt.Errorf("%s: there is a table %q that is not this program's: give a database of its own", s.Label, table)
		}
	}
	return nil
}
