package entcounter

import (
	"cmp"
	"context"
	stdsql "database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
	"entgo.io/ent/schema/field"
	"github.com/google/uuid"
)

// Tools that serve any counter, such as a command line, know its key and measures
// only at run time. What generated clients offer under typed names is here by
// position: keys are values in the order of the key columns, measures integers in
// the order of the declaration.

// Definition returns what the counter counts, by which key, and where. It must not be
// changed.
func (c *Handle) Definition() *Definition { return c.def }

// Filter restricts keys: it has the value of each key column that is fixed, in the
// order of the key, and nil for the others. It may be shorter than the key.
type Filter []any

// Scope returns the filter as a scope, if the columns that it fixes are the first ones
// of the key.
func (f Filter) Scope() (scope []any, ok bool) {
	n := len(f)
	for n > 0 && f[n-1] == nil {
		n--
	}
	return f[:n], !slices.Contains(f[:n], nil)
}

// Row is the counts of one key, or the sums over several.
type Row struct {
	// Key has the values of the columns that the row was asked for by.
	Key      []any
	Measures []int64
	// UpdatedAt is the time of the newest change by the database's clock; the zero time
	// if there was none.
	UpdatedAt time.Time
	// Pending is the number of journal rows in the sums, that a fold has yet to move.
	Pending int64
}

// Selection says which rows of a counter are read.
type Selection struct {
	// Filter restricts the keys that are added up. Default: all keys.
	Filter Filter
	// By names the key columns that tell rows apart; keys that agree in these are added
	// up. Default (nil): all of them. An empty list yields one row for everything.
	By []string
	// Order names a measure, [ColumnPending] or [ColumnUpdatedAt], the greatest first.
	// Default: the order of the By columns.
	Order string
	// Limit is the number of rows at most. Default (0): no limit.
	Limit int
}

// Rows reads counts, exactly, in one plain statement without locks. A filter that
// fixes the first key columns is read by index; others read all of the counter. In a
// transaction, pending deltas are written first. A sum beyond BIGINT is
// [ErrOverflow]; what cannot be read for want of a build is [ErrNotBuilt] or
// [ErrDeclarationChanged].
func (c *Handle) Rows(ctx context.Context, s Selection) ([]Row, error) {
	d := c.def
	if len(s.Filter) > len(d.Key) {
		return nil, c.wrap("reading", fmt.Errorf("filter of %d values, the key has %d columns", len(s.Filter), len(d.Key)))
	}
	by := s.By
	if by == nil {
		by = d.keyNames()
	}
	if s.Order != "" && !slices.Contains(d.orders(), s.Order) {
		return nil, c.wrap("reading", fmt.Errorf("rows cannot be ordered by %q: choose one of %s", s.Order, joinNames(d.orders())))
	}
	var rows []Row
	spec := sqlgraph.NewQuerySpec(d.Table, nil, nil)
	spec.Limit = s.Limit
	switch {
	case s.Order != "":
		spec.Order = sql.OrderByField(s.Order, sql.OrderDesc()).ToFunc()
	case len(by) > 0:
		spec.Order = func(selector *sql.Selector) { selector.OrderBy(selector.Columns(by...)...) }
	}
	spec.Predicate = func(selector *sql.Selector) {
		for i, v := range s.Filter {
			if v != nil {
				selector.Where(sql.EQ(selector.C(d.Key[i].Name), v))
			}
		}
	}
	spec.ScanValues = func(columns []string) ([]any, error) { return d.scanValues(columns), nil }
	spec.Assign = func(columns []string, values []any) error {
		row, err := d.row(columns, values)
		rows = append(rows, row)
		return err
	}
	if err := d.RollUp(ctx, c.drv, spec, by...); err != nil {
		return nil, err
	}
	return rows, nil
}

// orders lists what rows can be ordered by.
func (d *Definition) orders() []string {
	return append(d.measureNames(), ColumnPending, ColumnUpdatedAt)
}

// scanValues returns destinations for columns of a counter's view.
func (d *Definition) scanValues(columns []string) []any {
	values := make([]any, len(columns))
	for i, name := range columns {
		switch k := slices.Index(d.keyNames(), name); {
		case k >= 0:
			values[i] = scanTarget(d.Key[k])
		case name == ColumnUpdatedAt:
			values[i] = new(stdsql.NullTime)
		default:
			values[i] = new(stdsql.NullInt64)
		}
	}
	return values
}

// row makes a row of what was scanned.
func (d *Definition) row(columns []string, values []any) (Row, error) {
	row := Row{Measures: make([]int64, len(d.Measures))}
	for i, name := range columns {
		switch v := values[i].(type) {
		case *stdsql.NullTime:
			row.UpdatedAt = v.Time
		case *stdsql.NullInt64:
			if m := slices.Index(d.measureNames(), name); m >= 0 {
				row.Measures[m] = v.Int64
			} else {
				row.Pending = v.Int64
			}
		default:
			value, err := scannedValue(Column{}, v)
			if err != nil {
				return Row{}, err
			}
			row.Key = append(row.Key, value)
		}
	}
	return row, nil
}

