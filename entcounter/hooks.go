package entcounter

import (
	"cmp"
	"context"
	stdsql "database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
	"entgo.io/ent/schema/field"
	"github.com/entcounter/entcounter/entcounter/internal/activity"
)

// Every write that ent makes ends in one of the five functions below, with its
// final fields, edges and predicate: inside of all hooks and privacy rules of
// the user. Each derives deltas from the rows as the transaction finds them
// under its own locks, in the cheapest way that is exact:
//
//   - pass through: the mutation cannot change a counter;
//   - affected rows: the predicate pins the whole key and rows are only counted,
//     so the statement's own row count is the delta;
//   - from the spec: a create whose values are known;
//   - locked rows: the rows are read under lock, and exactly these are changed;
//     what the mutation sets is known, so is the image after;
//   - images: as above, and the rows are read again afterwards.
//
// The last one is the definition: delta = image after − image before. A mutation
// outside of a transaction may be one statement that does all of it: in PostgreSQL
// (onestatement.go), and in the first ways in MariaDB (compound.go).

// CreateNode creates a row, like sqlgraph.CreateNode.
func (s *Schema) CreateNode(ctx context.Context, drv dialect.Driver, spec *sqlgraph.CreateSpec) error {
	defer activity.Wrote()
	if !s.concerns(spec, spec.OnConflict) {
		transactionOf(drv)
		return sqlgraph.CreateNode(ctx, drv, spec)
	}
	one, err := s.createAlone(ctx, drv, []*sqlgraph.CreateSpec{spec}, spec.OnConflict)
	if err != nil {
		return err
	}
	if one != nil {
		defer memoOf(ctx).forget()
		return one.failed(sqlgraph.CreateNode(ctx, one, spec))
	}
	return s.mutate(ctx, drv, func(m *mutation) error {
		return m.create([]*sqlgraph.CreateSpec{spec}, spec.OnConflict, func(nodes []*sqlgraph.CreateSpec, onConflict []sql.ConflictOption) error {
			node := *nodes[0]
			node.OnConflict = onConflict
			return sqlgraph.CreateNode(ctx, m.drv, &node)
		})
	})
}

// BatchCreate creates rows, like sqlgraph.BatchCreate.
func (s *Schema) BatchCreate(ctx context.Context, drv dialect.Driver, spec *sqlgraph.BatchCreateSpec) error {
	defer activity.Wrote()
	isConcerned := func(n *sqlgraph.CreateSpec) bool { return s.concerns(n, spec.OnConflict) }
	if !slices.ContainsFunc(spec.Nodes, isConcerned) {
		transactionOf(drv)
		return sqlgraph.BatchCreate(ctx, drv, spec)
	}
	one, err := s.createAlone(ctx, drv, spec.Nodes, spec.OnConflict)
	if err != nil {
		return err
	}
	if one != nil {
		defer memoOf(ctx).forget()
		return one.failed(sqlgraph.BatchCreate(ctx, one, spec))
	}
	return s.mutate(ctx, drv, func(m *mutation) error {
		return m.create(spec.Nodes, spec.OnConflict, func(nodes []*sqlgraph.CreateSpec, onConflict []sql.ConflictOption) error {
			batch := *spec
			batch.Nodes, batch.OnConflict = nodes, onConflict
			return sqlgraph.BatchCreate(ctx, m.drv, &batch)
		})
	})
}

// concerns reports whether a create changes a counter or draws a number, or is to be
// refused because of a sequence. A row that others are counted by has none of them
// at first, but an upsert may meet an old one.
func (s *Schema) concerns(n *sqlgraph.CreateSpec, onConflict []sql.ConflictOption) bool {
	return len(s.counted(n.Table)) > 0 || s.countedEdges(n.Edges) || s.countsRows(n.Table) ||
		len(onConflict) > 0 && len(s.roles(n.Table)) > 0 ||
		len(s.numbered(n.Table)) > 0 || s.addsNumbered(n.Edges) != nil
}

// UpdateNode updates one row, like sqlgraph.UpdateNode.
func (s *Schema) UpdateNode(ctx context.Context, drv dialect.Driver, spec *sqlgraph.UpdateSpec) error {
	defer activity.Wrote()
	if err := s.keepsNumbers(drv.Dialect(), spec); err != nil {
		return err
	}
	u := s.updateOf(drv.Dialect(), spec)
	if u.passes() {
		transactionOf(drv)
		return sqlgraph.UpdateNode(ctx, drv, spec)
	}
	evaluated := *spec
	evaluated.Predicate = evaluate(ctx, drv.Dialect(), spec.Node, spec.Predicate)
	spec = &evaluated
	inOne := spec.ScanValues != nil && s.imagesInOne(drv, spec, u)
	if inOne && s.alone(drv) {
		defer memoOf(ctx).forget()
		return s.newMutation(ctx, nil, drv).updateOneInOne(spec, u)
	}
	return s.mutate(ctx, drv, func(m *mutation) error {
		if inOne {
			return m.updateOneInOne(spec, u)
		}
		return m.updateOne(spec, u)
	})
}

// UpdateNodes updates the rows that match, like sqlgraph.UpdateNodes.
func (s *Schema) UpdateNodes(ctx context.Context, drv dialect.Driver, spec *sqlgraph.UpdateSpec) (affected int, err error) {
	defer activity.Wrote()
	if err := s.keepsNumbers(drv.Dialect(), spec); err != nil {
		return 0, err
	}
	u := s.updateOf(drv.Dialect(), spec)
	if u.passes() {
		transactionOf(drv)
		return sqlgraph.UpdateNodes(ctx, drv, spec)
	}
	evaluated := *spec
	evaluated.Predicate = evaluate(ctx, drv.Dialect(), spec.Node, spec.Predicate)
	spec = &evaluated
	if s.imagesInOne(drv, spec, u) && s.alone(drv) {
		defer memoOf(ctx).forget()
		return s.newMutation(ctx, nil, drv).update(spec, u)
	}
	if pool := s.compoundOn(ctx, drv); pool != nil {
		if n, ok, err := s.newMutation(ctx, nil, drv).updateCompound(pool, spec, u); ok {
			memoOf(ctx).forget()
			return n, err
		}
	}
	err = s.mutate(ctx, drv, func(m *mutation) (err error) {
		if u.edges {
			affected, err = m.updateWithEdges(spec, u)
		} else {
			affected, err = m.update(spec, u)
		}
		return err
	})
	return affected, err
}

// update is what an update means for counters.
type update struct {
	// set is what it does to the columns of its own rows.
	set updateSet
	// counters over these rows that depend on a changed column.
	counters []counted
	// computed tells that computed sources depend on a changed column.
	computed bool
	// edges tells that it changes counted foreign keys in other rows.
	edges bool
}

// passes reports whether the update cannot change a counter.
func (u update) passes() bool { return len(u.counters) == 0 && !u.computed && !u.edges }

// fate is what becomes of the updated rows themselves.
func (u update) fate() fate {
	if u.computed {
		return stay
	}
	return untouched
}

