package entcounter

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"entgo.io/ent/dialect"
	"entgo.io/ent/schema/field"
)

// region is a part of a counter: the keys that begin with a prefix and, if values
// are given, go on with one of them. The zero region is everything.
type region struct {
	prefix, values []any
}

// regionValues is how many values a region has at most.
const regionValues = 500

// sizedRegion is a region with the number of rows that are counted in it, as
// estimated.
type sizedRegion struct {
	region
	rows int64
}

// inRegion restricts rows of the counter table or the journal.
func (w *writer) inRegion(d *Definition, r region) {
	columns := d.keyNames()
	if len(r.prefix) > 0 {
		w.sql(" WHERE ").equals(columns, r.prefix)
	}
	if len(r.values) > 0 {
		if len(r.prefix) > 0 {
			w.sql(" AND ")
		} else {
			w.sql(" WHERE ")
		}
		w.ident(columns[len(r.prefix)]).in(r.values)
	}
}

// in writes "IN (…)".
func (w *writer) in(values []any) {
	w.sql(" IN (")
	for i, v := range values {
		if i > 0 {
			w.sql(", ")
		}
		w.arg(v)
	}
	w.sql(")")
}

// divide divides a counter into regions of no more than the given number of rows,
// as far as indexes of the counted tables serve that. A key that nothing is counted
// in, and nothing stored for, may be in no region.
//
// It reads one index of each counted table to its end, plainly.
func (c *Handle) divide(ctx context.Context, rows int64) (regions []sizedRegion, err error) {
	depth, err := c.divisible(ctx)
	if err != nil {
		return nil, err
	}
	if depth == 0 {
		return []sizedRegion{{}}, nil
	}
	err = c.plainly(ctx, func(ex dialect.ExecQuerier) error {
		regions, err = c.divideFurther(ctx, ex, nil, depth, rows)
		return err
	})
	return regions, err
}

