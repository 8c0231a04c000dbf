package entcounter

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
	"entgo.io/ent/schema/field"
)

// Distribution tells how counted rows spread over the values of one key column.
// Counted are the rows of keys with a count above zero. T is the generated type of
// the counter: of a value, it holds the column, and the measures summed over all
// selected keys that have the value.
//
// Values are in the order of the database: text by the column's collation, an enum
// by its text, false before true.
type Distribution[T any] struct {
	// Rows is the number of counted rows.
	Rows int64
	// Distinct is the number of different values that they have.
	Distinct int64
	// Min and Max are the smallest and the largest value. Without rows they are
	// zero, and not nil.
	Min, Max T
	// Percentiles has a value for each fraction asked for, in their order: the first
	// one up to which there are at least that fraction of the rows. That is SQL's
	// PERCENTILE_DISC, and the nearest-rank method. Without rows they are zero, and
	// not nil.
	Percentiles []T
	// Continuous has the same interpolated between neighbouring rows, which is SQL's
	// PERCENTILE_CONT. Without rows, or if the column is not of an integer type, it
	// is nil.
	Continuous []float64
	// Pending is the number of journal rows that the read added to what is folded.
	Pending int64
}

// Distribute runs a query on a counter's generated type and returns the
// distribution of the rows that it selects over a key column, as counted by a
// measure. The query appends to nodes what it finds; zero returns a node without
// values. It is one plain statement, which yields a few rows for each fraction, and
// takes no locks. In a transaction, pending deltas are written first.
func Distribute[T any](
	ctx context.Context, drv dialect.Driver, d *Definition, spec *sqlgraph.QuerySpec, nodes *[]T, zero func() T,
	column, measure string, fractions ...float64,
) (Distribution[T], error) {
	s, err := d.distribute(ctx, drv, spec, column, measure, fractions)
	if err != nil {
		return Distribution[T]{}, err
	}
	dist := Distribution[T]{Rows: int64(s.rows), Distinct: int64(s.distinct), Pending: int64(s.pending)}
	if len(s.steps) == 0 {
		dist.Min, dist.Max = zero(), zero()
		for range fractions {
			dist.Percentiles = append(dist.Percentiles, zero())
		}
		return dist, nil
	}
	dist.Min, dist.Max = (*nodes)[s.steps[0].node], (*nodes)[s.steps[len(s.steps)-1].node]
	for _, f := range fractions {
		dist.Percentiles = append(dist.Percentiles, (*nodes)[s.discrete(f).node])
		if d.column(column).Type.Integer() {
			dist.Continuous = append(dist.Continuous, s.continuous(f))
		}
	}
	return dist, nil
}

// spread is the distribution of rows over the values of a column.
type spread struct {
	rows, distinct, pending Amount
	steps                   []step // in order: the first, the last and those near a percentile
}

// step is a value that rows have.
type step struct {
	node         int // where it is among the nodes of the query
	weight, upTo Amount
	number       any // int64 or uint64, of an integer column
}

// row returns the value of a row by its number, counted from 1.
func (s *spread) row(number int64) step {
	i := slices.IndexFunc(s.steps, func(st step) bool { return int64(st.upTo) >= number })
	if i < 0 {
		i = len(s.steps) - 1
	}
	return s.steps[i]
}

func (s *spread) discrete(fraction float64) step {
	return s.row(int64(math.Ceil(fraction * float64(s.rows))))
}

func (s *spread) continuous(fraction float64) float64 {
	before, part := math.Modf(fraction * float64(s.rows-1))
	low := float(s.row(int64(before) + 1).number)
	if part == 0 {
		return low
	}
	return low + part*(float(s.row(int64(before)+2).number)-low)
}

func float(integer any) float64 {
	if u, ok := integer.(uint64); ok {
		return float64(u)
	}
	i, _ := integer.(int64)
	return float64(i)
}

// Columns of the statement that makes a distribution.
const (
	columnWeight   = "entcounter_weight"   // counted rows with the value
	columnUpTo     = "entcounter_up_to"    // counted rows up to the value
	columnRows     = "entcounter_rows"     // all counted rows
	columnDistinct = "entcounter_distinct" // all values with rows
	columnAdded    = "entcounter_added"    // all journal rows
	columnPlace    = "entcounter_place"    // place of the value
	columnNumber   = "entcounter_number"   // the value once more, of an integer column
)

