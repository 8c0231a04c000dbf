package main

import (
	"context"

	"entgo.io/ent/dialect"

	"github.com/entcounter/entcounter/bench/files"
	"github.com/entcounter/entcounter/bench/plain"
)

// bare counts nothing. Where others read a count it reads a file by its primary key.
type bare struct{}

func (bare) connect(drv dialect.Driver) files.Client {
	return plain.NewClient(plain.Driver(drv)).Files()
}

func (bare) create(context.Context, files.Session) error { return nil }
func (bare) recount(context.Context, files.Client) error { return nil }
func (bare) alone() bool                                 { return true }

func (bare) read(ctx context.Context, s files.Session, f row) (files.Count, error) {
	return files.Count{}, s.Get(ctx, f.id)
}

func (bare) readAll(context.Context, files.Client) (map[files.Key]files.Count, error) {
	return nil, nil
}

// recounts counts when it is read.
type recounts struct {
	bare
	dialect string
	sums    bool
}

func (w recounts) read(ctx context.Context, s files.Session, f row) (files.Count, error) {
	sum := "0"
	if w.sums {
		sum = "COALESCE(SUM(size), 0)"
	}
	return countOf(ctx, s, rebind(w.dialect, "SELECT COUNT(*), "+sum+" FROM files WHERE dataset_id = ? AND status = ?"),
		f.key.Dataset, f.key.Status)
}