// divideFurther divides the keys that begin with a prefix by the column after it,
// and what then still has too many rows by the next one.
func (c *Handle) divideFurther(ctx context.Context, ex dialect.ExecQuerier, prefix []any, depth int, rows int64) ([]sizedRegion, error) {
	var (
		column  = c.def.Key[len(prefix)]
		regions []sizedRegion
		large   []any
		whole   = sizedRegion{region: region{prefix: prefix}}
		part    = whole
		target  = scanTarget(column)
		fits    = true
	)
	flush := func() {
		if len(part.values) > 0 {
			regions = append(regions, part)
		}
		part = sizedRegion{region: region{prefix: prefix}}
	}
	w := newWriter(c.sql)
	division(w, c.sql, c.def, prefix)
	err := query(ctx, ex, w, func(scan func(...any) error) error {
		var n Amount
		if err := scan(target, &n); err != nil {
			return err
		}
		value, err := scannedValue(column, target)
		if err != nil {
			return err
		}
		whole.rows += int64(n)
		alone := region{prefix: prefix, values: []any{value}}
		switch text, ok := alone.encode(); {
		case !ok || len(text) > declarationLen:
			fits = false
			return nil
		case int64(n) > rows && len(prefix)+1 < depth:
			large = append(large, value)
			return nil
		}
		grown := part
		grown.values = append(grown.values, value)
		grown.rows += int64(n)
		text, _ := grown.encode()
		if len(part.values) > 0 && (grown.rows > rows || len(grown.values) > regionValues || len(text) > declarationLen) {
			flush()
			grown = sizedRegion{alone, int64(n)}
		}
		part = grown
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !fits {
		return []sizedRegion{whole}, nil
	}
	flush()
	for _, value := range large {
		further, err := c.divideFurther(ctx, ex, append(slices.Clone(prefix), value), depth, rows)
		if err != nil {
			return nil, err
		}
		regions = append(regions, further...)
	}
	return regions, nil
}

// division writes the statement that reads the values of the key column after a
// prefix, in any of the counted tables, the counter table and the journal, and how
// many counted rows have them.
func division(w *writer, s sqlDialect, d *Definition, prefix []any) {
	r, place := region{prefix: prefix}, len(prefix)
	w.sql("SELECT v, SUM(n) FROM (")
	for _, src := range d.Sources {
		if !src.inRegion(r) {
			continue
		}
		term := src.Key[place]
		w.sql("SELECT ").term(s, term).sql(" AS v, COUNT(*) AS n FROM ").ident(src.Table).sql(" AS ").ident(alias(0))
		conditions := w.within(s, src, r)
		if term.Name != "" {
			conditions = append(conditions, func() { w.raw(term).sql(" IS NOT NULL") })
		}
		for i, condition := range conditions {
			if i == 0 {
				w.sql(" WHERE ")
			} else {
				w.sql(" AND ")
			}
			condition()
		}
		if term.Name != "" {
			w.sql(" GROUP BY 1")
		}
		w.sql(" UNION ALL ")
	}
	for i, table := range []string{d.Table, d.Journal} {
		if i > 0 {
			w.sql(" UNION ALL ")
		}
		w.sql("SELECT DISTINCT ").ident(d.Key[place].Name).sql(" AS v, 0 AS n FROM ").ident(table)
		w.inRegion(d, r)
	}
	w.sql(") AS t GROUP BY v ORDER BY v")
}

// divisible returns how many of the first key columns a counter can be divided by:
// they are columns of the counted tables, of which each has an index that begins
// with them, in any order.
func (c *Handle) divisible(ctx context.Context) (int, error) {
	depth := len(c.def.Key)
	for _, src := range c.def.Sources {
		var (
			w       = newWriter(c.sql)
			indexes = make(map[string][]string)
			name    string
			column  *string
		)
		c.sql.indexes(w, src.Table)
		err := query(ctx, c.drv, w, func(scan func(...any) error) error {
			if err := scan(&name, &column); err != nil {
				return err
			}
			if column == nil {
				column = new("") // an expression
			}
			indexes[name] = append(indexes[name], *column)
			return nil
		})
		if err != nil {
			return 0, err
		}
		depth = min(depth, src.divisible(indexes))
	}
	return depth, nil
}

// divisible does it for one counted table, whose indexes have these columns.
func (s *Source) divisible(indexes map[string][]string) int {
	depth := 0
	var columns []string
	for i, t := range s.Key {
		switch {
		case t.Name == "":
		case t.Join != 0 || t.Bucket != "" || t.Null != nil || !t.encodable():
			return depth
		default:
			columns = append(columns, t.Name)
		}
		indexed := len(columns) == 0
		for _, index := range indexes {
			indexed = indexed || len(index) >= len(columns) && !slices.ContainsFunc(columns, func(name string) bool {
				return !slices.Contains(index[:len(columns)], name)
			})
		}
		if indexed {
			depth = i + 1
		}
	}
	return depth
}

// encodable reports whether a value of the column, as read, can be written as text
// and is equal to itself then.
func (c Column) encodable() bool {
	switch c.Type {
	case field.TypeBool, field.TypeString, field.TypeEnum, field.TypeUUID:
		return c.Faithful
	}
	return c.Faithful && c.Type.Integer()
}

// encodedRegion is a region as text.
type encodedRegion struct {
	Prefix []any `json:"p,omitempty"`
	Values []any `json:"v,omitempty"`
}

// encode writes a region as text, if all of its values can be.
func (r region) encode() (string, bool) {
	for _, v := range slices.Concat(r.prefix, r.values) {
		switch v := v.(type) {
		case bool, int64, uint64:
		case string:
			if !utf8.ValidString(v) {
				return "", false
			}
		default:
			return "", false
		}
	}
	text, err := json.Marshal(encodedRegion(struct{ Prefix, Values []any }{r.prefix, r.values}))
	return string(text), err == nil
}

// region reads what encode has written.
func (d *Definition) region(text string) (region, error) {
	var (
		encoded encodedRegion
		r       region
		decoder = json.NewDecoder(bytes.NewReader([]byte(text)))
	)
	decoder.UseNumber()
	err := decoder.Decode(&encoded)
	if err == nil && len(encoded.Prefix)+min(len(encoded.Values), 1) > len(d.Key) {
		err = fmt.Errorf("the key has %d columns", len(d.Key))
	}
	if err == nil {
		r.prefix, err = d.key(encoded.Prefix, len(encoded.Prefix))
	}
	for _, v := range encoded.Values {
		var value any
		if err == nil {
			value, err = normalizeValue(d.Key[len(r.prefix)], v)
		}
		r.values = append(r.values, value)
	}
	if err != nil {
		return region{}, fmt.Errorf("%q in %s: %w", text, LockTable, err)
	}
	return r, nil
}
