package entcounter

import (
	"bytes"
	"database/sql/driver"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"

	"entgo.io/ent/schema/field"
	"github.com/google/uuid"
)

// cell is a scan destination that keeps the normalised value of a column.
type cell struct {
	column Column
	value  any
}

// Scan implements sql.Scanner.
func (c *cell) Scan(src any) error {
	if b, ok := src.([]byte); ok && b == nil {
		src = []byte{} // no NULL: a driver has no other bytes for an empty value
	}
	v, err := normalizeRaw(c.column, src)
	if err != nil {
		return err
	}
	c.value = v
	return nil
}

// scanTarget returns a destination for rows.Scan that fits the column's type.
func scanTarget(c Column) any { return &cell{column: c} }

// scannedValue returns what a destination made by scanTarget holds: an int64,
// uint64 (only above the int64 range), string, bool, []byte or time.Time, or nil
// for NULL. It can be passed back to the database as an argument.
func scannedValue(_ Column, dest any) (any, error) {
	c, ok := dest.(*cell)
	if !ok {
		return nil, fmt.Errorf("entcounter: unexpected scan destination %T", dest)
	}
	return c.value, nil
}

// normalizeValue brings a Go value as given by a caller or found in a mutation
// to the form that scannedValue returns for a stored one.
func normalizeValue(c Column, v any) (any, error) {
	for range 4 { // pointers and Valuers may be nested, never deeply
		switch value := v.(type) {
		case nil, int64, uint64, string, bool, []byte, time.Time, float64:
			return normalizeRaw(c, value)
		case driver.Valuer:
			if rv := reflect.ValueOf(v); rv.Kind() == reflect.Pointer && rv.IsNil() {
				return nil, nil
			}
			dv, err := value.Value()
			if err != nil {
				return nil, fmt.Errorf("entcounter: value of column %q: %w", c.Name, err)
			}
			v = dv
			continue
		}
		rv := reflect.ValueOf(v)
		switch rv.Kind() {
		case reflect.Pointer:
			if rv.IsNil() {
				return nil, nil
			}
			v = rv.Elem().Interface()
		case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			v = rv.Int()
		case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			v = rv.Uint()
		case reflect.String:
			v = rv.String()
		case reflect.Bool:
			v = rv.Bool()
		case reflect.Float32, reflect.Float64:
			v = rv.Float()
		case reflect.Slice:
			if rv.Type().Elem().Kind() == reflect.Uint8 {
				v = rv.Bytes()
			}
		}
	}
	return normalizeRaw(c, v)
}

// normalizeRaw converts what a driver hands out for a column of this type.
func normalizeRaw(c Column, src any) (any, error) {
	if b, ok := src.([]byte); src == nil || ok && b == nil {
		return nil, nil
	}
	mismatch := func() (any, error) {
		return nil, fmt.Errorf("entcounter: column %q of type %s cannot hold a value of type %T", c.Name, c.Type, src)
	}
	switch t := c.Type; {
	case t.Integer():
		return normalizeInteger(c, src)
	case t == field.TypeBool:
		switch v := src.(type) {
		case bool:
			return v, nil
		case int64:
			return v != 0, nil
		case []byte:
			if len(v) == 1 && v[0] <= 1 { // MySQL's BIT(1)
				return v[0] == 1, nil
			}
			return parseBool(c, string(v))
		case string:
			return parseBool(c, v)
		}
		return mismatch()
	case t == field.TypeString, t == field.TypeEnum:
		switch v := src.(type) {
		case string:
			return v, nil
		case []byte:
			return string(v), nil
		}
		return mismatch()
	case t == field.TypeUUID:
		switch v := src.(type) {
		case [16]byte:
			return uuid.UUID(v).String(), nil
		case string:
			if id, err := uuid.Parse(v); err == nil {
				return id.String(), nil
			}
			return v, nil
		case []byte:
			if id, err := uuid.ParseBytes(v); err == nil {
				return id.String(), nil
			}
			return bytes.Clone(v), nil
		}
		return mismatch()
	case t == field.TypeBytes:
		switch v := src.(type) {
		case []byte:
			return bytes.Clone(v), nil
		case string:
			return []byte(v), nil
		}
		return mismatch()
	}
	if v, ok := src.([]byte); ok {
		return bytes.Clone(v), nil
	}
	return src, nil
}