func (s *Schema) updateOf(dialectName string, spec *sqlgraph.UpdateSpec) update {
	u := update{edges: s.countedEdges(spec.Edges.Add) || s.countedEdges(spec.Edges.Clear)}
	all := s.counted(spec.Node.Table)
	if len(all) == 0 && len(s.roles(spec.Node.Table)) == 0 {
		return u
	}
	if len(spec.Modifiers) == 0 {
		// Most updates set nothing that is counted. To find that out allocates nothing.
		changed := func(column string) bool { return sets(spec, column) }
		if !slices.ContainsFunc(all, func(c counted) bool { return c.reads(changed) }) && !s.computes(spec.Node.Table, changed) {
			return u
		}
	}
	u.set = setOf(dialectName, spec)
	u.computed = s.computes(spec.Node.Table, u.set.changes)
	u.counters = slices.Clone(all)
	u.counters = slices.DeleteFunc(u.counters, func(c counted) bool { return !c.reads(u.set.changes) })
	return u
}

// DeleteNodes deletes the rows that match, like sqlgraph.DeleteNodes.
func (s *Schema) DeleteNodes(ctx context.Context, drv dialect.Driver, spec *sqlgraph.DeleteSpec) (affected int, err error) {
	defer activity.Wrote()
	counters := s.counted(spec.Node.Table)
	t := s.Tables[spec.Node.Table]
	if len(counters) == 0 && !s.countsRows(spec.Node.Table) && (t == nil || len(t.ReferencedBy) == 0) {
		transactionOf(drv)
		return sqlgraph.DeleteNodes(ctx, drv, spec)
	}
	evaluated := *spec
	evaluated.Predicate = evaluate(ctx, drv.Dialect(), spec.Node, spec.Predicate)
	spec = &evaluated
	if s.deletesInOne(drv, spec, t) && s.alone(drv) {
		defer memoOf(ctx).forget()
		return s.newMutation(ctx, nil, drv).deleteInOne(spec, counters)
	}
	if pool := s.compoundOn(ctx, drv); pool != nil {
		if n, ok, err := s.newMutation(ctx, nil, drv).deleteCompound(pool, spec, t, counters); ok {
			memoOf(ctx).forget()
			return n, err
		}
	}
	err = s.mutate(ctx, drv, func(m *mutation) (err error) {
		affected, err = m.delete(spec, t, counters)
		return err
	})
	return affected, err
}

// evaluate calls a predicate of the user's once, and returns one that says the same
// whenever it is called: what is read before the mutation and what this changes must be
// the same rows, whatever the user's function depends on.
func evaluate(ctx context.Context, dialectName string, node *sqlgraph.NodeSpec, predicate func(*sql.Selector)) func(*sql.Selector) {
	if predicate == nil {
		return nil
	}
	b := sql.Dialect(dialectName)
	once := b.Select().From(b.Table(node.Table).Schema(node.Schema)).WithContext(ctx)
	predicate(once)
	return func(s *sql.Selector) {
		if p := once.P(); p != nil {
			s.Where(p)
		}
		if err := once.Err(); err != nil {
			s.AddError(err)
		}
	}
}

// mutate runs a counted mutation in the user's transaction or, where there is
// none, in one of its own.
func (s *Schema) mutate(ctx context.Context, drv dialect.Driver, op func(*mutation) error) (err error) {
	if tx, ok := transactionOf(drv); ok {
		if err := tx.over(); err != nil {
			return err
		}
		return s.run(ctx, tx, drv, op)
	}
	if d, ok := drv.(*sql.Driver); ok {
		if _, ok := d.ExecQuerier.(*stdsql.DB); !ok {
			return fmt.Errorf("entcounter: a client on a %T cannot keep counters, since no transaction can be begun on it: make the client on a *sql.DB, and use client.Tx or client.BeginTx", d.ExecQuerier)
		}
	}
	inner, err := drv.Tx(ctx)
	if err != nil {
		return err
	}
	tx := newTx(inner, drv.Dialect())
	committing := false
	defer func() {
		// An error, or a panic in a function of the user's.
		if !committing {
			if rerr := tx.Rollback(); rerr != nil && err != nil {
				err = fmt.Errorf("%w: %v", err, rerr)
			}
		}
	}()
	if err := s.run(ctx, tx, opDriver{tx}, op); err != nil {
		return err
	}
	committing = true
	return tx.Commit()
}

// run runs a mutation and hands its changes to the transaction when it
// succeeded. A failed statement has changed nothing; a mutation that failed
// after one that changed rows leaves rows that nothing has counted, and the
// transaction cannot commit any more.
func (s *Schema) run(ctx context.Context, tx *Tx, drv dialect.Driver, op func(*mutation) error) error {
	m := s.newMutation(ctx, tx, drv)
	before := tx.affected()
	err := op(m)
	if err == nil {
		err = tx.merge(ctx, &m.changes)
	}
	if err != nil && tx.affected() != before {
		tx.fail(err)
	}
	return err
}

// newMutation returns a mutation in the transaction that the driver is bound to, if
// any.
func (s *Schema) newMutation(ctx context.Context, tx *Tx, drv dialect.Driver) *mutation {
	return &mutation{
		schema:  s,
		ctx:     ctx,
		tx:      tx,
		drv:     drv,
		dialect: drv.Dialect(),
		builder: sql.Dialect(drv.Dialect()),
	}
}

// counted returns the counters with a plain source over a table.
func (s *Schema) counted(table string) []counted {
	s.indexTables()
	return s.byTable[table]
}

func (s *Schema) indexTables() {
	s.index.Do(func() {
		s.byTable, s.byRole = make(map[string][]counted), make(map[string][]role)
		for _, d := range s.Counters {
			for _, source := range d.Sources {
				if source.isPlain() {
					s.byTable[source.Table] = append(s.byTable[source.Table], counted{d, source})
					continue
				}
				for place := range len(source.Joins) + 1 {
					table := source.tableAt(place)
					s.byRole[table] = append(s.byRole[table], role{counted{d, source}, place})
				}
			}
		}
	})
}

// countedEdges reports whether an edge is kept in another table's rows that a
// counter depends on.
func (s *Schema) countedEdges(edges []*sqlgraph.EdgeSpec) bool {
	return slices.ContainsFunc(edges, s.countedEdge)
}

func (s *Schema) countedEdge(e *sqlgraph.EdgeSpec) bool {
	switch {
	case e.Rel == sqlgraph.M2M:
		return len(s.counted(e.Table)) > 0 || s.countsRows(e.Table)
	case isExternal(e):
		changed := named(e.Columns[0])
		return slices.ContainsFunc(s.counted(e.Table), func(c counted) bool { return c.reads(changed) }) ||
			s.computes(e.Table, changed)
	}
	return false
}

// named is the set of one column.
func named(name string) func(column string) bool {
	return func(column string) bool { return column == name }
}

