// Package entcounter keeps exact counts for ent schemas.
//
// A schema annotation declares a counter by its key and measures. Generated
// code sees every write that ent makes, derives signed deltas from the rows as
// found under lock and appends them to a journal in the same transaction. A
// read sums folded rows and journal in one statement; a fold, run by a
// [Worker], moves the journal into the counter rows.
//
// This package is what runs in a user's binary. Code generation lives in
// package countergen below it.
package entcounter

import (
	"encoding/json"
	"fmt"
	"strings"

	"entgo.io/ent/schema"
)

// AnnotationName is the key under which ent stores the declarations of a type.
const AnnotationName = "EntCounter"

// Annotation holds the counters and sequences declared on one ent type. It is
// made by [Counter] and [Sequence], and merged by ent when a type and its mixins
// declare several.
type Annotation struct {
	Counters  []Declaration         `json:"counters,omitempty"`
	Sequences []SequenceDeclaration `json:"sequences,omitempty"`
}

// Declaration is one declared counter, or what one type declares of a counter over
// several.
type Declaration struct {
	// Name of the counter, an exported Go identifier such as "File". The
	// generated type is named <Name>Counters.
	Name string `json:"name,omitempty"`
	// Over is the many-to-many edge whose pairs are counted; empty where rows of
	// the type are.
	Over string `json:"over,omitempty"`
	// Key lists the columns that rows are grouped by, in order. A read that fixes a
	// prefix of the key is one index range.
	Key []KeyDeclaration `json:"key,omitempty"`
	// Measures are the quantities summed for each key.
	Measures []MeasureDeclaration `json:"measures,omitempty"`
	// Where are the conditions that counted rows meet, all of them.
	Where []Condition `json:"where,omitempty"`
	// ReadIndexes are further indexes on the counter and journal tables, each
	// an ordered list of key columns.
	ReadIndexes [][]string `json:"read_indexes,omitempty"`
	// Reads are the key columns that reads fix, where an index is expected.
	Reads [][]string `json:"reads,omitempty"`
	// JournalPartitions is how many partitions the journal has on MySQL and
	// MariaDB, 0 for none.
	JournalPartitions int `json:"journal_partitions,omitempty"`
}

// KeyDeclaration is one column of a key.
type KeyDeclaration struct {
	// Name of the column, in ent field style.
	Name string `json:"name,omitempty"`
	// Field is the path of the field that the column has its values from; empty for
	// a literal.
	Field string `json:"field,omitempty"`
	// Literal is the value that all rows of the type have in the column.
	Literal string `json:"literal,omitempty"`
	// Bucket is the period that a time is reduced to; empty for none.
	Bucket Period `json:"bucket,omitempty"`
	// Null is the value under which NULL is counted: one, or none if it is not.
	Null Constants `json:"null,omitempty"`
}

// MeasureDeclaration is one additive quantity of a counter.
type MeasureDeclaration struct {
	// Name of the measure, in ent field style: "count", "bytes".
	Name string `json:"name,omitempty"`
	// Field is the path of the field whose values are summed; empty for a count of
	// rows.
	Field string `json:"field,omitempty"`
	// Scale is the number of decimal places that are summed of a decimal field; nil
	// for an integer field.
	Scale *int `json:"scale,omitempty"`
	// If are the conditions that rows meet which add to the measure, all of them.
	If []Condition `json:"if,omitempty"`
}

// Option is a part of a counter's declaration.
type Option func(*Declaration)

// Counter declares a counter over the rows of the type it annotates. The name
// is an exported Go identifier: Counter("File", …) generates the ent type
// FileCounters and the tables file_counters and file_counter_journal.
//
//	func (File) Annotations() []schema.Annotation {
//		return []schema.Annotation{
//			entcounter.Counter("File",
//				entcounter.Key("dataset_id", "status"),
//				entcounter.Count("count"),
//				entcounter.Sum("bytes", "size"),
//			),
//		}
//	}
//
// Several types may declare parts of one counter: the same name, key columns and
// measures, and a [Literal] that tells the types apart.
//
// Where an option takes a field, it may be a path over unique edges:
// "dataset.status" is the status of the row's dataset. The edges' foreign keys must
// be enforced by the database. A declaration is checked when code is generated.
func Counter(name string, options ...Option) schema.Annotation {
	d := Declaration{Name: name}
	for _, opt := range options {
		opt(&d)
	}
	return Annotation{Counters: []Declaration{d}}
}

