package entcounter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
)

// A source that is no plain one reads more than the counted row, or by rules that
// only the database knows. Its images are groups that the database counts, by the
// same SQL as a recount: those of the rows that meet the touched ones, that is,
// which are touched themselves or refer to a touched row over the source's joins.
//
// A mutation changes touched rows only. So the path of a counted row is the same
// before and after up to the first touched row on it, and the rows that meet the
// touched ones are the same, but for those that are inserted or deleted, which are
// touched themselves. Hence
//
//	delta = counts of the rows that meet touched ones after − the same before.
//
// Both are read while nobody else can change them. A transaction that changes a
// counted row holds that row and, shared, all rows that its path leads to; one that
// changes a row on the path holds it alone. Whoever comes second waits, and then
// sees what the first has done.

// role is a place of a table in a computed source.
type role struct {
	counted
	place int
}

// meeting is a computed source in a mutation, with the touched rows of its tables.
type meeting struct {
	counted
	spots []*spot // by place, in order of appearance
}

// spot holds touched rows at one place of a source.
type spot struct {
	place int
	table *Table
	ids   [][]any
	seen  map[string]struct{}
	// changed tells that rows may be there afterwards, with other values.
	changed bool
	// gone rows are not there afterwards.
	gone bool
}

// roles returns the places of a table in computed sources.
func (s *Schema) roles(table string) []role {
	s.indexTables()
	return s.byRole[table]
}

// computes reports whether a change of the named columns of a table concerns a
// computed source.
func (s *Schema) computes(table string, changed func(column string) bool) bool {
	return slices.ContainsFunc(s.roles(table), func(r role) bool { return r.source.reads(r.place, changed) })
}

// countsRows reports whether the rows of a table are counted by a computed source.
func (s *Schema) countsRows(table string) bool {
	return slices.ContainsFunc(s.roles(table), func(r role) bool { return r.place == 0 })
}

// fate is what becomes of touched rows.
type fate int

const (
	stay      fate = iota // they are changed, or may be
	leave                 // they are deleted
	swept                 // a foreign key deletes them, if the database enforces it
	arrived               // they have been inserted
	untouched             // no computed source reads what changes
)

// meet takes the image before of the counted rows that meet locked rows, which are
// about to change, and do not meet any met before. Inserted rows have none. It
// concerns sources that read a column that changes; without changed, any may.
func (m *mutation) meet(t *Table, ids [][]any, f fate, changed func(column string) bool) error {
	if len(ids) == 0 || f == untouched {
		return nil
	}
	for _, r := range m.schema.roles(t.Name) {
		if changed != nil && !r.source.reads(r.place, changed) {
			continue
		}
		mt := m.meetingOf(r.counted)
		if r.place > 0 && f == arrived {
			continue // nothing refers to it yet
		}
		s := mt.spotAt(r.place, t)
		var fresh [][]any
		for _, id := range ids {
			key := string(appendKey(nil, id))
			if _, ok := s.seen[key]; !ok {
				s.seen[key] = struct{}{}
				fresh = append(fresh, id)
			}
		}
		s.changed = s.changed || f == stay
		s.gone = f == leave && (s.gone || len(s.ids) == 0)
		for chunk := range slices.Chunk(fresh, lockChunk) {
			if f != arrived {
				if err := m.countMet(mt, s, chunk, -1); err != nil {
					return err
				}
			}
			s.ids = append(s.ids, chunk...)
		}
	}
	return nil
}

func (m *mutation) meetingOf(c counted) *meeting {
	i := slices.IndexFunc(m.meetings, func(mt *meeting) bool { return mt.source == c.source })
	if i >= 0 {
		return m.meetings[i]
	}
	mt := &meeting{counted: c}
	m.meetings = append(m.meetings, mt)
	return mt
}

func (mt *meeting) spotAt(place int, t *Table) *spot {
	for _, s := range mt.spots {
		if s.place == place {
			return s
		}
	}
	s := &spot{place: place, table: t, seen: make(map[string]struct{})}
	mt.spots = append(mt.spots, s)
	return s
}

