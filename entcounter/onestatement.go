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

// In PostgreSQL, one statement takes the images around a change: parts of a WITH lock
// rows, change them, and add up what they count afterwards less what they counted
// before. In a transaction of the user's it returns that. A mutation that would be a
// transaction of its own is that one statement: a further part journals it.
//
// All parts work on one snapshot. A row that has changed since the snapshot was taken
// is locked, and then changed, in its newest version, unless that does not match any
// more.

// Names of parts. Within the statement they hide tables of these names.
const (
	partBefore  = "entcounter_before"
	partAfter   = "entcounter_after"
	partJournal = "entcounter_journal"
)

// oneDriver is a driver that sqlgraph runs the one statement of a mutation on.
type oneDriver interface {
	dialect.Driver
	// failed returns the statement's error, though the caller may not have met it.
	failed(error) error
}

// single is a driver that sqlgraph runs the one statement of a mutation on, which is
// completed on the way. Every error of the statement is kept: a part may fail after
// rows have been returned, which nobody reads on from.
type single struct {
	dialect.Driver
	// complete makes the whole of what sqlgraph runs.
	complete func(query string, args []any) *writer
	// changed tells that the whole is a query, and reads how many rows were changed.
	changed func(*sql.Rows) (int64, error)
	err     error
}

func (s *single) Exec(ctx context.Context, query string, args, v any) error {
	w := s.complete(query, args.([]any))
	if s.changed == nil {
		return s.Driver.Exec(ctx, w.String(), w.args, v)
	}
	var rows sql.Rows
	if err := s.open(ctx, w, &rows); err != nil {
		return err
	}
	n, err := s.changed(&rows)
	rows.Close()
	if res, ok := v.(*sql.Result); ok {
		*res = driver.RowsAffected(n)
	}
	return s.failed(err)
}

func (s *single) Query(ctx context.Context, query string, args, v any) error {
	return s.open(ctx, s.complete(query, args.([]any)), v.(*sql.Rows))
}