// isExternal reports whether the edge is a foreign key in other rows than the
// mutated one.
func isExternal(e *sqlgraph.EdgeSpec) bool {
	return e.Rel == sqlgraph.O2M || e.Rel == sqlgraph.O2O && !e.Inverse
}

// isElsewhere reports whether an edge changes other rows than the mutated one. One
// between equals is a column of both.
func isElsewhere(e *sqlgraph.EdgeSpec) bool { return !isOwn(e) || isExternal(e) }

// changesElsewhere reports whether an update changes edges that are kept in other rows.
func changesElsewhere(spec *sqlgraph.UpdateSpec) bool {
	return slices.ContainsFunc(spec.Edges.Add, isElsewhere) || slices.ContainsFunc(spec.Edges.Clear, isElsewhere)
}

// isOwn reports whether the edge is a foreign key in the mutated row itself.
func isOwn(e *sqlgraph.EdgeSpec) bool {
	return e.Rel == sqlgraph.M2O || e.Rel == sqlgraph.O2O && (e.Inverse || e.Bidi)
}

// table returns what the hooks know about a table.
func (m *mutation) table(name string) (*Table, error) {
	t, ok := m.schema.Tables[name]
	if !ok {
		return nil, fmt.Errorf("entcounter: table %q is missing in the generated schema", name)
	}
	return t, nil
}

// create numbers rows, inserts them by exec, and counts them.
func (m *mutation) create(nodes []*sqlgraph.CreateSpec, onConflict []sql.ConflictOption, exec func([]*sqlgraph.CreateSpec, []sql.ConflictOption) error) error {
	numbers, err := m.numberingOf(nodes)
	if err != nil {
		return err
	}
	counters := m.schema.counted(nodes[0].Table)
	joins := false
	for _, n := range nodes {
		if err := m.schema.addsNumbered(n.Edges); err != nil {
			return err
		}
		for _, e := range n.Edges {
			switch {
			case !m.schema.countedEdge(e):
			case e.Rel == sqlgraph.M2M:
				joins = true
			default:
				if err := m.touchTargets(e); err != nil {
					return err
				}
			}
		}
	}
	if len(onConflict) > 0 && (len(counters) > 0 || len(m.schema.roles(nodes[0].Table)) > 0 || joins || numbers.numbers()) {
		if joins {
			return fmt.Errorf("entcounter: upsert into %q adds edges that are counted rows of a join table, which may exist already: create or update the row first, then add the edges: %w", nodes[0].Table, errors.ErrUnsupported)
		}
		return m.upsert(nodes, onConflict, counters, numbers, exec)
	}
	draws, err := numbers.draw(nodes)
	if err != nil {
		return err
	}
	sets := make([]columnSet, len(nodes)) // before ent overwrites ids
	for i, n := range nodes {
		sets[i] = insertSetOf(n)
	}
	if err := exec(nodes, onConflict); err != nil {
		numbers.undo(draws, err)
		return err
	}
	if joins {
		for _, n := range nodes {
			if err := m.adoptJoins(n.Edges, [][]any{{n.ID.Value}}); err != nil {
				return err
			}
		}
	}
	if err := m.meetCreated(nodes, sets); err != nil {
		return err
	}
	changed, err := m.bear(m.schema.Tables[nodes[0].Table], nodes, sets)
	if err != nil {
		return err
	}
	if err := m.settle(); err != nil {
		return err
	}
	if len(counters) == 0 {
		return nil
	}
	return m.countCreated(nodes, sets, counters, changed)
}

// meetCreated notes inserted rows that computed sources count.
func (m *mutation) meetCreated(nodes []*sqlgraph.CreateSpec, sets []columnSet) error {
	if id := nodes[0].ID; m.dialect == dialect.MySQL && len(nodes) > 1 && id != nil {
		_, given := sets[0][id.Column]
		m.guessesIDs = m.guessesIDs || !given
		m.keepsRows = m.keepsRows || m.guessesIDs
	}
	if !m.schema.countsRows(nodes[0].Table) {
		return nil
	}
	t, err := m.table(nodes[0].Table)
	if err != nil {
		return err
	}
	ids := make([][]any, len(nodes))
	for i, n := range nodes {
		if ids[i], err = createdID(t, n, sets[i]); err != nil {
			return err
		}
	}
	return m.meet(t, ids, arrived, nil)
}

// countCreated counts inserted rows from what their specs set, and reads back those
// whose values only the database knows, or all if they have been changed since.
func (m *mutation) countCreated(nodes []*sqlgraph.CreateSpec, sets []columnSet, counters []counted, changed bool) error {
	t, err := m.table(nodes[0].Table)
	if err != nil {
		return err
	}
	var unknown [][]any
	for i, r := range insertedRows(t, columnsOf(counters), sets) {
		if r != nil && !changed && !m.schema.imagesOnly {
			if err := m.countRow(counters, *r, 1); err != nil {
				return err
			}
			continue
		}
		id, err := createdID(t, nodes[i], sets[i])
		if err != nil {
			return err
		}
		unknown = append(unknown, id)
	}
	if len(unknown) == 0 {
		return nil
	}
	found, err := m.imageOf(t, nodes[0].Schema, counters, unknown)
	if err == nil && found != len(unknown) {
		err = notReadBack(t, len(unknown)-found, len(unknown))
	}
	return err
}

// insertedRows returns the rows that an insert makes of what it sets, or nil for one
// with values that only the database knows.
func insertedRows(t *Table, columns []Column, sets []columnSet) []*row {
	rows := make([]*row, len(sets))
next:
	for i, set := range sets {
		values := make(map[string]any, len(columns))
		for _, c := range columns {
			a, given := set[c.Name]
			if !given {
				// One statement has one list of columns: a column that another row of the
				// batch sets is NULL in this one.
				elsewhere := slices.ContainsFunc(sets, func(o columnSet) bool { _, ok := o[c.Name]; return ok })
				if !elsewhere && slices.Contains(t.Defaults, c.Name) {
					continue next
				}
				continue
			}
			v, ok := a.apply(c, nil)
			if !ok {
				continue next
			}
			values[c.Name] = v
		}
		rows[i] = &row{values: values}
	}
	return rows
}

// notReadBack says that ids of inserted rows are not what ent takes them for.
func notReadBack(t *Table, missing, inserted int) error {
	return fmt.Errorf("entcounter: %d of %d rows inserted into %q cannot be read back by id, so they cannot be counted: where auto_increment_increment is not 1, create them one by one, or with ids of the application's", missing, inserted, t.Name)
}

// notFound says why rows are not found by their ids.
func (m *mutation) notFound(t *Table, missing, of int) error {
	if m.guessesIDs {
		return notReadBack(t, missing, of)
	}
	return notKept(t, missing, of)
}

// created narrows the predicate of rows by their ids to none if some of these are new
// ones that ent has guessed, and may be those of other rows. Of a batch in MySQL, ent
// knows the first id and takes the others to be the next ones.
func (m *mutation) created(where func(*sql.Selector)) func(*sql.Selector) {
	if !m.guessesIDs {
		return where
	}
	return all(where, func(s *sql.Selector) { s.Where(sql.ExprP("@@auto_increment_increment = 1")) })
}

