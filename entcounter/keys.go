package entcounter

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"entgo.io/ent/schema/field"
)

// Lookup finds the rows of given keys in one statement and tells which row
// answers for which key. Generated code makes one for each read of many keys.
type Lookup struct {
	definition *Definition
	keys       [][]any          // normalised, each once
	positions  map[string][]int // where a key stands among those asked for, by its encoding
	// candidates are the keys that agree with a row in all columns that Go can
	// compare, by the encoding of these.
	candidates map[string][][]any
	// compared are the columns in which only the database knows what is equal:
	// upper and lower case, accents and trailing spaces count or do not by its
	// collation. It marks each row with the values asked for that equal the row's.
	compared []comparedColumn
}

// comparedColumn is a column with the values that are asked for in it.
type comparedColumn struct {
	column int
	values []any
	index  map[string]int // into values, by encoding
}

// Lookup returns a lookup of keys, each the values of all key columns.
func (d *Definition) Lookup(keys [][]any) (*Lookup, error) {
	l := &Lookup{definition: d, positions: make(map[string][]int, len(keys))}
	for i, key := range keys {
		normal, null, err := d.normalizeKey(key)
		if err != nil {
			return nil, err
		}
		if null {
			continue // nothing is counted under NULL
		}
		id := encodeKey(normal)
		if l.positions[id] == nil {
			l.keys = append(l.keys, normal)
		}
		l.positions[id] = append(l.positions[id], i)
	}
	if len(l.keys) < 2 {
		return l, nil // whatever is found is what was asked for
	}
	l.candidates = make(map[string][][]any)
	for _, key := range l.keys {
		id := l.comparable(key)
		l.candidates[id] = append(l.candidates[id], key)
	}
	for i, column := range d.Key {
		if column.comparable() {
			continue
		}
		c := comparedColumn{column: i, index: make(map[string]int)}
		for _, key := range l.keys {
			id := encodeKey(key[i : i+1])
			if _, ok := c.index[id]; !ok {
				c.index[id] = len(c.values)
				c.values = append(c.values, key[i])
			}
		}
		if len(c.values) > 1 {
			l.compared = append(l.compared, c)
		}
	}
	return l, nil
}

// comparable reports whether the database holds values of a column equal exactly
// if they are equal in Go.
func (c Column) comparable() bool { return c.Faithful && c.Type != field.TypeString }

// comparable encodes the values of a key that can be compared in Go.
func (l *Lookup) comparable(key []any) string {
	var values []any
	for i, column := range l.definition.Key {
		if column.comparable() {
			values = append(values, key[i])
		}
	}
	return encodeKey(values)
}

// Predicate restricts a query of the counter to the keys. What all keys have in
// common is an equality, the last column is a list, and in between are
// alternatives: every engine reads that as ranges of the key's index. SQLite takes
// a list of tuples in their place, since the time that it needs to plan
// alternatives grows with the square of their number.
func (l *Lookup) Predicate(s *sql.Selector) {
	if len(l.keys) == 0 {
		s.Where(sql.False())
		return
	}
	s.Where(sql.And(l.conditions(s, l.keys, 0)...))
}

// conditions returns the members of the conjunction that keys which agree in the
// columns before the given one make of the others.
func (l *Lookup) conditions(s *sql.Selector, keys [][]any, column int) []*sql.Predicate {
	var conditions []*sql.Predicate
	for ; column < len(l.definition.Key); column++ {
		name := s.C(l.definition.Key[column].Name)
		values, groups := groupBy(keys, column)
		if len(groups) == 1 {
			conditions = append(conditions, sql.EQ(name, values[0]))
			continue
		}
		if column == len(l.definition.Key)-1 {
			return append(conditions, sql.In(name, values...))
		}
		if s.Dialect() == dialect.SQLite {
			return append(conditions, inTuples(s.Columns(l.definition.keyNames()[column:]...), keys, column))
		}
		alternatives := make([]*sql.Predicate, len(groups))
		for i, group := range groups {
			alternatives[i] = sql.And(append([]*sql.Predicate{sql.EQ(name, values[i])}, l.conditions(s, group, column+1)...)...)
		}
		return append(conditions, anyOf(alternatives))
	}
	return conditions
}

// inTuples returns the condition that columns are, from the given column of the
// key on, one of the keys.
func inTuples(names []string, keys [][]any, column int) *sql.Predicate {
	return sql.P(func(b *sql.Builder) {
		b.Wrap(func(b *sql.Builder) { b.IdentComma(names...) }).WriteString(" IN ").Wrap(func(b *sql.Builder) {
			writeValues(b, len(keys), func(i int) []any { return keys[i][column:] })
		})
	})
}