// part takes the image after of all that has been met, and forgets it.
func (m *mutation) part() error {
	for _, mt := range m.meetings {
		spots := mt.spots
		mt.spots = nil
		for _, s := range spots {
			if s.place == 0 && m.keepsRows {
				if err := m.allKept(s); err != nil {
					return err
				}
			}
			if !s.gone || s.place > 0 {
				for chunk := range slices.Chunk(s.ids, lockChunk) {
					if err := m.countMet(mt, s, chunk, 1); err != nil {
						return err
					}
				}
			}
			mt.spots = append(mt.spots, s) // those that follow exclude it
		}
	}
	m.meetings = nil
	return nil
}

// allKept makes sure that rows are still found by their ids.
func (m *mutation) allKept(s *spot) error {
	found := 0
	for chunk := range slices.Chunk(s.ids, lockChunk) {
		err := m.locked(selection{table: s.table, where: m.created(withIDs(s.table, chunk)), lock: forChange}, func(row) error { found++; return nil })
		if err != nil {
			return err
		}
	}
	if found != len(s.ids) {
		return m.notFound(s.table, len(s.ids)-found, len(s.ids))
	}
	return nil
}

// countMet adds times × the counts of the rows that meet the given ones at a spot,
// and none at the spots that are there already.
func (m *mutation) countMet(mt *meeting, at *spot, ids [][]any, times int64) error {
	src, text := mt.source, sqlFor(m.dialect)
	others := 0
	for _, s := range mt.spots {
		if s != at {
			others += len(s.ids) * len(s.table.ID)
		}
	}
	if others > maxParameters {
		return fmt.Errorf("entcounter: counter %s: a mutation changes %d rows of %s together with rows that they refer to, or that refer to them, and %d are the most that can be counted at once: divide it by Where",
			mt.def.Name, others, src.Table, maxParameters)
	}
	restrict := func(w *writer) {
		w.among(at.place, at.table, ids)
		for _, s := range mt.spots {
			if s == at || len(s.ids) == 0 {
				continue
			}
			w.sql(" AND NOT (")
			if s.place > 0 {
				w.column(s.place, s.table.ID[0].Name).sql(" IS NOT NULL AND ")
			}
			w.among(s.place, s.table, s.ids).sql(")")
		}
	}
	if err := m.lockPaths(mt, at, restrict); err != nil {
		return err
	}
	w := newWriter(text)
	w.counts(text, src, numbered("k", len(src.Key)), numbered("m", len(src.Measures)), "", func() { restrict(w) })
	if m.dialect == dialect.MySQL {
		w.sql(" LOCK IN SHARE MODE")
	}
	return m.eachGroup(w, mt, func(key []any, measures []int64) error {
		return m.changes.add(mt.def, key, measures, times)
	})
}

// among writes the condition that the row at a place is one of the given ones.
func (w *writer) among(place int, t *Table, ids [][]any) *writer {
	if len(t.ID) == 1 {
		w.column(place, t.ID[0].Name).sql(" IN (")
		for i, id := range ids {
			if i > 0 {
				w.sql(", ")
			}
			w.arg(id[0])
		}
		return w.sql(")")
	}
	w.sql("(")
	if w.sqlite { // which limits the depth of a condition
		for j, c := range t.ID {
			if j > 0 {
				w.sql(", ")
			}
			w.column(place, c.Name)
		}
		w.sql(") IN (VALUES ")
		for i, id := range ids {
			if i > 0 {
				w.sql(", ")
			}
			w.sql("(")
			for j := range t.ID {
				if j > 0 {
					w.sql(", ")
				}
				w.arg(id[j])
			}
			w.sql(")")
		}
		return w.sql(")")
	}
	for i, id := range ids {
		if i > 0 {
			w.sql(" OR ")
		}
		for j, c := range t.ID {
			if j > 0 {
				w.sql(" AND ")
			}
			w.column(place, c.Name).sql(" = ").arg(id[j])
		}
	}
	return w.sql(")")
}

