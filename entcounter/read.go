package entcounter

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
	"entgo.io/ent/schema/field"
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
	transactionOf(drv)
	d := s.view(spec.Node.Table)
	if d == nil {
		return sqlgraph.QueryNodes(ctx, drv, spec)
	}
	if err := d.readFrom(ctx, drv, spec, true); err != nil {
		return err
	}
	pending := d.scanWith(spec)
	if err := sqlgraph.QueryNodes(ctx, remembering(ctx, drv), spec); err != nil {
		return fmt.Errorf("entcounter: reading counter %s: %w", d.Name, overflowOf(err))
	}
	askBackstop(drv, d, *pending)
	return nil
}

// CountNodes takes the place of sqlgraph.CountNodes in generated code.
func (s *Schema) CountNodes(ctx context.Context, drv dialect.Driver, spec *sqlgraph.QuerySpec) (int, error) {
	transactionOf(drv)
	d := s.view(spec.Node.Table)
	if d == nil {
		return sqlgraph.CountNodes(ctx, drv, spec)
	}
	if err := d.readFrom(ctx, drv, spec, false); err != nil {
		return 0, err
	}
	n, err := sqlgraph.CountNodes(ctx, remembering(ctx, drv), spec)
	if err != nil {
		return 0, fmt.Errorf("entcounter: reading counter %s: %w", d.Name, overflowOf(err))
	}
	return n, nil
}

// readFrom makes a query on a counter's generated type read from its source.
// In a transaction, pending deltas are written first, so that it reads its own
// changes.
func (d *Definition) readFrom(ctx context.Context, drv dialect.Driver, spec *sqlgraph.QuerySpec, ordered bool) error {
	if err := d.ready(ctx, drv); err != nil {
		return err
	}
	name := drv.Dialect()
	r := d.restrict(ctx, name, spec.Predicate)
	spec.Predicate = r.predicate
	var keys *page
	if ordered {
		keys = d.order(name, spec, r)
	}
	var from *sql.Selector
	if r.inside && d.namesKey(r.where) {
		// The predicate is within, where columns have their collations.
		from, spec.Predicate = d.oneKey(name, r.where), nil
	} else {
		from = d.source(name, r.where, keys)
	}
	spec.From = sql.Dialect(name).Select().From(from).WithContext(ctx)
	return nil
}

// order makes a query that orders or cuts off its rows order them by the key at
// last, so that equal rows have one order. It returns the page of keys that the
// query yields, if it can be told beforehand.
func (d *Definition) order(dialectName string, spec *sqlgraph.QuerySpec, r restriction) *page {
	if spec.Unique || spec.Order == nil && spec.Limit == 0 && spec.Offset == 0 {
		return nil
	}
	order, descending, byKey := d.orderByKey(dialectName, spec.Order, d.keyNames())
	spec.Order = order
	if !byKey || !r.inside || spec.Limit == 0 || len(spec.Modifiers) > 0 {
		return nil
	}
	return &page{limit: spec.Offset + spec.Limit, descending: descending}
}

// ready prepares a read: it writes the pending deltas of the transaction that the
// driver is bound to, if any, and makes sure that the counter is built.
func (d *Definition) ready(ctx context.Context, drv dialect.Driver) error {
	if t, ok := transactionOf(drv); ok {
		if err := t.Flush(ctx); err != nil {
			return err
		}
	}
	return New(d, drv).Check(ctx)
}

// restriction is the predicate of a query, taken apart.
type restriction struct {
	where []conjunct
	// predicate is the whole, with times in the form that the database has.
	predicate func(*sql.Selector)
	// inside tells that all of it can be applied to the rows of both halves.
	inside bool
}

// restrict takes the predicate of a query apart.
func (d *Definition) restrict(ctx context.Context, dialectName string, predicate func(*sql.Selector)) restriction {
	if predicate == nil {
		return restriction{inside: true}
	}
	r := restriction{predicate: predicate}
	var whole bool
	r.where, whole = d.analyse(ctx, dialectName, predicate)
	if bound := bindTimes(dialectName, r.where); bound != nil {
		r.predicate = func(s *sql.Selector) {
			predicate(s)
			s.SetP(sql.And(bound...))
		}
	}
	r.inside = whole && !slices.ContainsFunc(r.where, func(c conjunct) bool { return !d.commutes(dialectName, c) })
	return r
}

