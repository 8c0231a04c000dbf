package entcounter

import (
	"bytes"
	"context"
	stdsql "database/sql"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/internal/testdb"
)

// scriptedDriver is a database whose journal is a number of rows of one key, for tests of
// when a worker folds.
type scriptedDriver struct {
	dialect.Driver // nil: nothing else is called
	mu             sync.Mutex
	rows           int
	perSecond      int // rows that come
	since          time.Time
	perRow         time.Duration // that a fold takes
	paused         bool
	err            error
	folds          []time.Time // when a fold looked at the journal
	moved          []int       // by each fold
	busy           func(int)   // told when a fold begins and ends
}

func (*scriptedDriver) Dialect() string { return dialect.SQLite }

func (d *scriptedDriver) BeginTx(context.Context, *stdsql.TxOptions) (dialect.Tx, error) {
	return scriptedTx{d}, nil
}

type scriptedTx struct{ *scriptedDriver }

func (tx scriptedTx) Commit() error {
	if tx.busy != nil {
		tx.busy(-1)
	}
	return nil
}
func (scriptedTx) Rollback() error { return nil }

var limit = regexp.MustCompile(`LIMIT (\d+)`)

func (d *scriptedDriver) Query(ctx context.Context, query string, _, v any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	rows := v.(*sql.Rows)
	if strings.HasPrefix(query, "SELECT (SELECT") {
		d.folds = append(d.folds, time.Now())
		if d.perSecond > 0 {
			d.rows += int(time.Since(d.since).Seconds() * float64(d.perSecond))
			d.since = time.Now()
		}
		cells := []any{nil, nil}
		if d.rows > 0 {
			cells[0] = int64(1)
		}
		if d.paused {
			cells[1] = int64(1)
		}
		rows.ColumnScanner = &scriptedRows{left: 1, cells: cells}
		return d.err
	}
	if d.busy != nil {
		d.busy(1)
	}
	batch, err := strconv.Atoi(limit.FindStringSubmatch(query)[1])
	if err != nil {
		return err
	}
	n := min(d.rows, batch)
	// Not while others wait for the mutex, which stops the fake clock.
	took := time.Duration(n) * d.perRow
	d.mu.Unlock()
	err = sleep(ctx, took)
	d.mu.Lock()
	if err != nil {
		return err
	}
	d.rows -= n
	d.moved = append(d.moved, n)
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

// gaps returns the times between the looks at the journal.
func (d *scriptedDriver) gaps() (gaps []time.Duration) {
	for i := 1; i < len(d.folds); i++ {
		gaps = append(gaps, d.folds[i].Sub(d.folds[i-1]))
	}
	return gaps
}

// work runs a worker over scripted databases in fake time.
func work(t *testing.T, d time.Duration, options WorkerOptions, drivers ...*scriptedDriver) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	counters := make([]*Handle, len(drivers))
	for i, d := range drivers {
		d.since = time.Now()
		counters[i] = New(fileCounter(), d)
	}
	if err := NewWorker(counters, options).Run(ctx); err != nil {
		t.Errorf("Run returned %v", err)
	}
}

// The pause is such that a read of the deepest key has to add as many rows as it may.
func TestWorkerCadence(t *testing.T) {
	for _, tt := range []struct {
		perSecond int
		want      time.Duration
	}{
		{0, 5 * time.Second}, // nothing to do
		{1, 5 * time.Second},
		{50, 2 * time.Second},
		{200, 500 * time.Millisecond},
		{5000, 100 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &scriptedDriver{perSecond: tt.perSecond}
			work(t, 5*time.Minute, WorkerOptions{}, d)
			gaps := d.gaps()
			for _, gap := range gaps[len(gaps)/2:] {
				if gap < tt.want*3/4 || gap > tt.want*5/4 {
					t.Errorf("at %d rows a second, folds are %v apart, want %v", tt.perSecond, gap, tt.want)
				}
			}
		})
	}
}