// writeValues writes rows as a table of SQLite.
func writeValues(b *sql.Builder, n int, row func(i int) []any) {
	b.WriteString("VALUES ")
	for i := range n {
		if i > 0 {
			b.Comma()
		}
		b.Wrap(func(b *sql.Builder) { b.Args(row(i)...) })
	}
}

// anyOf returns the disjunction of predicates, as a tree that is not too deep for
// SQLite.
func anyOf(predicates []*sql.Predicate) *sql.Predicate {
	const width = 100
	if len(predicates) <= width {
		return sql.Or(predicates...)
	}
	var parts []*sql.Predicate
	for part := range slices.Chunk(predicates, width) {
		parts = append(parts, sql.Or(part...))
	}
	return anyOf(parts)
}

// groupBy groups keys by the value of one column, in order of appearance.
func groupBy(keys [][]any, column int) (values []any, groups [][][]any) {
	index := make(map[string]int)
	for _, key := range keys {
		id := encodeKey(key[column : column+1])
		i, ok := index[id]
		if !ok {
			i = len(groups)
			index[id] = i
			values = append(values, key[column])
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], key)
	}
	return values, groups
}

// Mark makes a query of the counter tell, for each column in which only the
// database knows what is equal, which of the values asked for equal the row's: a
// text of one digit for each, 1 or 0.
func (l *Lookup) Mark(s *sql.Selector) {
	if len(l.compared) == 0 {
		return
	}
	if s.Dialect() == dialect.SQLite {
		l.join(s)
		return
	}
	for _, c := range l.compared {
		name := s.C(l.definition.Key[c.column].Name)
		s.AppendSelectExprAs(sql.ExprFunc(func(b *sql.Builder) {
			concat(b, len(c.values), func(i int) {
				b.WriteString("CASE WHEN ").Join(sql.EQ(name, c.values[i])).WriteString(" THEN '1' ELSE '0' END")
			})
		}), c.mark())
	}
}

// askedKey is the column that tells which key a row answers for, where each row
// is joined with the keys: it answers as often as it is asked for.
const askedKey = "entcounter_key"

// join makes a query tell which of the keys each row answers for.
func (l *Lookup) join(s *sql.Selector) {
	b := sql.Dialect(s.Dialect())
	columns := make([]string, len(l.definition.Key))
	asked := b.Select().AppendSelectExprAs(sql.Raw("column1"), askedKey)
	for i := range columns {
		columns[i] = fmt.Sprintf("%s_%d", askedKey, i)
		asked.AppendSelectExprAs(sql.Raw(fmt.Sprintf("column%d", i+2)), columns[i])
	}
	asked.FromExpr(sql.ExprFunc(func(b *sql.Builder) {
		b.Wrap(func(b *sql.Builder) {
			writeValues(b, len(l.keys), func(i int) []any { return append([]any{i}, l.keys[i]...) })
		})
	})).As("entcounter_keys")
	s.Join(asked)
	for i, k := range l.definition.Key {
		s.On(s.C(k.Name), asked.C(columns[i]))
	}
	s.AppendSelect(asked.C(askedKey))
}

func (c comparedColumn) mark() string { return fmt.Sprintf("entcounter_key_%d", c.column) }

// concat writes the concatenation of n texts, as a tree that is not too deep for
// SQLite.
func concat(b *sql.Builder, n int, text func(i int)) {
	if b.Dialect() == dialect.MySQL {
		b.WriteString("CONCAT(")
		for i := range n {
			if i > 0 {
				b.Comma()
			}
			text(i)
		}
		b.WriteByte(')')
		return
	}
	var write func(from, to int)
	write = func(from, to int) {
		if to-from == 1 {
			text(from)
			return
		}
		middle := (from + to) / 2
		b.WriteByte('(')
		write(from, middle)
		b.WriteString(" || ")
		write(middle, to)
		b.WriteByte(')')
	}
	write(0, n)
}

// Positions returns where the keys that a row answers for stand among those
// asked for. The value is what a column made by Mark yields for the row.
func (l *Lookup) Positions(key []any, value func(column string) (any, error)) ([]int, error) {
	if len(l.keys) == 1 {
		return l.positions[encodeKey(l.keys[0])], nil
	}
	normal, _, err := l.definition.normalizeKey(key)
	if err != nil {
		return nil, err
	}
	if v, err := value(askedKey); err == nil {
		i, ok := v.(int64)
		if !ok || i < 0 || i >= int64(len(l.keys)) {
			return nil, fmt.Errorf("entcounter: reading counter %s: unexpected mark %v of type %T", l.definition.Name, v, v)
		}
		return l.positions[encodeKey(l.keys[i])], nil
	}
	marks := make([]string, len(l.compared))
	for i, c := range l.compared {
		v, err := value(c.mark())
		if err != nil {
			return nil, fmt.Errorf("entcounter: reading counter %s: %w", l.definition.Name, err)
		}
		switch v := v.(type) {
		case string:
			marks[i] = v
		case []byte:
			marks[i] = string(v)
		}
		if len(marks[i]) != len(c.values) {
			return nil, fmt.Errorf("entcounter: reading counter %s: unexpected mark %v of type %T", l.definition.Name, v, v)
		}
	}
	var positions []int
	for _, asked := range l.candidates[l.comparable(normal)] {
		if l.answers(marks, asked) {
			positions = append(positions, l.positions[encodeKey(asked)]...)
		}
	}
	return positions, nil
}

