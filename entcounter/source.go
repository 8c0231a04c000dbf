package entcounter

import (
	"slices"
	"strconv"
	"strings"
)

// terms calls visit for each column that the source reads.
func (s *Source) terms(visit func(Term)) {
	for _, t := range s.Key {
		visit(t)
	}
	for _, m := range s.Measures {
		visit(m.Term)
		m.If.terms(visit)
	}
	s.Where.terms(visit)
}

// reads reports whether what the source says of a row depends on one of the named
// columns of the table at a place. Columns that lead to further tables count.
func (s *Source) reads(place int, changed func(column string) bool) bool {
	found := false
	s.terms(func(t Term) { found = found || t.Join == place && t.Name != "" && changed(t.Name) })
	return found || slices.ContainsFunc(s.Joins, func(j Join) bool { return j.From == place && changed(j.Column.Name) })
}

// Columns calls visit for each column that the source reads, or that leads it to a
// further table. Code generation uses it.
func (s *Source) Columns(visit func(table string, column Column)) {
	s.terms(func(t Term) {
		if t.Name != "" {
			visit(s.tableAt(t.Join), t.Column)
		}
	})
	for _, j := range s.Joins {
		visit(s.tableAt(j.From), j.Column)
	}
}

// Reads reports whether the source reads a column of a table. Code generation uses
// it.
func (s *Source) Reads(table, column string) bool {
	found := false
	s.Columns(func(t string, c Column) { found = found || t == table && c.Name == column })
	return found
}

// isPlain reports whether a row of the counted table alone tells what it adds to
// which key, by rules that Go follows as the database does. What another source
// says is computed by the database.
func (s *Source) isPlain() bool {
	plain := len(s.Joins) == 0 && s.Where.evaluable()
	for _, t := range s.Key {
		plain = plain && t.Bucket == ""
	}
	for _, m := range s.Measures {
		plain = plain && m.Factor == 0 && m.If.evaluable()
	}
	return plain
}

// leavesWithout reports whether a row without a value in the column is in no group.
func (s *Source) leavesWithout(column string) bool {
	return slices.ContainsFunc(s.Key, func(t Term) bool { return t.Join == 0 && t.Name == column && t.Null == nil })
}

// tableAt returns the table at a place.
func (s *Source) tableAt(place int) string {
	if place == 0 {
		return s.Table
	}
	return s.Joins[place-1].Table
}

// value returns the term's value in a row of the counted table.
func (t Term) value(values map[string]any) any {
	switch v := values[t.Name]; {
	case t.Name == "":
		return t.Literal
	case v == nil:
		return t.Null
	default:
		return v
	}
}

// alias is how a source's SQL calls the table at a place.
func alias(place int) string { return "t" + strconv.Itoa(place) }

// column writes a column of the table at a place.
func (w *writer) column(place int, name string) *writer {
	return w.ident(alias(place)).sql(".").ident(name)
}

// raw writes the column of a term.
func (w *writer) raw(t Term) *writer { return w.column(t.Join, t.Name) }

// term writes the value of a term.
func (w *writer) term(s sqlDialect, t Term) *writer {
	if t.Name == "" {
		return w.literal(t.Literal)
	}
	expr := w.quote(alias(t.Join)) + "." + w.quote(t.Name)
	if t.Bucket != "" {
		expr = t.Bucket.expr(s.name(), expr, slices.Contains(t.Zoneless, s.name()))
	}
	if t.Null == nil {
		return w.sql(expr)
	}
	return w.sql("COALESCE(", expr, ", ").arg(t.Null).sql(")")
}

// literal writes a constant, with its type where PostgreSQL does not know it.
func (w *writer) literal(v any) *writer {
	w.arg(v)
	if _, ok := v.(string); ok && w.postgres {
		w.sql("::text")
	}
	return w
}

// condition writes a condition.
func (w *writer) condition(c *Condition) *writer {
	combine := func(operator, none string) {
		if len(c.Of) == 0 {
			w.sql(none)
		}
		for i := range c.Of {
			if i > 0 {
				w.sql(operator)
			}
			w.sql("(").condition(&c.Of[i]).sql(")")
		}
	}
	switch c.Op {
	case OpAnd:
		combine(" AND ", "1 = 1")
		return w
	case OpOr:
		combine(" OR ", "1 = 0")
		return w
	case OpNot:
		return w.sql("NOT (").condition(&c.Of[0]).sql(")")
	case OpIsNull:
		return w.raw(c.Term).sql(" IS NULL")
	case OpNotNull:
		return w.raw(c.Term).sql(" IS NOT NULL")
	}
	w.raw(c.Term)
	switch c.Op {
	case OpIn, OpNotIn:
		if c.Op == OpNotIn {
			w.sql(" NOT")
		}
		w.sql(" IN (")
		for i, v := range c.Values {
			if i > 0 {
				w.sql(", ")
			}
			w.arg(v)
		}
		return w.sql(")")
	}
	operator := map[Operator]string{OpEQ: " = ", OpNEQ: " <> ", OpLT: " < ", OpLTE: " <= ", OpGT: " > ", OpGTE: " >= "}[c.Op]
	return w.sql(operator).arg(c.Values[0])
}

