package entcounter

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"entgo.io/ent/schema/field"
	"github.com/entcounter/entcounter/internal/testdb"
)

// What is read without types is what is read with them.
func TestRows(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		f := newFixture(t, db)
		f.journal(t, delta(1, "new", 3, 60), delta(1, "copied", 1, 5), delta(2, "new", 2, 7))
		f.foldAll(t)
		f.journal(t, delta(1, "new", -1, -10), delta(2, "copied", 4, 1), delta(2, "copied", 1, 1))

		rows := func(s Selection) string {
			t.Helper()
			rows, err := f.Rows(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			var text []string
			for _, r := range rows {
				if r.UpdatedAt.IsZero() || r.UpdatedAt.Location() != time.UTC || time.Since(r.UpdatedAt).Abs() > time.Hour {
					t.Errorf("%v updated at %s", r.Key, r.UpdatedAt)
				}
				text = append(text, fmt.Sprint(r.Key, r.Measures, r.Pending))
			}
			return strings.Join(text, " ")
		}
		wantEqual(t, rows(Selection{}), "[1 copied] [1 5] 0 [1 new] [2 50] 1 [2 copied] [5 2] 2 [2 new] [2 7] 0")
		wantEqual(t, rows(Selection{Filter: Filter{int64(2)}}), "[2 copied] [5 2] 2 [2 new] [2 7] 0")
		wantEqual(t, rows(Selection{Filter: Filter{nil, "new"}}), "[1 new] [2 50] 1 [2 new] [2 7] 0")
		wantEqual(t, rows(Selection{By: []string{"status"}}), "[copied] [6 7] 2 [new] [4 57] 1")
		wantEqual(t, rows(Selection{By: []string{"status", "dataset_id"}, Filter: Filter{int64(1)}}), "[copied 1] [1 5] 0 [new 1] [2 50] 1")
		wantEqual(t, rows(Selection{By: []string{}}), "[] [10 64] 3")
		wantEqual(t, rows(Selection{Order: "bytes", Limit: 2}), "[1 new] [2 50] 1 [2 new] [2 7] 0")
		wantEqual(t, rows(Selection{Order: "pending", By: []string{"dataset_id"}, Limit: 1}), "[2] [7 9] 2")
		wantEqual(t, rows(Selection{Filter: Filter{int64(3)}}), "")
		for want, s := range map[string]Selection{
			"3 values":      {Filter: make(Filter, 3)},
			`"size"`:        {Order: "size"},
			`"path"`:        {By: []string{"path"}},
			"answer is one": {By: []string{}, Order: "count"},
		} {
			if _, err := f.Rows(t.Context(), s); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}

		depths, err := f.DeepestKeys(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		wantEqual(t, depths, []KeyDepth{{[]any{2, "copied"}, 2}, {[]any{1, "new"}, 1}})
		if _, err := f.DeepestKeys(t.Context(), 0); err == nil {
			t.Error("no keys asked for, and no error")
		}
	})
}

func TestDriftsAndRecount(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		f := newFixture(t, db)
		f.exec(t, "INSERT INTO files (dataset_id, status, size) VALUES (1, 'new', 10), (1, 'new', NULL), (2, 'new', 7), (NULL, 'new', 100)")
		f.journal(t, delta(1, "new", 2, 10), delta(1, "gone", 1, 1))
		drifts := func(scope ...any) string {
			t.Helper()
			var text []string
			for d, err := range f.Drifts(t.Context(), scope) {
				if err != nil {
					t.Fatal(err)
				}
				text = append(text, fmt.Sprint(d.Key, d.Stored, d.Actual))
			}
			slices.Sort(text)
			return strings.Join(text, " ")
		}
		wantEqual(t, drifts(), "[1 gone] [1 1] [0 0] [2 new] [0 0] [1 7]")
		wantEqual(t, drifts(2), "[2 new] [0 0] [1 7]")
		for range f.Drifts(t.Context(), nil) {
			break // which is no error
		}
		for _, err := range f.Drifts(t.Context(), []any{"x"}) {
			if err == nil || !strings.Contains(err.Error(), "dataset_id") {
				t.Error(err)
			}
		}

		recount := func(scope ...any) []int64 {
			t.Helper()
			sums, err := f.Recount(t.Context(), scope)
			if err != nil {
				t.Fatal(err)
			}
			return sums
		}
		wantEqual(t, recount(), []int64{3, 17})
		wantEqual(t, recount(1), []int64{2, 10})
		wantEqual(t, recount(2, "new"), []int64{1, 7})
		wantEqual(t, recount(9), []int64{0, 0})
		f.exec(t, "UPDATE files SET size = 9223372036854775807 WHERE dataset_id IS NOT NULL")
		if _, err := f.Recount(t.Context(), nil); !errors.Is(err, ErrOverflow) {
			t.Errorf("a sum beyond BIGINT: %v", err)
		}
	})
}

// typedCounter has a key column of every type.
func typedCounter() *Definition {
	columns := []Column{
		{Name: "n", Type: field.TypeInt64, Bits: 64},
		{Name: "small", Type: field.TypeInt8, Bits: 8},
		{Name: "size", Type: field.TypeUint64, Bits: 64},
		{Name: "tiny", Type: field.TypeUint8, Bits: 8},
		{Name: "text", Type: field.TypeString},
		{Name: "flag", Type: field.TypeBool},
		{Name: "id", Type: field.TypeUUID},
		{Name: "hash", Type: field.TypeBytes},
		{Name: "status", Type: field.TypeEnum, Values: []string{"New", "Old"}},
		{Name: "hour", Type: field.TypeString},
		{Name: "week", Type: field.TypeString},
		{Name: "month", Type: field.TypeString},
	}
	terms := termsOf(columns...)
	for i, p := range map[int]Period{9: Hour, 10: Week, 11: Month} {
		terms[i].Bucket = p
	}
	terms[11].Null = "never"
	return &Definition{Name: "Typed", Key: columns, Sources: []*Source{{Key: terms}}}
}