// answers reports whether the database holds a key equal to a row with these marks,
// given that they agree in the columns that Go can compare. Where a column has no
// mark, all keys have one value, which is what the row was found by.
func (l *Lookup) answers(marks []string, key []any) bool {
	for i, c := range l.compared {
		if marks[i][c.index[encodeKey(key[c.column:c.column+1])]] != '1' {
			return false
		}
	}
	return true
}

func encodeKey(key []any) string { return string(appendKey(nil, key)) }

// After returns a predicate that restricts a query of the counter to keys that
// come after a key, in the order of the key. It begins with a comparison of the
// first column by itself, which every engine reads as one range of an index.
func (d *Definition) After(key []any) func(*sql.Selector) {
	return func(s *sql.Selector) {
		values, err := d.key(key, len(d.Key))
		if err != nil {
			s.AddError(fmt.Errorf("entcounter: reading counter %s after a key: %w", d.Name, err))
			return
		}
		last := len(values) - 1
		after := sql.GT(s.C(d.Key[last].Name), values[last])
		for i := last - 1; i >= 0; i-- {
			c := s.C(d.Key[i].Name)
			after = sql.And(sql.GTE(c, values[i]), sql.Or(sql.GT(c, values[i]), sql.And(sql.EQ(c, values[i]), after)))
		}
		s.Where(after)
	}
}

// Prefix returns a predicate that restricts a query of the counter to keys that
// begin with the given values.
func (d *Definition) Prefix(values []any) func(*sql.Selector) {
	return func(s *sql.Selector) {
		for i, v := range values {
			s.Where(sql.EQ(s.C(d.Key[i].Name), v))
		}
	}
}

// normalizeKey normalises the values of a whole key and tells whether one of
// them is NULL.
func (d *Definition) normalizeKey(key []any) (normal []any, null bool, err error) {
	if len(key) != len(d.Key) {
		return nil, false, fmt.Errorf("entcounter: counter %s: a key has %d values, not %d", d.Name, len(d.Key), len(key))
	}
	normal = make([]any, len(key))
	for i, v := range key {
		if normal[i], err = normalizeValue(d.Key[i], v); err != nil {
			return nil, false, fmt.Errorf("entcounter: counter %s: %w", d.Name, err)
		}
		null = null || normal[i] == nil
	}
	return normal, null, nil
}

// Time scans a time from an expression, for which a driver may return text: the
// one for SQLite knows a time only by the declared type of a column. NULL is the
// zero time.
type Time time.Time

// Scan implements sql.Scanner.
func (t *Time) Scan(src any) error {
	switch src := src.(type) {
	case nil:
		*t = Time{}
		return nil
	case time.Time:
		*t = Time(src)
		return nil
	case []byte:
		return t.Scan(string(src))
	case string:
		for _, layout := range []string{"2006-01-02 15:04:05.999999999", time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00"} {
			if parsed, err := time.ParseInLocation(layout, src, time.UTC); err == nil {
				*t = Time(parsed)
				return nil
			}
		}
	}
	return fmt.Errorf("entcounter: cannot read %v of type %T as a time", src, src)
}

// Amount scans a sum of a measure, such as one that ent's Aggregate makes. Most
// databases yield it as a DECIMAL. NULL, the sum of nothing, is zero; a sum beyond
// BIGINT is [ErrOverflow].
type Amount int64

// Scan implements sql.Scanner.
func (a *Amount) Scan(src any) error {
	switch src := src.(type) {
	case nil:
		*a = 0
		return nil
	case int64:
		*a = Amount(src)
		return nil
	case float64: // SQLite's, beyond int64
		return fmt.Errorf("%w: a sum of %g", ErrOverflow, src)
	case []byte:
		return a.Scan(string(src))
	case string:
		n, err := strconv.ParseInt(src, 10, 64)
		if errors.Is(err, strconv.ErrRange) {
			return fmt.Errorf("%w: a sum of %s", ErrOverflow, src)
		}
		if err == nil {
			*a = Amount(n)
			return nil
		}
	}
	return fmt.Errorf("entcounter: cannot read %v of type %T as a sum", src, src)
}
