package entcounter

import (
	"context"
	"fmt"
	"slices"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
)

// lockChunk is how many rows a mutation locks, changes and keeps in memory at a
// time.
const lockChunk = 1000

// counted is one counter's view of a counted table.
type counted struct {
	def    *Definition
	source *Source
}

// reads reports whether the counter depends on any of the named columns.
func (c counted) reads(changed func(column string) bool) bool {
	return c.source.reads(0, changed)
}

// row is a counted row as found under lock.
type row struct {
	id     []any
	values map[string]any
}

// addRow adds times × the row to the changes of all given counters over plain
// sources. A row with NULL in a key column belongs to no group, unless the
// declaration names one.
func (c *changes) addRow(counters []counted, r row, times int64) error {
	for _, counter := range counters {
		if err := c.addTo(counter, r, times); err != nil {
			return err
		}
	}
	return nil
}

func (c *changes) addTo(counter counted, r row, times int64) error {
	if !counter.source.Where.holds(r.values) {
		return nil
	}
	key := make([]any, len(counter.source.Key))
	for i, t := range counter.source.Key {
		if key[i] = t.value(r.values); key[i] == nil {
			return nil
		}
	}
	measures := make([]int64, len(counter.source.Measures))
	for i, s := range counter.source.Measures {
		if !s.If.holds(r.values) {
			continue
		}
		if s.Name == "" {
			measures[i] = 1
			continue
		}
		n, ok := measureValue(r.values[s.Name])
		if !ok {
			return overflowError(counter.def, key, i)
		}
		measures[i] = n
	}
	return c.add(counter.def, key, measures, times)
}

// countRow adds times × the row to the mutation's changes.
func (m *mutation) countRow(counters []counted, r row, times int64) error {
	return m.changes.addRow(counters, r, times)
}

// columnsOf returns the columns that the counters read, each once.
func columnsOf(counters []counted) []Column {
	var columns []Column
	for _, c := range counters {
		c.source.terms(func(t Term) {
			if t.Name != "" && !slices.ContainsFunc(columns, func(o Column) bool { return o.Name == t.Name }) {
				columns = append(columns, t.Column)
			}
		})
	}
	return columns
}

// lockStrength is what the mutation is about to do to the rows it reads.
type lockStrength int

const (
	forUpdate lockStrength = iota // the row's key may go: delete
	forChange                     // other columns change: update
)

// selection is a locking read of rows of one table.
type selection struct {
	table   *Table
	schema  string // database schema, empty for the connection's own
	columns []Column
	where   func(*sql.Selector)
	lock    lockStrength
	limit   int
	ordered bool // by id
	chunk   int  // rows to hand on at a time, if not lockChunk
}

// locked reads rows and keeps them locked until the transaction ends: no other
// transaction can change or delete them, which is what makes an image of them
// true at commit. The read is a locking read at any isolation level: it sees the
// newest committed rows, and waits for writers of them, just as the mutation's
// own statement would. SQLite has one writer, which this transaction becomes
// before it reads.
func (m *mutation) locked(s selection, each func(row) error) error {
	if err := m.becomeWriter(s.table.Name, s.schema); err != nil {
		return err
	}
	selector, columns, err := m.lockingSelect(s)
	if err != nil {
		return err
	}
	query, args := selector.Query()
	var rows sql.Rows
	if err := m.drv.Query(m.ctx, query, args, &rows); err != nil {
		return fmt.Errorf("entcounter: locking rows of %s: %w", s.table.Name, err)
	}
	defer rows.Close()
	dest := make([]any, len(columns))
	for rows.Next() {
		for i, c := range columns {
			dest[i] = scanTarget(c)
		}
		if err := rows.Scan(dest...); err != nil {
			return fmt.Errorf("entcounter: reading rows of %s: %w", s.table.Name, err)
		}
		r := row{id: make([]any, len(s.table.ID)), values: make(map[string]any, len(columns))}
		for i, c := range columns {
			v, err := scannedValue(c, dest[i])
			if err != nil {
				return err
			}
			if i < len(r.id) {
				r.id[i] = v
			}
			r.values[c.Name] = v
		}
		if err := each(r); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("entcounter: locking rows of %s: %w", s.table.Name, err)
	}
	return rows.Close()
}

