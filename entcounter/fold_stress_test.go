package entcounter

import (
	"context"
	stdsql "database/sql"
	"flag"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/internal/testdb"
)

var stress = flag.Duration("stress", 0, "run the stress tests of the fold for this long, rather than until they have shown what they are for")

// A load is 16 writers that journal deltas beside folds.
type load struct {
	*fixture
	folds     *Handle     // on a connection of its own
	deadlocks atomic.Bool // are to be expected
	committed [4]atomic.Int64
	stop      func() // ends the writers and waits for them
}

var loadStatuses = [...]string{"new", "copying", "copied", "failed"}

// startLoad starts the writers.
func startLoad(t *testing.T, db *testdb.Database) *load {
	const writers = 16
	l := &load{fixture: newFixture(t, db)}
	l.pool.SetMaxOpenConns(writers)
	l.pool.SetMaxIdleConns(writers)
	pool := db.DB(t)
	pool.SetMaxOpenConns(1)
	l.folds = New(l.def, sql.OpenDB(db.Dialect, pool))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	l.stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(l.stop)
	for range writers {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := l.write(); err != nil && !(l.deadlocks.Load() && lostRace(err)) {
					t.Errorf("writer: %v", err)
					return
				}
			}
		})
	}
	return l
}

// write journals the move of a file from one status to another, or of a file
// that is new, in one statement.
func (l *load) write() error {
	time.Sleep(rand.N(2 * time.Millisecond))
	to, from := rand.IntN(4), rand.IntN(4)
	deltas := []Delta{delta(7, loadStatuses[to], 1, 10)}
	if from != to {
		deltas = append(deltas, delta(7, loadStatuses[from], -1, -10))
	}
	if err := insertJournal(context.Background(), l.drv, l.db.Dialect, l.def, deltas); err != nil {
		return err
	}
	l.committed[to].Add(1)
	if from != to {
		l.committed[from].Add(-1)
	}
	return nil
}

// off folds what is left, once the writers have ended, and returns by how many
// the counter differs from what they have committed.
func (l *load) off(t *testing.T) (off int64) {
	l.foldAll(t)
	counts := make(map[string]count)
	for _, c := range l.stored(t) {
		counts[c.status] = c
	}
	for i, status := range loadStatuses {
		got, want := counts[status], l.committed[i].Load()
		if got.bytes != 10*got.count {
			t.Errorf("%s: %d rows of %d bytes", status, got.count, got.bytes)
		}
		off += max(got.count-want, want-got.count)
	}
	return off
}

// Neither server lets a fold at READ COMMITTED make a writer wait. At REPEATABLE
// READ the same fold does.
func TestFoldLockWaits(t *testing.T) {
	for _, kind := range []testdb.Kind{testdb.MariaDB, testdb.MySQL} {
		t.Run(string(kind), func(t *testing.T) {
			measure := func(level stdsql.IsolationLevel) (waits int64, folds int) {
				l := startLoad(t, testdb.New(t, kind))
				l.deadlocks.Store(level != stdsql.LevelReadCommitted)
				time.Sleep(100 * time.Millisecond)
				before := l.rowLockWaits(t)
				for started := time.Now(); time.Since(started) < max(*stress, 3*time.Second) || folds < 20; {
					folded, err := l.folds.Fold(t.Context(), func(c *foldConfig) { c.level = level })
					if err != nil {
						t.Fatal(err)
					}
					if folded.Rows > 0 {
						folds++
					}
				}
				waits = l.rowLockWaits(t) - before
				l.stop()
				if off := l.off(t); off != 0 {
					t.Errorf("the counter is off by %d", off)
				}
				return waits, folds
			}
			// The server counts for all of its databases: somebody else's waits are told
			// from those of a fold by looking again.
			var waits int64
			for range 5 {
				var folds int
				waits, folds = measure(stdsql.LevelReadCommitted)
				t.Logf("READ COMMITTED: %d folds, %d row lock waits", folds, waits)
				if waits == 0 {
					break
				}
			}
			if waits != 0 {
				t.Errorf("folds at READ COMMITTED made transactions wait %d times", waits)
			}
			waits, folds := measure(stdsql.LevelRepeatableRead)
			t.Logf("REPEATABLE READ: %d folds, %d row lock waits", folds, waits)
			if waits == 0 {
				t.Error("folds at REPEATABLE READ made nobody wait: the measurement shows nothing")
			}
		})
	}
}

func (l *load) rowLockWaits(t *testing.T) (waits int64) {
	t.Helper()
	var name string
	if err := l.pool.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'").Scan(&name, &waits); err != nil {
		t.Fatal(err)
	}
	return waits
}

func TestFoldBesideWriters(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		l := startLoad(t, db)
		var folds, rows int
		for started := time.Now(); time.Since(started) < max(*stress, 2*time.Second); {
			folded, err := l.folds.Fold(t.Context(), WithBatch(1+rand.IntN(100)))
			if err != nil {
				t.Fatal(err)
			}
			folds++
			rows += folded.Rows
		}
		l.stop()
		if off := l.off(t); off != 0 {
			t.Errorf("after %d folds of %d rows the counter is off by %d", folds, rows, off)
		}
		if rows == 0 {
			t.Errorf("%d folds moved nothing", folds)
		}
	})
}