// Key names the fields that rows are grouped by. The order decides which reads
// are one index range: a read that fixes a prefix of the key is. Key columns are
// named after their fields, with _ for the dot of a path; for other names there is
// [KeyAs]. All options that add key columns may be repeated.
func Key(fields ...string) Option {
	return func(d *Declaration) {
		for _, f := range fields {
			d.Key = append(d.Key, KeyDeclaration{Name: strings.ReplaceAll(f, ".", "_"), Field: f})
		}
	}
}

// KeyAs adds a key column of another name than its field's.
func KeyAs(name, field string) Option {
	return func(d *Declaration) { d.Key = append(d.Key, KeyDeclaration{Name: name, Field: field}) }
}

// Literal adds a key column in which all rows of the type have the given value. It
// tells the types of a counter over several apart.
func Literal(name, value string) Option {
	return func(d *Declaration) { d.Key = append(d.Key, KeyDeclaration{Name: name, Literal: value}) }
}

// Bucket adds a key column for the period of a time field, in UTC: its values are
// the texts that [Period.Of] returns.
func Bucket(name string, period Period, field string) Option {
	return func(d *Declaration) { d.Key = append(d.Key, KeyDeclaration{Name: name, Field: field, Bucket: period}) }
}

// NullAs counts rows that have NULL in a key column under the given value: a string,
// integer or bool as the column has. Without it, a row with NULL in a key column
// belongs to no group and is not counted.
func NullAs(column string, value any) Option {
	return func(d *Declaration) {
		for i := range d.Key {
			if d.Key[i].Name == column {
				d.Key[i].Null = Constants{value}
				return
			}
		}
		// Named in the error of code generation.
		d.Key = append(d.Key, KeyDeclaration{Name: column, Null: Constants{value}})
	}
}

// Over counts the pairs of a many-to-many edge instead of the rows of the type: an
// entry with three terms is three pairs. Fields of the pair's other side are paths
// that begin with the edge: Key("terms.id", "status") on an Entry is, for each term,
// the number of its entries in each status.
func Over(edge string) Option {
	return func(d *Declaration) { d.Over = edge }
}

// Where restricts the counted rows to those that meet all of the conditions, for
// example those that are not softly deleted: Where(IsNull("deleted_at")).
func Where(conditions ...Condition) Option {
	return func(d *Declaration) { d.Where = append(d.Where, conditions...) }
}

// Count declares a measure that counts rows: all, or those that meet all of the
// conditions.
func Count(name string, conditions ...Condition) Option {
	return func(d *Declaration) {
		d.Measures = append(d.Measures, MeasureDeclaration{Name: name, If: conditions})
	}
}

// Sum declares a measure that sums an integer field over all rows, or those that
// meet all of the conditions. A NULL adds zero.
func Sum(name, field string, conditions ...Condition) Option {
	return func(d *Declaration) {
		d.Measures = append(d.Measures, MeasureDeclaration{Name: name, Field: field, If: conditions})
	}
}

// SumDecimal declares a measure that sums a field stored as a fixed-point number: of
// database type decimal or numeric. The measure is an integer in units of the last
// of the given number of decimal places: with a scale of 2, the sum of 1.50 and 0.25
// is 175. Further places are rounded, row by row.
func SumDecimal(name, field string, scale int, conditions ...Condition) Option {
	return func(d *Declaration) {
		d.Measures = append(d.Measures, MeasureDeclaration{Name: name, Field: field, Scale: &scale, If: conditions})
	}
}

// ReadIndex adds an index over the given key columns to the counter and the
// journal table, for reads that fix no prefix of the key. Every index on the
// journal is paid on every write. See [Reads].
func ReadIndex(columns ...string) Option {
	return func(d *Declaration) { d.ReadIndexes = append(d.ReadIndexes, columns) }
}

// Reads declares that the application reads by the given key columns: that it fixes
// each of them to a value or a list of values, in whatever order. It changes
// nothing that is generated. Where neither the key nor a [ReadIndex] begins with
// these columns, code generation warns on standard error that such a read scans both
// tables.
func Reads(columns ...string) Option {
	return func(d *Declaration) { d.Reads = append(d.Reads, columns) }
}