// Recount counts the counted rows of a scope, without a look at the counter, and
// returns the sums of the measures. It is one plain statement and takes no locks.
func (c *Handle) Recount(ctx context.Context, scope []any) ([]int64, error) {
	values, err := c.def.scope(scope)
	if err != nil {
		return nil, c.wrap("recounting", err)
	}
	var (
		w     = newWriter(c.sql)
		name  = numbered("r", len(c.def.Measures))
		cells = make([]stdsql.NullInt64, len(name))
		dest  = make([]any, len(name))
		sums  = make([]int64, len(name))
	)
	w.sql("SELECT ")
	for i, r := range name {
		if i > 0 {
			w.sql(", ")
		}
		w.sql("COALESCE(", c.sql.sum(w.quote(r)), ", 0)")
		dest[i] = &measureCell{c.def, c.def.Measures[i].Name, &cells[i]}
	}
	w.sql(" FROM (")
	parts := 0
	for _, src := range c.def.Sources {
		if !src.inRegion(region{prefix: values}) {
			continue
		}
		if parts++; parts > 1 {
			w.sql(" UNION ALL ")
		}
		w.counts(c.sql, src, numbered("k", len(c.def.Key)), name, "", w.within(c.sql, src, region{prefix: values})...)
	}
	if parts == 0 {
		return sums, nil
	}
	w.sql(") AS ").ident("t")
	if err := queryRow(ctx, c.drv, w, dest...); err != nil {
		return nil, c.wrap("recounting", overflowOf(err))
	}
	for i, cell := range cells {
		sums[i] = cell.Int64
	}
	return sums, nil
}

// KeyDepth is a key with the number of journal rows that a read of it has to add.
type KeyDepth struct {
	Key  []any
	Rows int64
}

// DeepestKeys returns the keys with the most journal rows, at most n of them, the
// deepest first. It scans the journal in one plain statement and takes no locks.
func (c *Handle) DeepestKeys(ctx context.Context, n int) ([]KeyDepth, error) {
	if n < 1 {
		return nil, c.wrap("reading the journal of", fmt.Errorf("%d keys asked for", n))
	}
	var (
		d       = c.def
		w       = newWriter(c.sql)
		targets = make([]any, len(d.Key))
		deepest []KeyDepth
	)
	for i, column := range d.Key {
		targets[i] = scanTarget(column)
	}
	w.sql("SELECT ").idents(d.keyNames()...).sql(", COUNT(*) FROM ").ident(d.Journal).sql(" GROUP BY ").idents(d.keyNames()...).
		sql(" ORDER BY ", strconv.Itoa(len(d.Key)+1), " DESC, ").idents(d.keyNames()...).sql(" LIMIT ", strconv.Itoa(n))
	err := query(ctx, c.drv, w, func(scan func(...any) error) error {
		var (
			depth KeyDepth
			err   error
		)
		if err := scan(append(slices.Clone(targets), &depth.Rows)...); err != nil {
			return err
		}
		depth.Key, err = d.scannedKey(targets)
		deepest = append(deepest, depth)
		return err
	})
	if err != nil {
		return nil, c.wrap("reading the journal of", err)
	}
	return deepest, nil
}

// ParseFilter reads a filter from texts of the form column=value. Values are written
// as [FormatValue] writes them. An error names the column and says how to mend it.
func (d *Definition) ParseFilter(pairs ...string) (Filter, error) {
	filter := make(Filter, len(d.Key))
	for _, pair := range pairs {
		name, text, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("%q has no =: write column=value, such as %s", pair, d.exampleOf(0))
		}
		i := slices.Index(d.keyNames(), name)
		if i < 0 {
			return nil, fmt.Errorf("%q is no key column of counter %s: it has %s", name, d.Name, joinNames(d.keyNames()))
		}
		if filter[i] != nil {
			return nil, fmt.Errorf("%s is given twice: give each key column once", name)
		}
		value, err := d.ParseValue(name, text)
		if err != nil {
			return nil, err
		}
		filter[i] = value
	}
	return filter, nil
}

// ParseScope reads a scope: a filter that fixes the first columns of the key.
func (d *Definition) ParseScope(pairs ...string) ([]any, error) {
	filter, err := d.ParseFilter(pairs...)
	if err != nil {
		return nil, err
	}
	scope, ok := filter.Scope()
	if !ok {
		i := slices.Index(scope, nil)
		return nil, fmt.Errorf("%s is missing: a scope gives the first columns of the key (%s) without a gap; add %s",
			d.Key[i].Name, joinNames(d.keyNames()), d.exampleOf(i))
	}
	return scope, nil
}

