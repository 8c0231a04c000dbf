package main

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/dataset"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/internal/dsn"
)

// spareConnections are those beside the workers': paging through the rows, folding, showing
// progress.
const spareConnections = 3

// sourceOf tells what database a DSN means: a SQLite file of the user's if it is empty.
func sourceOf(text string) (dsn.Source, error) {
	if text == "" {
		path, err := defaultDatabase()
		if err != nil {
			return dsn.Source{}, err
		}
		text = "file:" + (&url.URL{Path: path}).EscapedPath()
	}
	src, err := dsn.Parse(text)
	if err != nil {
		return dsn.Source{}, fmt.Errorf("-dsn: %w", err)
	}
	return src, nil
}

// defaultDatabase returns the path of a SQLite file whose folder exists.
func defaultDatabase() (string, error) {
	dir, err := os.UserCacheDir()
	if err == nil {
		dir = filepath.Join(dir, "entcounter")
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "files.db"), nil
}

// open connects, creates the tables that are missing, and returns the server's version.
func open(ctx context.Context, src dsn.Source, connections int) (*ent.Client, string, error) {
	db, err := stdsql.Open(src.Driver, src.DSN)
	if err != nil {
		return nil, "", fmt.Errorf("opening %s: %w", src.Label, err)
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	version, err := func() (version string, err error) {
		query := "SELECT VERSION()"
		if src.Dialect == dialect.SQLite {
			query = "SELECT 'SQLite ' || sqlite_version()"
		}
		ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		err = db.QueryRowContext(ctx, query).Scan(&version)
		return version, err
	}()
	if err != nil {
		_ = db.Close()
		return nil, "", fmt.Errorf("connecting to %s: %w", src.Label, err)
	}
	if err := mustBeOurs(ctx, db); err != nil {
		_ = db.Close()
		return nil, "", fmt.Errorf("%s: %w", src.Label, err)
	}
	client := ent.NewClient(ent.Driver(entsql.OpenDB(src.Dialect, db)))
	if err := client.Schema.Create(ctx); err != nil {
		_ = client.Close()
		return nil, "", fmt.Errorf("creating the tables in %s: %w", src.Label, err)
	}
	version, _, _ = strings.Cut(version, " (")
	return client, version, nil
}

// mustBeOurs refuses a database with tables of somebody else's that have the names of ours: creating what is
// missing would change them.
func mustBeOurs(ctx context.Context, db *stdsql.DB) error {
	for table, columns := range map[string][]string{dataset.Table: dataset.Columns, file.Table: file.Columns} {
		has := func(what string) bool {
			rows, err := db.QueryContext(ctx, "SELECT "+what+" FROM "+table+" WHERE 1 = 0")
			return err == nil && rows.Close() == nil
		}
		if has("1") && !has(strings.Join(columns, ", ")) && ctx.Err() == nil {
			return fmt.Errorf("there is a table %q that is not this program's: give a database of its own", table)
		}
	}
	return nil
}