// PartitionJournal divides the journal by hash of its id into n partitions, 2 to
// 1024, on MySQL and MariaDB; 0 is the default: none. Inserts then end on n pages
// and not on one, which may help where many writers on many cores wait for that
// page. Each read looks into every partition: measure both before using it.
//
// Partitions are made with the table. One that is there already keeps what it has,
// until a migration of your own says ALTER TABLE … PARTITION BY HASH (id) PARTITIONS
// n. SQLite has no partitions, and on PostgreSQL the option is ignored: ent's
// migrations neither create partitions there nor bear a table that has some.
func PartitionJournal(n int) Option {
	return func(d *Declaration) { d.JournalPartitions = n }
}

// SequenceDeclaration is one declared sequence.
type SequenceDeclaration struct {
	// Field that the numbers are stored in.
	Field string `json:"field,omitempty"`
	// Per lists the fields whose values make a scope. Without any, all rows share
	// one sequence.
	Per []string `json:"per,omitempty"`
	// Start is the first number of a scope without rows, 1 if it is zero.
	Start int64 `json:"start,omitempty"`
}

// SequenceOption is a part of a sequence's declaration.
type SequenceOption func(*SequenceDeclaration)

// Sequence declares that a field of the type it annotates holds consecutive
// numbers: each created row gets the next one, in the transaction that creates
// it. No number is given twice, and none is left out, whatever fails or is rolled
// back. A field of the schema, with an index that keeps the numbers unique, holds
// them:
//
//	func (Task) Annotations() []schema.Annotation {
//		return []schema.Annotation{
//			entcounter.Sequence("number", entcounter.Per("project_id")),
//		}
//	}
//
//	func (Task) Fields() []ent.Field {
//		return []ent.Field{
//			field.Int("project_id").Immutable(),
//			field.Int("number").Optional().Immutable(),
//		}
//	}
//
//	func (Task) Indexes() []ent.Index {
//		return []ent.Index{index.Fields("project_id", "number").Unique()}
//	}
//
// The field is Optional because callers do not set it, and Immutable because
// nobody changes it. The node that Create or CreateBulk returns has its number; a
// create that sets the field is refused.
//
// From the create to the end of its transaction, other creates in the same scope
// wait. That is the price of leaving no number out.
func Sequence(field string, options ...SequenceOption) schema.Annotation {
	d := SequenceDeclaration{Field: field}
	for _, opt := range options {
		opt(&d)
	}
	return Annotation{Sequences: []SequenceDeclaration{d}}
}

// Per gives each combination of values of the given fields a sequence of its own.
// The fields must be required and Immutable: a row keeps its number, and so its
// scope.
func Per(fields ...string) SequenceOption {
	return func(d *SequenceDeclaration) { d.Per = append(d.Per, fields...) }
}

// Start sets the first number of a scope without rows. It is positive; the default
// is 1. A scope that has numbered rows when it is first used goes on after their
// greatest number.
func Start(number int64) SequenceOption {
	return func(d *SequenceDeclaration) { d.Start = number }
}

// Name implements [schema.Annotation].
func (Annotation) Name() string { return AnnotationName }

// Merge implements [schema.Merger]: the counters and sequences of both annotations
// are kept, in order. Two counters of one name are kept too, so that code
// generation can name the conflict instead of losing one of them.
func (a Annotation) Merge(other schema.Annotation) schema.Annotation {
	var o Annotation
	switch other := other.(type) {
	case Annotation:
		o = other
	case *Annotation:
		if other != nil {
			o = *other
		}
	default:
		return a
	}
	merged := make([]Declaration, 0, len(a.Counters)+len(o.Counters))
	merged = append(merged, a.Counters...)
	sequences := make([]SequenceDeclaration, 0, len(a.Sequences)+len(o.Sequences))
	sequences = append(sequences, a.Sequences...)
	return Annotation{
		Counters:  append(merged, o.Counters...),
		Sequences: append(sequences, o.Sequences...),
	}
}

// Decode reads the annotation back from the form in which ent's loader hands
// it to extensions.
func (a *Annotation) Decode(annotation any) error {
	buf, err := json.Marshal(annotation)
	if err != nil {
		return fmt.Errorf("entcounter: encoding annotation: %w", err)
	}
	if err := json.Unmarshal(buf, a); err != nil {
		return fmt.Errorf("entcounter: decoding annotation: %w", err)
	}
	return nil
}

var (
	_ schema.Annotation = Annotation{}
	_ schema.Merger     = Annotation{}
)