func parseBool(c Column, s string) (any, error) {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return nil, fmt.Errorf("entcounter: column %q: %w", c.Name, err)
	}
	return b, nil
}

func normalizeInteger(c Column, src any) (any, error) {
	switch v := src.(type) {
	case int64:
		return v, nil
	case uint64:
		if v <= math.MaxInt64 {
			return int64(v), nil
		}
		return v, nil
	case float64:
		if v == math.Trunc(v) && v >= -1<<53 && v <= 1<<53 {
			return int64(v), nil
		}
	case []byte:
		return parseInteger(c, string(v))
	case string:
		return parseInteger(c, v)
	case bool:
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	}
	return nil, fmt.Errorf("entcounter: column %q of type %s cannot hold the value %v of type %T", c.Name, c.Type, src, src)
}

func parseInteger(c Column, s string) (any, error) {
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i, nil
	}
	u, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("entcounter: column %q: %w", c.Name, err)
	}
	return u, nil
}

// measureValue returns a normalised integer as the addend of a measure: NULL
// adds zero, a value beyond BIGINT is reported as not ok.
func measureValue(v any) (int64, bool) {
	switch v := v.(type) {
	case nil:
		return 0, true
	case int64:
		return v, true
	}
	return 0, false
}

// fits reports whether the database stores the integer in a column of this
// size as it is, rather than refusing or clamping it.
func (c Column) fits(v any) bool {
	i, ok := v.(int64)
	if !ok {
		return c.Bits == 64 && c.unsigned()
	}
	switch {
	case c.Bits == 0:
		return false
	case c.unsigned():
		return i >= 0 && (c.Bits >= 63 || i < 1<<c.Bits)
	case c.Bits >= 64:
		return true
	}
	return i >= -1<<(c.Bits-1) && i < 1<<(c.Bits-1)
}

func (c Column) unsigned() bool {
	return c.Type >= field.TypeUint8 && c.Type <= field.TypeUint64
}

// appendKey appends an unambiguous encoding of normalised key values. Values
// that differ in Go encode differently; what the database holds equal beyond
// that is added up by the database.
func appendKey(b []byte, key []any) []byte {
	for _, v := range key {
		switch v := v.(type) {
		case nil:
			b = append(b, 'n')
		case int64:
			b = strconv.AppendInt(append(b, 'i'), v, 10)
		case uint64:
			b = strconv.AppendUint(append(b, 'i'), v, 10)
		case bool:
			b = strconv.AppendBool(append(b, 'b'), v)
		case string:
			b = append(strconv.AppendInt(append(b, 's'), int64(len(v)), 10), ':')
			b = append(b, v...)
		case []byte:
			b = append(strconv.AppendInt(append(b, 'x'), int64(len(v)), 10), ':')
			b = append(b, v...)
		default:
			s := fmt.Sprintf("%T %v", v, v)
			b = append(strconv.AppendInt(append(b, 'o'), int64(len(s)), 10), ':')
			b = append(b, s...)
		}
		b = append(b, ',')
	}
	return b
}

// formatKey renders a key for people: dataset_id=7 status="new".
func formatKey(columns []Column, key []any) string {
	var b []byte
	for i, v := range key {
		if i > 0 {
			b = append(b, ' ')
		}
		if i < len(columns) {
			b = append(append(b, columns[i].Name...), '=')
		}
		switch v := v.(type) {
		case string:
			b = strconv.AppendQuote(b, v)
		case []byte:
			b = fmt.Appendf(b, "%x", v)
		default:
			b = fmt.Appendf(b, "%v", v)
		}
	}
	return string(b)
}
