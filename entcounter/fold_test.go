package entcounter

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/entcounter/entcounter/internal/testdb"
)

func TestFold(t *testing.T) {
	for name, def := range map[string]*Definition{"plain": fileCounter(), "reserved words": oddCounter()} {
		t.Run(name, func(t *testing.T) {
			testdb.Each(t, func(t *testing.T, db *testdb.Database) {
				f := newFixtureOf(t, db, def)
				if folded, err := f.Fold(t.Context()); err != nil || folded != (Folded{}) {
					t.Fatalf("fold of an empty journal: %+v, %v", folded, err)
				}
				f.journal(t, delta(7, "new", 3, 60))
				f.journal(t, delta(7, "new", -2, -30), delta(7, "copied", 2, 30))
				want := []count{{7, "copied", 2, 30}, {7, "new", 1, 30}}
				wantEqual(t, f.read(t, nil), want)
				folded, err := f.Fold(t.Context(), WithBatch(2))
				if err != nil || folded != (Folded{Rows: 2, Keys: 1, Full: true}) {
					t.Errorf("first fold: %+v, %v", folded, err)
				}
				wantEqual(t, f.stored(t), []count{{7, "new", 1, 30}})
				wantEqual(t, f.read(t, nil), want)
				folded, err = f.Fold(t.Context(), WithBatch(2))
				if err != nil || folded != (Folded{Rows: 1, Keys: 1}) {
					t.Errorf("second fold: %+v, %v", folded, err)
				}
				wantEqual(t, f.stored(t), want)
				wantEqual(t, f.read(t, nil), want)
				if n := f.backlog(t); n != 0 {
					t.Errorf("%d rows left in the journal", n)
				}
				// A key that comes to zero keeps its row, and its time moves on.
				f.journal(t, delta(7, "copied", -2, -30))
				f.foldAll(t)
				wantEqual(t, f.stored(t), []count{{7, "copied", 0, 0}, {7, "new", 1, 30}})
			})
		})
	}
}

func TestFoldOverflow(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		f := newFixture(t, db)
		f.journal(t, delta(1, "ok", 1, 1), delta(7, "new", 1, math.MaxInt64-5))
		f.foldAll(t)
		check := func(what string) {
			t.Helper()
			before := f.backlog(t)
			_, err := f.Fold(t.Context())
			if !errors.Is(err, ErrOverflow) {
				t.Fatalf("%s: got error %v, want ErrOverflow", what, err)
			}
			for _, part := range []string{"entcounter: ", "File", `dataset_id=7 status="new"`, "bytes"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: error %q does not name %q", what, err, part)
				}
			}
			if after := f.backlog(t); after != before {
				t.Errorf("%s: the journal went from %d to %d rows", what, before, after)
			}
			wantEqual(t, f.stored(t), []count{{1, "ok", 1, 1}, {7, "new", 1, math.MaxInt64 - 5}})
		}
		f.journal(t, delta(1, "ok", 1, 1), delta(7, "new", 1, 6))
		check("counter row and journal")
		f.journal(t, delta(7, "new", 1, math.MaxInt64))
		check("journal alone")
		// What takes the sum back into range mends it.
		f.journal(t, delta(7, "new", -1, -math.MaxInt64), delta(7, "new", 0, -6))
		f.foldAll(t)
		wantEqual(t, f.stored(t), []count{{1, "ok", 2, 2}, {7, "new", 2, math.MaxInt64 - 5}})
	})
}

func BenchmarkFold(b *testing.B) {
	for _, kind := range testdb.Kinds {
		b.Run(string(kind), func(b *testing.B) {
			f := newFixture(b, testdb.New(b, kind))
			deltas := make([]Delta, DefaultFoldBatch)
			for i := range deltas {
				deltas[i] = delta(int64(i%500), []string{"new", "copied"}[i%2], 1, 10)
			}
			for b.Loop() {
				b.StopTimer()
				f.journal(b, deltas...)
				b.StartTimer()
				if _, err := f.Fold(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(deltas)*b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