// lockingSelect is the read that locked runs: of the columns of the id and then the
// others.
func (m *mutation) lockingSelect(s selection) (*sql.Selector, []Column, error) {
	t := m.builder.Table(s.table.Name).Schema(s.schema)
	columns := slices.Clone(s.table.ID)
	for _, c := range s.columns {
		if !slices.ContainsFunc(s.table.ID, func(id Column) bool { return id.Name == c.Name }) {
			columns = append(columns, c)
		}
	}
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = t.C(c.Name)
	}
	selector := m.builder.Select(names...).From(t).WithContext(m.ctx)
	if s.where != nil {
		s.where(selector)
	}
	// Predicates may order and limit the queries that they are used in; an update
	// or delete that takes its predicate from a selector ignores that, and so does
	// this read.
	if err := selector.Err(); err != nil {
		return nil, nil, err
	}
	selector = m.builder.Select(names...).From(t).WithContext(m.ctx).SetP(selector.P())
	if s.ordered {
		for _, c := range s.table.ID {
			selector.OrderBy(t.C(c.Name))
		}
	}
	if s.limit > 0 {
		selector.Limit(s.limit)
	}
	switch m.dialect {
	case dialect.MySQL:
		selector.ForUpdate()
	case dialect.Postgres:
		if s.lock == forUpdate {
			selector.ForUpdate()
		} else {
			// What an UPDATE itself takes: inserts of rows that refer to these do not
			// wait.
			selector.ForUpdate(sql.WithLockClause("FOR NO KEY UPDATE"))
		}
	}
	return selector, columns, nil
}

// becomeWriter takes SQLite's write lock before the first read of a
// transaction's mutations, by a statement that changes nothing. Elsewhere rows
// are locked one by one.
func (m *mutation) becomeWriter(table, schema string) error {
	if m.dialect != dialect.SQLite || m.tx.isWriter() {
		return nil
	}
	t, ok := m.schema.Tables[table]
	if !ok {
		return fmt.Errorf("entcounter: no table %q in schema", table)
	}
	id := t.ID[0].Name
	update := m.builder.Update(table).Schema(schema).
		Set(id, sql.ExprFunc(func(b *sql.Builder) { b.Ident(id) })).
		Where(sql.False())
	query, args := update.Query()
	var res sql.Result
	if err := m.drv.Exec(m.ctx, query, args, &res); err != nil {
		return fmt.Errorf("entcounter: locking %s: %w", table, err)
	}
	m.tx.becameWriter()
	return nil
}

// withIDs is the predicate of the rows with the given ids.
func withIDs(t *Table, ids [][]any) func(*sql.Selector) {
	return func(s *sql.Selector) {
		if len(t.ID) == 1 {
			s.Where(sql.In(s.C(t.ID[0].Name), firstOf(ids)...))
			return
		}
		preds := make([]*sql.Predicate, len(ids))
		for i, id := range ids {
			eq := make([]*sql.Predicate, len(t.ID))
			for j, c := range t.ID {
				eq[j] = sql.EQ(s.C(c.Name), id[j])
			}
			preds[i] = sql.And(eq...)
		}
		s.Where(anyOf(preds))
	}
}

// after is the predicate of the rows that follow an id in id order.
func after(t *Table, id []any) func(*sql.Selector) {
	return func(s *sql.Selector) {
		var preds []*sql.Predicate
		for i := range t.ID {
			var p []*sql.Predicate
			for j := range i {
				p = append(p, sql.EQ(s.C(t.ID[j].Name), id[j]))
			}
			preds = append(preds, sql.And(append(p, sql.GT(s.C(t.ID[i].Name), id[i]))...))
		}
		s.Where(sql.Or(preds...))
	}
}

// all combines predicates.
func all(preds ...func(*sql.Selector)) func(*sql.Selector) {
	return func(s *sql.Selector) {
		for _, p := range preds {
			if p != nil {
				p(s)
			}
		}
	}
}

