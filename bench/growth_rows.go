package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/entcounter/entcounter/entcounter"
)

// What is done to counted rows and to the journal.
const (
	doBuild        = "first build"
	doVerify       = "verify"
	doRebuild      = "rebuild, nothing wrong"
	doRebuildWrong = "rebuild, all keys wrong"
	doFold         = "fold"
)

// foldBatches are the sizes of batches that are compared.
var foldBatches = []int64{500, 1_000, 5_000, 20_000}

// manyKeys is how many keys counted rows and journal rows are spread over, if there are enough rows.
const manyKeys = 10_000

// keysOf are the subjects of folds.
func keysOf(n int64) string {
	if n == 1 {
		return "1 key"
	}
	return thousands(n) + " keys"
}

// folds measures folds by the size of a batch.
func (g *growing) folds(ctx context.Context) error {
	journal := g.Rows / 10
	for _, keys := range []int64{1, min(manyKeys, journal/10)} {
		if err := g.foldsOf(ctx, journal, keys); err != nil {
			return fmt.Errorf("%s: %w", keysOf(keys), err)
		}
	}
	return nil
}

// foldsOf measures folds of a journal, which is filled up to the same number of rows before each measurement.
func (g *growing) foldsOf(ctx context.Context, journal, keys int64) (err error) {
	s, err := openStore(ctx, g.srv, entryTables, 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.addFolded(ctx, 0, keys); err != nil {
		return err
	}
	if err := s.addJournal(ctx, journal, keys); err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	part := journal / 50 // which one measurement folds, at least one batch
	for round := range g.Rounds {
		for i := range foldBatches {
			batch := foldBatches[(i+round)%len(foldBatches)]
			p := Point{Place: g.place(keysOf(keys), batch), Round: round + 1}
			latencies, err := p.fold(ctx, s.entries(), max(1, part/batch))
			if err != nil {
				return err
			}
			g.add(p, latencies)
			if err := s.addJournal(ctx, p.Rows, keys); err != nil {
				return err
			}
		}
		g.tell("%s, round %d of %d", keysOf(keys), round+1, g.Rounds)
	}
	if err := s.balance(ctx, keys); err != nil {
		return err
	}
	return check(ctx, s.entries())
}

// fold folds some batches, of as many rows as the point's size.
func (p *Point) fold(ctx context.Context, h *entcounter.Handle, batches int64) (latencies []time.Duration, err error) {
	for i := range batches {
		started := time.Now()
		folded, err := h.Fold(ctx, entcounter.WithBatch(int(p.Size)))
		if err != nil {
			return latencies, err
		}
		if folded.Rows == 0 {
			return latencies, fmt.Errorf("a fold of %d rows has found none after %d of %d", p.Size, i, batches)
		}
		latencies = append(latencies, time.Since(started))
		p.Rows += int64(folded.Rows)
		p.Seconds += time.Since(started).Seconds()
	}
	return latencies, nil
}

// counted measures what reads all counted rows, by their number, and a fold of a tenth as many journal rows.
func (g *growing) counted(ctx context.Context) error {
	for i, rows := range fractions(g.Rows, 100, 10, 1) {
		rounds := []int{g.Rounds, min(g.Rounds, 3), 1}[i] // a long one tells as much as several short ones
		if err := g.countedRows(ctx, rows, rounds); err != nil {
			return fmt.Errorf("%d rows: %w", rows, err)
		}
	}
	return nil
}

func (g *growing) countedRows(ctx context.Context, rows int64, rounds int) (err error) {
	s, err := openStore(ctx, g.srv, entryTables, 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	keys := min(manyKeys, rows/10)
	seconds, err := timed(func() error { return s.addEntries(ctx, rows, keys) })
	if err != nil {
		return err
	}
	g.tell("%d rows inserted in %.1fs", rows, seconds)
	if err := s.settle(ctx); err != nil {
		return err
	}
	for round := range rounds {
		if err := g.countedRound(ctx, s, rows, keys, round+1); err != nil {
			return err
		}
	}
	return nil
}

// countedRound does all there is to do once, and knows what each must find.
func (g *growing) countedRound(ctx context.Context, s *store, rows, keys int64, round int) error {
	s.journaled = 0
	h := s.entries()
	// step measures one of them.
	step := func(subject string, n int64, do func() error) error {
		p := Point{Place: g.place(subject, rows), Round: round, Rows: n, Operations: 1}
		memory, err := g.srv.peak(ctx, func() (err error) {
			p.Seconds, err = timed(do)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", subject, err)
		}
		p.Memory = memory
		g.Points = append(g.Points, p)
		g.tell("%s: %d rows in %.2fs", subject, n, p.Seconds)
		return nil
	}
	corrected := func(got int, want int64) error {
		if int64(got) != want {
			return fmt.Errorf("%d keys were corrected, want %d", got, want)
		}
		_, err := foldAll(ctx, h)
		return err
	}
	journal := rows / 10
	journalKeys := min(manyKeys, journal/10)
	journal -= journal % (2 * journalKeys) // so that it adds up to nothing
	fixed := 0
	rebuild := func() error {
		rebuilt, err := h.Rebuild(ctx, nil)
		fixed = rebuilt.Keys
		return err
	}
	steps := []func() error{
		func() error { return s.forget(ctx) },
		func() error {
			return step(doBuild, rows, func() error {
				progress, err := h.Build(ctx, entcounter.BuildOptions{})
				fixed = progress.Keys
				return err
			})
		},
		func() error { return corrected(fixed, keys) },
		func() error { return step(doVerify, rows, func() error { return check(ctx, h) }) },
		func() error { return step(doRebuild, rows, rebuild) },
		func() error { return corrected(fixed, 0) },
		func() error { return s.exec(ctx, "UPDATE entry_counters SET count = count + 1") },
		func() error { return step(doRebuildWrong, rows, rebuild) },
		func() error { return corrected(fixed, keys) },
		func() error { return s.addJournal(ctx, journal, journalKeys) },
		func() error {
			return step(doFold, journal, func() error {
				folded, err := foldAll(ctx, h)
				if err == nil && int64(folded.Rows) != journal {
					err = fmt.Errorf("%d rows were folded, want %d", folded.Rows, journal)
				}
				return err
			})
		},
		func() error { return check(ctx, h) },
	}
	for _, do := range steps {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// forget makes a counter what it is before its first build.
func (s *store) forget(ctx context.Context) error {
	for _, query := range []string{
		"DELETE FROM entry_counter_journal",
		"DELETE FROM entry_counters",
		"UPDATE counter_locks SET declaration = '' WHERE counter_name = 'Entry' AND operation = 'rebuilt'",
	} {
		if err := s.exec(ctx, query); err != nil {
			return err
		}
	}
	return s.settle(ctx)
}
