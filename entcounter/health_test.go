package entcounter

import (
	"errors"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"github.com/entcounter/entcounter/internal/testdb"
)

func (f *fixture) health(tb testing.TB) Health {
	tb.Helper()
	h, err := f.Health(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

func TestHealth(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		f := newFixture(t, db)
		h := f.health(t)
		if h.Counter != "File" || h.Keys != 0 || h.Journal != 0 || h.Oldest != 0 || h.DeepestKey != nil || h.Deepest != 0 || !h.LastFold.IsZero() ||
			!h.LastBuild.IsZero() || h.FoldedPerSecond != 0 || h.Folded != 0 || h.Negative != 0 || h.NegativeKey != nil || h.Built != nil || h.Paused {
			t.Errorf("of an empty counter: %+v", h)
		}
		wantEqual(t, h.Columns, []string{"dataset_id", "status"})
		if known := h.HistoryLength >= 0; known != (db.Dialect == dialect.MySQL) {
			t.Errorf("history list length %d", h.HistoryLength)
		}
		if known := h.DeadRows >= 0; known != (db.Dialect == dialect.Postgres) {
			t.Errorf("%d dead rows", h.DeadRows)
		}

		f.journal(t, delta(7, "new", 3, 60), delta(7, "copied", 1, 5), delta(8, "new", 1, 1))
		f.journal(t, delta(7, "new", -1, -10))
		f.journal(t, delta(7, "new", -1, -10))
		time.Sleep(50 * time.Millisecond)
		h = f.health(t)
		if h.Keys != 0 || h.Journal != 5 || h.Deepest != 3 || h.Negative != 0 {
			t.Errorf("before a fold: %+v", h)
		}
		wantEqual(t, h.DeepestKey, []any{7, "new"})
		if h.Oldest < 45*time.Millisecond || h.Oldest > time.Minute {
			t.Errorf("the oldest row is %v old", h.Oldest)
		}

		before := time.Now()
		if _, err := f.Fold(t.Context(), WithBatch(4)); err != nil {
			t.Fatal(err)
		}
		h = f.health(t)
		if h.Keys != 3 || h.Journal != 1 || h.Deepest != 1 || h.Folded != 4 || h.FoldedPerSecond <= 0 || h.FoldedPerSecond > 4e6 {
			t.Errorf("after a fold: %+v", h)
		}
		if off := h.LastFold.Sub(before); off < -time.Minute || off > time.Minute || h.LastFold.Location() != time.UTC {
			t.Errorf("last fold at %v, it was at %v", h.LastFold, before)
		}
		last := h.LastFold
		f.foldAll(t)
		if h = f.health(t); h.Journal != 0 || h.Oldest != 0 || h.Deepest != 0 || h.DeepestKey != nil || h.Folded != 5 || h.LastFold.Before(last) {
			t.Errorf("after the last fold: %+v", h)
		}
		last = h.LastFold
		if _, err := f.Fold(t.Context()); err != nil {
			t.Fatal(err)
		}
		if h = f.health(t); !h.LastFold.Equal(last) || h.Folded != 5 {
			t.Errorf("a fold of nothing is taken for one: %+v", h)
		}
	})
}

// A key is negative by the sum of its counter row and its journal rows, however they
// are divided.
func TestHealthNegative(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		f := newFixture(t, db)
		want := func(n int64, key ...any) {
			t.Helper()
			h := f.health(t)
			if h.Negative != n {
				t.Errorf("%d negative, want %d", h.Negative, n)
			}
			wantEqual(t, h.NegativeKey, key)
		}
		f.journal(t, delta(7, "new", 3, 60), delta(8, "new", 2, 20), delta(9, "new", 0, 0))
		want(0)
		f.foldAll(t)
		f.journal(t, delta(7, "new", -3, -60), delta(8, "new", -2, -20))
		want(0)
		f.foldAll(t)
		want(0)
		f.journal(t, delta(8, "new", 0, -1)) // no count, but a sum
		want(1, 8, "new")
		f.foldAll(t)
		want(1, 8, "new")
		f.exec(t, "UPDATE `file_counters` SET `count` = -4 WHERE `dataset_id` = 7")
		want(2, 7, "new")
		f.journal(t, delta(7, "new", 4, 0), delta(10, "copied", -1, 0))
		want(2, 8, "new")
		f.journal(t, delta(8, "new", 0, 1))
		want(1, 10, "copied")
		f.foldAll(t)
		want(1, 10, "copied")
	})
}

func TestHealthBuilt(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		d := fileCounter()
		d.assumeBuilt = false
		f := newFixtureOf(t, db, d)
		if h := f.health(t); h.Built != nil || !h.LastBuild.IsZero() { // of few rows: a read adopts it
			t.Errorf("new: %+v", h)
		}
		if _, err := f.Rebuild(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		h := f.health(t)
		if since := time.Since(h.LastBuild); h.Built != nil || since < -time.Minute || since > time.Minute {
			t.Errorf("built: %+v", h)
		}
		last := h.LastBuild
		if _, err := f.Rebuild(t.Context(), []any{int64(7)}); err != nil {
			t.Fatal(err)
		}
		if h := f.health(t); !h.LastBuild.Equal(last) {
			t.Errorf("the rebuild of a scope is taken for a build: %+v", h)
		}
		f.exec(t, "UPDATE `counter_locks` SET `declaration` = 'other' WHERE `operation` = 'rebuilt'")
		if h := f.health(t); !errors.Is(h.Built, ErrDeclarationChanged) {
			t.Errorf("built by another declaration: %v", h.Built)
		}
		f.exec(t, "UPDATE `counter_locks` SET `declaration` = '' WHERE `operation` = 'rebuilt'")
		for range 11 {
			values := ""
			for i := range 1000 {
				if i > 0 {
					values += ", "
				}
				values += "(1, 'new', 1)"
			}
			f.exec(t, "INSERT INTO `files` (`dataset_id`, `status`, `size`) VALUES "+values)
		}
		if h := f.health(t); !errors.Is(h.Built, ErrNotBuilt) {
			t.Errorf("not built: %v", h.Built)
		}
	})
}

func TestPause(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		f := newFixture(t, db)
		for range 2 {
			if err := f.Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !f.health(t).Paused {
				t.Error("not paused")
			}
		}
		f.journal(t, delta(7, "new", 3, 60))
		if folded, err := f.Fold(t.Context()); err != nil || folded.Rows != 1 {
			t.Errorf("a fold that is asked for folds %+v, %v", folded, err)
		}
		for range 2 {
			if err := f.Resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			if f.health(t).Paused {
				t.Error("paused")
			}
		}
	})
}
