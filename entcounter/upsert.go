package entcounter

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

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
	numbers    *numbering
	onConflict []sql.ConflictOption
	// unique are the column sets by which a row can conflict with a node.
	unique [][]Column
	// target is the conflict target's place in unique, −1 where any of them counts.
	target int
	// more tells that statements for other nodes follow an insert, and may change
	// the inserted row again.
	more bool
	// undoable tells that an error of any statement is undone by a savepoint.
	undoable bool
	// exec runs ent's own insert of some of the nodes.
	exec func(nodes []*sqlgraph.CreateSpec, onConflict []sql.ConflictOption) error
}

// upsertNode is one node of an upsert.
type upsertNode struct {
	spec *sqlgraph.CreateSpec
	set  columnSet
	id   any // as given: ent overwrites it
}

// upsert inserts or updates nodes. Only inserted ones get numbers: what runs the
// user's clause has none in it, which could replace that of an existing row.
func (m *mutation) upsert(specs []*sqlgraph.CreateSpec, onConflict []sql.ConflictOption, counters []counted, numbers *numbering, exec func([]*sqlgraph.CreateSpec, []sql.ConflictOption) error) error {
	t, err := m.table(specs[0].Table)
	if err != nil {
		return err
	}
	u := &upsertion{mutation: m, table: t, counters: counters, numbers: numbers, onConflict: onConflict, exec: exec}
	u.unique = append([][]Column{t.ID}, t.Unique...)
	if err := u.findTarget(); err != nil {
		return err
	}
	m.keepsRows = true
	completeColumns(specs)
	nodes := make([]upsertNode, len(specs))
	for i, n := range specs {
		nodes[i] = upsertNode{spec: n, set: insertSetOf(n)}
		if n.ID != nil {
			nodes[i].id = n.ID.Value
		}
	}
	if err := u.keepsNumbers(nodes[0].set); err != nil {
		return err
	}
	if u.dialect == dialect.MySQL && len(nodes) == 1 {
		// A locking read of a row that is not there locks the gap, and others' inserts
		// out of it.
		if err := u.one(nodes[0]); err != nil {
			return err
		}
		return m.settle()
	}
	found, err := u.lockExisting(nodes)
	if err != nil {
		return err
	}
	var existing, missing []upsertNode
	for _, n := range nodes {
		if found.has(n.set, u.target) {
			existing = append(existing, n)
		} else {
			missing = append(missing, n)
		}
	}
	if err := u.apply(nodes, existing, missing, found); err != nil {
		return err
	}
	return m.settle()
}

// apply upserts nodes: those whose rows exist, which are locked, and the others.
func (u *upsertion) apply(nodes, existing, missing []upsertNode, found *existing) error {
	if len(existing) > 0 && len(missing) > 0 {
		// A missing node may have a value that an existing row has now, and gives up.
		takes := func(n upsertNode) bool { return found.has(n.set, -1) }
		if slices.ContainsFunc(missing, takes) || !u.independent(nodes) {
			// What a node does to another depends on their order.
			return u.each(nodes)
		}
		u.more = true
		return u.asOne(func() error {
			if err := u.insertMissing(missing); err != nil {
				return err
			}
			return u.updateExisting(existing)
		})
	}
	if len(missing) > 0 {
		return u.insertMissing(missing)
	}
	return u.updateExisting(existing)
}

// asOne undoes what do has done if it fails, as if it were one statement. In a
// transaction of the upsert's own that goes without saying.
func (u *upsertion) asOne(do func() error) error {
	if _, own := u.drv.(opDriver); own || u.undoable {
		return do()
	}
	u.undoable = true
	_, err := u.tentatively("entcounter_batch", func() (bool, error) { return true, do() })
	return err
}

// completeColumns gives all nodes of a batch the same columns, with NULL where a
// node sets none, as ent does in one statement: the batch may be divided.
func completeColumns(specs []*sqlgraph.CreateSpec) {
	if len(specs) < 2 {
		return
	}
	var columns []*sqlgraph.FieldSpec
	sets := make([]columnSet, len(specs))
	seen := make(map[string]bool)
	for i, n := range specs {
		sets[i] = insertSetOf(n)
		for _, f := range n.Fields {
			if !seen[f.Column] {
				seen[f.Column] = true
				columns = append(columns, &sqlgraph.FieldSpec{Column: f.Column})
			}
		}
		for _, e := range n.Edges {
			if isOwn(e) && len(e.Target.Nodes) > 0 && !seen[e.Columns[0]] {
				seen[e.Columns[0]] = true
				columns = append(columns, &sqlgraph.FieldSpec{Column: e.Columns[0]})
			}
		}
	}
	for i, n := range specs {
		for _, c := range columns {
			if _, ok := sets[i][c.Column]; !ok {
				n.Fields = append(n.Fields, c)
			}
		}
	}
}