// createdID returns the id of an inserted row.
func createdID(t *Table, n *sqlgraph.CreateSpec, set columnSet) ([]any, error) {
	id := make([]any, len(t.ID))
	for i, c := range t.ID {
		var v any
		if a, ok := set[c.Name]; ok {
			v = a.value // as given: MySQL's insert ids are ent's guess
		} else if n.ID != nil && n.ID.Column == c.Name {
			v = n.ID.Value
		}
		norm, err := normalizeValue(c, v)
		if err != nil {
			return nil, err
		}
		if norm == nil {
			return nil, fmt.Errorf("entcounter: the id of a row inserted into %q is known to the database only, so the row cannot be counted: set the id in the application", t.Name)
		}
		id[i] = norm
	}
	return id, nil
}

// update changes the rows of one table that match.
func (m *mutation) update(spec *sqlgraph.UpdateSpec, u update) (int, error) {
	set, counters := u.set, u.counters
	if !u.computed {
		if pins, ok := m.pinned(spec, set, counters); ok {
			if m.tx == nil {
				return m.updatePinnedAlone(spec, u, pins)
			}
			return m.updatePinned(spec, set, counters, pins)
		}
	}
	if m.schema.imagesInOne(m.drv, spec, u) {
		return m.updateInOne(spec, u)
	}
	t, err := m.table(spec.Node.Table)
	if err != nil {
		return 0, err
	}
	affected := 0
	err = m.inChunks(selection{
		table:   t,
		schema:  spec.Node.Schema,
		columns: columnsOf(counters),
		where:   spec.Predicate,
		lock:    set.lockStrength(t),
	}, set.filters, func(rows []row) error {
		exact := *spec
		exact.Predicate = m.exactly(t, idsOf(rows))
		n, err := m.changeRows(t, rows, u, spec.Node.Schema, func() (int, error) {
			return sqlgraph.UpdateNodes(m.ctx, m.drv, &exact)
		})
		affected += n
		return err
	})
	return affected, err
}

// exactly is the predicate of an update that changes rows which are locked. Where the
// update selects them before it changes them, a plain read of InnoDB would leave out
// those that have come since the transaction's snapshot was taken.
func (m *mutation) exactly(t *Table, ids [][]any) func(*sql.Selector) {
	where := withIDs(t, ids)
	if m.dialect != dialect.MySQL {
		return where
	}
	return func(s *sql.Selector) {
		where(s)
		s.ForUpdate()
	}
}

// changeRows takes the images of locked rows around a statement that changes
// exactly these. The image after is computed where the statement leaves no
// doubt, and read otherwise.
func (m *mutation) changeRows(t *Table, rows []row, u update, schema string, change func() (int, error)) (int, error) {
	known := make([]row, 0, len(rows))
	counters := u.counters
	for _, r := range rows {
		if err := m.countRow(counters, r, -1); err != nil {
			return 0, err
		}
		if next, ok := u.set.apply(columnsOf(counters), r); len(counters) == 0 || ok && !m.schema.imagesOnly {
			known = append(known, next)
		}
	}
	if u.computed {
		if err := m.meet(t, idsOf(rows), stay, u.set.changes); err != nil {
			return 0, err
		}
	}
	n, err := change()
	if err != nil {
		return n, err
	}
	if u.computed {
		m.keepsRows = slices.ContainsFunc(t.ID, func(c Column) bool { return u.set.changes(c.Name) })
		if err := m.settle(); err != nil {
			return n, err
		}
	}
	if len(known) == len(rows) {
		for _, r := range known {
			if err := m.countRow(counters, r, 1); err != nil {
				return n, err
			}
		}
		return n, nil
	}
	found, err := m.imageOf(t, schema, counters, idsOf(rows))
	if err == nil && found != len(rows) {
		err = notKept(t, len(rows)-found, len(rows))
	}
	return n, err
}

// notKept says that changed rows cannot be found again by id.
func notKept(t *Table, missing, changed int) error {
	return fmt.Errorf("entcounter: %d of %d changed rows of %q are not found by id any more, so they cannot be counted: a mutation must not change ids", missing, changed, t.Name)
}

// inChunks locks the rows of a selection and hands them on in chunks. A set
// larger than a chunk is walked in id order, so that memory stays bounded. That
// needs a predicate on the row's own columns alone, whose answer for a row does
// not change with what the mutation does to others; one that says more (a
// sub-query) is evaluated once, for all rows. What is to be one statement as a
// whole, because a modifier decides which of its rows change, is not divided.
func (m *mutation) inChunks(s selection, whole bool, each func([]row) error) error {
	where, divisible := s.where, !whole && m.ownColumnsOnly(s.table.Name, s.where)
	size := cmp.Or(s.chunk, lockChunk)
	if divisible {
		s.limit = size
	}
	for {
		var rows []row
		if err := m.locked(s, func(r row) error { rows = append(rows, r); return nil }); err != nil {
			return err
		}
		full := divisible && len(rows) == size
		if full && !s.ordered {
			// The set is large: start again in id order. Rows stay locked.
			s.ordered = true
			continue
		}
		if whole {
			if size = maxParameters / len(s.table.ID); len(rows) > size {
				return fmt.Errorf("entcounter: an update of %s with a modifier that filters or limits its rows matches %d rows, and %d are the most that can be counted: narrow it by Where", s.table.Name, len(rows), size)
			}
		}
		for chunk := range slices.Chunk(rows, size) {
			if err := each(chunk); err != nil {
				return err
			}
		}
		if !full {
			return nil
		}
		s.where = all(where, after(s.table, rows[len(rows)-1].id))
	}
}

// ownColumnsOnly reports whether the predicate of a mutation reads nothing but
// columns of the row that it is evaluated for.
func (m *mutation) ownColumnsOnly(table string, where func(*sql.Selector)) bool {
	for _, c := range m.conjuncts(table, where) {
		if !c.known {
			return false
		}
	}
	return true
}

// conjuncts takes the predicate of a mutation apart.
func (m *mutation) conjuncts(table string, where func(*sql.Selector)) []conjunct {
	if where == nil {
		return nil
	}
	selector := m.builder.Select().From(m.builder.Table(table)).WithContext(m.ctx)
	where(selector)
	return conjuncts(m.dialect, table, selector.P())
}

// pins returns the normalised values to which a predicate pins columns.
func (m *mutation) pins(table string, where func(*sql.Selector), columns []Column) (map[string]any, bool) {
	values := make(map[string]any, len(columns))
	for _, c := range m.conjuncts(table, where) {
		if c.pin != "" {
			values[c.pin] = c.value
		}
	}
	for _, c := range columns {
		v, ok := values[c.Name]
		if !ok || v == nil || !c.Faithful {
			return nil, false
		}
		if !comparesAs(c, v) {
			return nil, false
		}
		norm, err := normalizeValue(c, v)
		if err != nil || norm == nil {
			return nil, false
		}
		values[c.Name] = norm
	}
	return values, true
}