func TestParseValue(t *testing.T) {
	d := typedCounter()
	for text, want := range map[string]any{
		"n=-9223372036854775808":    int64(math.MinInt64),
		"n=007":                     int64(7),
		"small=-128":                int64(-128),
		"size=18446744073709551615": uint64(math.MaxUint64),
		"tiny=255":                  int64(255),
		"text=":                     "",
		"text=a=b, c":               "a=b, c",
		"flag=true":                 true,
		"flag=false":                false,
		"id=F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
		"hash=":              []byte{},
		"hash=00Ff":          []byte{0, 255},
		"status=Old":         "Old",
		"hour=2026-11-30T15": "2026-11-30T15",
		"week=2026-11-30":    "2026-11-30",
		"month=2026-11":      "2026-11",
		"month=never":        "never",
	} {
		name, value, _ := strings.Cut(text, "=")
		got, err := d.ParseValue(name, value)
		if err != nil || fmt.Sprintf("%T %v", got, got) != fmt.Sprintf("%T %v", want, want) {
			t.Errorf("%s: %T %v %v", text, got, got, err)
			continue
		}
		if again, err := d.ParseValue(name, FormatValue(got)); err != nil || fmt.Sprint(again) != fmt.Sprint(got) {
			t.Errorf("%s is written as %q, and read as %v, %v", text, FormatValue(got), again, err)
		}
	}
	for text, want := range map[string]string{
		"n=":                        `n: "" is no integer: write n=7`,
		"n=1.5":                     `n: "1.5" is no integer: write n=7`,
		"n=9223372036854775808":     `n: "9223372036854775808" is out of range: write an integer from -9223372036854775808 to 9223372036854775807`,
		"n=99999999999999999999999": `n: "99999999999999999999999" is out of range: write an integer from -9223372036854775808 to 9223372036854775807`,
		"small=128":                 `small: "128" is out of range: write an integer from -128 to 127`,
		"size=-1":                   `size: "-1" is out of range: write an integer from 0 to 18446744073709551615`,
		"tiny=256":                  `tiny: "256" is out of range: write an integer from 0 to 255`,
		"flag=yes":                  `flag: "yes" is neither true nor false`,
		"id=7":                      `id: "7" is no UUID: write id=f81d4fae-7dec-11d0-a765-00a0c91e6bf6`,
		"hash=0":                    `hash: "0" is not in hexadecimal: write two digits for each byte, such as hash=0a1b2c`,
		"hash=0x":                   `hash: "0x" is not in hexadecimal: write two digits for each byte, such as hash=0a1b2c`,
		"status=old":                `status: "old" is none of its values: do you mean Old?`,
		"status=Gone":               `status: "Gone" is none of its values: choose one of New, Old`,
		"hour=2026-11-30":           `hour: "2026-11-30" is no hour: write hour=2026-11-30T15`,
		"week=2026-12-02":           `week: "2026-12-02" does not begin a week: that day's week is 2026-11-30`,
		"week=soon":                 `week: "soon" is no week: write week=2026-11-30`,
		"month=2026-13":             `month: "2026-13" is no month: write month=2026-11`,
		"hour=never":                `hour: "never" is no hour: write hour=2026-11-30T15`,
		"nn=1":                      `"nn" is no key column of counter Typed: it has n, small, size, tiny, text, flag, id, hash, status, hour, week, month`,
	} {
		name, value, _ := strings.Cut(text, "=")
		if got, err := d.ParseValue(name, value); err == nil || err.Error() != want {
			t.Errorf("%s: %v, %v\nwant %s", text, got, err, want)
		}
	}
}

func TestParseScope(t *testing.T) {
	d := fileCounter()
	for text, want := range map[string]string{
		"":                           "[]",
		"dataset_id=7":               "[7]",
		"dataset_id=7 status=a=b":    "[7 a=b]",
		"status=new dataset_id=7":    "[7 new]",
		"status=new":                 "dataset_id is missing: a scope gives the first columns of the key (dataset_id, status) without a gap; add dataset_id=7",
		"dataset_id":                 `"dataset_id" has no =: write column=value, such as dataset_id=7`,
		"dataset_id=1 dataset_id=2":  "dataset_id is given twice: give each key column once",
		"dataset_id=x":               `dataset_id: "x" is no integer: write dataset_id=7`,
		"status=new status=x path=1": "status is given twice: give each key column once",
	} {
		scope, err := d.ParseScope(strings.Fields(text)...)
		got := fmt.Sprint(scope)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s\nwant %s", text, got, want)
		}
	}
	filter, err := d.ParseFilter("status=new")
	if err != nil || fmt.Sprint(filter) != "[<nil> new]" {
		t.Error(filter, err)
	}
}

func TestCompareKeys(t *testing.T) {
	keys := [][]any{{int64(10), "a"}, {int64(9), "b"}, {int64(9)}, {int64(9), "a"}, {uint64(math.MaxUint64), ""}}
	slices.SortFunc(keys, CompareKeys)
	wantEqual(t, keys, [][]any{{9}, {9, "a"}, {9, "b"}, {10, "a"}, {uint64(math.MaxUint64), ""}})
}