// independent reports whether the nodes have no unique values in common, and the
// conflict clause gives a row none but those of its node.
func (u *upsertion) independent(nodes []upsertNode) bool {
	for _, columns := range u.unique {
		seen := make(map[string]struct{}, len(nodes))
		for _, n := range nodes {
			values, ok := uniqueValues(columns, n.set)
			if !ok {
				continue
			}
			key := string(appendKey(nil, values))
			if _, ok := seen[key]; ok {
				return false
			}
			seen[key] = struct{}{}
		}
	}
	// Unique columns may be set to nothing but what they are, or are in the inserted
	// node.
	keeps := true
	ok := u.assignments(nodes[0].set, func(column string, to assigned) {
		keeps = keeps && (to != assignedOther || !slices.ContainsFunc(u.unique, func(columns []Column) bool {
			return slices.ContainsFunc(columns, func(c Column) bool { return c.Name == column })
		}))
	})
	return ok && keeps
}

// assigned is what a conflict clause sets a column to.
type assigned int

const (
	assignedOther assigned = iota
	assignedItself
	assignedInserted // what it is in the inserted node
)

// assignments calls each for what the conflict clause of an insert of the given
// columns sets. It is not ok where the clause cannot be read.
func (u *upsertion) assignments(columns columnSet, each func(column string, to assigned)) (ok bool) {
	query, _, err := u.builder.Insert(u.table.Name).Columns(slices.Sorted(maps.Keys(columns))...).OnConflict(u.onConflict...).QueryErr()
	if err != nil {
		return false
	}
	rest, ok := "", false
	for _, set := range []string{" DO UPDATE SET ", " ON DUPLICATE KEY UPDATE "} {
		if _, rest, ok = strings.Cut(query, set); ok {
			break
		}
	}
	if !ok {
		return strings.HasSuffix(query, " DO NOTHING")
	}
	for {
		column, after, ok := cutIdentifier(rest)
		if !ok {
			return false
		}
		expr, ok := strings.CutPrefix(after, " = ")
		if !ok {
			return false
		}
		end, ok := endOfExpression(expr)
		if !ok {
			return false
		}
		name := rest[:len(column)+2] // with its quotes
		value := expr[:end]
		qualifier, qualified, ok := cutIdentifier(value)
		switch {
		case value == name, ok && qualified == "."+name && qualifier != excluded:
			each(column, assignedItself)
		case value == "VALUES("+name+")", ok && qualified == "."+name:
			each(column, assignedInserted)
		default:
			each(column, assignedOther)
		}
		if rest, ok = strings.CutPrefix(expr[end:], ", "); !ok {
			return true
		}
	}
}

// excluded is the name of the inserted row in a conflict clause.
const excluded = "excluded"

// keepsNumbers returns an error if the conflict clause would change the number of
// an existing row, or take it into another scope.
func (u *upsertion) keepsNumbers(set columnSet) error {
	var err error
	ok := u.assignments(set, func(column string, to assigned) {
		inTarget := func() bool {
			return u.target >= 0 && slices.ContainsFunc(u.unique[u.target], func(c Column) bool { return c.Name == column })
		}
		if to == assignedItself || to == assignedInserted && inTarget() {
			return
		}
		for _, d := range u.numbers.sequences {
			if d.Number.Name == column || slices.ContainsFunc(d.Scope, func(c Column) bool { return c.Name == column }) {
				err = fmt.Errorf("entcounter: sequence %s: the upsert sets column %q of a row that exists, whose number would change or be taken into another scope: use UpdateNewValues, which leaves it alone: %w", d.Name, column, errors.ErrUnsupported)
			}
		}
	})
	if !ok && u.numbers.numbers() {
		return fmt.Errorf("entcounter: upsert into %s: the conflict clause cannot be read, and might change the numbers of rows that exist: %w", u.table.Name, errors.ErrUnsupported)
	}
	return err
}