// orderByKey completes the order of a query by the key columns that it yields. It
// tells whether the result is the order of the key, and whether that is reversed.
func (d *Definition) orderByKey(dialectName string, order func(*sql.Selector), columns []string) (completed func(*sql.Selector), descending, byKey bool) {
	text := func(order func(*sql.Selector)) string {
		s := sql.Dialect(dialectName).Select().From(sql.Table(d.Table))
		order(s)
		query, args := s.Query()
		if len(args) > 0 || s.Err() != nil {
			return ""
		}
		_, by, _ := strings.Cut(query, " ORDER BY ")
		return by
	}
	ascend := func(columns []string) func(*sql.Selector) {
		return func(s *sql.Selector) { s.OrderBy(s.Columns(columns...)...) }
	}
	if order == nil {
		return ascend(columns), false, true
	}
	given := text(order)
	for i := 1; i <= len(columns); i++ {
		if given == text(ascend(columns[:i])) {
			return ascend(columns), false, true
		}
	}
	descend := func(s *sql.Selector) {
		for _, c := range columns {
			s.OrderBy(sql.Desc(s.C(c)))
		}
	}
	if len(columns) > 0 && given == text(descend) {
		return order, true, true
	}
	return func(s *sql.Selector) {
		order(s)
		ascend(columns)(s)
	}, false, false
}

// Source makes a selector on a counter's generated type, as used for grouping,
// aggregates and selections, read from the sum of counter rows and journal. Its
// selected columns stay valid. The predicate is what the query will restrict the
// selector to later; it is looked at, not applied. In a transaction, pending
// deltas are written first.
//
// MySQL and SQLite yield updated_at as text in UTC here: scan it into [Time].
func (d *Definition) Source(ctx context.Context, drv dialect.Driver, selector *sql.Selector, predicate func(*sql.Selector)) {
	if err := d.ready(ctx, drv); err != nil {
		selector.AddError(err)
		return
	}
	selector.From(d.source(drv.Dialect(), d.restrict(ctx, drv.Dialect(), predicate).where, nil))
}