// from writes the tables of a source.
func (w *writer) from(s *Source) *writer {
	w.sql(" FROM ").ident(s.Table).sql(" AS ").ident(alias(0))
	for i, j := range s.Joins {
		w.sql(" LEFT JOIN ").ident(j.Table).sql(" AS ").ident(alias(i+1)).sql(" ON ").
			column(i+1, j.RefColumn.Name).sql(" = ").column(j.From, j.Column.Name)
	}
	return w
}

// inRegion reports whether the source can have rows in a region, of whose values it
// may have one as a literal.
func (s *Source) inRegion(r region) bool {
	for i, t := range s.Key {
		is := func(v any) bool { return compareValues(t.Literal, v) == 0 }
		switch {
		case t.Name != "":
		case i < len(r.prefix) && !is(r.prefix[i]):
			return false
		case i == len(r.prefix) && len(r.values) > 0 && !slices.ContainsFunc(r.values, is):
			return false
		}
	}
	return true
}

// counts writes the statement that counts the rows of a source by key: the key terms
// and the measures under the given names, then further columns. More conditions
// restrict the rows.
func (w *writer) counts(s sqlDialect, src *Source, key, measures []string, further string, more ...func()) {
	w.sql("SELECT ")
	for i, t := range src.Key {
		w.term(s, t).sql(" AS ").ident(key[i]).sql(", ")
	}
	for i, m := range src.Measures {
		if i > 0 {
			w.sql(", ")
		}
		w.summand(s, m).sql(" AS ").ident(measures[i])
	}
	w.sql(further).from(src)
	var conditions []func()
	if src.Where != nil {
		conditions = append(conditions, func() { w.sql("(").condition(src.Where).sql(")") })
	}
	for _, t := range src.Key {
		if t.Name != "" && t.Null == nil {
			conditions = append(conditions, func() { w.raw(t).sql(" IS NOT NULL") })
		}
	}
	for i, condition := range append(conditions, more...) {
		if i == 0 {
			w.sql(" WHERE ")
		} else {
			w.sql(" AND ")
		}
		condition()
	}
	// The terms by their positions: written again, one with an argument would be
	// another to PostgreSQL.
	w.sql(" GROUP BY ")
	for i := range src.Key {
		if i > 0 {
			w.sql(", ")
		}
		w.sql(strconv.Itoa(i + 1))
	}
}

// summand writes the sum of what the rows of a group add to a measure.
func (w *writer) summand(s sqlDialect, m Summand) *writer {
	if m.Name == "" && m.If == nil {
		return w.sql("COUNT(*)")
	}
	value := func() {
		switch {
		case m.Name == "":
			w.sql("1")
		case m.Factor != 0:
			w.sql(s.integer(w.quote(alias(m.Join)) + "." + w.quote(m.Name) + " * " + strconv.FormatInt(m.Factor, 10)))
		default:
			w.raw(m.Term)
		}
	}
	w.sql("COALESCE(")
	// The value has arguments, and the sum may name it more than once.
	const here = "\x00"
	for i, part := range strings.Split(s.sum(here), here) {
		if i > 0 && m.If != nil {
			w.sql("(CASE WHEN ").condition(m.If).sql(" THEN ")
			value()
			w.sql(" ELSE 0 END)")
		} else if i > 0 {
			value()
		}
		w.sql(part)
	}
	return w.sql(", 0)")
}

// within writes the conditions of a region.
func (w *writer) within(s sqlDialect, src *Source, r region) []func() {
	var conditions []func()
	for i, t := range src.Key {
		switch {
		case t.Name == "":
		case i < len(r.prefix):
			conditions = append(conditions, func() { w.term(s, t).sql(" = ").arg(r.prefix[i]) })
		case i == len(r.prefix) && len(r.values) > 0:
			conditions = append(conditions, func() { w.term(s, t).in(r.values) })
		}
	}
	return conditions
}
