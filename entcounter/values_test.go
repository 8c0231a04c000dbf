package entcounter

import (
	"database/sql/driver"
	"math"
	"testing"

	"entgo.io/ent/schema/field"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

type status string

type level int8

type ticket struct{ n int64 }

func (t ticket) Value() (driver.Value, error) { return t.n, nil }

// A value in a mutation and the same value as a driver returns it normalise to
// the same key.
func TestNormalizeValue(t *testing.T) {
	id := uuid.New()
	one := 1
	for _, tt := range []struct {
		name string
		typ  field.Type
		v    any
		want any
	}{
		{"int", field.TypeInt, 7, int64(7)},
		{"int from text", field.TypeInt64, []byte("-7"), int64(-7)},
		{"decimal text of an integer type", field.TypeInt64, "12", int64(12)},
		{"named int", field.TypeInt8, level(3), int64(3)},
		{"pointer", field.TypeInt, &one, int64(1)},
		{"nil pointer", field.TypeInt, (*int)(nil), nil},
		{"nil bytes", field.TypeBytes, []byte(nil), nil},
		{"Valuer", field.TypeInt, ticket{5}, int64(5)},
		{"pointer to a Valuer", field.TypeInt, &ticket{5}, int64(5)},
		{"nil pointer to a Valuer", field.TypeInt, (*ticket)(nil), nil},
		{"uint", field.TypeUint32, uint32(9), int64(9)},
		{"uint64 above int64", field.TypeUint64, uint64(math.MaxUint64), uint64(math.MaxUint64)},
		{"uint64 above int64 as text", field.TypeUint64, []byte("18446744073709551615"), uint64(math.MaxUint64)},
		{"bool", field.TypeBool, true, true},
		{"bool as MySQL has it", field.TypeBool, int64(1), true},
		{"bool as a bit", field.TypeBool, []byte{0}, false},
		{"enum", field.TypeEnum, status("new"), "new"},
		{"enum as bytes", field.TypeEnum, []byte("new"), "new"},
		{"string", field.TypeString, "é", "é"},
		{"uuid", field.TypeUUID, id, id.String()},
		{"pointer to uuid", field.TypeUUID, &id, id.String()},
		{"uuid as text", field.TypeUUID, []byte(id.String()), id.String()},
		{"uuid in a column of bytes stays what the column holds", field.TypeUUID, id[:], id[:]},
		{"uuid as an array", field.TypeUUID, [16]byte(id), id.String()},
		{"bytes", field.TypeBytes, []byte{1, 2}, []byte{1, 2}},
		{"nil", field.TypeString, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := normalizeValue(Column{Name: "c", Type: tt.typ}, tt.v)
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestNormalizeValueRefuses(t *testing.T) {
	for _, tt := range []struct {
		typ field.Type
		v   any
	}{
		{field.TypeInt, "x"},
		{field.TypeInt, 1.5},
		{field.TypeBool, "perhaps"},
		{field.TypeBool, 1.0},
		{field.TypeString, int64(1)},
		{field.TypeUUID, int64(1)},
		{field.TypeBytes, true},
	} {
		_, err := normalizeValue(Column{Name: "c", Type: tt.typ}, tt.v)
		require.ErrorContains(t, err, `column "c"`)
	}
}

func TestColumnFits(t *testing.T) {
	column := func(typ field.Type, bits int) Column { return Column{Type: typ, Bits: bits} }
	for _, tt := range []struct {
		column Column
		v      any
		fits   bool
	}{
		{column(field.TypeInt8, 8), int64(127), true},
		{column(field.TypeInt8, 8), int64(128), false},
		{column(field.TypeInt8, 8), int64(-128), true},
		{column(field.TypeInt8, 8), int64(-129), false},
		{column(field.TypeUint8, 8), int64(255), true},
		{column(field.TypeUint8, 8), int64(256), false},
		{column(field.TypeUint8, 8), int64(-1), false},
		{column(field.TypeInt64, 64), int64(math.MinInt64), true},
		{column(field.TypeUint64, 64), int64(math.MaxInt64), true},
		{column(field.TypeUint64, 64), uint64(math.MaxUint64), true},
		{column(field.TypeInt64, 64), uint64(math.MaxUint64), false},
		{column(field.TypeInt, 0), int64(1), false},
	} {
		require.Equal(t, tt.fits, tt.column.fits(tt.v), "%v in %+v", tt.v, tt.column)
	}
}

// Keys that differ have encodings that differ, whatever their parts contain.
func TestAppendKeyIsInjective(t *testing.T) {
	keys := [][]any{
		{}, {nil}, {nil, nil}, {""}, {"", ""}, {"a"}, {"a,"}, {"a", ""}, {"", "a"}, {"1:a"}, {"s1:a,"},
		{int64(1)}, {int64(11)}, {int64(1), int64(1)}, {"1"}, {true}, {false}, {"true"},
		{[]byte("a")}, {[]byte{}}, {uint64(math.MaxUint64)}, {"n"}, {"n,n"}, {1.5}, {"1.5"},
	}
	seen := make(map[string][]any)
	for _, key := range keys {
		encoded := string(appendKey(nil, key))
		require.NotContains(t, seen, encoded, "%v and %v", key, seen[encoded])
		seen[encoded] = key
	}
}
