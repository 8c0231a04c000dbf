package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/entcounter/entcounter/bench/shapes"
	"github.com/entcounter/entcounter/bench/shapes/migrate"
)

// Where a transition is made.
const (
	writeTx    = "in a transaction"
	writeAlone = "alone"
)

// grown are the shapes in order, by the number of their counters and then of their key columns.
var grown = []struct {
	shape             string
	counters, columns int64
}{
	{"None", 0, 0},
	{"One", 1, 2},
	{"Two", 2, 2},
	{"Four", 4, 2},
	{"Eight", 8, 2},
	{"Narrow", 1, 1},
	{"Wide", 1, 4},
}

// bareShape is what the others are compared with.
const bareShape = "None"

// writtenRows is how many rows each client changes, one after the other.
const writtenRows = 32

// written is a type, and the status that each of its rows has. They begin with id 1.
type written struct {
	shapes.Shape
	counters int64
	status   []int
}

// writes measures transitions by what is counted of a type.
func (g *growing) writes(ctx context.Context) (err error) {
	most := slices.Max(g.clients)
	s, err := openStore(ctx, g.srv, migrate.Tables, most+2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	var types []*written
	for _, one := range grown {
		i := slices.IndexFunc(shapes.Shapes, func(s shapes.Shape) bool { return s.Name == one.shape })
		w := &written{Shape: shapes.Shapes[i], counters: one.counters, status: make([]int, most*writtenRows)}
		if err := s.prepare(ctx, w); err != nil {
			return err
		}
		types = append(types, w)
	}
	for _, n := range g.clients {
		for _, where := range []string{writeTx, writeAlone} {
			g.tell("%s, %s", where, clients(n))
			for round := range g.Rounds {
				for i := range types {
					w := types[(i+round)%len(types)] // none is always the first
					if err := g.write(ctx, s, w, where, n, round+1); err != nil {
						return fmt.Errorf("%s, %s, %s: %w", w.Name, where, clients(n), err)
					}
				}
			}
		}
	}
	return nil
}

// prepare inserts the rows and counts them.
func (s *store) prepare(ctx context.Context, w *written) error {
	columns, values := "id, status", "(%d, 0"
	for i := range 8 {
		columns += fmt.Sprint(", a", i+1)
		values += ", 1"
	}
	b := batch{ctx: ctx, db: s.db, into: fmt.Sprintf("%s (%s)", w.Table, columns)}
	for i := range w.status {
		b.add(fmt.Sprintf(values, i+1) + ")")
	}
	if err := b.flush(); err != nil {
		return err
	}
	for _, h := range s.countersOf(w.Table) {
		if _, err := h.Rebuild(ctx, nil); err != nil {
			return err
		}
		if _, err := foldAll(ctx, h); err != nil {
			return err
		}
	}
	return nil
}

// write lets clients change rows of a type, each its own, folds what that has journalled, and checks the counts.
func (g *growing) write(ctx context.Context, s *store, w *written, where string, n, round int) error {
	lost := make([]conflicts, n)
	operations := make([]func(context.Context) error, n)
	for i := range operations {
		next := i
		operations[i] = func(ctx context.Context) error {
			at := next
			next += n
			if next >= len(w.status) {
				next = i
			}
			to := 1 - w.status[at]
			err := lost[i].insist(func() error { return s.move(ctx, w, where, at+1, w.status[at], to) })
			if err == nil {
				w.status[at] = to
			}
			return err
		}
	}
	if err := connect(ctx, s.db, n); err != nil {
		return err
	}
	started := time.Now()
	latencies, elapsed, err := together(ctx, g.Duration, operations)
	if err != nil {
		return err
	}
	p := Point{Place: g.place(where+" "+w.Name, w.counters), Round: round, Seconds: elapsed.Seconds(), Written: time.Since(started).Seconds()}
	p.Clients = n
	for _, c := range lost {
		p.Deadlocks += c.deadlocks
		p.Retries += c.retries
	}
	for _, h := range s.countersOf(w.Table) {
		folded, err := foldAll(ctx, h)
		if err != nil {
			return err
		}
		p.Rows += int64(folded.Rows)
		if err := check(ctx, h); err != nil {
			return err
		}
	}
	g.add(p, latencies)
	return nil
}

// move changes the status of one row.
func (s *store) move(ctx context.Context, w *written, where string, id, from, to int) error {
	once := func(c *shapes.Client) error {
		n, err := w.Move(ctx, c, id, from, to)
		if err == nil && n != 1 {
			err = fmt.Errorf("%d rows have id %d and status %d, want 1", n, id, from)
		}
		return err
	}
	if where == writeAlone {
		return once(s.client)
	}
	tx, err := s.client.Tx(ctx)
	if err != nil {
		return err
	}
	if err := once(tx.Client()); err != nil {
		// The server may have rolled back already, which is no error of its own.
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}