// findTarget reads the conflict target: only a conflict there is resolved by the
// user's clause, any other is an error. MySQL has none.
func (u *upsertion) findTarget() error {
	u.target = -1
	if u.dialect == dialect.MySQL {
		return nil
	}
	insert := u.builder.Insert(u.table.Name).Default().OnConflict(u.onConflict...)
	query, _, err := insert.QueryErr()
	if err != nil {
		return err
	}
	_, clause, ok := strings.Cut(query, " ON CONFLICT ")
	if !ok || !strings.HasPrefix(clause, "(") {
		return nil
	}
	var names []string
	for rest := clause[1:]; ; {
		name, after, ok := cutIdentifier(rest)
		if !ok {
			return fmt.Errorf("entcounter: upsert into %s: the conflict target of %q is no list of columns", u.table.Name, clause)
		}
		names = append(names, name)
		if rest, ok = strings.CutPrefix(after, ", "); !ok {
			break
		}
	}
	slices.Sort(names)
	for i, columns := range u.unique {
		set := make([]string, len(columns))
		for j, c := range columns {
			set[j] = c.Name
		}
		slices.Sort(set)
		if slices.Equal(names, set) {
			u.target = i
			return nil
		}
	}
	return fmt.Errorf("entcounter: upsert into %s: the conflict target (%s) is no unique index of the ent schema over whole columns and all rows, so the existing row cannot be counted: declare the index", u.table.Name, strings.Join(names, ", "))
}

// insertMissing inserts the nodes for which no row was found: all in one
// statement where that inserts all of them, and one by one otherwise.
func (u *upsertion) insertMissing(nodes []upsertNode) error {
	external := func(n upsertNode) bool { return slices.ContainsFunc(n.spec.Edges, isExternalOrM2M) }
	if len(nodes) > 1 && !slices.ContainsFunc(nodes, external) {
		var draws []*draw
		ok, err := u.tentatively("entcounter_upsert", func() (bool, error) {
			var err error
			if draws, err = u.numbers.draw(specsOf(nodes)); err != nil {
				return false, err
			}
			before := u.tx.affected()
			// On MySQL the statement fails if a row exists. With a conflict clause its
			// row count would not tell (clientFoundRows).
			var nothing []sql.ConflictOption
			if u.dialect != dialect.MySQL {
				nothing = []sql.ConflictOption{sql.DoNothing()}
			}
			err = u.exec(specsOf(nodes), nothing)
			if serverErrorOf(err).mysql == mysqlDuplicateKey {
				return false, nil
			}
			return u.tx.affected()-before == int64(len(nodes)), err
		})
		if ok && err == nil {
			return u.inserted(nodes)
		}
		u.numbers.forget(draws) // they are back with the savepoint
		if err != nil {
			return err
		}
	}
	return u.each(nodes)
}

// updateExisting runs the user's statement for nodes whose rows are locked. That
// it changes no other rows is certain for one node with a conflict target, and
// looked up otherwise: on MySQL a row can come in between through another unique
// index, and in a batch one node can take another's unique value away.
func (u *upsertion) updateExisting(nodes []upsertNode) error {
	switch len(nodes) {
	case 0:
		return nil
	case 1:
		return u.updateLocked(nodes[0], u.target >= 0)
	}
	ok, err := u.tentatively("entcounter_upsert", func() (bool, error) {
		if err := u.exec(specsOf(nodes), u.onConflict); err != nil {
			return false, err
		}
		strange, err := u.strangers(nodes)
		return !strange, err
	})
	if err != nil || ok {
		return err
	}
	return u.each(nodes)
}

// updateLocked runs the user's statement for one node, and makes sure that it met
// none but locked rows if that is not certain.
func (u *upsertion) updateLocked(n upsertNode, certain bool) error {
	if err := u.exec([]*sqlgraph.CreateSpec{n.spec}, u.onConflict); err != nil || certain {
		return err
	}
	strange, err := u.strangers([]upsertNode{n})
	if err == nil && strange {
		err = fmt.Errorf("entcounter: upsert into %s met a row that was not there before: %w", u.table.Name, errRaced)
	}
	return err
}

