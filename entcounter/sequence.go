package entcounter

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
)

// SequenceDefinition describes one sequence: where its numbers are stored, and
// where the next one is kept.
type SequenceDefinition struct {
	// Name is the type and field that hold the numbers: "Task.number".
	Name string
	// Table has a row for each scope that was used, with the next number.
	Table string
	// Numbered is the table of the rows that get numbers, Number the column.
	Numbered string
	Number   Column
	// Scope columns: the same names in both tables. Without any, the one row of
	// Table has the id 1.
	Scope []Column
	// Start is the first number of a scope without rows.
	Start int64
}

// Columns of a sequence's table beside those of the scope.
const (
	// ColumnNextNumber is the number that the next row of the scope gets, or 0 where
	// that is not known yet.
	ColumnNextNumber = "next_number"
	// ColumnSequenceID is the key of the only row where there is no scope.
	ColumnSequenceID = "id"
)

// keyColumns are the columns of the primary key of the sequence's table.
func (d *SequenceDefinition) keyColumns() []string {
	if len(d.Scope) == 0 {
		return []string{ColumnSequenceID}
	}
	return columnNames(d.Scope)
}

// key returns the values of the primary key for a scope.
func (d *SequenceDefinition) key(scope []any) []any {
	if len(d.Scope) == 0 {
		return []any{int64(1)}
	}
	return scope
}

func (d *SequenceDefinition) wrap(scope []any, err error) error {
	if len(scope) == 0 {
		return fmt.Errorf("entcounter: sequence %s: %w", d.Name, err)
	}
	return fmt.Errorf("entcounter: sequence %s, %s: %w", d.Name, formatKey(d.Scope, scope), err)
}

// NextNumber stands for a number in the spec of a create until the number is
// drawn, and is called with it. Generated code makes it.
type NextNumber func(number int64)

// Value implements [driver.Valuer]. It is called only where a spec reaches ent
// past the hooks, and fails.
func (NextNumber) Value() (driver.Value, error) {
	return nil, errors.New("entcounter: no number was drawn for a row: the create did not pass the generated package sqlgraph")
}

// numbered returns the sequences over a table.
func (s *Schema) numbered(table string) []*SequenceDefinition {
	var found []*SequenceDefinition
	for _, d := range s.Sequences {
		if d.Numbered == table {
			found = append(found, d)
		}
	}
	return found
}

// keepsNumbers returns an error if an update would change a number, or move a
// numbered row into another scope. What a modifier does that cannot be read is left
// to the unique index.
func (s *Schema) keepsNumbers(dialectName string, spec *sqlgraph.UpdateSpec) error {
	if len(s.Sequences) == 0 {
		return nil
	}
	if err := cmp.Or(s.addsNumbered(spec.Edges.Add), s.keepsScopes(spec.Edges.Clear)); err != nil {
		return err
	}
	sequences := s.numbered(spec.Node.Table)
	if len(sequences) == 0 {
		return nil
	}
	set := setOf(dialectName, spec)
	if set.unknown {
		return nil
	}
	for _, d := range sequences {
		for _, c := range append(slices.Clone(d.Scope), d.Number) {
			if set.changes(c.Name) {
				return fmt.Errorf("entcounter: sequence %s: an update of column %q would change the number of a row or take it into another scope: create another row instead: %w", d.Name, c.Name, errors.ErrUnsupported)
			}
		}
	}
	return nil
}

// addsNumbered returns an error if edges added to a row would make numbered rows of
// a join table, or move numbered rows into another scope.
func (s *Schema) addsNumbered(edges []*sqlgraph.EdgeSpec) error {
	for _, e := range edges {
		if e.Rel != sqlgraph.M2M {
			continue
		}
		if numbered := s.numbered(e.Table); len(numbered) > 0 {
			return fmt.Errorf("entcounter: sequence %s: rows that adding an edge makes get no number: create them by the client of their own type: %w", numbered[0].Name, errors.ErrUnsupported)
		}
	}
	return s.keepsScopes(edges)
}

