package main

import (
	"context"
	"time"

	"entgo.io/ent/dialect"

	"github.com/entcounter/entcounter/bench/counts"
	"github.com/entcounter/entcounter/bench/files"
	"github.com/entcounter/entcounter/bench/sums"
	"github.com/entcounter/entcounter/entcounter"
)

// folding is when the journal is folded.
type folding int

const (
	foldingByWorker folding = iota
	foldingNever
	foldingInLoop
)

// counted counts by entcounter.
type counted struct {
	sums    bool
	folding folding
}

func (w counted) connect(drv dialect.Driver) files.Client {
	if w.sums {
		return sums.NewClient(sums.Driver(drv)).Files()
	}
	return counts.NewClient(counts.Driver(drv)).Files()
}

func (counted) create(context.Context, files.Session) error { return nil }
func (counted) alone() bool                                 { return true }

func (w counted) recount(ctx context.Context, c files.Client) error {
	if _, err := c.(files.CountedClient).Handle().Rebuild(ctx, nil); err != nil {
		return err
	}
	_, err := w.fold(ctx, c)
	return err
}

func (counted) fold(ctx context.Context, c files.Client) (Folded, error) {
	return foldAll(ctx, c.(files.CountedClient).Handle())
}

// foldAll folds all of a journal.
func foldAll(ctx context.Context, h *entcounter.Handle) (Folded, error) {
	started := time.Now()
	total := Folded{}
	for {
		folded, err := h.Fold(ctx)
		if err != nil {
			return total, err
		}
		total.Rows += folded.Rows
		if !folded.Full {
			total.Seconds = time.Since(started).Seconds()
			return total, nil
		}
	}
}

func (counted) read(ctx context.Context, s files.Session, f row) (files.Count, error) {
	return s.(files.CountedSession).Read(ctx, f.key)
}

func (counted) readAll(ctx context.Context, c files.Client) (map[files.Key]files.Count, error) {
	return c.(files.CountedClient).ReadAll(ctx)
}

// background folds until it is stopped, and then tells what went wrong.
func (w counted) background(ctx context.Context, c files.Client) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	handle := c.(files.CountedClient).Handle()
	go func() {
		switch w.folding {
		case foldingByWorker:
			done <- entcounter.NewWorker([]*entcounter.Handle{handle}, entcounter.WorkerOptions{}).Run(ctx)
		case foldingInLoop:
			for ctx.Err() == nil {
				if _, err := handle.Fold(ctx); err != nil && ctx.Err() == nil {
					done <- err
					return
				}
			}
			done <- nil
		default:
			done <- nil
		}
	}()
	return func() error {
		cancel()
		return <-done
	}
}
