package entcounter

import (
	"context"
	stdsql "database/sql"
	"database/sql/driver"
	"slices"
	"strconv"
	"strings"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
)

// In PostgreSQL, a mutation that would be a transaction of its own is one statement
// where its rows can tell all that is to be journalled: parts of a WITH lock rows,
// change them, and journal what they count afterwards less what they counted before.
//
// All parts work on one snapshot and commit together. A row that has changed since
// the snapshot was taken is locked, and then changed, in its newest version, unless
// that does not match any more.

// Names of parts. Within the statement they hide tables of these names.
const (
	partBefore  = "entcounter_before"
	partAfter   = "entcounter_after"
	partJournal = "entcounter_journal"
)

// single is a driver that sqlgraph runs the one statement of a mutation on, which is
// completed on the way. Every error of the statement is kept: a part may fail after
// rows have been returned, which nobody reads on from.
type single struct {
	dialect.Driver
	// complete makes the whole of what sqlgraph runs.
	complete func(query string, args []any) *writer
	// changes tells that the whole is a query for the number of changed rows.
	changes bool
	err     error
}

func (s *single) Exec(ctx context.Context, query string, args, v any) error {
	w := s.complete(query, args.([]any))
	if !s.changes {
		return s.Driver.Exec(ctx, w.String(), w.args, v)
	}
	var n int64
	err := s.query(ctx, w, func(rows *sql.Rows) error {
		if !rows.Next() {
			return rows.Err()
		}
		return rows.Scan(&n)
	})
	if res, ok := v.(*sql.Result); ok {
		*res = driver.RowsAffected(n)
	}
	return err
}

func (s *single) Query(ctx context.Context, query string, args, v any) error {
	w := s.complete(query, args.([]any))
	return s.open(ctx, w, v.(*sql.Rows))
}

// Tx is called for an update of one row.
func (s *single) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(s), nil }

// open runs a query whose rows keep an error that comes after them.
func (s *single) open(ctx context.Context, w *writer, rows *sql.Rows) error {
	if err := s.Driver.Query(ctx, w.String(), w.args, rows); err != nil {
		return err
	}
	rows.ColumnScanner = &readOut{rows.ColumnScanner, s}
	return nil
}

// query runs a query and reads its rows.
func (s *single) query(ctx context.Context, w *writer, read func(*sql.Rows) error) error {
	var rows sql.Rows
	if err := s.open(ctx, w, &rows); err != nil {
		return err
	}
	err := read(&rows)
	rows.Close()
	return s.failed(err)
}

// failed returns the statement's error, though the caller may not have met it.
func (s *single) failed(err error) error {
	if err == nil {
		err = s.err
	}
	return overflowOf(err)
}

// readOut are rows that are read to their end when they are closed.
type readOut struct {
	sql.ColumnScanner
	single *single
}

func (r *readOut) Close() error {
	for r.ColumnScanner.Next() {
	}
	err := r.ColumnScanner.Err()
	if cerr := r.ColumnScanner.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		r.single.err = err
	}
	return err
}

// alone reports whether a mutation on a driver can be a statement of its own.
func (s *Schema) alone(drv dialect.Driver) bool {
	if drv.Dialect() != dialect.Postgres || s.imagesOnly || inTransaction(drv) {
		return false
	}
	if d, ok := drv.(*sql.Driver); ok {
		_, ok := d.ExecQuerier.(*stdsql.DB)
		return ok
	}
	return true
}

// createAlone returns the driver for a create that is one statement, or nil where that
// does not do.
func (s *Schema) createAlone(drv dialect.Driver, nodes []*sqlgraph.CreateSpec, onConflict []sql.ConflictOption) (*single, error) {
	t := s.Tables[nodes[0].Table]
	if t == nil || !s.alone(drv) || len(onConflict) > 0 || s.countsRows(t.Name) || len(s.numbered(t.Name)) > 0 {
		return nil, nil
	}
	sets := make([]columnSet, len(nodes))
	for i, n := range nodes {
		if n.Schema != "" || slices.ContainsFunc(n.Edges, isElsewhere) {
			return nil, nil
		}
		sets[i] = insertSetOf(n)
	}
	var (
		c        changes
		counters = s.counted(t.Name)
	)
	for _, r := range insertedRows(t, columnsOf(counters), sets) {
		if r == nil {
			return nil, nil
		}
		if err := c.addRow(counters, *r, 1); err != nil {
			return nil, err
		}
	}
	var (
		inserts    []*sql.InsertBuilder
		parameters int
	)
	for _, d := range c.counters() {
		if deltas := c.drain(d); len(deltas) > 0 {
			inserts = append(inserts, journalInsert(dialect.Postgres, d, deltas))
			parameters += len(deltas) * d.journalColumns()
		}
	}
	if parameters > maxParameters {
		return nil, nil
	}
	return &single{Driver: drv, complete: func(query string, args []any) *writer {
		w := statementWith(args)
		for i, insert := range inserts {
			insert.SetTotal(len(w.args))
			text, args := insert.Query()
			w.args = append(w.args, args...)
			w.part(partJournal+strconv.Itoa(i), func() { w.sql(text) })
		}
		return w.sql(" ", query)
	}}, nil
}

