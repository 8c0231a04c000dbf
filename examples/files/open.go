package main

import (
	"context"
	"fmt"

	entsql "entgo.io/ent/dialect/sql"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/dataset"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/examples/internal/database"
)

// spareConnections are those beside the workers': paging through the rows, folding, showing
// progress.
const spareConnections = 3

// open connects, creates the tables that are missing, and returns the server's version.
func open(ctx context.Context, src database.Source, connections int) (*ent.Client, string, error) {
	db, version, err := src.Open(ctx, connections)
	if err != nil {
		return nil, "", err
	}
	if err := src.MustBeOurs(ctx, db, map[string][]string{dataset.Table: dataset.Columns, file.Table: file.Columns}); err != nil {
		_ = db.Close()
		return nil, "", err
	}
	client := ent.NewClient(ent.Driver(entsql.OpenDB(src.Dialect, db)))
	if err := client.Schema.Create(ctx); err != nil {
		_ = client.Close()
		return nil, "", fmt.Errorf("creating the tables in %s: %w", src.Label, err)
	}
	return client, version, nil
}