// open runs a query whose rows keep an error that comes after them.
func (s *single) open(ctx context.Context, w *writer, rows *sql.Rows) error {
	if err := s.Driver.Query(ctx, w.String(), w.args, rows); err != nil {
		return err
	}
	rows.ColumnScanner = &readOut{rows.ColumnScanner, s}
	return nil
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
func (s *Schema) createAlone(ctx context.Context, drv dialect.Driver, nodes []*sqlgraph.CreateSpec, onConflict []sql.ConflictOption) (oneDriver, error) {
	t := s.Tables[nodes[0].Table]
	if t == nil || len(onConflict) > 0 || s.countsRows(t.Name) || len(s.numbered(t.Name)) > 0 {
		return nil, nil
	}
	for _, n := range nodes {
		if n.Schema != "" || slices.ContainsFunc(n.Edges, isElsewhere) {
			return nil, nil
		}
	}
	var pool *stdsql.DB // for a compound statement
	if !s.alone(drv) {
		if pool = s.compoundOn(ctx, drv); pool == nil {
			return nil, nil
		}
	}
	sets := make([]columnSet, len(nodes))
	for i, n := range nodes {
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
			inserts = append(inserts, journalInsert(drv.Dialect(), d, deltas))
			parameters += len(deltas) * len(d.journalColumns())
		}
	}
	if parameters > maxParameters {
		return nil, nil
	}
	if pool != nil {
		return &compound{drv, pool, func(w *writer) {
			for _, insert := range inserts {
				text, args := insert.Query()
				w.args = append(w.args, args...)
				w.sql(text, "; ")
			}
		}}, nil
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

// imagesInOne reports whether one statement can take the images around an update.
func (s *Schema) imagesInOne(drv dialect.Driver, spec *sqlgraph.UpdateSpec, u update) bool {
	return drv.Dialect() == dialect.Postgres && !s.imagesOnly && s.Tables[spec.Node.Table] != nil && spec.Node.Schema == "" &&
		!u.computed && len(spec.Modifiers) == 0 && !changesElsewhere(spec)
}

// deletesInOne reports whether one statement can take the images around a delete,
// which changes no other rows.
func (s *Schema) deletesInOne(drv dialect.Driver, spec *sqlgraph.DeleteSpec, t *Table) bool {
	return drv.Dialect() == dialect.Postgres && !s.imagesOnly && t != nil && spec.Node.Schema == "" &&
		len(t.ReferencedBy) == 0 && len(s.roles(t.Name)) == 0
}

// updatePinnedAlone updates rows whose number is all that is to be journalled.
func (m *mutation) updatePinnedAlone(spec *sqlgraph.UpdateSpec, u update, pins map[string]any) (int, error) {
	deltas, err := u.perRow(pins)
	if err != nil {
		return 0, err
	}
	one := &single{Driver: m.drv, changed: scanCount, complete: func(query string, args []any) *writer {
		w := statementWith(args)
		w.part(partAfter, func() { w.sql(query, " RETURNING 1") })
		w.journalPerRow(deltas)
		return w.sql(" SELECT COUNT(*) FROM ").ident(partAfter)
	}}
	n, err := sqlgraph.UpdateNodes(m.ctx, one, spec)
	return n, one.failed(err)
}

// updateInOne updates the rows that match.
func (m *mutation) updateInOne(spec *sqlgraph.UpdateSpec, u update) (int, error) {
	locked, err := m.lockedRows(spec, u, spec.Predicate)
	if err != nil {
		return 0, err
	}
	one := m.counting(u.counters, partAfter, func(query string, args []any) *writer { return locked.around(query, args, nil) })
	exact := *spec
	exact.Predicate = locked.predicate
	n, err := sqlgraph.UpdateNodes(m.ctx, one, &exact)
	return n, one.failed(err)
}

// deleteInOne deletes the rows that match.
func (m *mutation) deleteInOne(spec *sqlgraph.DeleteSpec, counters []counted) (int, error) {
	one := m.counting(counters, partBefore, func(query string, args []any) *writer {
		w := statementWith(args)
		w.part(partBefore, func() { w.sql(query).returning(columnNames(columnsOf(counters))) })
		return w
	})
	n, err := sqlgraph.DeleteNodes(m.ctx, one, spec)
	return n, one.failed(err)
}

// counting returns the driver for a statement that changes rows and counts the
// difference: it journals that or, in a transaction, returns it. The parts up to the
// one with the changed rows are given.
func (m *mutation) counting(counters []counted, changed string, parts func(query string, args []any) *writer) *single {
	after := changed == partAfter
	if m.tx == nil {
		return &single{Driver: m.drv, changed: scanCount, complete: func(query string, args []any) *writer {
			w := parts(query, args)
			w.journalDifferences(counters, after)
			return w.sql(" SELECT COUNT(*) FROM ").ident(changed)
		}}
	}
	return &single{
		Driver: m.drv,
		changed: func(rows *sql.Rows) (n int64, err error) {
			for rows.Next() {
				if err := m.scanDifferences(rows, counters, &n); err != nil {
					return n, err
				}
			}
			return n, rows.Err()
		},
		complete: func(query string, args []any) *writer {
			w := parts(query, args)
			w.sql(" SELECT * FROM (SELECT COUNT(*) FROM ").ident(changed).sql(") AS ").ident("n").sql(" LEFT JOIN ", strings.Repeat("(", len(counters)-1))
			for i, c := range counters {
				if i > 0 {
					w.sql(" FULL JOIN ")
				}
				w.sql("(")
				w.difference(c, after)
				w.sql(") AS ").ident("d" + strconv.Itoa(i))
				if i > 0 {
					w.sql(" ON FALSE)")
				}
			}
			return w.sql(" ON TRUE")
		},
	}
}

// scanDifferences scans a row with the number of changed rows and the difference of a
// key of one of the counters, if there is any, and adds that to the mutation's changes.
func (m *mutation) scanDifferences(rows *sql.Rows, counters []counted, n *int64) error {
	var (
		dest  = []any{n}
		parts = make([]*deltaCells, len(counters))
	)
	for i, c := range counters {
		parts[i] = newDeltaCells(c.def)
		dest = append(dest, parts[i].targets()...)
	}
	if err := rows.Scan(dest...); err != nil {
		return err
	}
	for i, c := range counters {
		delta, err := parts[i].delta()
		if err != nil {
			return err
		}
		if delta.Key[0] == nil {
			continue
		}
		if err := m.changes.add(c.def, delta.Key, delta.Measures, 1); err != nil {
			return err
		}
	}
	return nil
}

// scanCount reads a number.
func scanCount(rows *sql.Rows) (n int64, err error) {
	if !rows.Next() {
		return 0, rows.Err()
	}
	return n, rows.Scan(&n)
}

// updateOneInOne updates one row and reads it: what sqlgraph updates waits for the
// query that reads it.
func (m *mutation) updateOneInOne(spec *sqlgraph.UpdateSpec, u update) error {
	locked, err := m.lockedRows(spec, u, all(nodeOf(spec), spec.Predicate))
	if err != nil {
		return err
	}
	var (
		w    *writer
		read = columnsOf(u.counters)
		one  = &rowUpdate{single: single{Driver: m.drv}}
	)
	one.change = func(query string, args []any) { w = locked.around(query, args, spec.Node.Columns) }
	one.complete = func(string, []any) *writer {
		if m.tx == nil {
			w.journalDifferences(u.counters, true)
			return w.sql(" SELECT ").idents(spec.Node.Columns...).sql(" FROM ").ident(partAfter)
		}
		w.sql(" SELECT ")
		for i, c := range spec.Node.Columns {
			if i > 0 {
				w.sql(", ")
			}
			w.ident("a").sql(".").ident(c)
		}
		for _, image := range []string{"b", "a"} {
			for _, c := range read {
				w.sql(", ").ident(image).sql(".").ident(c.Name)
			}
		}
		return w.sql(" FROM ").ident(partBefore).sql(" AS ").ident("b").sql(", ").ident(partAfter).sql(" AS ").ident("a")
	}
	if m.tx != nil {
		one.images = func(scan func(dest ...any) error, dest []any) error {
			return m.scanImages(scan, dest, read, u.counters)
		}
		one.hidden = 2 * len(read)
	}
	exact := *spec
	exact.Predicate = locked.predicate
	return one.failed(sqlgraph.UpdateNode(m.ctx, one, &exact))
}

// scanImages scans a row that is followed by its images before and after.
func (m *mutation) scanImages(scan func(dest ...any) error, dest []any, columns []Column, counters []counted) error {
	first := len(dest)
	for range 2 {
		for _, c := range columns {
			dest = append(dest, scanTarget(c))
		}
	}
	if err := scan(dest...); err != nil {
		return err
	}
	for i, times := range []int64{-1, 1} {
		image := row{values: make(map[string]any, len(columns))}
		for j, c := range columns {
			var err error
			if image.values[c.Name], err = scannedValue(c, dest[first+i*len(columns)+j]); err != nil {
				return err
			}
		}
		if err := m.countRow(counters, image, times); err != nil {
			return err
		}
	}
	return nil
}

// rowUpdate is a driver for an update of one row.
type rowUpdate struct {
	single
	// change takes the statement that changes it.
	change func(query string, args []any)
	// hidden columns follow those that sqlgraph has asked for, and are scanned by
	// images together with them.
	hidden int
	images func(scan func(dest ...any) error, dest []any) error
}

func (o *rowUpdate) Exec(_ context.Context, query string, args, v any) error {
	o.change(query, args.([]any))
	*v.(*sql.Result) = driver.RowsAffected(1)
	return nil
}

func (o *rowUpdate) Query(ctx context.Context, query string, args, v any) error {
	rows := v.(*sql.Rows)
	if err := o.single.Query(ctx, query, args, rows); err != nil || o.hidden == 0 {
		return err
	}
	rows.ColumnScanner = &imagedRow{rows.ColumnScanner, o}
	return nil
}

// Tx keeps sqlgraph from beginning a transaction for its two statements, which are one.
func (o *rowUpdate) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(o), nil }

// imagedRow is a row with hidden columns.
type imagedRow struct {
	sql.ColumnScanner
	one *rowUpdate
}

func (r *imagedRow) Columns() ([]string, error) {
	columns, err := r.ColumnScanner.Columns()
	if err != nil {
		return nil, err
	}
	return columns[:len(columns)-r.one.hidden], nil
}

func (r *imagedRow) Scan(dest ...any) error {
	return r.one.images(r.ColumnScanner.Scan, slices.Clip(dest))
}

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
		w.intoJournal(d)
		query()
	})
}

// intoJournal writes the INSERT up to what it inserts.
func (w *writer) intoJournal(d *Definition) *writer {
	return w.sql("INSERT INTO ").ident(d.Journal).sql(" (").idents(d.journalColumns()...).sql(") ")
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

// journalDifferences journals the difference in each counter.
func (w *writer) journalDifferences(counters []counted, after bool) {
	for i, c := range counters {
		w.journal(i, c.def, func() { w.difference(c, after, postgresSQL{}.now()) })
	}
}

// difference is a query for what the rows of the part after count, if there is one,
// less what those of the part before do, by key: for keys where any measure differs.
func (w *writer) difference(c counted, after bool, further ...string) {
	var (
		s        = postgresSQL{}
		key      = numbered("k", len(c.def.Key))
		measures = numbered("m", len(c.def.Measures))
		source   = *c.source
	)
	w.sql("SELECT ").idents(key...)
	for _, m := range measures {
		w.sql(", ", s.sum(w.quote(m)))
	}
	for _, f := range further {
		w.sql(", ", f)
	}
	w.sql(" FROM (")
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
}
