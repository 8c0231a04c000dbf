package entcounter

import (
	"math"
	"math/big"
	"testing"

	"entgo.io/ent/schema/field"
	"github.com/stretchr/testify/require"
)

func testDefinition() *Definition {
	return &Definition{
		Name: "File", Table: "file_counters", Journal: "file_counter_journal",
		Key:      []Column{{Name: "dataset_id", Type: field.TypeInt}, {Name: "status", Type: field.TypeString}},
		Measures: []Measure{{Name: "count", Delta: "count_delta"}, {Name: "bytes", Delta: "bytes_delta"}},
	}
}

func TestChangesCancelOut(t *testing.T) {
	d := testDefinition()
	var c changes
	move := func(from, to string) {
		require.NoError(t, c.add(d, []any{int64(7), from}, []int64{1, 10}, -1))
		require.NoError(t, c.add(d, []any{int64(7), to}, []int64{1, 10}, 1))
	}
	move("a", "b")
	move("b", "c")
	require.Equal(t, []Delta{
		{Key: []any{int64(7), "a"}, Measures: []int64{-1, -10}},
		{Key: []any{int64(7), "c"}, Measures: []int64{1, 10}},
	}, (&changes{byCounter: c.byCounter}).drain(d))
	require.Empty(t, c.drain(d), "drained")

	move("a", "b")
	move("b", "a")
	require.Empty(t, c.drain(d))
}

func TestChangesOverflow(t *testing.T) {
	d := testDefinition()
	var c changes
	key := []any{int64(7), "new"}
	require.NoError(t, c.add(d, key, []int64{1, math.MaxInt64}, 1))
	err := c.add(d, key, []int64{1, 1}, 1)
	require.ErrorIs(t, err, ErrOverflow)
	require.ErrorContains(t, err, `counter File, key dataset_id=7 status="new", measure bytes`)
	require.ErrorIs(t, c.add(d, []any{int64(8), "new"}, []int64{math.MinInt64, 0}, -1), ErrOverflow)
}

func FuzzInt64Arithmetic(f *testing.F) {
	interesting := []int64{0, 1, -1, 2, -2, 1 << 31, 1<<31 - 1, 3037000500, math.MaxInt64, math.MinInt64}
	for _, a := range interesting {
		for _, b := range interesting {
			f.Add(a, b)
		}
	}
	f.Fuzz(func(t *testing.T, a, b int64) {
		x, y := big.NewInt(a), big.NewInt(b)
		sum, ok := addInt64(a, b)
		want := new(big.Int).Add(x, y)
		require.Equal(t, want.IsInt64(), ok, "%d + %d", a, b)
		if ok {
			require.Equal(t, want.Int64(), sum)
		}
		product, ok := mulInt64(a, b)
		want = new(big.Int).Mul(x, y)
		require.Equal(t, want.IsInt64(), ok, "%d × %d", a, b)
		if ok {
			require.Equal(t, want.Int64(), product)
		}
	})
}
