package entcounter

import (
	"fmt"
	"slices"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
)

// upsertAttempts is how often an upsert looks again for a row that was there
// when it inserted and gone when it read, or the other way round.
const upsertAttempts = 10

// upsertion is an insert with a conflict clause into a counted table. An
// existing row is updated by it, so that its delta is −old +new and not +1, and
// whether there is one can change until the statement runs. Hence: lock the rows
// that exist, leave those to the user's statement, and insert the others by a
// statement that inserts or does nothing, whose row count is the truth.
type upsertion struct {
	*mutation
	table      *Table
	counters   []counted
	onConflict []sql.ConflictOption
	// exec runs ent's own insert of some of the nodes.
	exec func(nodes []*sqlgraph.CreateSpec, onConflict []sql.ConflictOption) error
	sets []columnSet // by node
	ids  []any       // as given, by node
}

// upsert inserts or updates nodes.
func (m *mutation) upsert(nodes []*sqlgraph.CreateSpec, onConflict []sql.ConflictOption, counters []counted, exec func([]*sqlgraph.CreateSpec, []sql.ConflictOption) error) error {
	t, err := m.table(nodes[0].Table)
	if err != nil {
		return err
	}
	u := &upsertion{mutation: m, table: t, counters: counters, onConflict: onConflict, exec: exec}
	for _, n := range nodes {
		u.sets = append(u.sets, insertSetOf(n))
		var id any
		if n.ID != nil {
			id = n.ID.Value
		}
		u.ids = append(u.ids, id)
	}
	found, err := u.lockExisting(nodes, u.sets)
	if err != nil {
		return err
	}
	var existing, missing []int
	for i := range nodes {
		if found.has(u.sets[i]) {
			existing = append(existing, i)
		} else {
			missing = append(missing, i)
		}
	}
	if err := u.insertMissing(nodes, missing); err != nil {
		return err
	}
	if len(existing) > 0 {
		if err := u.updateExisting(pick(nodes, existing)); err != nil {
			return err
		}
	}
	return m.settle()
}

// insertMissing inserts the nodes for which no row was found: all in one
// statement where that inserts all of them, and one by one otherwise.
func (u *upsertion) insertMissing(nodes []*sqlgraph.CreateSpec, missing []int) error {
	plain := func(i int) bool { return !slices.ContainsFunc(nodes[i].Edges, isExternalOrM2M) }
	if len(missing) > 1 && !slices.ContainsFunc(missing, func(i int) bool { return !plain(i) }) {
		ok, err := u.insertAll(pick(nodes, missing))
		if err != nil {
			return err
		}
		if ok {
			return u.countCreated(pick(nodes, missing), u.counters)
		}
		for _, i := range missing {
			if nodes[i].ID != nil {
				nodes[i].ID.Value = u.ids[i]
			}
		}
	}
	for _, i := range missing {
		if err := u.one(nodes[i], u.sets[i], u.ids[i]); err != nil {
			return err
		}
	}
	return nil
}

// insertAll inserts nodes in one statement, or changes nothing if a row exists
// for one of them.
func (u *upsertion) insertAll(nodes []*sqlgraph.CreateSpec) (bool, error) {
	const savepoint = "entcounter_upsert"
	savepointExec := func(query string) error { return u.tx.inner.Exec(u.ctx, query, []any{}, nil) }
	if err := savepointExec("SAVEPOINT " + savepoint); err != nil {
		return false, fmt.Errorf("entcounter: upsert into %s: %w", u.table.Name, err)
	}
	inserted := u.tx.affected()
	var nothing []sql.ConflictOption
	if u.dialect != dialect.MySQL {
		nothing = []sql.ConflictOption{sql.DoNothing()}
	}
	// On MySQL the statement fails if a row exists. With a conflict clause its row
	// count would not tell (clientFoundRows).
	err := u.exec(nodes, nothing)
	if err != nil && serverErrorOf(err).mysql != mysqlDuplicateKey {
		return false, err
	}
	if err == nil && u.tx.affected()-inserted == int64(len(nodes)) {
		return true, savepointExec("RELEASE SAVEPOINT " + savepoint)
	}
	if err := savepointExec("ROLLBACK TO SAVEPOINT " + savepoint); err != nil {
		return false, fmt.Errorf("entcounter: upsert into %s: %w", u.table.Name, err)
	}
	return false, savepointExec("RELEASE SAVEPOINT " + savepoint)
}

