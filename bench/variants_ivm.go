package main

import (
	"context"

	"entgo.io/ent/dialect"

	"github.com/entcounter/entcounter/bench/files"
	"github.com/entcounter/entcounter/bench/plain"
)

// view is a materialized view that pg_ivm keeps up to date. It is named as the table of the others, and read like it.
type view struct{ counterTable }

func (view) alone() bool { return true }

func (view) connect(drv dialect.Driver) files.Client {
	return plain.NewClient(plain.Driver(drv)).Files()
}

func (w view) create(ctx context.Context, s files.Session) error {
	columns := "dataset_id, status, COUNT(*) AS n"
	if w.sums {
		columns += ", SUM(size) AS bytes"
	}
	for _, statement := range []string{
		"CREATE EXTENSION pg_ivm",
		"SELECT pgivm.create_immv('file_counts', 'SELECT " + columns + " FROM files GROUP BY dataset_id, status')",
	} {
		if _, err := s.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// recount has nothing to do: the view has seen every change.
func (view) recount(context.Context, files.Client) error { return nil }