// keepsScopes returns an error if edges set from the other side would move numbered
// rows into another scope.
func (s *Schema) keepsScopes(edges []*sqlgraph.EdgeSpec) error {
	for _, e := range edges {
		if !isExternal(e) {
			continue
		}
		for _, d := range s.numbered(e.Table) {
			if slices.ContainsFunc(d.Scope, func(c Column) bool { return c.Name == e.Columns[0] }) {
				return fmt.Errorf("entcounter: sequence %s: setting the edge from the other side would take rows with their numbers into another scope of %q: set it when the row is created: %w", d.Name, e.Columns[0], errors.ErrUnsupported)
			}
		}
	}
	return nil
}

// numbering draws numbers for rows that are inserted.
//
// A scope has one row in the sequence's table. Drawing is one statement, which adds
// to that row and returns it, so the row stays locked until the transaction ends:
// nobody else can draw, and a rollback, also one to a savepoint, takes the numbers
// back together with the rows that got them. An insert that fails or finds a row
// where it would have inserted one leaves the transaction going on, and gives its
// numbers back by a statement.
type numbering struct {
	*mutation
	sequences []*SequenceDefinition
	// tell are called with the number that a row gets, by its place in sequences.
	tell map[*sqlgraph.CreateSpec][]NextNumber
}

// draw is a run of consecutive numbers of one scope for some rows.
type draw struct {
	sequence *SequenceDefinition
	scope    []any
	rows     []*sqlgraph.CreateSpec
	drawn    bool
	first    bool // use of the scope
}

// numberingOf prepares the numbering of rows: it takes what stands for their
// numbers out of their specs. A number that the caller has set is refused: it would
// collide with the sequence, or leave numbers out.
func (m *mutation) numberingOf(nodes []*sqlgraph.CreateSpec) (*numbering, error) {
	s := &numbering{mutation: m, sequences: m.schema.numbered(nodes[0].Table)}
	if len(s.sequences) == 0 {
		return s, nil
	}
	s.tell = make(map[*sqlgraph.CreateSpec][]NextNumber, len(nodes))
	for _, n := range nodes {
		s.tell[n] = make([]NextNumber, len(s.sequences))
		for i, d := range s.sequences {
			for _, f := range n.Fields {
				if f.Column != d.Number.Name {
					continue
				}
				tell, ok := f.Value.(NextNumber)
				if !ok {
					return nil, fmt.Errorf("entcounter: sequence %s: the create sets the number to %v, which only the sequence gives: leave it out: %w", d.Name, f.Value, errors.ErrUnsupported)
				}
				s.tell[n][i] = tell
			}
			withoutNumber(n, d)
		}
	}
	return s, nil
}

// withoutNumber removes the number from the spec of a row.
func withoutNumber(n *sqlgraph.CreateSpec, d *SequenceDefinition) {
	n.Fields = slices.DeleteFunc(n.Fields, func(f *sqlgraph.FieldSpec) bool { return f.Column == d.Number.Name })
}

// numbers reports whether there is anything to number.
func (s *numbering) numbers() bool { return len(s.sequences) > 0 }

// draw gives each row the next number of its scope. Scopes come in one order, so
// that two batches do not wait for each other.
func (s *numbering) draw(nodes []*sqlgraph.CreateSpec) ([]*draw, error) {
	if !s.numbers() {
		return nil, nil
	}
	if err := cmp.Or(s.tx.failure(), s.ctx.Err()); err != nil {
		return nil, err
	}
	var draws []*draw
	for _, d := range s.sequences {
		ofScopes, err := drawsOf(d, nodes)
		if err != nil {
			return nil, err
		}
		draws = append(draws, ofScopes...)
	}
	for _, w := range draws {
		if err := s.advance(w); err != nil {
			err = w.sequence.wrap(w.scope, err)
			s.undo(draws, err)
			return nil, err
		}
	}
	return draws, nil
}

