package entcounter

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
)

// view returns the counter whose generated type reads from a table name, if any.
func (s *Schema) view(table string) *Definition {
	for _, d := range s.Counters {
		if d.Table == table {
			return d
		}
	}
	return nil
}

// QueryNodes takes the place of sqlgraph.QueryNodes in generated code. For a
// counter, it reads from the sum of counter rows and journal. In a transaction,
// it sees to it that errors of the query are noticed.
func (s *Schema) QueryNodes(ctx context.Context, drv dialect.Driver, spec *sqlgraph.QuerySpec) error {
	t, _ := transactionOf(drv)
	d := s.view(spec.Node.Table)
	if d == nil {
		return sqlgraph.QueryNodes(ctx, drv, spec)
	}
	if err := d.readFrom(ctx, drv, t, spec); err != nil {
		return err
	}
	d.scanWith(spec)
	if err := sqlgraph.QueryNodes(ctx, drv, spec); err != nil {
		return fmt.Errorf("entcounter: reading counter %s: %w", d.Name, err)
	}
	return nil
}

// CountNodes takes the place of sqlgraph.CountNodes in generated code.
func (s *Schema) CountNodes(ctx context.Context, drv dialect.Driver, spec *sqlgraph.QuerySpec) (int, error) {
	t, _ := transactionOf(drv)
	d := s.view(spec.Node.Table)
	if d == nil {
		return sqlgraph.CountNodes(ctx, drv, spec)
	}
	if err := d.readFrom(ctx, drv, t, spec); err != nil {
		return 0, err
	}
	n, err := sqlgraph.CountNodes(ctx, drv, spec)
	if err != nil {
		return 0, fmt.Errorf("entcounter: reading counter %s: %w", d.Name, err)
	}
	return n, nil
}

// readFrom makes a query on a counter's generated type read from its source.
// In a transaction, pending deltas are written first, so that it reads its own
// changes.
func (d *Definition) readFrom(ctx context.Context, drv dialect.Driver, t *Tx, spec *sqlgraph.QuerySpec) error {
	if t != nil {
		if err := t.Flush(ctx); err != nil {
			return err
		}
	}
	if err := New(d, drv).Check(ctx); err != nil {
		return err
	}
	var where []conjunct
	if predicate := spec.Predicate; predicate != nil {
		where = d.analyse(ctx, drv.Dialect(), predicate)
		if bound := bindTimes(drv.Dialect(), where); bound != nil {
			spec.Predicate = func(s *sql.Selector) {
				predicate(s)
				s.SetP(sql.And(bound...))
			}
		}
	}
	b := sql.Dialect(drv.Dialect())
	spec.From = b.Select().From(d.source(drv.Dialect(), where)).WithContext(ctx)
	return nil
}

// Source makes a selector on a counter's generated type, as used for grouping,
// aggregates and selections, read from the sum of counter rows and journal. Its
// selected columns stay valid. The predicate is what the query will restrict the
// selector to later; it is looked at, not applied. In a transaction, pending
// deltas are written first.
//
// MySQL and SQLite yield updated_at as text in UTC here: scan it into [Time].
func (d *Definition) Source(ctx context.Context, drv dialect.Driver, selector *sql.Selector, predicate func(*sql.Selector)) {
	if t, ok := transactionOf(drv); ok {
		if err := t.Flush(ctx); err != nil {
			selector.AddError(err)
			return
		}
	}
	if err := New(d, drv).Check(ctx); err != nil {
		selector.AddError(err)
		return
	}
	var where []conjunct
	if predicate != nil {
		where = d.analyse(ctx, drv.Dialect(), predicate)
	}
	selector.From(d.source(drv.Dialect(), where))
}

// analyse takes the predicate of a query apart by applying it to a selector that
// is then thrown away.
func (d *Definition) analyse(ctx context.Context, dialectName string, predicate func(*sql.Selector)) []conjunct {
	scratch := sql.Dialect(dialectName).Select().From(sql.Table(d.Table)).WithContext(ctx)
	predicate(scratch)
	if scratch.Err() != nil || scratch.HasJoins() {
		return nil
	}
	return conjuncts(dialectName, d.Table, scratch.P())
}