// exampleOf shows how the value of a key column is written.
func (d *Definition) exampleOf(i int) string {
	column := d.Key[i]
	example := "text"
	switch periods := d.periods(i); {
	case len(column.Values) > 0:
		example = column.Values[0]
	case len(periods) > 0:
		example = periods[0].Of(time.Date(2026, 11, 30, 15, 0, 0, 0, time.UTC))
	case column.Type.Integer():
		example = "7"
	case column.Type == field.TypeBool:
		example = "true"
	case column.Type == field.TypeUUID:
		example = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
	case column.Type == field.TypeBytes:
		example = "0a1b2c"
	}
	return column.Name + "=" + example
}

// periods returns the units of time that a key column is made of.
func (d *Definition) periods(i int) []Period {
	var periods []Period
	for _, src := range d.Sources {
		if p := src.Key[i].Bucket; p != "" && !slices.Contains(periods, p) {
			periods = append(periods, p)
		}
	}
	return periods
}

// ParseValue reads the value of a key column from its text: an integer, a text as it
// stands, true or false, a UUID, bytes in hexadecimal digits, one of the values of an
// enum, or a period of time as [Period.Of] writes it. An error names the column and
// says how to mend it.
func (d *Definition) ParseValue(name, text string) (any, error) {
	i := slices.Index(d.keyNames(), name)
	if i < 0 {
		return nil, fmt.Errorf("%q is no key column of counter %s: it has %s", name, d.Name, joinNames(d.keyNames()))
	}
	column := d.Key[i]
	wrong := func(format string, args ...any) (any, error) {
		return nil, fmt.Errorf("%s: %q %s", name, text, fmt.Sprintf(format, args...))
	}
	switch {
	case column.Type.Integer():
		v, err := parseInteger(column, text)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return wrong("is no integer: write %s", d.exampleOf(i))
		}
		if err != nil || !column.fits(v) {
			low, high := column.bounds()
			return wrong("is out of range: write an integer from %d to %d", low, high)
		}
		return v, nil
	case column.Type == field.TypeBool:
		if text == "true" || text == "false" {
			return text == "true", nil
		}
		return wrong("is neither true nor false")
	case column.Type == field.TypeUUID:
		id, err := uuid.Parse(text)
		if err != nil {
			return wrong("is no UUID: write %s", d.exampleOf(i))
		}
		return id.String(), nil
	case column.Type == field.TypeBytes:
		b, err := hex.DecodeString(text)
		if err != nil {
			return wrong("is not in hexadecimal: write two digits for each byte, such as %s", d.exampleOf(i))
		}
		return b, nil
	case len(column.Values) > 0 && !slices.Contains(column.Values, text):
		for _, v := range column.Values {
			if strings.EqualFold(v, text) {
				return wrong("is none of its values: do you mean %s?", v)
			}
		}
		return wrong("is none of its values: choose one of %s", joinNames(column.Values))
	}
	periods := d.periods(i)
	if len(periods) == 0 || d.countsNullAs(i, text) {
		return text, nil
	}
	for _, p := range periods {
		if _, err := p.Start(text); err == nil {
			return text, nil
		}
	}
	if t, err := time.Parse(time.DateOnly, text); err == nil && slices.Contains(periods, Week) {
		return wrong("does not begin a week: that day's week is %s", Week.Of(t))
	}
	return wrong("is no %s: write %s", periods[0], d.exampleOf(i))
}

// countsNullAs reports whether rows without a value in a key column are counted under
// a text.
func (d *Definition) countsNullAs(i int, text string) bool {
	return slices.ContainsFunc(d.Sources, func(s *Source) bool { return s.Key[i].Null == text })
}

// bounds returns the least and the greatest integer that an integer column holds.
func (c Column) bounds() (low int64, high uint64) {
	if c.unsigned() {
		return 0, math.MaxUint64 >> (64 - c.Bits)
	}
	return math.MinInt64 >> (64 - c.Bits), math.MaxInt64 >> (64 - c.Bits)
}

// FormatValue writes the value of a key column as [Definition.ParseValue] reads it.
func FormatValue(v any) string {
	if b, ok := v.([]byte); ok {
		return hex.EncodeToString(b)
	}
	return fmt.Sprint(v)
}

// CompareKeys orders keys by their values: -1, 0 or 1. Texts are compared byte by byte,
// whatever the database's collation.
func CompareKeys(a, b []any) int {
	for i := range min(len(a), len(b)) {
		if n := compareValues(a[i], b[i]); n != 0 {
			return n
		}
	}
	return cmp.Compare(len(a), len(b))
}
