package entcounter

import (
	"fmt"
	"sync"

	"entgo.io/ent/schema/field"
)

// Schema is what generated code tells the runtime about one generated ent
// package: its counters and sequences, and the tables through which ent can change
// a counted row. It is written once by code generation and never changed.
type Schema struct {
	// Counters in declaration order.
	Counters []*Definition
	// Sequences in declaration order.
	Sequences []*SequenceDefinition
	// Tables that are counted or numbered, or from which a foreign key can reach a
	// counted table, by table name.
	Tables map[string]*Table

	index   sync.Once
	byTable map[string][]counted // plain sources, by counted table
	byRole  map[string][]role    // computed sources, by each of their tables

	// imagesOnly makes the hooks take images even where a faster way is exact. Tests
	// hold the two against each other.
	imagesOnly bool
}

// Definition describes one counter and where its rows are counted.
type Definition struct {
	// Name as declared: "File".
	Name string
	// Table holds the folded rows; it is also the name by which queries on the
	// generated type refer to their source.
	Table string
	// Journal holds the deltas not yet folded.
	Journal string
	// Key columns, in order. The counter table, the journal and the generated
	// type use the same names.
	Key []Column
	// Measures, in order.
	Measures []Measure
	// Sources are the counted tables.
	Sources []*Source

	// assumeBuilt lets tests read tables made by hand, which nothing has built.
	assumeBuilt bool
}

// Column is a typed column of a table.
type Column struct {
	Name string
	// Type is the ent type of the column.
	Type field.Type
	// Faithful tells that the database stores a value of this column exactly as
	// ent passes it, so that a value in a mutation is the value of the row. It is
	// false for columns with a database type of the user's own choice.
	Faithful bool
	// Bits is the size of an integer column in bits, 0 for other types.
	Bits int
	// Values are those that an enum column of a key can have.
	Values []string
}

// Measure is one additive quantity of a counter.
type Measure struct {
	// Name is the column on the counter table and on the generated type.
	Name string
	// Delta is the column on the journal.
	Delta string
}

// Source tells how rows of one counted table map to keys and measures.
type Source struct {
	// Table is the counted table.
	Table string
	// Joins are the tables beside it that a row's key, measures or conditions are
	// read from, each after the one that refers to it.
	Joins []Join
	// Key terms, in the order of Definition.Key.
	Key []Term
	// Measures in the order of Definition.Measures.
	Measures []Summand
	// Where restricts the rows that are counted; nil for all.
	Where *Condition
}

// Join leads from a row to the one that it refers to.
type Join struct {
	// Table that is referred to.
	Table string
	// From is the place of the table that refers: 0 is the counted table, n is
	// Joins[n-1].
	From int
	// Column refers to RefColumn.
	Column, RefColumn Column
}

// Term is a value that a source reads from a row.
type Term struct {
	// Column of a table; without a name for a literal.
	Column
	// Join is the place of that table: 0 is the counted table, n is Joins[n-1].
	Join int
	// Literal is the value itself, where it is the same for all rows of a source.
	Literal any
	// Bucket is the period of UTC that a time is reduced to; empty for none.
	Bucket Period
	// Zoneless lists the dialects in which the column of a time holds date and time
	// of day without a zone, which are taken for UTC.
	Zoneless []string
	// Null is the value under which NULL is counted; nil if it is not.
	Null any
}

// Summand is what a row adds to a measure.
type Summand struct {
	// Column that is summed; without a name, 1 for each row.
	Term
	// Factor makes an integer of a fixed-point number, such as 100 for one with two
	// decimal places; 0 where the column holds integers.
	Factor int64
	// If restricts the rows that add anything; nil for all.
	If *Condition
}

// Table is a table that ent writes and that the hooks need to know.
type Table struct {
	Name string
	// ID columns: one, or two for an edge schema with a composite id.
	ID []Column
	// Unique lists the column sets of the unique indexes, the primary key not
	// included.
	Unique [][]Column
	// Defaults names the columns for which the database supplies a value when an
	// insert leaves them out.
	Defaults []string
	// DeleteTogether tells that rows of the table, or rows that go with them, can refer
	// to each other by a foreign key without a delete action, so that several may go in
	// one statement only.
	DeleteTogether bool
	// ReferencedBy lists the foreign keys that point at this table and whose
	// delete action reaches a counted row, directly or further on.
	ReferencedBy []ForeignKey
}

// ForeignKey is a reference to a table from a column of another (or the same).
type ForeignKey struct {
	// Table that holds the column.
	Table string
	// Column that refers, and the column it refers to.
	Column, RefColumn Column
	// OnDelete is what the database does to the referring rows.
	OnDelete DeleteAction
}

// DeleteAction is what a foreign key does when the row it refers to is deleted.
type DeleteAction string

// The delete actions that change rows.
const (
	Cascade DeleteAction = "CASCADE"
	SetNull DeleteAction = "SET NULL"
)

// LockTable is the table that serialises folds and rebuilds. All counters of a
// database share it.
const LockTable = "counter_locks"

// Columns of the generated tables that are no key and no measure. A counter
// cannot use them as names of its own.
const (
	// ColumnUpdatedAt is the newest insertion time of any delta of a key.
	ColumnUpdatedAt = "updated_at"
	// ColumnPending is the number of journal rows that a read had to add. It is a
	// column of the generated type only.
	ColumnPending = "pending"
	// ColumnInsertedAt is the time at which the database took a journal row.
	ColumnInsertedAt = "inserted_at"
	// ColumnJournalID is the primary key of the journal.
	ColumnJournalID = "id"
)

// Counter returns the definition of the named counter. It panics if the schema
// has none, which only wrong generated code can bring about.
func (s *Schema) Counter(name string) *Definition {
	for _, d := range s.Counters {
		if d.Name == name {
			return d
		}
	}
	panic(fmt.Sprintf("entcounter: no counter %q in schema", name))
}