// comparesAs reports whether a value compared with the column is of the
// column's own type. A database converts others in ways of its own: in MySQL
// every word equals the number 0.
func comparesAs(c Column, v any) bool {
	norm, err := normalizeValue(Column{Name: c.Name, Type: field.TypeOther}, v)
	if err != nil {
		return false
	}
	switch norm.(type) {
	case int64, uint64:
		return c.Type.Integer()
	case string:
		return c.Type == field.TypeString || c.Type == field.TypeEnum || c.Type == field.TypeUUID
	case bool:
		return c.Type == field.TypeBool
	}
	return false
}

// pinned reports whether the affected rows of an update are all that its deltas
// need: its predicate pins every key column of every counter that it changes,
// all of which count rows only. It is one statement: with edges that are kept elsewhere,
// ent selects rows first, and changes them whatever has become of them.
func (m *mutation) pinned(spec *sqlgraph.UpdateSpec, set updateSet, counters []counted) (map[string]any, bool) {
	if set.unknown || set.filters || m.schema.imagesOnly || changesElsewhere(spec) {
		return nil, false
	}
	var columns []Column
	for _, c := range counters {
		if !countsOnly(c) {
			return nil, false
		}
	}
	columns = columnsOf(counters)
	pins, ok := m.pins(spec.Node.Table, spec.Predicate, columns)
	if !ok {
		return nil, false
	}
	_, ok = set.apply(columns, row{values: pins})
	return pins, ok
}

func countsOnly(c counted) bool {
	return !slices.ContainsFunc(c.source.Measures, func(s Summand) bool { return s.Name != "" })
}

// updatePinned derives the deltas from the affected rows of the update itself.
// MySQL may report changed rather than matched rows: the two differ only for
// rows whose old and new key are equal, where −n and +n cancel out.
func (m *mutation) updatePinned(spec *sqlgraph.UpdateSpec, set updateSet, counters []counted, pins map[string]any) (int, error) {
	n, err := sqlgraph.UpdateNodes(m.ctx, m.drv, spec)
	if err != nil || n == 0 {
		return n, err
	}
	next, _ := set.apply(columnsOf(counters), row{values: pins})
	if err := m.countRow(counters, row{values: pins}, -int64(n)); err != nil {
		return n, err
	}
	return n, m.countRow(counters, next, int64(n))
}

// updateOne changes one row by id.
func (m *mutation) updateOne(spec *sqlgraph.UpdateSpec, u update) error {
	t, err := m.table(spec.Node.Table)
	if err != nil {
		return err
	}
	byID := nodeOf(spec)
	exact := *spec
	exact.Predicate = nil // evaluated here, under lock
	if u.edges && !m.schema.needsOwners(spec.Edges, u) {
		return m.addTargets(spec.Edges.Add, func() error { return sqlgraph.UpdateNode(m.ctx, m.drv, spec) })
	}
	if u.edges {
		own, err := m.touch(t, spec.Node.Schema, all(byID, spec.Predicate), forUpdate, u.fate(), u.set.changes)
		if err != nil {
			return err
		}
		if len(own) == 0 {
			return &sqlgraph.NotFoundError{}
		}
		if exact.Edges, err = m.touchEdges(t, u.set, spec.Edges, own); err != nil {
			return err
		}
		if err := sqlgraph.UpdateNode(m.ctx, m.drv, &exact); err != nil {
			return err
		}
		if err := m.adoptJoins(exact.Edges.Add, own); err != nil {
			return err
		}
		return m.settle()
	}
	var rows []row
	err = m.locked(selection{
		table:   t,
		schema:  spec.Node.Schema,
		columns: columnsOf(u.counters),
		where:   all(byID, spec.Predicate),
		lock:    u.set.lockStrength(t),
	}, func(r row) error { rows = append(rows, r); return nil })
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return &sqlgraph.NotFoundError{}
	}
	_, err = m.changeRows(t, rows, u, spec.Node.Schema, func() (int, error) {
		return 1, sqlgraph.UpdateNode(m.ctx, m.drv, &exact)
	})
	return err
}

// nodeOf is the predicate of the row that an update names by its id.
func nodeOf(spec *sqlgraph.UpdateSpec) func(*sql.Selector) {
	ids := spec.Node.CompositeID
	if spec.Node.ID != nil {
		ids = []*sqlgraph.FieldSpec{spec.Node.ID}
	}
	return func(s *sql.Selector) {
		for _, id := range ids {
			s.Where(sql.EQ(s.C(id.Column), id.Value))
		}
	}
}

// updateWithEdges changes rows together with foreign keys in rows of other
// tables. Like ent itself it keeps the ids of the changed rows in memory.
func (m *mutation) updateWithEdges(spec *sqlgraph.UpdateSpec, u update) (affected int, err error) {
	if !m.schema.needsOwners(spec.Edges, u) {
		err = m.addTargets(spec.Edges.Add, func() (err error) {
			affected, err = sqlgraph.UpdateNodes(m.ctx, m.drv, spec)
			return err
		})
		return affected, err
	}
	t, err := m.table(spec.Node.Table)
	if err != nil {
		return 0, err
	}
	own, err := m.touch(t, spec.Node.Schema, spec.Predicate, forUpdate, u.fate(), u.set.changes)
	if err != nil || len(own) == 0 {
		return 0, err
	}
	exact := *spec
	exact.Predicate = m.exactly(t, own)
	if exact.Edges, err = m.touchEdges(t, u.set, spec.Edges, own); err != nil {
		return 0, err
	}
	if _, err := sqlgraph.UpdateNodes(m.ctx, m.drv, &exact); err != nil {
		return 0, err
	}
	if err := m.adoptJoins(exact.Edges.Add, own); err != nil {
		return 0, err
	}
	return len(own), m.settle()
}

// needsOwners reports whether an update with counted edges has to lock the rows that
// it updates: to count them, or because edges are removed or kept in a join table.
func (s *Schema) needsOwners(edges sqlgraph.EdgeMut, u update) bool {
	return len(u.counters) > 0 || u.computed || s.countedEdges(edges.Clear) || slices.ContainsFunc(edges.Add, func(e *sqlgraph.EdgeSpec) bool {
		return e.Rel == sqlgraph.M2M && s.countedEdge(e)
	})
}

// addTargets counts the rows that edges are added to by change. Their owners stay
// unlocked: transactions that add to the same one do not wait for each other.
func (m *mutation) addTargets(edges []*sqlgraph.EdgeSpec, change func() error) error {
	for _, e := range edges {
		if m.schema.countedEdge(e) {
			if err := m.touchTargets(e); err != nil {
				return err
			}
		}
	}
	if err := change(); err != nil {
		return err
	}
	return m.settle()
}