// isElsewhere reports whether an edge is no column of the mutated row.
func isElsewhere(e *sqlgraph.EdgeSpec) bool { return !isOwn(e) }

// updatesAlone reports whether an update can be one statement.
func (s *Schema) updatesAlone(drv dialect.Driver, spec *sqlgraph.UpdateSpec, u update) bool {
	return s.alone(drv) && !u.computed && len(spec.Modifiers) == 0 && spec.Node.Schema == "" && s.Tables[spec.Node.Table] != nil &&
		!slices.ContainsFunc(spec.Edges.Add, isElsewhere) && !slices.ContainsFunc(spec.Edges.Clear, isElsewhere)
}

// updateAlone updates the rows that match by one statement.
func (m *mutation) updateAlone(spec *sqlgraph.UpdateSpec, u update) (int, error) {
	one := &single{Driver: m.drv, changes: true}
	if pins, ok := m.pinned(spec, u.set, u.counters); ok {
		deltas, err := u.perRow(pins)
		if err != nil {
			return 0, err
		}
		one.complete = func(query string, args []any) *writer {
			w := statementWith(args)
			w.part(partAfter, func() { w.sql(query, " RETURNING 1") })
			w.journalPerRow(deltas)
			return w.sql(" SELECT COUNT(*) FROM ").ident(partAfter)
		}
		n, err := sqlgraph.UpdateNodes(m.ctx, one, spec)
		return n, one.failed(err)
	}
	locked, err := m.lockedRows(spec, u, spec.Predicate)
	if err != nil {
		return 0, err
	}
	one.complete = func(query string, args []any) *writer {
		return locked.around(query, args, nil).sql(" SELECT COUNT(*) FROM ").ident(partAfter)
	}
	exact := *spec
	exact.Predicate = locked.predicate
	n, err := sqlgraph.UpdateNodes(m.ctx, one, &exact)
	return n, one.failed(err)
}

// updateOneAlone updates one row, and reads it, by one statement: what sqlgraph
// updates is read by its next query.
func (m *mutation) updateOneAlone(spec *sqlgraph.UpdateSpec, u update) error {
	locked, err := m.lockedRows(spec, u, all(nodeOf(spec), spec.Predicate))
	if err != nil {
		return err
	}
	var changed *writer
	one := &oneRow{single: single{Driver: m.drv}, change: func(query string, args []any) {
		changed = locked.around(query, args, spec.Node.Columns)
	}}
	one.complete = func(string, []any) *writer {
		return changed.sql(" SELECT ").idents(spec.Node.Columns...).sql(" FROM ").ident(partAfter)
	}
	exact := *spec
	exact.Predicate = locked.predicate
	return one.failed(sqlgraph.UpdateNode(m.ctx, one, &exact))
}

// deleteAlone deletes the rows that match by one statement.
func (m *mutation) deleteAlone(spec *sqlgraph.DeleteSpec, counters []counted) (int, error) {
	one := &single{Driver: m.drv, changes: true, complete: func(query string, args []any) *writer {
		w := statementWith(args)
		w.part(partBefore, func() { w.sql(query).returning(columnNames(columnsOf(counters))) })
		for i, c := range counters {
			w.journalImages(i, c, false)
		}
		return w.sql(" SELECT COUNT(*) FROM ").ident(partBefore)
	}}
	n, err := sqlgraph.DeleteNodes(m.ctx, one, spec)
	return n, one.failed(err)
}

// oneRow is a driver for an update of one row, whose change waits for the query that
// reads the row.
type oneRow struct {
	single
	change func(query string, args []any)
}

func (o *oneRow) Exec(_ context.Context, query string, args, v any) error {
	o.change(query, args.([]any))
	*v.(*sql.Result) = driver.RowsAffected(1)
	return nil
}

func (o *oneRow) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(o), nil }

// perRow returns what each row that a pinned update changes adds to the counters.
func (u update) perRow(pins map[string]any) (*changes, error) {
	var c changes
	next, _ := u.set.apply(columnsOf(u.counters), row{values: pins})
	if err := c.addRow(u.counters, row{values: pins}, -1); err != nil {
		return nil, err
	}
	return &c, c.addRow(u.counters, next, 1)
}

// lockedRows are the rows of an update as it finds them.
type lockedRows struct {
	table    *Table
	counters []counted
	read     *sql.Selector
}