// drawsOf groups rows by their scopes, in an order of the scopes.
func drawsOf(d *SequenceDefinition, nodes []*sqlgraph.CreateSpec) ([]*draw, error) {
	byScope := make(map[string]*draw)
	var keys []string
	for _, n := range nodes {
		set := insertSetOf(n)
		scope := make([]any, len(d.Scope))
		for i, c := range d.Scope {
			v, err := normalizeValue(c, set[c.Name].value)
			if err != nil {
				return nil, d.wrap(nil, err)
			}
			if v == nil {
				return nil, fmt.Errorf("entcounter: sequence %s: the value of column %q is known to the database only, so the row has no scope: set it in the application", d.Name, c.Name)
			}
			scope[i] = v
		}
		key := string(appendKey(nil, scope))
		if byScope[key] == nil {
			byScope[key] = &draw{sequence: d, scope: scope}
			keys = append(keys, key)
		}
		byScope[key].rows = append(byScope[key].rows, n)
	}
	slices.SortFunc(keys, strings.Compare)
	draws := make([]*draw, len(keys))
	for i, key := range keys {
		draws[i] = byScope[key]
	}
	return draws, nil
}

// advance moves the sequence on and numbers the rows of the draw.
func (s *numbering) advance(w *draw) error {
	d, n := w.sequence, int64(len(w.rows))
	next, err := s.add(d, w.scope, n)
	if err != nil {
		return err
	}
	if next == 0 {
		if next, err = s.begin(d, w.scope, n); err != nil {
			return err
		}
		w.first = true
	}
	w.drawn = true
	if last := next - 1; !d.Number.fits(last) {
		return fmt.Errorf("%w: number %d does not fit into column %q", ErrOverflow, last, d.Number.Name)
	}
	i := slices.Index(s.sequences, d)
	for j, node := range w.rows {
		number := next - n + int64(j)
		node.SetField(d.Number.Name, d.Number.Type, number)
		if tell := s.tell[node][i]; tell != nil {
			tell(number)
		}
	}
	return nil
}

// add adds to the next number of a scope, and returns what it becomes: 0 where the
// scope has not been used before. It locks the scope's row until the transaction
// ends, at any isolation level; a PostgreSQL transaction at REPEATABLE READ or above
// fails with 40001 if the row has changed since its snapshot.
func (s *numbering) add(d *SequenceDefinition, scope []any, n int64) (next int64, err error) {
	w := newWriter(sqlFor(s.dialect))
	sqlFor(s.dialect).draw(w, d, scope, n)
	if s.dialect != dialect.MySQL {
		next, err = s.queryNumber(w)
	} else {
		var res sql.Result
		if err = s.tx.inner.Exec(s.ctx, w.String(), w.args, &res); err == nil {
			next, err = res.LastInsertId()
		}
	}
	if err == nil {
		s.tx.becameWriter()
	}
	return next, s.tx.observe(err)
}

// begin sets the next number of a scope that is used for the first time, by the
// rows it has. Nobody else can number rows of the scope meanwhile: its row is
// locked.
//
// The read locks nothing, since in InnoDB it would lock gaps that other scopes
// begin in. In a transaction with an older snapshot it can miss rows that somebody
// has numbered without the sequence; their numbers are then refused by the unique
// index, and the next create looks again.
func (s *numbering) begin(d *SequenceDefinition, scope []any, n int64) (int64, error) {
	w := newWriter(sqlFor(s.dialect))
	greatestNumber(w, d, scope)
	next, err := s.queryNumber(w)
	if err != nil {
		return 0, s.tx.observe(err)
	}
	next = max(next+1, d.Start) + n
	return next, s.change(func(w *writer) { setNextNumber(w, d, scope, next) })
}

// undo gives numbers back after an error. An error that is not the server's leaves
// open whether a statement has changed something, so the transaction must not
// commit.
func (s *numbering) undo(draws []*draw, err error) {
	if s.numbers() && serverErrorOf(err) == (serverError{}) && !errors.Is(err, ErrOverflow) {
		s.tx.fail(err)
	}
	s.giveBack(draws)
}