// eachGroup reads counted groups.
func (m *mutation) eachGroup(w *writer, mt *meeting, each func(key []any, measures []int64) error) error {
	var rows sql.Rows
	if err := m.drv.Query(m.ctx, w.String(), w.args, &rows); err != nil {
		return fmt.Errorf("entcounter: counting rows of %s for counter %s: %w", mt.source.Table, mt.def.Name, overflowOf(err))
	}
	defer rows.Close()
	for rows.Next() {
		cells := newDeltaCells(mt.def)
		if err := rows.Scan(cells.targets()...); err != nil {
			return fmt.Errorf("entcounter: counting rows of %s for counter %s: %w", mt.source.Table, mt.def.Name, err)
		}
		delta, err := cells.delta()
		if err != nil {
			return err
		}
		if err := each(delta.Key, delta.Measures); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("entcounter: counting rows of %s for counter %s: %w", mt.source.Table, mt.def.Name, overflowOf(err))
	}
	return rows.Close()
}

// lockPaths locks, shared, the rows that the counted ones lead to. The grouped read
// does that itself in MySQL, and cannot in PostgreSQL, where a foreign key's own
// lock does not keep other columns of the row from changing. Elsewhere there is one
// writer.
//
// A snapshot from before another's commit does not show the rows that the other has
// inserted, though these hold no locks any more. So at REPEATABLE READ and above in
// PostgreSQL, a change of a row on the path is refused: nothing tells of counted rows
// below it that are not shown. A row that is changed since the snapshot was taken
// cannot be locked there at all.
func (m *mutation) lockPaths(mt *meeting, at *spot, restrict func(*writer)) error {
	if m.dialect != dialect.Postgres || len(mt.source.Joins) == 0 {
		return nil
	}
	snapshot, err := m.tx.readsSnapshot(m.ctx)
	if err != nil {
		return err
	}
	if snapshot && at.place > 0 && at.changed {
		return fmt.Errorf("entcounter: counter %s: the change of a row of %s moves the counts of rows of %s, of which a PostgreSQL transaction at REPEATABLE READ or SERIALIZABLE may not see all: run it at READ COMMITTED: %w",
			mt.def.Name, at.table.Name, mt.source.Table, errors.ErrUnsupported)
	}
	for i, j := range mt.source.Joins {
		place := i + 1
		if place == at.place {
			continue // locked already
		}
		w := newWriter(sqlFor(m.dialect))
		w.sql("SELECT ").ident(j.RefColumn.Name).sql(" FROM ").ident(j.Table).sql(" WHERE ").ident(j.RefColumn.Name).
			sql(" IN (SELECT ").column(j.From, j.Column.Name).from(mt.source).sql(" WHERE ")
		restrict(w)
		w.sql(") ORDER BY ").ident(j.RefColumn.Name).sql(" FOR SHARE")
		if err := m.query(w); err != nil {
			return fmt.Errorf("entcounter: locking rows of %s for counter %s: %w", j.Table, mt.def.Name, err)
		}
	}
	return nil
}

// query runs a query for its locks.
func (m *mutation) query(w *writer) error {
	var rows sql.Rows
	if err := m.drv.Query(m.ctx, w.String(), w.args, &rows); err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return rows.Close()
}

// readsSnapshot reports whether a PostgreSQL transaction reads from a snapshot
// that was taken once. The level cannot change any more when a mutation runs.
func (t *Tx) readsSnapshot(ctx context.Context) (bool, error) {
	t.mu.Lock()
	level := t.isolation
	t.mu.Unlock()
	if level == "" {
		var rows sql.Rows
		if err := t.Query(ctx, "SELECT current_setting('transaction_isolation')", []any{}, &rows); err != nil {
			return false, err
		}
		defer rows.Close()
		var err error
		if level, err = sql.ScanString(rows); err != nil {
			return false, err
		}
		t.mu.Lock()
		t.isolation = level
		t.mu.Unlock()
	}
	return !strings.HasPrefix(level, "read "), nil
}
