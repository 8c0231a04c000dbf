package entcounter

import (
	"bytes"
	"context"
	stdsql "database/sql"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/internal/testdb"
)

// scriptedDriver is a database whose journal is a number, for tests of when a
// worker folds.
type scriptedDriver struct {
	dialect.Driver // nil: nothing else is called
	mu             sync.Mutex
	rows           int
	err            error
	folds          []time.Time // when a fold looked at the journal
}

func (*scriptedDriver) Dialect() string { return dialect.SQLite }

func (d *scriptedDriver) BeginTx(context.Context, *stdsql.TxOptions) (dialect.Tx, error) {
	return scriptedTx{d}, nil
}

type scriptedTx struct{ *scriptedDriver }

func (scriptedTx) Commit() error   { return nil }
func (scriptedTx) Rollback() error { return nil }

func (d *scriptedDriver) Query(_ context.Context, query string, _, v any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	rows := v.(*sql.Rows)
	if strings.HasPrefix(query, "SELECT 1") {
		d.folds = append(d.folds, time.Now())
		rows.ColumnScanner = &scriptedRows{left: min(d.rows, 1), cells: []any{1}}
		return d.err
	}
	n := min(d.rows, 100)
	d.rows -= n
	rows.ColumnScanner = &scriptedRows{left: n, cells: []any{int64(1), int64(7), "new", int64(1), int64(1), "now"}}
	return nil
}

func (d *scriptedDriver) Exec(_ context.Context, query string, _, v any) error {
	if res, ok := v.(*sql.Result); ok {
		*res = affected(1)
		if strings.HasPrefix(query, "DELETE") {
			*res = affected(strings.Count(query, ",") + 1)
		}
	}
	return nil
}

type affected int64

func (affected) LastInsertId() (int64, error)   { return 0, nil }
func (a affected) RowsAffected() (int64, error) { return int64(a), nil }

type scriptedRows struct {
	sql.ColumnScanner
	left  int
	cells []any
}

func (r *scriptedRows) Next() bool   { r.left--; return r.left >= 0 }
func (r *scriptedRows) Close() error { return nil }
func (r *scriptedRows) Err() error   { return nil }
func (r *scriptedRows) Scan(dest ...any) error {
	for i, d := range dest {
		switch d := d.(type) {
		case stdsql.Scanner:
			if err := d.Scan(r.cells[i]); err != nil {
				return err
			}
		case *int64:
			*d = r.cells[i].(int64)
		case *int:
			*d = r.cells[i].(int)
		case *string:
			*d = r.cells[i].(string)
		}
	}
	return nil
}

func TestWorkerCadence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		idle, full, failing := &scriptedDriver{}, &scriptedDriver{rows: 1050}, &scriptedDriver{err: errors.New("boom")}
		var (
			log   bytes.Buffer
			moved int
		)
		ctx, cancel := context.WithCancel(t.Context())
		w := NewWorker([]*Handle{New(fileCounter(), idle), New(fileCounter(), full), New(oddCounter(), failing)}, WorkerOptions{
			Interval:   time.Second,
			Batch:      100,
			MaxBackoff: 8 * time.Second,
			OnFold: func(counter string, folded Folded) { // by one loop only: the others move nothing
				if counter != "File" || folded.Rows == 0 {
					t.Errorf("told of %+v of %s", folded, counter)
				}
				moved += folded.Rows
			},
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		done := make(chan error)
		started := time.Now()
		go func() { done <- w.Run(ctx) }()
		time.Sleep(100 * time.Second)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
		gaps := func(d *scriptedDriver) (gaps []time.Duration) {
			last := started
			for _, at := range d.folds {
				gaps = append(gaps, at.Sub(last))
				last = at
			}
			return gaps
		}
		for i, gap := range gaps(idle) {
			if gap > 1100*time.Millisecond || i > 0 && gap < 900*time.Millisecond {
				t.Errorf("idle: fold %d after %v", i, gap)
			}
		}
		if n := len(idle.folds); n < 90 || n > 112 {
			t.Errorf("idle: %d folds in 100 s", n)
		}
		for i, gap := range gaps(full)[1:12] {
			if full := i < 10; full && gap != 0 || !full && gap < 900*time.Millisecond {
				t.Errorf("full: fold %d after %v", i+1, gap)
			}
		}
		if full.rows != 0 || moved != 1050 {
			t.Errorf("full: %d rows left, told of %d moved", full.rows, moved)
		}
		limit := time.Second
		for i, gap := range gaps(failing)[1:] {
			if gap < limit/2 || gap > limit {
				t.Errorf("failing: fold %d after %v, want %v to %v", i+1, gap, limit/2, limit)
			}
			limit = min(2*limit, 8*time.Second)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != len(failing.folds) || !strings.Contains(log.String(), "counter=Odd") || !strings.Contains(log.String(), "boom") {
			t.Errorf("%d warnings of %d failures:\n%s", n, len(failing.folds), log.String())
		}
	})
}

// A fold that succeeds ends the backing off.
func TestWorkerRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &scriptedDriver{err: errors.New("boom")}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Second)
		defer cancel()
		go func() {
			time.Sleep(100 * time.Second)
			d.mu.Lock()
			defer d.mu.Unlock()
			d.err = nil
		}()
		if err := NewWorker([]*Handle{New(fileCounter(), d)}, WorkerOptions{Logger: slog.New(slog.DiscardHandler)}).Run(ctx); err != nil {
			t.Errorf("Run returned %v", err)
		}
		last := d.folds[len(d.folds)-2:]
		if gap := last[1].Sub(last[0]); gap > 1100*time.Millisecond {
			t.Errorf("after the recovery, folds are %v apart", gap)
		}
	})
}

func TestWorkerWithoutCounters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		started := time.Now()
		if err := NewWorker(nil, WorkerOptions{}).Run(ctx); err != nil || time.Since(started) != time.Hour {
			t.Errorf("Run returned %v after %v", err, time.Since(started))
		}
	})
}

// Workers of several processes fold the same counter, and stop in the middle.
func TestWorkers(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		l := startLoad(t, db)
		workers, stopWorkers := context.WithCancel(t.Context())
		defer stopWorkers()
		var wg sync.WaitGroup
		for range 3 {
			w := NewWorker([]*Handle{New(l.def, sql.OpenDB(db.Dialect, db.DB(t)))}, WorkerOptions{Interval: time.Millisecond, Batch: 50})
			wg.Go(func() {
				if err := w.Run(workers); err != nil {
					t.Errorf("Run returned %v", err)
				}
			})
		}
		for started := time.Now(); time.Since(started) < time.Second || len(l.stored(t)) == 0; time.Sleep(50 * time.Millisecond) {
			if time.Since(started) > time.Minute {
				t.Fatal("the workers fold nothing")
			}
		}
		stopWorkers()
		wg.Wait()
		l.stop()
		if off := l.off(t); off != 0 {
			t.Errorf("the counter is off by %d", off)
		}
	})
}