// source returns what a counter's generated type reads from:
//
//	SELECT key…, SUM(measure)…, MAX(updated_at), SUM(pending) FROM (
//	    SELECT key…, measure…, updated_at, 0 AS pending FROM counters WHERE …
//	    UNION ALL
//	    SELECT key…, delta…, inserted_at, 1 FROM journal WHERE …
//	) GROUP BY key…
//
// It is part of one statement with the rest of the query: a fold that commits
// between two would be missed (ADR, Reading). Conditions on key columns are put
// into both halves, where an index serves them, since no optimiser can be relied on
// to do that through the GROUP BY. They hold outside too, which changes nothing.
//
// Both halves and the whole are called by the name of the counter table, which the
// conditions and the outer query qualify columns with.
//
// In MySQL and SQLite updated_at is text in UTC, which sorts.
func (d *Definition) source(dialectName string, where []conjunct) *sql.Selector {
	var (
		text = sqlFor(dialectName)
		b    = sql.Dialect(dialectName)
		w    = newWriter(text)
		key  = quoteAll(w, d.keyNames())
	)
	half := func(table string, measures []string, time string, pending int) *sql.Selector {
		s := b.Select(key...).From(b.Table(table).As(d.Table))
		for i, m := range quoteAll(w, measures) {
			s.AppendSelectExprAs(sql.Raw(m), d.Measures[i].Name)
		}
		s.AppendSelectExprAs(sql.Raw(w.quote(time)), ColumnUpdatedAt)
		s.AppendSelectExprAs(sql.Raw(strconv.Itoa(pending)), ColumnPending)
		for _, c := range where {
			if d.commutes(dialectName, c) {
				s.Where(c.predicate(nil))
			}
		}
		return s
	}
	union := half(d.Table, d.measureNames(), ColumnUpdatedAt, 0).
		UnionAll(half(d.Journal, d.deltaNames(), ColumnInsertedAt, 1)).As("deltas")
	sums := b.Select(key...).From(union).GroupBy(key...).As(d.Table)
	for _, m := range d.Measures {
		sums.AppendSelectExprAs(sql.Raw(text.sum(w.quote(m.Name))), m.Name)
	}
	sums.AppendSelectExprAs(sql.Raw(text.timeText("MAX("+w.quote(ColumnUpdatedAt)+")")), ColumnUpdatedAt)
	sums.AppendSelectExprAs(sql.Raw("SUM("+w.quote(ColumnPending)+")"), ColumnPending)
	return sums
}

// commutes reports whether a condition can be applied before grouping: it refers
// to key columns only, and does not tell apart keys that the database holds equal.
func (d *Definition) commutes(dialectName string, c conjunct) bool {
	if !c.known || c.pattern && dialectName == dialect.MySQL {
		return false
	}
	return !slices.ContainsFunc(c.columns, func(name string) bool {
		return !slices.ContainsFunc(d.Key, func(k Column) bool { return k.Name == name })
	})
}

// Text forms of a time in UTC. They sort, since the databases write all digits.
const (
	mysqlTime  = "2006-01-02 15:04:05.000000"
	sqliteTime = "2006-01-02 15:04:05.000"
)

// bindTimes returns the conditions with their times written in UTC in the form
// that the column has, or nil where that changes nothing. Drivers write a time as
// text in a zone of their own: MySQL's in the DSN's loc, SQLite's in that of the
// value.
func bindTimes(dialectName string, where []conjunct) []*sql.Predicate {
	var layout string
	switch dialectName {
	case dialect.MySQL:
		layout = mysqlTime
	case dialect.SQLite:
		layout = sqliteTime
	default:
		return nil
	}
	found := false
	bind := func(arg any) any {
		switch t := arg.(type) {
		case time.Time:
			found = true
			return t.UTC().Format(layout)
		case *time.Time:
			if t != nil {
				found = true
				return t.UTC().Format(layout)
			}
		}
		return arg
	}
	predicates := make([]*sql.Predicate, len(where))
	for i, c := range where {
		if !c.known {
			predicates[i] = c.predicate(nil)
			continue
		}
		for _, arg := range c.args {
			bind(arg)
		}
		predicates[i] = c.predicate(bind)
	}
	if !found {
		return nil
	}
	return predicates
}

// scanWith makes a query scan measures and times by scanners that know what the
// source yields, and hand on to ent's own destinations what those expect.
func (d *Definition) scanWith(spec *sqlgraph.QuerySpec) {
	scanValues, assign := spec.ScanValues, spec.Assign
	spec.ScanValues = func(columns []string) ([]any, error) {
		values, err := scanValues(columns)
		if err != nil {
			return nil, err
		}
		for i, column := range columns {
			dest, ok := values[i].(scanner)
			if !ok {
				continue
			}
			if column == ColumnUpdatedAt {
				values[i] = &timeCell{dest}
			} else if slices.ContainsFunc(d.Measures, func(m Measure) bool { return m.Name == column }) {
				values[i] = &measureCell{d, column, dest}
			}
		}
		return values, nil
	}
	spec.Assign = func(columns []string, values []any) error {
		for i, v := range values {
			switch v := v.(type) {
			case *timeCell:
				values[i] = v.dest
			case *measureCell:
				values[i] = v.dest
			}
		}
		return assign(columns, values)
	}
}

type scanner interface{ Scan(src any) error }

// timeCell scans updated_at, in whatever form the database or the driver has it,
// and hands on a time in UTC.
type timeCell struct{ dest scanner }

func (c *timeCell) Scan(src any) error {
	if src == nil {
		return c.dest.Scan(nil)
	}
	var t Time
	if err := t.Scan(src); err != nil {
		return err
	}
	return c.dest.Scan(time.Time(t).UTC())
}

// measureCell scans a measure, which in MySQL is a DECIMAL, and says which one
// does not fit.
type measureCell struct {
	def    *Definition
	column string
	dest   scanner
}

func (c *measureCell) Scan(src any) error {
	var digits string
	switch v := src.(type) {
	case []byte:
		digits = string(v)
	case string:
		digits = v
	default:
		return c.dest.Scan(src)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: counter %s, measure %s: %s", ErrOverflow, c.def.Name, c.column, digits)
	}
	return c.dest.Scan(n)
}