// lockedRows makes the part of an update that locks the rows that match.
func (m *mutation) lockedRows(spec *sqlgraph.UpdateSpec, u update, where func(*sql.Selector)) (*lockedRows, error) {
	t := m.schema.Tables[spec.Node.Table]
	read, _, err := m.lockingSelect(selection{table: t, columns: columnsOf(u.counters), where: where, lock: u.set.lockStrength(t)})
	return &lockedRows{t, u.counters, read}, err
}

// seam marks where the part is to be cut out of the statement that sqlgraph makes with
// it, whose arguments are numbered as a whole.
const seam = "\x00"

// predicate is that of the locked rows.
func (l *lockedRows) predicate(s *sql.Selector) {
	s.Where(sql.P(func(b *sql.Builder) {
		b.Wrap(func(b *sql.Builder) {
			for i, c := range l.table.ID {
				if i > 0 {
					b.Comma()
				}
				b.Ident(s.C(c.Name))
			}
		})
		b.WriteString(" IN (" + seam).Join(l.read).WriteString(seam + ")")
	}))
}

// around takes an UPDATE with that predicate and the images around it, and returns
// the statement up to its last part. What it changes has the given columns, too.
func (l *lockedRows) around(query string, args []any, columns []string) *writer {
	head, rest, _ := strings.Cut(query, seam)
	read, tail, _ := strings.Cut(rest, seam)
	for _, c := range columnNames(columnsOf(l.counters)) {
		if !slices.Contains(columns, c) {
			columns = append(slices.Clip(columns), c)
		}
	}
	w := statementWith(args)
	w.part(partBefore, func() { w.sql(read) })
	w.part(partAfter, func() {
		w.sql(head, "SELECT ").idents(columnNames(l.table.ID)...).sql(" FROM ").ident(partBefore).sql(tail).returning(columns)
	})
	for i, c := range l.counters {
		w.journalImages(i, c, true)
	}
	return w
}

// statementWith returns a writer for a statement that has arguments already.
func statementWith(args []any) *writer {
	w := newWriter(postgresSQL{})
	w.args = slices.Clone(args)
	return w
}

// part writes a part of a WITH.
func (w *writer) part(name string, body func()) {
	if w.Len() == 0 {
		w.sql("WITH ")
	} else {
		w.sql(", ")
	}
	w.ident(name).sql(" AS (")
	body()
	w.sql(")")
}

// returning writes what a part returns.
func (w *writer) returning(columns []string) *writer {
	if len(columns) == 0 {
		return w.sql(" RETURNING 1")
	}
	return w.sql(" RETURNING ").idents(columns...)
}

// journal writes the INSERT of a part that journals what a query yields.
func (w *writer) journal(i int, d *Definition, query func()) {
	w.part(partJournal+strconv.Itoa(i), func() {
		w.sql("INSERT INTO ").ident(d.Journal).sql(" (").idents(slices.Concat(d.keyNames(), d.deltaNames(), []string{ColumnInsertedAt})...).sql(") ")
		query()
	})
}

// journalPerRow journals changes once for each row of the part after.
func (w *writer) journalPerRow(c *changes) {
	i := 0
	for _, d := range c.counters() {
		for _, delta := range c.drain(d) {
			w.journal(i, d, func() {
				w.sql("SELECT ")
				for _, v := range delta.Key {
					w.arg(v).sql(", ")
				}
				for _, m := range delta.Measures {
					w.sql(strconv.FormatInt(m, 10), " * ").ident("n").sql(", ")
				}
				w.sql(postgresSQL{}.now(), " FROM (SELECT COUNT(*) AS ").ident("n").sql(" FROM ").ident(partAfter).sql(") AS ").ident("t").
					sql(" WHERE ").ident("n").sql(" > 0")
			})
			i++
		}
	}
}

// journalImages journals what the rows of the part after count, if there is one, less
// what those of the part before do.
func (w *writer) journalImages(i int, c counted, after bool) {
	var (
		s        = postgresSQL{}
		key      = numbered("k", len(c.def.Key))
		measures = numbered("m", len(c.def.Measures))
		source   = *c.source
	)
	w.journal(i, c.def, func() {
		w.sql("SELECT ").idents(key...)
		for _, m := range measures {
			w.sql(", ", s.sum(w.quote(m)))
		}
		w.sql(", ", s.now(), " FROM (")
		if after {
			source.Table = partAfter
			w.counts(s, &source, key, measures, "")
			w.sql(" UNION ALL ")
		}
		w.sql("SELECT ").idents(key...)
		for _, m := range measures {
			w.sql(", -").ident(m).sql(" AS ").ident(m)
		}
		w.sql(" FROM (")
		source.Table = partBefore
		w.counts(s, &source, key, measures, "")
		w.sql(") AS ").ident("b").sql(") AS ").ident("t").sql(" GROUP BY ").idents(key...).sql(" HAVING ")
		for j, m := range measures {
			if j > 0 {
				w.sql(" OR ")
			}
			w.sql("SUM(").ident(m).sql(") <> 0")
		}
	})
}