// one upserts a single node.
func (u *upsertion) one(node *sqlgraph.CreateSpec, set columnSet, id any) error {
	for range upsertAttempts {
		inserted, err := u.insertOrNothing(node, id)
		if err != nil {
			return err
		}
		if inserted {
			return u.countCreated([]*sqlgraph.CreateSpec{node}, u.counters)
		}
		found, err := u.lockExisting([]*sqlgraph.CreateSpec{node}, []columnSet{set})
		if err != nil {
			return err
		}
		if found.rows > 0 {
			return u.updateExisting([]*sqlgraph.CreateSpec{node})
		}
		if !u.identifiable(set) {
			return fmt.Errorf("entcounter: upsert into %s conflicts on an index that is not in the ent schema, so the existing row cannot be counted: declare the index", u.table.Name)
		}
	}
	return fmt.Errorf("entcounter: upsert into %s: the existing row came and went %d times", u.table.Name, upsertAttempts)
}

// insertOrNothing inserts a node unless a row exists, and tells which. It locks
// the row that exists on MySQL; elsewhere the row is locked next.
func (u *upsertion) insertOrNothing(node *sqlgraph.CreateSpec, id any) (bool, error) {
	n := *node
	var external []*sqlgraph.EdgeSpec
	n.Edges = nil
	for _, e := range node.Edges {
		if isExternalOrM2M(e) {
			external = append(external, e)
		}
		if isOwn(e) {
			own := *e
			own.Inverse = true
			n.Edges = append(n.Edges, &own)
		}
	}
	inserted := false
	if u.dialect == dialect.MySQL {
		if err := u.exec([]*sqlgraph.CreateSpec{&n}, u.mysqlNothing()); err != nil {
			return false, err
		}
		inserted = u.tx.lastInsertID() != conflictID
	} else {
		before := u.tx.affected()
		err := u.exec([]*sqlgraph.CreateSpec{&n}, []sql.ConflictOption{sql.DoNothing()})
		inserted = u.tx.affected() != before
		// Without a row ent has no id to return, and says so.
		if err != nil && (inserted || u.tx.isFailed() || serverErrorOf(err) != (serverError{}) || u.ctx.Err() != nil) {
			return false, err
		}
	}
	if !inserted {
		if node.ID != nil {
			node.ID.Value = id
		}
		return false, nil
	}
	if len(external) == 0 {
		return true, nil
	}
	return true, sqlgraph.UpdateNode(u.ctx, u.drv, &sqlgraph.UpdateSpec{
		Node:  &sqlgraph.NodeSpec{Table: n.Table, Schema: n.Schema, ID: node.ID},
		Edges: sqlgraph.EdgeMut{Add: external},
	})
}

// conflictID is the insert id by which a MySQL statement tells that it found a
// row. AUTO_INCREMENT never gives it out.
const conflictID = -1

// mysqlNothing is a conflict clause that leaves an existing row as it is, locks
// it, and reports it through the insert id: the affected rows depend on the
// connection's clientFoundRows.
func (u *upsertion) mysqlNothing() []sql.ConflictOption {
	id := u.table.ID[0].Name
	return []sql.ConflictOption{sql.ResolveWith(func(s *sql.UpdateSet) {
		s.Set(id, sql.ExprFunc(func(b *sql.Builder) {
			column := s.Table().C(id)
			// The condition must be one that the optimiser cannot decide without calling
			// the function: IS NULL it can.
			b.WriteString("IF(LAST_INSERT_ID(18446744073709551615) = 0, ").WriteString(column).WriteString(", ").WriteString(column).WriteString(")")
		}))
	})}
}

// updateExisting runs the user's statement for nodes whose rows are locked. It
// is an error if it touched another row: on MySQL, one that came in between
// through a second unique index.
func (u *upsertion) updateExisting(nodes []*sqlgraph.CreateSpec) error {
	tc := u.touchedIn(u.table, nodes[0].Schema)
	known := len(tc.ids)
	var sets []columnSet // before ent guesses the ids
	for _, n := range nodes {
		sets = append(sets, insertSetOf(n))
	}
	if err := u.exec(nodes, u.onConflict); err != nil {
		return err
	}
	if u.dialect != dialect.MySQL || len(u.table.Unique) == 0 {
		return nil
	}
	if _, err := u.lockExisting(nodes, sets); err != nil {
		return err
	}
	if len(tc.ids) != known {
		return fmt.Errorf("entcounter: upsert into %s met a row that was not there before: %w", u.table.Name, errRaced)
	}
	return nil
}

