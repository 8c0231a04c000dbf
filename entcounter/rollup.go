package entcounter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
)

// RollUp runs a query on a counter's generated type with the rows added up that
// agree in some key columns. Without columns, all rows are one, which is there even
// if nothing is counted. The query's predicate selects what is added up; its order
// and limit apply to the sums. It is one plain statement, and takes no locks. In a
// transaction, pending deltas are written first.
//
// A sum beyond BIGINT is [ErrOverflow].
func (d *Definition) RollUp(ctx context.Context, drv dialect.Driver, spec *sqlgraph.QuerySpec, columns ...string) error {
	name := drv.Dialect()
	columns, err := d.keyColumns(columns)
	if err == nil {
		err = d.checkOrder(name, spec, columns)
	}
	if err != nil {
		return d.summing(err)
	}
	if err := d.ready(ctx, drv); err != nil {
		return err
	}
	if spec.Order != nil || spec.Limit > 0 || spec.Offset > 0 {
		spec.Order, _, _ = d.orderByKey(name, spec.Order, columns)
	}
	r := d.restrict(ctx, name, spec.Predicate)
	from := d.halves(name, r.where, nil)
	if !r.inside {
		from = d.selected(ctx, name, r)
	}
	spec.From = sql.Dialect(name).Select().From(d.sums(name, from, columns)).WithContext(ctx)
	spec.Predicate = nil
	spec.Node.Columns = slices.Concat(columns, d.measureNames(), []string{ColumnUpdatedAt, ColumnPending})
	pending := d.scanWith(spec)
	err = sqlgraph.QueryNodes(ctx, remembering(ctx, drv), spec)
	if err == nil {
		askBackstop(drv, d, *pending)
	}
	return d.summing(err)
}

// selected returns the rows of a counter that a predicate selects, under the name
// of its table.
func (d *Definition) selected(ctx context.Context, dialectName string, r restriction) *sql.Selector {
	s := sql.Dialect(dialectName).Select().From(d.source(dialectName, r.where, nil)).WithContext(ctx)
	if r.predicate != nil {
		r.predicate(s)
	}
	return s.As(d.Table)
}

// keyColumns checks that columns belong to the key, and returns each once.
func (d *Definition) keyColumns(names []string) ([]string, error) {
	columns := make([]string, 0, len(names))
	for _, name := range names {
		if !slices.Contains(d.keyNames(), name) {
			return nil, fmt.Errorf("%q is no column of the key, which has %s", name, joinNames(d.keyNames()))
		}
		if !slices.Contains(columns, name) {
			columns = append(columns, name)
		}
	}
	return columns, nil
}

func joinNames(names []string) string { return strings.Join(names, ", ") }

var errNoOrder = errors.New("the answer is one: Order, Limit and Offset do not apply to what is added up")

// checkOrder refuses to order sums by what is added up, and to order or cut off a
// single sum.
func (d *Definition) checkOrder(dialectName string, spec *sqlgraph.QuerySpec, columns []string) error {
	if len(columns) == 0 && (spec.Order != nil || spec.Limit > 0 || spec.Offset > 0) {
		return errNoOrder
	}
	if spec.Order == nil {
		return nil
	}
	s := sql.Dialect(dialectName).Select().From(sql.Table(d.Table))
	spec.Order(s)
	query, _ := s.Query()
	_, by, _ := strings.Cut(query, " ORDER BY ")
	for _, name := range d.keyNames() {
		if !slices.Contains(columns, name) && strings.Contains(by, s.C(name)) {
			return fmt.Errorf("keys of different %s are added up, and cannot be ordered by it", name)
		}
	}
	return nil
}

// summing completes an error of a query that sums over the counter's rows.
func (d *Definition) summing(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("entcounter: summing counter %s: %w", d.Name, overflowOf(err))
}