// touchEdges touches the rows whose foreign keys an update of the given owners
// changes, and narrows the mutation to exactly these. The owners are locked: no
// other row can come to refer to them meanwhile.
func (m *mutation) touchEdges(t *Table, set updateSet, edges sqlgraph.EdgeMut, owners [][]any) (sqlgraph.EdgeMut, error) {
	var exact sqlgraph.EdgeMut
	for _, e := range edges.Clear {
		if !m.schema.countedEdge(e) {
			exact.Clear = append(exact.Clear, e)
			continue
		}
		if e.Rel == sqlgraph.M2M {
			if err := m.touchJoins(e, owners); err != nil {
				return exact, err
			}
			exact.Clear = append(exact.Clear, e)
			continue
		}
		narrowed, err := m.touchCleared(e, owners, e.Table == t.Name && set.changes(e.Columns[0]))
		if err != nil {
			return exact, err
		}
		exact.Clear = append(exact.Clear, narrowed...)
	}
	for _, e := range edges.Add {
		if m.schema.countedEdge(e) {
			touch := m.touchTargets
			if e.Rel == sqlgraph.M2M {
				touch = func(e *sqlgraph.EdgeSpec) error { return m.touchJoins(e, owners) }
			}
			if err := touch(e); err != nil {
				return exact, err
			}
		}
		exact.Add = append(exact.Add, e)
	}
	return exact, nil
}

// touchJoins touches the rows of a join table that connect the owners by an
// edge.
func (m *mutation) touchJoins(e *sqlgraph.EdgeSpec, owners [][]any) error {
	t, err := m.table(e.Table)
	if err != nil {
		return err
	}
	return m.eachJoin(e, owners, func(where func(*sql.Selector)) error {
		_, err := m.touch(t, e.Schema, where, forUpdate, stay, nil)
		return err
	})
}

// adoptJoins counts the rows of counted join tables that connect the owners by
// added edges and were not there before. An owner is new or locked: nobody else
// can connect it meanwhile.
func (m *mutation) adoptJoins(edges []*sqlgraph.EdgeSpec, owners [][]any) error {
	for _, e := range edges {
		if e.Rel != sqlgraph.M2M || !m.schema.countedEdge(e) {
			continue
		}
		t, err := m.table(e.Table)
		if err != nil {
			return err
		}
		err = m.eachJoin(e, owners, func(where func(*sql.Selector)) error { return m.adoptNew(t, e.Schema, where) })
		if err != nil {
			return err
		}
	}
	return nil
}