// existing tells which rows an upsert found, by the values of unique columns.
type existing struct {
	unique [][]Column
	seen   []map[string]struct{}
	rows   int
}

func (e *existing) has(set columnSet) bool {
	for i, columns := range e.unique {
		if values, ok := uniqueValues(columns, set); ok {
			if _, ok := e.seen[i][string(appendKey(nil, values))]; ok {
				return true
			}
		}
	}
	return false
}

// uniqueSets are the column sets by which a row of the table can conflict.
func (u *upsertion) uniqueSets() [][]Column {
	return append([][]Column{u.table.ID}, u.table.Unique...)
}

// identifiable reports whether a conflicting row can be found by the node's
// values.
func (u *upsertion) identifiable(set columnSet) bool {
	return slices.ContainsFunc(u.uniqueSets(), func(columns []Column) bool { _, ok := uniqueValues(columns, set); return ok })
}

// uniqueValues returns a node's values for unique columns. NULL conflicts with
// nothing.
func uniqueValues(columns []Column, set columnSet) ([]any, bool) {
	values := make([]any, len(columns))
	for i, c := range columns {
		a, ok := set[c.Name]
		if !ok {
			return nil, false
		}
		v, err := normalizeValue(c, a.value)
		if err != nil || v == nil {
			return nil, false
		}
		values[i] = v
	}
	return values, true
}

// lockExisting locks the rows with which the nodes can conflict, and takes their
// image before.
func (u *upsertion) lockExisting(nodes []*sqlgraph.CreateSpec, sets []columnSet) (*existing, error) {
	e := &existing{unique: u.uniqueSets()}
	e.seen = make([]map[string]struct{}, len(e.unique))
	columns := columnsOf(u.counters)
	for i := range e.unique {
		e.seen[i] = make(map[string]struct{})
		for _, c := range e.unique[i] {
			if !slices.ContainsFunc(columns, func(o Column) bool { return o.Name == c.Name }) {
				columns = append(columns, c)
			}
		}
	}
	tc := u.touchedIn(u.table, nodes[0].Schema)
	const nodesPerRead = 200
	for chunk := range slices.Chunk(sets, nodesPerRead) {
		where, identifiable := conflictsWith(e.unique, chunk)
		if !identifiable {
			continue
		}
		err := u.locked(selection{table: u.table, schema: nodes[0].Schema, columns: columns, where: where, lock: forUpdate}, func(r row) error {
			e.rows++
			for i, unique := range e.unique {
				values := make([]any, len(unique))
				for j, c := range unique {
					values[j] = r.values[c.Name]
				}
				e.seen[i][string(appendKey(nil, values))] = struct{}{}
			}
			return u.adopt(tc, r)
		})
		if err != nil {
			return nil, err
		}
	}
	return e, nil
}

// conflictsWith is the predicate of the rows that have a unique value of one of
// the nodes.
func conflictsWith(unique [][]Column, sets []columnSet) (func(*sql.Selector), bool) {
	type match struct {
		columns []Column
		values  [][]any
	}
	var matches []match
	for _, columns := range unique {
		m := match{columns: columns}
		for _, set := range sets {
			if v, ok := uniqueValues(columns, set); ok {
				m.values = append(m.values, v)
			}
		}
		if len(m.values) > 0 {
			matches = append(matches, m)
		}
	}
	return func(s *sql.Selector) {
		var preds []*sql.Predicate
		for _, m := range matches {
			if len(m.columns) == 1 {
				in := make([]any, len(m.values))
				for i, v := range m.values {
					in[i] = v[0]
				}
				preds = append(preds, sql.In(s.C(m.columns[0].Name), in...))
				continue
			}
			for _, values := range m.values {
				eq := make([]*sql.Predicate, len(values))
				for i, c := range m.columns {
					eq[i] = sql.EQ(s.C(c.Name), values[i])
				}
				preds = append(preds, sql.And(eq...))
			}
		}
		s.Where(sql.Or(preds...))
	}, len(matches) > 0
}

func isExternalOrM2M(e *sqlgraph.EdgeSpec) bool { return e.Rel == sqlgraph.M2M || isExternal(e) }

func pick(nodes []*sqlgraph.CreateSpec, indexes []int) []*sqlgraph.CreateSpec {
	picked := make([]*sqlgraph.CreateSpec, len(indexes))
	for i, index := range indexes {
		picked[i] = nodes[index]
	}
	return picked
}