// analyse takes the predicate of a query apart by applying it to a selector that
// is then thrown away. It tells whether the conditions are all that the predicate
// does to the selector.
func (d *Definition) analyse(ctx context.Context, dialectName string, predicate func(*sql.Selector)) (where []conjunct, whole bool) {
	scratch := sql.Dialect(dialectName).Select().From(sql.Table(d.Table)).WithContext(ctx)
	predicate(scratch)
	if scratch.Err() != nil || scratch.HasJoins() {
		return nil, false
	}
	query, _ := scratch.Query()
	plain, _ := sql.Dialect(dialectName).Select().From(sql.Table(d.Table)).Where(scratch.P()).Query()
	return conjuncts(dialectName, d.Table, scratch.P()), query == plain
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
//
// One key has a cheaper form: see [Definition.oneKey].
func (d *Definition) source(dialectName string, where []conjunct, keys *page) *sql.Selector {
	return d.sums(dialectName, d.halves(dialectName, where, keys), d.keyNames())
}

// namesKey reports whether conditions on the key leave one.
func (d *Definition) namesKey(where []conjunct) bool {
	return !slices.ContainsFunc(d.Key, func(k Column) bool {
		named := slices.ContainsFunc(where, func(c conjunct) bool { return c.pin == k.Name && comparesAs(k, c.value) })
		return !named || k.Type == field.TypeTime // SQLite's driver knows one by its column
	})
}

// oneKey returns the same as source does, for the one key that conditions on the key
// leave:
//
//	SELECT COALESCE(c.key, j.key)…, COALESCE(c.measure, 0) + COALESCE(j.delta, 0)…, … FROM (
//	    SELECT MIN(key) AS key…, SUM(delta) AS delta…, MAX(inserted_at), COUNT(*) AS pending FROM journal WHERE …
//	) AS j LEFT JOIN counters AS c ON … WHERE pending > 0 OR c.key IS NOT NULL
//
// That is a look-up by primary key and a sum, and no rows that have to be put together
// and grouped.
func (d *Definition) oneKey(dialectName string, where []conjunct) *sql.Selector {
	const journal = "entcounter_journal"
	var (
		b       = sql.Dialect(dialectName)
		text    = sqlFor(dialectName)
		w       = newWriter(text)
		counter = func(name string) string { return w.quote(d.Table) + "." + w.quote(name) }
		pending = func(name string) string { return w.quote(journal) + "." + w.quote(name) }
		matches = func() *sql.Predicate {
			all := make([]*sql.Predicate, len(where))
			for i, c := range where {
				all[i] = c.predicate(nil)
			}
			return sql.And(all...)
		}
		sums = b.Select().From(b.Table(d.Journal).As(d.Table)).Where(matches()).As(journal)
		both = b.Select().From(sums).LeftJoin(b.Table(d.Table).As(d.Table)).OnP(matches()).As(d.Table)
	)
	for i, k := range d.Key {
		name := "k" + strconv.Itoa(i)
		sums.AppendSelectExprAs(sql.Raw(text.anyOf(w.quote(k.Name), k.Type)), name)
		both.AppendSelectExprAs(sql.Raw("COALESCE("+counter(k.Name)+", "+pending(name)+")"), k.Name)
	}
	for i, m := range d.Measures {
		name := "m" + strconv.Itoa(i)
		parts, sum := text.sumWith(counter(m.Name), w.quote(m.Delta), func(part int) string { return pending(name + "_" + strconv.Itoa(part)) })
		for part, expr := range parts {
			sums.AppendSelectExprAs(sql.Raw(expr), name+"_"+strconv.Itoa(part))
		}
		both.AppendSelectExprAs(sql.Raw(sum), m.Name)
	}
	sums.AppendSelectExprAs(sql.Raw("MAX("+w.quote(ColumnInsertedAt)+")"), "at")
	sums.AppendSelectExprAs(sql.Raw("COUNT(*)"), "n")
	at := text.later("COALESCE("+counter(ColumnUpdatedAt)+", "+pending("at")+")", "COALESCE("+pending("at")+", "+counter(ColumnUpdatedAt)+")")
	both.AppendSelectExprAs(sql.Raw(text.timeText(at)), ColumnUpdatedAt)
	both.AppendSelectExprAs(sql.Raw(pending("n")), ColumnPending)
	return both.Where(sql.ExprP(pending("n") + " > 0 OR " + counter(d.Key[0].Name) + " IS NOT NULL"))
}

// page is a number of keys, the first or the last in the order of the key.
type page struct {
	limit      int
	descending bool
}

// halves returns the rows of the counter table and of the journal that conditions
// on the key leave, as one. A page of keys needs no more rows of the counter
// table, where a key has one row and an index has its order: a key of the page that
// is in the table is among the first there too.
func (d *Definition) halves(dialectName string, where []conjunct, keys *page) *sql.Selector {
	var (
		b   = sql.Dialect(dialectName)
		w   = newWriter(sqlFor(dialectName))
		key = quoteAll(w, d.keyNames())
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
	counters := half(d.Table, d.measureNames(), ColumnUpdatedAt, 0)
	if keys != nil {
		for _, k := range d.Key {
			by := w.quote(k.Name)
			if k.Type == field.TypeEnum && dialectName == dialect.MySQL {
				by = "CONCAT(" + by + ")" // by its text, as everywhere else
			}
			if keys.descending {
				by += " DESC"
			}
			counters.OrderExpr(sql.Raw(by))
		}
		counters = b.Select().From(counters.Limit(keys.limit).As(d.Table)) // SQLite has no LIMIT before a UNION
	}
	return counters.UnionAll(half(d.Journal, d.deltaNames(), ColumnInsertedAt, 1)).As("deltas")
}

// sums returns the sums over the rows that agree in some key columns, under the
// name of the counter table.
func (d *Definition) sums(dialectName string, from *sql.Selector, columns []string) *sql.Selector {
	var (
		text = sqlFor(dialectName)
		w    = newWriter(text)
		key  = quoteAll(w, columns)
		sums = sql.Dialect(dialectName).Select(key...).From(from).GroupBy(key...).As(d.Table)
	)
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
// source yields, and hand on to ent's own destinations what those expect. It returns
// where the journal rows are added up that the rows took.
func (d *Definition) scanWith(spec *sqlgraph.QuerySpec) *int64 {
	pending := new(int64)
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
			} else if column == ColumnPending {
				values[i] = &pendingCell{dest, pending}
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
			case *pendingCell:
				values[i] = v.dest
			}
		}
		return assign(columns, values)
	}
	return pending
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

// pendingCell scans a number of journal rows, and adds it up.
type pendingCell struct {
	dest  scanner
	total *int64
}

func (c *pendingCell) Scan(src any) error {
	var n Amount
	if err := n.Scan(src); err != nil {
		return err
	}
	*c.total += int64(n)
	return c.dest.Scan(src)
}

// measureCell scans a measure, and says which one does not fit.
type measureCell struct {
	def    *Definition
	column string
	dest   scanner
}

func (c *measureCell) Scan(src any) error {
	if src == nil {
		return c.dest.Scan(nil)
	}
	var sum Amount
	if err := sum.Scan(src); err != nil {
		return fmt.Errorf("counter %s, measure %s: %w", c.def.Name, c.column, err)
	}
	return c.dest.Scan(int64(sum))
}
