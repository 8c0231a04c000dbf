// Package files is what the benchmarks do with files, whichever generated client does it. The template files.tmpl
// implements it by ordinary calls of each of them.
package files

import (
	"context"
	"database/sql"

	"github.com/entcounter/entcounter/entcounter"
)

// Statuses are those of a file, in the order that a database sorts them by.
var Statuses = []string{"Copied", "Copying", "Failed", "New"}

// Key is what files are counted by.
type Key struct {
	Dataset int
	Status  string
}

// Count is what one key has.
type Count struct {
	Files int64
	Bytes int64 // 0 where sizes are not summed
}

// New is a file to create.
type New struct {
	Key
	Path string
	Size int64 // in bytes
}

// Session changes and reads files, in a transaction or not.
type Session interface {
	// Create creates a file.
	Create(ctx context.Context, f New) error
	// Move changes the status of a file if it has the key, and returns the number of changed rows.
	Move(ctx context.Context, id int, from Key, status string) (int, error)
	// MoveAll changes the status of all files that have the key, and returns their number.
	MoveAll(ctx context.Context, from Key, status string) (int, error)
	// Delete deletes a file if it has the key, and returns the number of deleted rows.
	Delete(ctx context.Context, id int, from Key) (int, error)
	// Get reads one file by its primary key.
	Get(ctx context.Context, id int) error

	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Tx is a transaction.
type Tx interface {
	Session
	Commit() error
	Rollback() error
}

// Client is a generated client.
type Client interface {
	Session
	// Begin begins a transaction at the database's default isolation level.
	Begin(ctx context.Context) (Tx, error)
	// Migrate creates the tables.
	Migrate(ctx context.Context) error
}

// CountedSession reads counters of entcounter.
type CountedSession interface {
	Session
	// Read reads one key.
	Read(ctx context.Context, k Key) (Count, error)
}

// CountedClient is a client generated with counters.
type CountedClient interface {
	Client
	CountedSession
	// ReadAll reads all keys.
	ReadAll(ctx context.Context) (map[Key]Count, error)
	// Handle returns the counter.
	Handle() *entcounter.Handle
}

// Change tells which files a mutation changes.
type Change struct {
	From Key
	ID   int // 0 for all files that have the key
}

type changeKey struct{}

// WithChange tells hooks of ent what they cannot see of a mutation: its predicate.
func WithChange(ctx context.Context, c Change) context.Context {
	return context.WithValue(ctx, changeKey{}, c)
}

// ChangeOf returns what WithChange has told.
func ChangeOf(ctx context.Context) (Change, bool) {
	c, ok := ctx.Value(changeKey{}).(Change)
	return c, ok
}
