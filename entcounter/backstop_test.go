package entcounter

import (
	"context"
	stdsql "database/sql"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"github.com/entcounter/entcounter/internal/testdb"
)

// journalRows commits n journal rows of one key.
func (f *fixture) journalRows(tb testing.TB, n int) {
	tb.Helper()
	deltas := slices.Repeat([]Delta{delta(7, "new", 1, 10)}, 500)
	for ; n > 0; n -= len(deltas) {
		f.journal(tb, deltas[:min(n, len(deltas))]...)
	}
}

// within waits for what shall become true.
func within(tb testing.TB, d time.Duration, what string, holds func() bool) {
	tb.Helper()
	for started := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Since(started) > d {
			tb.Fatalf("%s: not within %v", what, d)
		}
	}
}

func TestBackstop(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		var (
			f       = newFixture(t, db)
			now     atomic.Int64
			most    atomic.Int64
			folded  atomic.Int64
			skipped atomic.Int64
		)
		options := BackstopOptions{Rows: 100, Fold: WorkerOptions{
			Batch: 200, MinInterval: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
			OnCycle: func(c Cycle) {
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
				folded.Add(int64(c.Folded.Rows))
				if c.Err != nil {
					t.Error(c.Err)
				}
				if errors.Is(c.Skipped, ErrPaused) {
					skipped.Add(1)
				}
			},
		}}
		b, err := NewBackstop([]*Handle{f.Handle}, options)
		if err != nil {
			t.Fatal(err)
		}
		read := func(n int64) {
			t.Helper()
			nodes := f.nodes(t, f.drv, nil)
			if len(nodes) != 1 || nodes[0].count.count != n {
				t.Errorf("read %+v, want %d", nodes, n)
			}
		}

		f.journalRows(t, 99)
		read(99)
		time.Sleep(100 * time.Millisecond)
		if n := folded.Load(); n != 0 {
			t.Errorf("a read that adds less than it may made fold %d rows", n)
		}

		f.journalRows(t, 901)
		var reads sync.WaitGroup
		for range 20 {
			reads.Go(func() { read(1000) })
		}
		reads.Wait()
		within(t, 30*time.Second, "reads make fold all that is there", func() bool { return folded.Load() == 1000 })
		if most.Load() != 1 {
			t.Errorf("%d folds of one counter at once", most.Load())
		}
		read(1000)

		// In a transaction, which a fold has no part in.
		f.journalRows(t, 500)
		tx, err := f.drv.Tx(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if nodes := f.nodes(t, newTxDriver(tx, f.drv), nil); len(nodes) != 1 || nodes[0].count.count != 1500 {
			t.Errorf("in a transaction, read %+v", nodes)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		within(t, 30*time.Second, "a read in a transaction makes fold", func() bool { return folded.Load() == 1500 })

		if err := f.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.journalRows(t, 500)
		within(t, 30*time.Second, "a paused counter is skipped", func() bool { read(2000); return skipped.Load() > 0 })
		if err := f.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		within(t, 30*time.Second, "a resumed counter is folded", func() bool { read(2000); return folded.Load() == 2000 })

		f.journalRows(t, 500)
		b.Close()
		read(2500)
		time.Sleep(100 * time.Millisecond)
		if n := folded.Load(); n != 2000 {
			t.Errorf("after Close, %d rows were folded", n-2000)
		}
		b.Close()
	})
}

// Reads do not wait for a fold, and Close ends one that is stuck.
func TestBackstopClose(t *testing.T) {
	f := newFixture(t, testdb.New(t, testdb.SQLite))
	f.journalRows(t, 500)
	stuck := make(chan struct{})
	h := New(f.def, &stuckDriver{Driver: f.drv, begun: stuck})
	b, err := NewBackstop([]*Handle{h}, BackstopOptions{Fold: WorkerOptions{Logger: slog.New(slog.DiscardHandler)}, Rows: 1})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if nodes := f.nodes(t, h.drv, nil); nodes[0].count.count != 500 {
			t.Errorf("read %+v", nodes)
		}
	}
	<-stuck
	closed := make(chan struct{})
	go func() { b.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("Close waits for a fold that is stuck")
	}
	wantEqual(t, f.backlog(t), 500)

	tx, err := f.drv.Tx(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := NewBackstop([]*Handle{New(f.def, newTxDriver(tx, f.drv))}, BackstopOptions{}); !errors.Is(err, ErrInTransaction) {
		t.Errorf("on a transaction: %v", err)
	}
}

// stuckDriver begins no transaction before its context ends.
type stuckDriver struct {
	dialect.Driver
	begun chan struct{}
}

func (d *stuckDriver) BeginTx(ctx context.Context, _ *stdsql.TxOptions) (dialect.Tx, error) {
	close(d.begun)
	<-ctx.Done()
	return nil, ctx.Err()
}

// boundDriver is a driver that is bound to a transaction, as that of ent's Tx is.
type boundDriver struct {
	outer   dialect.Driver
	tx      dialect.Tx
	wrapped *Tx
}

func newTxDriver(tx dialect.Tx, outer dialect.Driver) *boundDriver {
	return &boundDriver{outer: outer, tx: tx}
}

func (d *boundDriver) CounterTx(wrap func(dialect.Tx) *Tx) *Tx {
	if d.wrapped == nil {
		d.wrapped = wrap(d.tx)
	}
	return d.wrapped
}
func (d *boundDriver) CounterDriver() dialect.Driver { return d.outer }
func (d *boundDriver) Dialect() string               { return d.outer.Dialect() }
func (d *boundDriver) Close() error                  { return nil }
func (d *boundDriver) Tx(context.Context) (dialect.Tx, error) {
	return nil, errors.New("in a transaction already")
}

func (d *boundDriver) Query(ctx context.Context, query string, args, v any) error {
	return d.tx.Query(ctx, query, args, v)
}

func (d *boundDriver) Exec(ctx context.Context, query string, args, v any) error {
	return d.tx.Exec(ctx, query, args, v)
}
