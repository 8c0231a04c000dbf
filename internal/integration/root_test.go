package integration

import (
	"context"

	entsql "entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/internal/testdb"
)

// newRootClient opens a client of the package at the root of the module, on a
// database of its own.
func newRootClient(w *world) *ent.Client {
	w.Helper()
	db := testdb.New(w, w.db.Kind)
	c := ent.NewClient(ent.Driver(entsql.OpenDB(db.Dialect, db.DB(w))))
	no(w, c.Schema.Create(context.Background()))
	return c
}