// tentatively undoes what do has done if it fails or is not ok.
func (u *upsertion) tentatively(savepoint string, do func() (bool, error)) (bool, error) {
	run := func(query string) error {
		// Not through the transaction's wrapper: no delta is involved. What is to be undone
		// is so also when the context has ended.
		if err := u.tx.inner.Exec(context.WithoutCancel(u.ctx), query+savepoint, []any{}, nil); err != nil {
			return fmt.Errorf("entcounter: upsert into %s: %w", u.table.Name, u.tx.observe(err))
		}
		return nil
	}
	if err := run("SAVEPOINT "); err != nil {
		return false, err
	}
	before := u.tx.affected()
	ok, err := do()
	if err != nil && u.tx.isFailed() {
		return false, err
	}
	if err != nil || !ok {
		if rerr := run("ROLLBACK TO SAVEPOINT "); rerr != nil {
			err = errors.Join(err, rerr)
			u.tx.fail(err)
			return false, err
		}
		u.tx.forgetSince(before)
	}
	return ok, errors.Join(err, run("RELEASE SAVEPOINT "))
}

// inserted counts inserted nodes: from their specs if nothing follows, and by
// their image after it all if something does.
func (u *upsertion) inserted(nodes []upsertNode) error {
	for _, n := range nodes {
		u.numbers.note(n.spec, n.set)
	}
	if err := u.meetCreated(specsOf(nodes), setsOf(nodes)); err != nil {
		return err
	}
	if !u.more {
		if len(u.counters) == 0 {
			return nil
		}
		return u.countCreated(specsOf(nodes), setsOf(nodes), u.counters, false)
	}
	ids := make([][]any, len(nodes))
	for i, n := range nodes {
		var err error
		if ids[i], err = createdID(u.table, n.spec, n.set); err != nil {
			return err
		}
	}
	tc, found := u.touchedIn(u.table, nodes[0].spec.Schema), 0
	for chunk := range slices.Chunk(ids, lockChunk) {
		err := u.locked(selection{table: u.table, schema: nodes[0].spec.Schema, where: u.created(withIDs(u.table, chunk)), lock: forChange}, func(r row) error {
			found++
			tc.seen[string(appendKey(nil, r.id))] = struct{}{}
			tc.ids = append(tc.ids, r.id)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if found != len(ids) {
		return notReadBack(u.table, len(ids)-found, len(ids))
	}
	return nil
}

// each upserts nodes one by one.
func (u *upsertion) each(nodes []upsertNode) error {
	if len(nodes) == 0 {
		return nil
	}
	u.more = u.more || len(nodes) > 1
	all := func() error {
		for _, n := range nodes {
			if n.spec.ID != nil {
				n.spec.ID.Value = n.id
			}
			if err := u.one(n); err != nil {
				return err
			}
		}
		return nil
	}
	if len(nodes) == 1 {
		return all()
	}
	return u.asOne(all)
}

// one upserts a single node.
func (u *upsertion) one(n upsertNode) error {
	for range upsertAttempts {
		inserted, err := u.insertOrNothing(n.spec, n.id)
		if err != nil {
			return err
		}
		if inserted {
			return u.inserted([]upsertNode{n})
		}
		found, err := u.lockExisting([]upsertNode{n})
		if err != nil {
			return err
		}
		if found.rows > 0 {
			// Without a row in the target it is ent's to report a conflict elsewhere.
			return u.updateLocked(n, u.target >= 0 && found.has(n.set, u.target))
		}
		if !u.identifiable(n.set) {
			return fmt.Errorf("entcounter: upsert into %s conflicts on an index that is not in the ent schema, so the existing row cannot be counted: declare the index", u.table.Name)
		}
	}
	return fmt.Errorf("entcounter: upsert into %s: the existing row came and went %d times: %w", u.table.Name, upsertAttempts, errRaced)
}

// insertOrNothing inserts a node unless a row exists, and tells which. It locks
// the row that exists on MySQL; elsewhere the row is locked next.
func (u *upsertion) insertOrNothing(node *sqlgraph.CreateSpec, id any) (_ bool, err error) {
	draws, err := u.numbers.draw([]*sqlgraph.CreateSpec{node})
	if err != nil {
		return false, err
	}
	inserted := false
	defer func() {
		switch {
		case err != nil:
			u.numbers.undo(draws, err)
		case !inserted:
			u.numbers.giveBack(draws)
		}
	}()
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
	before := u.tx.affected()
	if u.dialect == dialect.MySQL {
		if err := u.exec([]*sqlgraph.CreateSpec{&n}, u.mysqlNothing()); err != nil {
			return false, err
		}
		if inserted = u.tx.lastInsertID() != conflictID; !inserted {
			u.tx.forgetSince(before) // with clientFoundRows, it tells of the row that it found
		}
	} else {
		err := u.exec([]*sqlgraph.CreateSpec{&n}, []sql.ConflictOption{sql.DoNothing()})
		inserted = u.tx.affected() != before
		// Without a row ent has no id to return, and says so.
		if err != nil && !errors.Is(err, stdsql.ErrNoRows) {
			return false, err
		}
	}
	if node.ID != nil && (id != nil || !inserted) {
		node.ID.Value = id // MySQL returns another where it has generated none
	}
	if !inserted {
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

// existing tells which rows an upsert found, by the values of unique columns.
type existing struct {
	unique [][]Column
	seen   []map[string]struct{}
	rows   int
}

// has reports whether a row was found that has the node's values in the target,
// or in any unique columns where there is none.
func (e *existing) has(set columnSet, target int) bool {
	for i, columns := range e.unique {
		if target >= 0 && i != target {
			continue
		}
		if values, ok := uniqueValues(columns, set); ok {
			if _, ok := e.seen[i][string(appendKey(nil, values))]; ok {
				return true
			}
		}
	}
	return false
}

// identifiable reports whether a conflicting row can be found by the node's
// values.
func (u *upsertion) identifiable(set columnSet) bool {
	return slices.ContainsFunc(u.unique, func(columns []Column) bool { _, ok := uniqueValues(columns, set); return ok })
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
func (u *upsertion) lockExisting(nodes []upsertNode) (*existing, error) {
	e := &existing{unique: u.unique, seen: make([]map[string]struct{}, len(u.unique))}
	columns := columnsOf(u.counters)
	for i := range e.unique {
		e.seen[i] = make(map[string]struct{})
		for _, c := range e.unique[i] {
			if !slices.ContainsFunc(columns, func(o Column) bool { return o.Name == c.Name }) {
				columns = append(columns, c)
			}
		}
	}
	tc := u.touchedIn(u.table, nodes[0].spec.Schema)
	var ids [][]any
	err := u.conflicting(nodes, columns, func(r row) error {
		e.rows++
		ids = append(ids, r.id)
		for i, unique := range e.unique {
			values := make([]any, len(unique))
			for j, c := range unique {
				values[j] = r.values[c.Name]
			}
			e.seen[i][string(appendKey(nil, values))] = struct{}{}
		}
		return u.adopt(tc, r)
	})
	if err == nil {
		err = u.meet(u.table, ids, stay, nil)
	}
	return e, err
}

// strangers reports whether rows that were not locked before have the nodes'
// values now.
func (u *upsertion) strangers(nodes []upsertNode) (bool, error) {
	tc, strange := u.touchedIn(u.table, nodes[0].spec.Schema), false
	err := u.conflicting(nodes, nil, func(r row) error {
		if _, ok := tc.seen[string(appendKey(nil, r.id))]; !ok {
			strange = true
		}
		return nil
	})
	return strange, err
}

// conflicting locks the rows that have unique values of the nodes.
func (u *upsertion) conflicting(nodes []upsertNode, columns []Column, each func(row) error) error {
	const nodesPerRead = 200
	for chunk := range slices.Chunk(nodes, nodesPerRead) {
		where, ok := conflictsWith(u.unique, chunk)
		if !ok {
			continue
		}
		err := u.locked(selection{table: u.table, schema: chunk[0].spec.Schema, columns: columns, where: where, lock: forUpdate}, each)
		if err != nil {
			return err
		}
	}
	return nil
}

// conflictsWith is the predicate of the rows that have a unique value of one of
// the nodes.
func conflictsWith(unique [][]Column, nodes []upsertNode) (func(*sql.Selector), bool) {
	type match struct {
		columns []Column
		values  [][]any
	}
	var matches []match
	for _, columns := range unique {
		m := match{columns: columns}
		for _, n := range nodes {
			if v, ok := uniqueValues(columns, n.set); ok {
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

func setsOf(nodes []upsertNode) []columnSet {
	sets := make([]columnSet, len(nodes))
	for i, n := range nodes {
		sets[i] = n.set
	}
	return sets
}

func specsOf(nodes []upsertNode) []*sqlgraph.CreateSpec {
	specs := make([]*sqlgraph.CreateSpec, len(nodes))
	for i, n := range nodes {
		specs[i] = n.spec
	}
	return specs
}
