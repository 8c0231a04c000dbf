package language

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/conformance/replay"
	"github.com/entcounter/entcounter/internal/language/draw"
	"github.com/entcounter/entcounter/internal/language/ent/parcel"
	"github.com/entcounter/entcounter/internal/testdb"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "seed of the random tests (default: a new one, which is printed)")
	stepsFlag = flag.Int("steps", 600, "steps of a random test on each database")
)

func seedOf(tb testing.TB) uint64 {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	tb.Logf("seed %d", seed)
	return seed
}

// TestModel holds random mutations against what Go counts. A step depends on the seed
// and its own number alone, so that a failing run can be cut down to the steps that
// matter.
func TestModel(t *testing.T) {
	seed := seedOf(t)
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		replay.Run(t, replay.Command(t, db.Kind, seed, *stepsFlag), *stepsFlag, func(steps []int, closely bool) (int, error) {
			every := 10
			if closely {
				every = 1
			}
			return runModel(newWorld(t, testdb.New(t, db.Kind)), seed, steps, every)
		}, func(i int) string { return fmt.Sprintf("step %d", i) })
	})
}

// runModel runs the given steps of a seed and tells which one failed.
func runModel(w *world, seed uint64, steps []int, every int) (int, error) {
	ctx, succeeded := context.Background(), 0
	for n, i := range steps {
		d := draw.New(ctx, w.client, seed, uint64(i))
		what, err := d.Run()
		if !draw.Refused(err) {
			return i, fmt.Errorf("%s: %w", what, err)
		}
		if err == nil {
			succeeded++
		}
		if d.Maybe(20) {
			for _, h := range w.client.Counters() {
				if _, err := h.Fold(ctx); err != nil {
					return i, err
				}
			}
		}
		if n%every == 0 || n == len(steps)-1 {
			if diff := differences(ctx, w.client); diff != "" {
				return i, fmt.Errorf("%s (%v): %s", what, err, diff)
			}
		}
	}
	if len(steps) >= 100 && succeeded < len(steps)/2 {
		return 0, fmt.Errorf("only %d of %d steps succeeded", succeeded, len(steps))
	}
	return 0, nil
}

// TestTogether lets clients draw at once, while folds and rebuilds run.
func TestTogether(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		if db.Kind == testdb.SQLite {
			db.DSN = db.WithParams(map[string]string{"_txlock": "immediate"})
		}
		w := newWorld(t, db)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		seed := seedOf(t)
		var (
			writers, others sync.WaitGroup
			mu              sync.Mutex
			succeeded       int
			lost            int
		)
		for n := range uint64(4) {
			writers.Go(func() {
				d := draw.New(ctx, w.client, seed, n)
				for range *stepsFlag / 4 {
					what, err := d.Run()
					mu.Lock()
					switch {
					case err == nil:
						succeeded++
					case entcounter.Retryable(err), errors.Is(err, entcounter.ErrTransactionFailed):
						lost++
					case !draw.Refused(err):
						t.Errorf("%s: %v", what, err)
					}
					mu.Unlock()
				}
			})
		}
		for _, run := range []func(*entcounter.Handle) error{
			func(h *entcounter.Handle) error { _, err := h.Fold(ctx); return err },
			func(h *entcounter.Handle) error { _, err := h.Rebuild(ctx, nil); return err },
			func(h *entcounter.Handle) error {
				return h.Verify(ctx, nil, func(scan func(...any) error) error { return errors.New("drift while writers write") })
			},
		} {
			others.Go(func() {
				for ctx.Err() == nil {
					for _, h := range w.client.Counters() {
						if err := run(h); err != nil && ctx.Err() == nil {
							t.Errorf("%s: %v", h.Name(), err)
						}
					}
					time.Sleep(20 * time.Millisecond)
				}
			})
		}
		writers.Wait()
		cancel()
		others.Wait()
		w.exact(t.Context(), "at the end")
		t.Logf("%d mutations succeeded, %d lost against others", succeeded, lost)
		if succeeded < *stepsFlag/4 {
			t.Errorf("only %d of %d steps succeeded", succeeded, *stepsFlag)
		}
	})
}

// TestSnapshotLevels changes rows and their parents at each isolation level, beside
// changes that the transaction's snapshot does not show.
func TestSnapshotLevels(t *testing.T) {
	each(t, func(ctx context.Context, w *world) {
		if w.db.Kind == testdb.SQLite {
			// One writer: a snapshot that is not the newest cannot write.
			tx, err := w.client.Tx(ctx)
			w.no(err)
			must(tx.Parcel.Query().Count(ctx))
			w.client.Parcel.Create().SaveX(ctx)
			if err := tx.Parcel.Create().Exec(ctx); !entcounter.Retryable(err) {
				t.Errorf("a write after an old snapshot: %v", err)
			}
			w.no(tx.Rollback())
			return
		}
		c := w.client
		p := c.Parcel.Create().SaveX(ctx)
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			tx, err := c.BeginTx(ctx, &sql.TxOptions{Isolation: level})
			w.no(err)
			must(tx.Country.Query().Count(ctx)) // takes the snapshot
			c.Piece.Create().SetParcel(p).SetMadeAt(noon).SaveX(ctx)
			w.no(tx.Piece.Create().SetParcel(p).SetMadeAt(noon).Exec(ctx))
			err = tx.Parcel.UpdateOne(p).SetStatus(parcel.StatusDone).Exec(ctx)
			if w.db.Dialect == dialect.Postgres && level != sql.LevelReadCommitted {
				// The snapshot does not show the first piece.
				if !errors.Is(err, errors.ErrUnsupported) {
					t.Fatalf("%s: a parent of rows that the snapshot does not show: %v", level, err)
				}
			} else {
				w.no(err)
			}
			w.no(tx.Commit())
			w.exact(ctx, level.String())
			c.Parcel.UpdateOne(p).SetStatus(parcel.StatusNew).ExecX(ctx)
		}
	})
}