// A full batch is followed by the next one at once, and nothing is left behind.
func TestWorkerFullBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			d      = &scriptedDriver{rows: 1050}
			cycles []Cycle
		)
		work(t, time.Minute, WorkerOptions{Batch: 100, OnCycle: func(c Cycle) { cycles = append(cycles, c) }}, d)
		for i, gap := range d.gaps()[:11] {
			if full := i < 10; full && gap != 0 || !full && gap < 90*time.Millisecond {
				t.Errorf("fold %d after %v", i+1, gap)
			}
		}
		moved := 0
		for _, c := range cycles {
			if c.Counter != "File" || c.Err != nil || c.Skipped != nil || c.Batch != 100 || c.Folded.Full != (c.Pause == 0) || c.Folded.Deepest != c.Folded.Rows {
				t.Errorf("told of %+v", c)
			}
			moved += c.Folded.Rows
		}
		if d.rows != 0 || moved != 1050 || len(cycles) < 20 {
			t.Errorf("%d rows left, told of %d moved in %d cycles", d.rows, moved, len(cycles))
		}
	})
}

// A batch becomes so small that its transaction ends in time, and so large again.
func TestWorkerBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &scriptedDriver{rows: 100_000, perRow: time.Millisecond}
		work(t, time.Hour, WorkerOptions{}, d)
		if d.rows != 0 || d.moved[0] != 5000 {
			t.Errorf("%d rows left, moved %v", d.rows, d.moved)
		}
		for i, n := range d.moved[1:] {
			if n > 200 {
				t.Errorf("fold %d moved %d rows, which takes longer than 200 ms", i+1, n)
			}
		}
		again := &scriptedDriver{rows: 100_000, perRow: time.Millisecond}
		go func() {
			time.Sleep(50 * time.Second)
			again.mu.Lock()
			defer again.mu.Unlock()
			again.perRow = time.Microsecond
		}()
		work(t, time.Hour, WorkerOptions{}, again)
		if last := slices.Max(again.moved[1:]); again.rows != 0 || last != 5000 {
			t.Errorf("%d rows left, the largest batch moved %d", again.rows, last)
		}
	})
}

// One counter's long backlog does not keep others waiting, and no more are folded at
// once than there are connections for.
func TestWorkerFairness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			mu        sync.Mutex
			now, most int
			drivers   []*scriptedDriver
		)
		for range 50 {
			drivers = append(drivers, &scriptedDriver{rows: 1000, perRow: time.Millisecond, busy: func(n int) {
				mu.Lock()
				defer mu.Unlock()
				now += n
				most = max(most, now)
			}})
		}
		for _, d := range drivers[:3] {
			d.rows = 1_000_000
		}
		work(t, 2*time.Minute, WorkerOptions{Connections: 2, Batch: 100}, drivers...)
		if most != 2 {
			t.Errorf("%d folds at once", most)
		}
		for i, d := range drivers[3:] {
			if d.rows != 0 {
				t.Errorf("counter %d has %d rows left beside others with a long backlog", i, d.rows)
			}
		}
		for _, d := range drivers[:3] {
			if n := len(d.moved); n < 100 {
				t.Errorf("one with a long backlog was folded %d times", n)
			}
		}
	})
}

// Failures are far apart, and one counter's do not concern the others.
func TestWorkerBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			idle, failing = &scriptedDriver{}, &scriptedDriver{err: errors.New("boom")}
			log           bytes.Buffer
			failures      int
		)
		work(t, 100*time.Second, WorkerOptions{
			MinInterval: time.Second,
			MaxInterval: time.Second,
			MaxBackoff:  8 * time.Second,
			OnCycle: func(c Cycle) {
				if c.Err != nil {
					failures++
				}
			},
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		}, idle, failing)
		for i, gap := range idle.gaps() {
			if gap < 900*time.Millisecond || gap > 1100*time.Millisecond {
				t.Errorf("idle: fold %d after %v", i+1, gap)
			}
		}
		if n := len(idle.folds); n < 90 || n > 112 {
			t.Errorf("idle: %d folds in 100 s", n)
		}
		limit := time.Second
		for i, gap := range failing.gaps() {
			if gap < limit/2 || gap > limit {
				t.Errorf("failing: fold %d after %v, want %v to %v", i+1, gap, limit/2, limit)
			}
			limit = min(2*limit, 8*time.Second)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != len(failing.folds) || n != failures || !strings.Contains(log.String(), "boom") {
			t.Errorf("%d warnings of %d failures, told of %d:\n%s", n, len(failing.folds), failures, log.String())
		}
	})
}