// imageOf adds the rows with the given ids, as they are now, to the changes.
func (m *mutation) imageOf(t *Table, schema string, counters []counted, ids [][]any) (found int, err error) {
	for chunk := range slices.Chunk(ids, lockChunk) {
		err := m.locked(selection{table: t, schema: schema, columns: columnsOf(counters), where: m.created(withIDs(t, chunk)), lock: forChange}, func(r row) error {
			found++
			return m.countRow(counters, r, 1)
		})
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

// touched are rows that a mutation may change, locked, with their image before
// taken.
type touched struct {
	table    *Table
	schema   string
	counters []counted
	seen     map[string]struct{}
	ids      [][]any
}

// touch locks the rows that match, subtracts those met for the first time from
// the changes, and returns the ids of all that match. What becomes of them, and
// which columns may change, is for computed sources.
func (m *mutation) touch(t *Table, schema string, where func(*sql.Selector), lock lockStrength, f fate, changed func(column string) bool) ([][]any, error) {
	tc := m.touchedIn(t, schema)
	var ids [][]any
	err := m.locked(selection{table: t, schema: schema, columns: columnsOf(tc.counters), where: where, lock: lock}, func(r row) error {
		ids = append(ids, r.id)
		return m.adopt(tc, r)
	})
	if err == nil {
		err = m.meet(t, ids, f, changed)
	}
	return ids, err
}

// touchedIn returns the touched rows of a table.
func (m *mutation) touchedIn(t *Table, schema string) *touched {
	tc := m.touched[t.Name]
	if tc == nil {
		tc = &touched{table: t, schema: schema, counters: m.schema.counted(t.Name), seen: make(map[string]struct{})}
		if m.touched == nil {
			m.touched = make(map[string]*touched)
		}
		m.touched[t.Name] = tc
		m.order = append(m.order, tc)
	}
	return tc
}

// adopt takes over a locked row.
func (m *mutation) adopt(tc *touched, r row) error {
	id := string(appendKey(nil, r.id))
	if _, ok := tc.seen[id]; ok {
		return nil
	}
	tc.seen[id] = struct{}{}
	tc.ids = append(tc.ids, r.id)
	return m.countRow(tc.counters, r, -1)
}

// adoptNew adds the rows that match and were not met before: those that the
// mutation has inserted, where no other transaction can have inserted one.
func (m *mutation) adoptNew(t *Table, schema string, where func(*sql.Selector)) error {
	tc := m.touchedIn(t, schema)
	var ids [][]any
	err := m.locked(selection{table: t, schema: schema, columns: columnsOf(tc.counters), where: where, lock: forChange}, func(r row) error {
		id := string(appendKey(nil, r.id))
		if _, ok := tc.seen[id]; ok {
			return nil
		}
		tc.seen[id] = struct{}{}
		ids = append(ids, r.id)
		return m.countRow(tc.counters, r, 1)
	})
	if err == nil {
		err = m.meet(t, ids, arrived, nil)
	}
	return err
}

// departure are rows that a foreign key makes leave their groups, if the
// database enforces it.
type departure struct {
	table   *Table
	schema  string
	where   func(*sql.Selector)
	changes changes
}

// settle adds the image after of all touched rows, and forgets them.
func (m *mutation) settle() error {
	if err := m.arrived(); err != nil {
		return err
	}
	for _, tc := range m.order {
		if len(tc.counters) == 0 {
			continue
		}
		found, err := m.imageOf(tc.table, tc.schema, tc.counters, tc.ids)
		if err != nil {
			return err
		}
		if m.keepsRows && found != len(tc.ids) {
			return m.notFound(tc.table, len(tc.ids)-found, len(tc.ids))
		}
	}
	for _, d := range m.departures {
		// Rows that still refer to what is gone: the database has no such foreign key,
		// and they have not changed.
		enforced := true
		err := m.locked(selection{table: d.table, schema: d.schema, where: d.where, lock: forChange, limit: 1}, func(row) error {
			enforced = false
			return nil
		})
		if err != nil {
			return err
		}
		if enforced {
			if err := m.changes.merge(&d.changes); err != nil {
				return err
			}
		}
	}
	m.touched, m.order, m.departures = nil, nil, nil
	return m.part()
}

// mutation is one counted mutation in progress, in a transaction of the user's
// or its own.
type mutation struct {
	schema  *Schema
	ctx     context.Context
	tx      *Tx
	drv     dialect.Driver // bound to tx
	dialect string
	builder *sql.DialectBuilder

	changes    changes
	touched    map[string]*touched
	order      []*touched // touched, as met
	departures []departure
	meetings   []*meeting
	keepsRows  bool // no touched row goes away
	guessesIDs bool // of rows that it has created
	// awaited rows were not there to be locked, and missing is how many of them have not
	// been created by the mutation itself.
	awaited []string
	missing int
}