// eachJoin calls do with predicates for the join rows of an edge, which are
// those to its targets or, where it names none, all.
func (m *mutation) eachJoin(e *sqlgraph.EdgeSpec, owners [][]any, do func(func(*sql.Selector)) error) error {
	from, to := e.Columns[0], e.Columns[1]
	if e.Inverse {
		from, to = to, from
	}
	directions := [][2]string{{from, to}}
	if e.Bidi {
		directions = append(directions, [2]string{to, from})
	}
	targets := [][]driver.Value{nil}
	if len(e.Target.Nodes) > 0 {
		targets = slices.Collect(slices.Chunk(e.Target.Nodes, lockChunk))
	}
	for chunk := range slices.Chunk(owners, lockChunk) {
		for _, nodes := range targets {
			for _, d := range directions {
				err := do(func(s *sql.Selector) {
					s.Where(sql.In(s.C(d[0]), firstOf(chunk)...))
					if nodes != nil {
						s.Where(sql.InValues(s.C(d[1]), nodes...))
					}
				})
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// firstOf returns ids of one column as arguments.
func firstOf(ids [][]any) []any {
	values := make([]any, len(ids))
	for i, id := range ids {
		values[i] = id[0]
	}
	return values
}

// touchTargets touches the rows that an edge is added to.
func (m *mutation) touchTargets(e *sqlgraph.EdgeSpec) error {
	t, err := m.table(e.Table)
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(e.Target.Nodes, lockChunk) {
		found, err := m.touch(t, e.Schema, func(s *sql.Selector) {
			s.Where(sql.InValues(s.C(e.Target.IDSpec.Column), chunk...))
		}, forChange, stay, named(e.Columns[0]))
		if err != nil {
			return err
		}
		if err := m.await(t, chunk, found); err != nil {
			return err
		}
	}
	return nil
}

// await notes rows that an edge is to be added to and that are not there to be locked.
// The change fails if they still are not.
func (m *mutation) await(t *Table, ids []driver.Value, found [][]any) error {
	if len(found) == len(ids) {
		return nil
	}
	there := make(map[string]bool, len(found))
	for _, id := range found {
		there[rowKey(t, id)] = true
	}
	m.missing += len(ids) - len(found)
	for _, id := range ids {
		norm, err := normalizeValue(t.ID[0], id)
		if err != nil {
			return err
		}
		if key := rowKey(t, []any{norm}); !there[key] {
			m.awaited = append(m.awaited, key)
		}
	}
	return nil
}

// rowKey tells rows of all tables apart.
func rowKey(t *Table, id []any) string { return string(appendKey([]byte(t.Name+" "), id)) }

// bear takes created rows from those that are awaited, and reports whether any was.
func (m *mutation) bear(t *Table, nodes []*sqlgraph.CreateSpec, sets []columnSet) (born bool, err error) {
	for i, n := range nodes {
		if m.missing == 0 {
			break
		}
		id, err := createdID(t, n, sets[i])
		if err != nil {
			return false, err
		}
		if slices.Contains(m.awaited, rowKey(t, id)) {
			m.missing--
			born = true
		}
	}
	return born, nil
}

// arrived makes sure, after the change, that no row came in between: what such a row
// was before is not known.
func (m *mutation) arrived() error {
	if m.missing == 0 {
		return nil
	}
	return fmt.Errorf("entcounter: an edge was added to a row that was not there before: %w", errRaced)
}

// touchCleared touches the rows that an edge is removed from, and returns edges
// that name exactly these. An edge that is also the mutated row's own column is
// kept whole: that row is locked already. So are the owners, which the update itself
// may first make some of these rows (joining).
func (m *mutation) touchCleared(e *sqlgraph.EdgeSpec, owners [][]any, joining bool) ([]*sqlgraph.EdgeSpec, error) {
	t, err := m.table(e.Table)
	if err != nil {
		return nil, err
	}
	var edges []*sqlgraph.EdgeSpec
	if isOwn(e) {
		own := *e
		own.Inverse = true // sets the own column only
		edges = append(edges, &own)
	}
	for chunk := range slices.Chunk(owners, lockChunk) {
		targets := func(s *sql.Selector) {
			if len(e.Target.Nodes) > 0 {
				s.Where(sql.InValues(s.C(e.Target.IDSpec.Column), e.Target.Nodes...))
			}
		}
		found, err := m.touch(t, e.Schema, all(func(s *sql.Selector) { s.Where(sql.In(s.C(e.Columns[0]), firstOf(chunk)...)) }, targets), forChange, stay, named(e.Columns[0]))
		if err != nil {
			return nil, err
		}
		if joining {
			own, err := m.touch(t, e.Schema, all(withIDs(t, chunk), targets), forChange, stay, named(e.Columns[0]))
			if err != nil {
				return nil, err
			}
			found = append(found, own...)
		}
		for ids := range slices.Chunk(found, lockChunk) {
			narrowed, target := *e, *e.Target
			target.Nodes = nil
			for _, id := range ids {
				target.Nodes = append(target.Nodes, id[0])
			}
			narrowed.Target, narrowed.Bidi = &target, false
			edges = append(edges, &narrowed)
		}
	}
	return edges, nil
}

// delete deletes the rows that match, and counts with them the rows that foreign
// keys delete or change.
func (m *mutation) delete(spec *sqlgraph.DeleteSpec, t *Table, counters []counted) (int, error) {
	if t == nil {
		return 0, fmt.Errorf("entcounter: table %q is missing in the generated schema", spec.Node.Table)
	}
	if pins, ok := m.pinnedDelete(spec, t, counters); ok {
		n, err := sqlgraph.DeleteNodes(m.ctx, m.drv, spec)
		if err != nil || n == 0 {
			return n, err
		}
		return n, m.countRow(counters, row{values: pins}, -int64(n))
	}
	if m.schema.deletesInOne(m.drv, spec, t) {
		return m.deleteInOne(spec, counters)
	}
	affected, chunk := 0, lockChunk
	if t.DeleteTogether {
		chunk = maxParameters / len(t.ID)
	}
	err := m.inChunks(selection{
		table:   t,
		schema:  spec.Node.Schema,
		columns: columnsOf(counters),
		where:   spec.Predicate,
		lock:    forUpdate,
		chunk:   chunk,
	}, false, func(rows []row) error {
		n, err := m.deleteRows(spec, t, rows, counters)
		affected += n
		return err
	})
	return affected, err
}

// pinnedDelete is what pinned is for a delete, which nothing may follow by a foreign
// key.
func (m *mutation) pinnedDelete(spec *sqlgraph.DeleteSpec, t *Table, counters []counted) (map[string]any, bool) {
	if t == nil || len(t.ReferencedBy) > 0 || m.schema.countsRows(t.Name) || m.schema.imagesOnly ||
		slices.ContainsFunc(counters, func(c counted) bool { return !countsOnly(c) }) {
		return nil, false
	}
	return m.pins(t.Name, spec.Predicate, columnsOf(counters))
}

// deleteRows deletes locked rows.
func (m *mutation) deleteRows(spec *sqlgraph.DeleteSpec, t *Table, rows []row, counters []counted) (int, error) {
	ids := idsOf(rows)
	exact := *spec
	exact.Predicate = withIDs(t, ids)
	if err := m.meet(t, ids, leave, nil); err != nil {
		return 0, err
	}
	if len(t.ReferencedBy) == 0 {
		for _, r := range rows {
			if err := m.countRow(counters, r, -1); err != nil {
				return 0, err
			}
		}
		n, err := sqlgraph.DeleteNodes(m.ctx, m.drv, &exact)
		if err != nil {
			return n, err
		}
		return n, m.settle()
	}
	tc := m.touchedIn(t, spec.Node.Schema)
	for _, r := range rows {
		if err := m.adopt(tc, r); err != nil {
			return 0, err
		}
	}
	if err := m.touchReferring(t, t, spec.Node.Schema, rows); err != nil {
		return 0, err
	}
	n, err := sqlgraph.DeleteNodes(m.ctx, m.drv, &exact)
	if err != nil {
		return n, err
	}
	return n, m.settle()
}

// touchReferring touches the rows that foreign keys delete or change together
// with the given ones, when rows of root are deleted. The rows referred to are
// locked, so that none can be added meanwhile: a new reference has to lock what
// it refers to.
func (m *mutation) touchReferring(root, t *Table, schema string, rows []row) error {
	for _, fk := range t.ReferencedBy {
		child, err := m.table(fk.Table)
		if err != nil {
			return err
		}
		for chunk := range slices.Chunk(rows, lockChunk) {
			refs := make([]any, 0, len(chunk))
			for _, r := range chunk {
				ref, ok := r.values[fk.RefColumn.Name]
				if !ok {
					return fmt.Errorf("entcounter: foreign key %s.%s refers to column %q, which is no id", fk.Table, fk.Column.Name, fk.RefColumn.Name)
				}
				refs = append(refs, ref)
			}
			referring := func(s *sql.Selector) { s.Where(sql.In(s.C(fk.Column.Name), refs...)) }
			if counters, ok := m.schema.leaving(root, fk); ok {
				// All that match leave their groups: nothing to remember, however many.
				leaving := departure{table: child, schema: schema, where: referring}
				err := m.locked(selection{table: child, schema: schema, columns: columnsOf(counters), where: referring, lock: forUpdate}, func(r row) error {
					return leaving.changes.addRow(counters, r, -1)
				})
				if err != nil {
					return err
				}
				m.departures = append(m.departures, leaving)
				continue
			}
			tc := m.touchedIn(child, schema)
			known := len(tc.ids)
			f, changed := stay, named(fk.Column.Name)
			if fk.OnDelete == Cascade {
				f, changed = swept, nil
			}
			if _, err := m.touch(child, schema, referring, forUpdate, f, changed); err != nil {
				return err
			}
			if fk.OnDelete != Cascade || len(child.ReferencedBy) == 0 {
				continue
			}
			// Only rows not met before: references may form circles.
			var next []row
			for _, id := range tc.ids[known:] {
				next = append(next, rowOf(child, id))
			}
			if err := m.touchReferring(root, child, schema, next); err != nil {
				return err
			}
		}
	}
	return nil
}

// leaving returns the counters whose rows all leave their groups when a foreign
// key acts on them. It is ok only where no other path leads from root to the
// same rows, and nothing refers to them in turn.
func (s *Schema) leaving(root *Table, fk ForeignKey) ([]counted, bool) {
	child := s.Tables[fk.Table]
	if child == root || len(child.ReferencedBy) > 0 || s.pathsTo(root, fk.Table, make(map[string]bool)) != 1 || len(s.roles(fk.Table)) > 0 {
		return nil, false
	}
	if fk.OnDelete == Cascade {
		return s.counted(fk.Table), true
	}
	var counters []counted
	for _, c := range s.counted(fk.Table) {
		if !c.reads(named(fk.Column.Name)) {
			continue
		}
		// Without a value in the key they leave, unless NULL counts for something.
		if !c.source.leavesWithout(fk.Column.Name) {
			return nil, false
		}
		counters = append(counters, c)
	}
	return counters, true
}

// pathsTo counts the foreign keys through which a delete in root reaches a
// table.
func (s *Schema) pathsTo(t *Table, table string, seen map[string]bool) int {
	seen[t.Name] = true
	n := 0
	for _, fk := range t.ReferencedBy {
		if fk.Table == table {
			n++
		}
		if next := s.Tables[fk.Table]; next != nil && fk.OnDelete == Cascade && !seen[fk.Table] {
			n += s.pathsTo(next, table, seen)
		}
	}
	return n
}

// rowOf is a row of which only the id is known.
func rowOf(t *Table, id []any) row {
	r := row{id: id, values: make(map[string]any, len(id))}
	for i, c := range t.ID {
		r.values[c.Name] = id[i]
	}
	return r
}

func idsOf(rows []row) [][]any {
	ids := make([][]any, len(rows))
	for i, r := range rows {
		ids[i] = r.id
	}
	return ids
}

// assignment is what a mutation does to a column.
type assignment struct {
	value any  // set to, or added
	add   bool // column = COALESCE(column, 0) + value
}

// columnSet holds what is known of a mutation's assignments, by column.
type columnSet map[string]assignment

// insertSetOf returns the values of an insert.
func insertSetOf(spec *sqlgraph.CreateSpec) columnSet {
	set := make(columnSet, len(spec.Fields)+1)
	for _, f := range spec.Fields {
		set[f.Column] = assignment{value: f.Value}
	}
	for _, e := range spec.Edges {
		if isOwn(e) && len(e.Target.Nodes) > 0 {
			set[e.Columns[0]] = assignment{value: e.Target.Nodes[0]}
		}
	}
	if spec.ID != nil && spec.ID.Value != nil {
		set[spec.ID.Column] = assignment{value: spec.ID.Value}
	}
	return set
}

// sets reports whether an update without modifiers sets a column of its rows.
func sets(spec *sqlgraph.UpdateSpec, column string) bool {
	isField := func(f *sqlgraph.FieldSpec) bool { return f.Column == column }
	isEdge := func(e *sqlgraph.EdgeSpec) bool { return isOwn(e) && e.Columns[0] == column }
	return slices.ContainsFunc(spec.Fields.Set, isField) || slices.ContainsFunc(spec.Fields.Add, isField) ||
		slices.ContainsFunc(spec.Fields.Clear, isField) ||
		slices.ContainsFunc(spec.Edges.Add, isEdge) || slices.ContainsFunc(spec.Edges.Clear, isEdge)
}

// updateSet is what an update does to the columns of its rows.
type updateSet struct {
	columns columnSet
	// modified columns are set by expressions of the user's.
	modified map[string]struct{}
	// unknown tells that a modifier may set any column.
	unknown bool
	// filters tells that a modifier decides which rows are updated.
	filters bool
}

// setOf reads an update's spec.
func setOf(dialectName string, spec *sqlgraph.UpdateSpec) updateSet {
	set := updateSet{columns: make(columnSet, len(spec.Fields.Set)+len(spec.Fields.Clear))}
	for _, f := range spec.Fields.Clear {
		set.columns[f.Column] = assignment{}
	}
	for _, e := range spec.Edges.Clear {
		if isOwn(e) {
			set.columns[e.Columns[0]] = assignment{}
		}
	}
	for _, f := range spec.Fields.Set {
		set.columns[f.Column] = assignment{value: f.Value}
	}
	for _, e := range spec.Edges.Add {
		if isOwn(e) && len(e.Target.Nodes) > 0 {
			set.columns[e.Columns[0]] = assignment{value: e.Target.Nodes[0]}
		}
	}
	for _, f := range spec.Fields.Add {
		if _, ok := set.columns[f.Column]; ok {
			// Set and added to: MySQL adds to the new value, SQLite to the old one.
			set.modify(f.Column)
		}
		set.columns[f.Column] = assignment{value: f.Value, add: true}
	}
	if len(spec.Modifiers) > 0 {
		set.readModifiers(dialectName, spec)
	}
	return set
}

// changes reports whether the update may change a column.
func (s updateSet) changes(column string) bool {
	if s.unknown {
		return true
	}
	if _, ok := s.modified[column]; ok {
		return true
	}
	_, ok := s.columns[column]
	return ok
}

// lockStrength is the lock that the update itself takes on its rows.
func (s updateSet) lockStrength(t *Table) lockStrength {
	if slices.ContainsFunc(t.ID, func(c Column) bool { return s.changes(c.Name) }) {
		return forUpdate
	}
	for _, unique := range t.Unique {
		if slices.ContainsFunc(unique, func(c Column) bool { return s.changes(c.Name) }) {
			return forUpdate
		}
	}
	return forChange
}

// apply computes a row after the update, for the given columns. It is not ok
// where only the database knows.
func (s updateSet) apply(columns []Column, before row) (row, bool) {
	next := row{id: before.id, values: make(map[string]any, len(columns))}
	if s.unknown || s.filters {
		return next, false
	}
	for _, c := range columns {
		old := before.values[c.Name]
		if _, ok := s.modified[c.Name]; ok {
			return next, false
		}
		a, ok := s.columns[c.Name]
		if !ok {
			next.values[c.Name] = old
			continue
		}
		if next.values[c.Name], ok = a.apply(c, old); !ok {
			return next, false
		}
	}
	return next, true
}

// apply computes the stored value of a column after the assignment. It is not
// ok where the database may store another one.
func (a assignment) apply(c Column, old any) (any, bool) {
	v, err := normalizeValue(c, a.value)
	if err != nil {
		return nil, false
	}
	switch {
	case v == nil:
		return nil, !a.add
	case !c.Faithful:
		return nil, false
	case a.add:
		addend, ok := v.(int64)
		if !ok {
			return nil, false
		}
		base, ok := old.(int64)
		if !ok && old != nil {
			return nil, false
		}
		sum, ok := addInt64(base, addend)
		return sum, ok && c.fits(sum)
	case c.Type.Integer():
		return v, c.fits(v)
	}
	return v, true
}

// readModifiers finds which columns a user's modifiers set.
func (s *updateSet) readModifiers(dialectName string, spec *sqlgraph.UpdateSpec) {
	update := sql.Dialect(dialectName).Update(spec.Node.Table)
	for _, m := range spec.Modifiers {
		m(update)
	}
	query, _ := update.Query()
	columns, filters, ok := settersOf(query)
	// An expression that reads tables may see what the statement's other rows become.
	s.filters = filters || !ok || strings.Contains(strings.ToUpper(query), "SELECT")
	if !ok {
		s.unknown = true
		return
	}
	for _, c := range columns {
		s.modify(c)
	}
	// They run again to make the statement, and are held to what they have set here.
	set := *s
	spec.Modifiers = append(slices.Clip(spec.Modifiers), func(u *sql.UpdateBuilder) {
		query, _ := u.Query()
		columns, _, ok := settersOf(query)
		if ok && slices.ContainsFunc(columns, func(c string) bool { return !set.changes(c) }) {
			u.AddError(fmt.Errorf("entcounter: a modifier of an update of %s sets other columns than it did before: it must do the same each time it is called", spec.Node.Table))
		}
	})
}

// modify notes that only the database knows what a column is set to.
func (s *updateSet) modify(column string) {
	if s.modified == nil {
		s.modified = make(map[string]struct{})
	}
	s.modified[column] = struct{}{}
}