// A fold that succeeds ends the backing off.
func TestWorkerRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &scriptedDriver{err: errors.New("boom")}
		go func() {
			time.Sleep(100 * time.Second)
			d.mu.Lock()
			defer d.mu.Unlock()
			d.err = nil
		}()
		work(t, 300*time.Second, WorkerOptions{}, d)
		gaps := d.gaps()
		if gap := gaps[len(gaps)-1]; gap > 5500*time.Millisecond {
			t.Errorf("after the recovery, folds are %v apart", gap)
		}
	})
}

// A worker is paused by itself, or in the database for all.
func TestWorkerPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			d       = &scriptedDriver{perSecond: 10}
			skipped int
			ctx, c  = context.WithTimeout(t.Context(), time.Hour)
		)
		defer c()
		d.since = time.Now()
		w := NewWorker([]*Handle{New(fileCounter(), d)}, WorkerOptions{OnCycle: func(c Cycle) {
			if c.Skipped != nil {
				skipped++
			}
			if c.Skipped != nil && (!errors.Is(c.Skipped, ErrPaused) || c.Folded.Rows > 0 || c.Err != nil) {
				t.Errorf("told of %+v", c)
			}
		}})
		paused := func(paused bool) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.paused = paused
		}
		during := func(do func()) (folds int) {
			do()
			time.Sleep(6 * time.Second) // the one that waits comes
			d.mu.Lock()
			before := len(d.moved)
			d.mu.Unlock()
			time.Sleep(time.Minute)
			d.mu.Lock()
			defer d.mu.Unlock()
			return len(d.moved) - before
		}
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		for i, n := range []int{
			during(w.Pause), during(func() {}), during(w.Resume),
			during(func() { paused(true) }), during(func() { paused(false) }),
		} {
			if running := i == 2 || i == 4; running != (n > 5) || !running && n != 0 {
				t.Errorf("%d: %d folds in a minute", i, n)
			}
		}
		if skipped < 30 {
			t.Errorf("told of %d skipped cycles", skipped)
		}
		c()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A worker that is stopped folds what is left, as long as it may.
func TestWorkerDrain(t *testing.T) {
	for _, tt := range []struct {
		drain, took time.Duration
		left        int
	}{
		{0, 10 * time.Second, 5000},
		{time.Minute, 30 * time.Second, 0},
		{10 * time.Second, 20 * time.Second, 2500},
	} {
		synctest.Test(t, func(t *testing.T) {
			var (
				d       = &scriptedDriver{}
				started = time.Now()
			)
			go func() {
				time.Sleep(10*time.Second - time.Millisecond)
				d.mu.Lock()
				defer d.mu.Unlock()
				d.rows, d.perRow = 5000, 4*time.Millisecond
			}()
			work(t, 10*time.Second, WorkerOptions{Drain: tt.drain, Batch: 100, FoldTime: time.Second}, d)
			d.mu.Lock()
			left := d.rows
			d.mu.Unlock()
			if took := time.Since(started); took > tt.took+time.Second || took < tt.took-time.Second || left > tt.left+100 || left < tt.left-100 {
				t.Errorf("with %v to drain, Run took %v and left %d rows, want %v and %d", tt.drain, took, left, tt.took, tt.left)
			}
		})
	}
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
			w := NewWorker([]*Handle{New(l.def, sql.OpenDB(db.Dialect, db.DB(t)))}, WorkerOptions{MinInterval: time.Millisecond, MaxInterval: time.Millisecond, Batch: 50})
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