// distribute reads a distribution:
//
//	SELECT … FROM (
//	    SELECT *, SUM(weight) OVER (ORDER BY value) AS up_to, SUM(weight) OVER () AS rows, … FROM (
//	        SELECT value, SUM(CASE WHEN count > 0 THEN count ELSE 0 END) AS weight, SUM(measure)… FROM source WHERE … GROUP BY value
//	    )
//	) WHERE place = 1 OR weight > 0 AND (first OR last OR near a percentile) ORDER BY value
//
// It is near a percentile if it has one of the rows around it: two more on either
// side than matter, so that it makes no difference how a database multiplies. The
// row in the first place is there for the sums over all rows.
func (d *Definition) distribute(
	ctx context.Context, drv dialect.Driver, spec *sqlgraph.QuerySpec, column, measure string, fractions []float64,
) (*spread, error) {
	if err := d.checkDistribution(spec, column, measure, fractions); err != nil {
		return nil, fmt.Errorf("entcounter: distribution of counter %s: %w", d.Name, err)
	}
	if err := d.ready(ctx, drv); err != nil {
		return nil, err
	}
	var (
		name    = drv.Dialect()
		b       = sql.Dialect(name)
		w       = newWriter(sqlFor(name))
		q       = w.quote
		value   = q(column)
		weight  = q(columnWeight)
		upTo    = q(columnUpTo)
		rows    = q(columnRows)
		extra   = []string{columnWeight, columnUpTo, columnRows, columnDistinct, columnAdded}
		key     = d.column(column)
		integer = key.Type.Integer()
	)
	sums := d.sums(name, d.selected(ctx, name, d.restrict(ctx, name, spec.Predicate)), []string{column}).
		AppendSelectExprAs(sql.Raw("SUM(CASE WHEN "+q(measure)+" > 0 THEN "+q(measure)+" ELSE 0 END)"), columnWeight)
	if integer {
		extra = append(extra, columnNumber)
		sums.AppendSelectExprAs(sql.Raw(value), columnNumber)
	}
	windows := b.Select("*").From(sums).
		AppendSelectExprAs(sql.Raw("SUM("+weight+") OVER (ORDER BY "+value+")"), columnUpTo).
		AppendSelectExprAs(sql.Raw("SUM("+weight+") OVER ()"), columnRows).
		AppendSelectExprAs(sql.Raw("SUM(CASE WHEN "+weight+" > 0 THEN 1 ELSE 0 END) OVER ()"), columnDistinct).
		AppendSelectExprAs(sql.Raw("SUM("+q(ColumnPending)+") OVER ()"), columnAdded).
		AppendSelectExprAs(sql.Raw("ROW_NUMBER() OVER (ORDER BY "+value+")"), columnPlace).
		As(d.Table)
	matters := upTo + " = " + weight + " OR " + upTo + " = " + rows
	for _, f := range fractions {
		near := strconv.FormatFloat(f, 'g', -1, 64) + " * (" + rows + " - 1)"
		matters += " OR " + upTo + " - " + weight + " - 2 < " + near + " AND " + upTo + " + 2 > " + near
	}
	spec.From = b.Select().From(windows).WithContext(ctx)
	spec.Predicate = func(s *sql.Selector) {
		s.Where(sql.ExprP(q(columnPlace) + " = 1 OR " + weight + " > 0 AND (" + matters + ")"))
	}
	spec.Order = func(s *sql.Selector) { s.OrderBy(s.C(column)) }
	spec.Node.Columns = slices.Concat([]string{column}, d.measureNames(), []string{ColumnUpdatedAt, ColumnPending}, extra)
	d.scanWith(spec)

	var (
		found  spread
		st     step
		number = &cell{column: key}
	)
	scanBeside(spec, map[string]any{
		columnWeight: &st.weight, columnUpTo: &st.upTo,
		columnRows: &found.rows, columnDistinct: &found.distinct, columnAdded: &found.pending,
		columnNumber: number,
	}, func() {
		if st.weight > 0 {
			st.number = number.value
			found.steps = append(found.steps, st)
		}
		st.node++
	})
	if err := sqlgraph.QueryNodes(ctx, remembering(ctx, drv), spec); err != nil {
		return nil, d.summing(err)
	}
	return &found, nil
}

// checkDistribution tells what is wrong about a distribution that is asked for.
func (d *Definition) checkDistribution(spec *sqlgraph.QuerySpec, column, measure string, fractions []float64) error {
	if spec.Order != nil || spec.Limit > 0 || spec.Offset > 0 {
		return errNoOrder
	}
	if _, err := d.keyColumns([]string{column}); err != nil {
		return err
	}
	i := slices.IndexFunc(d.Measures, func(m Measure) bool { return m.Name == measure })
	if i < 0 {
		return fmt.Errorf("%q is no measure, it has %s", measure, joinNames(d.measureNames()))
	}
	if slices.ContainsFunc(d.Sources, func(s *Source) bool { return s.Measures[i].Name != "" }) {
		return fmt.Errorf("measure %q is a sum: rows are counted by a measure that counts them, declared by Count", measure)
	}
	for _, f := range fractions {
		if !(f >= 0 && f <= 1) {
			return fmt.Errorf("percentile %v is not a fraction between 0 and 1: the median is 0.5, the 95th percentile 0.95", f)
		}
	}
	if len(fractions) > 0 && d.column(column).Type == field.TypeBool {
		return fmt.Errorf("column %q is a bool, which has no percentiles", column)
	}
	return nil
}

// column returns a column of the key.
func (d *Definition) column(name string) Column {
	i := slices.IndexFunc(d.Key, func(c Column) bool { return c.Name == name })
	return d.Key[i]
}

// scanBeside makes a query scan some columns into destinations of their own, and
// calls visit once the rest of a row is assigned.
func scanBeside(spec *sqlgraph.QuerySpec, dest map[string]any, visit func()) {
	scanValues, assign := spec.ScanValues, spec.Assign
	own := func(columns []string) int {
		return slices.IndexFunc(columns, func(c string) bool { return dest[c] != nil })
	}
	spec.ScanValues = func(columns []string) ([]any, error) {
		n := own(columns)
		values, err := scanValues(columns[:n])
		if err != nil {
			return nil, err
		}
		for _, c := range columns[n:] {
			values = append(values, dest[c])
		}
		return values, nil
	}
	spec.Assign = func(columns []string, values []any) error {
		n := own(columns)
		if err := assign(columns[:n], values[:n]); err != nil {
			return err
		}
		visit()
		return nil
	}
}
