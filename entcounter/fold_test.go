package entcounter

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/entcounter/entcounter/internal/testdb"

	entsql "entgo.io/ent/dialect/sql"
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
				if err != nil || noLag(folded) != (Folded{Rows: 2, Keys: 1, Deepest: 2, Full: true}) {
					t.Errorf("first fold: %+v, %v", folded, err)
				}
				wantEqual(t, f.stored(t), []count{{7, "new", 1, 30}})
				wantEqual(t, f.read(t, nil), want)
				folded, err = f.Fold(t.Context(), WithBatch(2))
				if err != nil || noLag(folded) != (Folded{Rows: 1, Keys: 1, Deepest: 1}) {
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

// A key whose sum is out of range keeps its journal rows, and no other waits for it.
func TestFoldOverflow(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		f := newFixture(t, db)
		f.journal(t, delta(1, "ok", 1, 1), delta(7, "new", 1, math.MaxInt64-5))
		f.foldAll(t)
		check := func(what string, left, other int64) {
			t.Helper()
			f.journal(t, delta(1, "ok", 1, 1), delta(2, "ok", 1, 1))
			folded, err := f.Fold(t.Context())
			if !errors.Is(err, ErrOverflow) {
				t.Fatalf("%s: got error %v, want ErrOverflow", what, err)
			}
			for _, part := range []string{"entcounter: ", "File", `dataset_id=7 status="new"`, "bytes"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: error %q does not name %q", what, err, part)
				}
			}
			if noLag(folded) != (Folded{Rows: 2, Keys: 2, Deepest: 1}) {
				t.Errorf("%s: folded %+v", what, folded)
			}
			if after := int64(f.backlog(t)); after != left {
				t.Errorf("%s: the journal has %d rows, want %d", what, after, left)
			}
			wantEqual(t, f.stored(t), []count{{1, "ok", other, other}, {2, "ok", other - 1, other - 1}, {7, "new", 1, math.MaxInt64 - 5}})
		}
		f.journal(t, delta(7, "new", 1, 6))
		check("counter row and journal", 1, 2)
		f.journal(t, delta(7, "new", 1, math.MaxInt64))
		check("journal alone", 2, 3)
		// What takes the sum back into range mends it, wherever it is in the journal.
		f.journal(t, delta(1, "ok", 1, 1), delta(7, "new", -1, -math.MaxInt64), delta(7, "new", 0, -6))
		folded, err := f.Fold(t.Context(), WithBatch(2))
		if err != nil || noLag(folded) != (Folded{Rows: 5, Keys: 2, Deepest: 4}) {
			t.Errorf("folded %+v, error %v", folded, err)
		}
		wantEqual(t, f.stored(t), []count{{1, "ok", 4, 4}, {2, "ok", 2, 2}, {7, "new", 2, math.MaxInt64 - 5}})
	})
}

// Sums that are out of range on the way only are read, folded and rebuilt.
func TestSumsOutOfRangeOnTheWay(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		f := newFixture(t, db)
		for i, test := range []struct{ folded, journal []int64 }{
			{nil, []int64{math.MaxInt64, 7, -math.MaxInt64, -2}},
			{nil, []int64{math.MinInt64, -7, math.MaxInt64, 2}},
			{[]int64{-5}, []int64{math.MaxInt64, 5}},
			{[]int64{5}, []int64{math.MinInt64, -5}},
			{[]int64{-math.MaxInt64}, []int64{math.MaxInt64, math.MaxInt64}},
			{[]int64{math.MaxInt64}, []int64{math.MinInt64, -math.MaxInt64}},
			{[]int64{math.MinInt64}, []int64{math.MaxInt64, math.MaxInt64, 1}},
			{nil, []int64{math.MinInt64 + 1, -1}},
			{[]int64{1 << 32, -1}, []int64{1<<32 - 1, -1 << 32, -1, 1 << 31, -1 << 31}},
		} {
			var sum int64
			for _, v := range test.folded {
				f.journal(t, delta(int64(i), "new", 0, v))
				f.foldAll(t)
				sum += v
			}
			for _, v := range test.journal {
				f.journal(t, delta(int64(i), "new", 0, v))
				sum += v
			}
			want := []count{{int64(i), "new", 0, sum}}
			read := func() []count { return f.read(t, entsql.FieldEQ("dataset_id", i)) }
			wantEqual(t, read(), want)
			if _, err := f.Fold(t.Context(), WithBatch(1)); err != nil {
				t.Errorf("%v: %v", test, err)
			}
			wantEqual(t, read(), want)
			f.foldAll(t)
			if n := f.backlog(t); n != 0 {
				t.Errorf("%v: %d rows left in the journal", test, n)
			}
			wantEqual(t, read(), want)
			// Nothing is counted, so a recount is zero. The end of the range has no opposite.
			_, err := f.Rebuild(t.Context(), []any{i})
			if sum == math.MinInt64 {
				if !errors.Is(err, ErrOverflow) {
					t.Errorf("%v: error %v, want ErrOverflow", test, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%v: %v", test, err)
			}
			if sum != 0 {
				want[0].bytes = 0
			}
			wantEqual(t, read(), want)
		}
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

// noLag forgets what depends on time.
func noLag(f Folded) Folded {
	f.Lag = 0
	return f
}