// giveBack takes the numbers of rows that were not inserted back, and forgets them.
// The rows of the scopes are locked. Where that fails the transaction must not
// commit; a PostgreSQL transaction that an error has aborted cannot commit what was
// drawn.
func (s *numbering) giveBack(draws []*draw) {
	s.forget(draws)
	for _, w := range draws {
		if !w.drawn || s.tx.isFailed() {
			continue
		}
		w.drawn = false
		err := s.change(func(b *writer) {
			if w.first {
				setNextNumber(b, w.sequence, w.scope, 0)
			} else {
				returnNumbers(b, w.sequence, w.scope, int64(len(w.rows)))
			}
		})
		if err != nil && serverErrorOf(err).state != postgresAborted {
			s.tx.fail(w.sequence.wrap(w.scope, err))
		}
	}
}

// forget removes drawn numbers from the specs of rows that were not inserted.
func (s *numbering) forget(draws []*draw) {
	for _, w := range draws {
		for _, n := range w.rows {
			withoutNumber(n, w.sequence)
		}
	}
}

// note adds the numbers that a row got to what is known of it.
func (s *numbering) note(n *sqlgraph.CreateSpec, set columnSet) {
	for _, d := range s.sequences {
		for _, f := range n.Fields {
			if f.Column == d.Number.Name {
				set[f.Column] = assignment{value: f.Value}
			}
		}
	}
}

// change runs a statement on the sequence's table. It goes past the wrapper of the
// transaction, which counts changes that cannot be taken back one by one, and is
// run also when the caller's context has ended meanwhile.
func (s *numbering) change(write func(*writer)) error {
	w := newWriter(sqlFor(s.dialect))
	write(w)
	return s.tx.observe(s.tx.inner.Exec(context.WithoutCancel(s.ctx), w.String(), w.args, nil))
}

// queryNumber reads one number, 0 for NULL.
func (s *numbering) queryNumber(w *writer) (int64, error) {
	var rows sql.Rows
	if err := s.tx.inner.Query(s.ctx, w.String(), w.args, &rows); err != nil {
		return 0, err
	}
	defer rows.Close()
	var number sql.NullInt64
	for rows.Next() {
		if err := rows.Scan(&number); err != nil {
			return 0, err
		}
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	return number.Int64, rows.Close()
}

// greatestNumber reads the greatest number of a scope, by the unique index.
func greatestNumber(w *writer, d *SequenceDefinition, scope []any) {
	w.sql("SELECT MAX(").ident(d.Number.Name).sql(") FROM ").ident(d.Numbered)
	if len(scope) > 0 {
		w.sql(" WHERE ").equals(columnNames(d.Scope), scope)
	}
}

// insertSequence writes the INSERT of a draw, up to what it does with the row that
// is there.
func insertSequence(w *writer, d *SequenceDefinition, scope []any) {
	w.sql(" (").idents(append(d.keyColumns(), ColumnNextNumber)...).sql(") VALUES (")
	for _, v := range d.key(scope) {
		w.arg(v).sql(", ")
	}
	w.sql("0)")
}

func setNextNumber(w *writer, d *SequenceDefinition, scope []any, next int64) {
	w.sql("UPDATE ").ident(d.Table).sql(" SET ").ident(ColumnNextNumber).sql(" = ").arg(next).
		sql(" WHERE ").equals(d.keyColumns(), d.key(scope))
}

func returnNumbers(w *writer, d *SequenceDefinition, scope []any, n int64) {
	w.sql("UPDATE ").ident(d.Table).sql(" SET ").ident(ColumnNextNumber).sql(" = ").ident(ColumnNextNumber).sql(" - ").arg(n).
		sql(" WHERE ").equals(d.keyColumns(), d.key(scope))
}

// insertOrAdd writes a draw in the dialects that have ON CONFLICT and RETURNING.
func insertOrAdd(w *writer, d *SequenceDefinition, scope []any, n int64) {
	w.sql("INSERT INTO ").ident(d.Table).sql(" AS ").ident("s")
	insertSequence(w, d, scope)
	next := w.quote("s") + "." + w.quote(ColumnNextNumber)
	w.sql(" ON CONFLICT (").idents(d.keyColumns()...).sql(") DO UPDATE SET ").ident(ColumnNextNumber).
		sql(" = CASE WHEN ", next, " = 0 THEN 0 ELSE ", next, " + ").arg(n).sql(" END RETURNING ").ident(ColumnNextNumber)
}
