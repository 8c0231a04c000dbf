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

	"entgo.io/ent/schema"
)

// AnnotationName is the key under which ent stores the declarations of a type.
const AnnotationName = "EntCounter"

// Annotation holds the counters declared on one ent type. It is made by
// [Counter] and merged by ent when a type and its mixins declare several.
type Annotation struct {
	Counters []Declaration `json:"counters,omitempty"`
}

// Declaration is one declared counter.
type Declaration struct {
	// Name of the counter, an exported Go identifier such as "File". The
	// generated type is named <Name>Counters.
	Name string `json:"name,omitempty"`
	// Key lists the fields that rows are grouped by, in order. A read that
	// fixes a prefix of the key is one index range.
	Key []string `json:"key,omitempty"`
	// Measures are the quantities summed for each key.
	Measures []MeasureDeclaration `json:"measures,omitempty"`
	// ReadIndexes are further indexes on the counter and journal tables, each
	// an ordered list of key fields.
	ReadIndexes [][]string `json:"read_indexes,omitempty"`
	// JournalPartitions is how many partitions the journal has on MySQL and
	// MariaDB, 0 for none.
	JournalPartitions int `json:"journal_partitions,omitempty"`
}

// MeasureDeclaration is one additive quantity of a counter.
type MeasureDeclaration struct {
	// Name of the measure, in ent field style: "count", "bytes".
	Name string `json:"name,omitempty"`
	// Field whose values are summed; empty for a count of rows.
	Field string `json:"field,omitempty"`
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
// A declaration is checked when code is generated.
func Counter(name string, options ...Option) schema.Annotation {
	d := Declaration{Name: name}
	for _, opt := range options {
		opt(&d)
	}
	return Annotation{Counters: []Declaration{d}}
}

// Key names the fields that rows are grouped by. The order decides which reads
// are one index range: a read that fixes a prefix of the key is.
func Key(fields ...string) Option {
	return func(d *Declaration) { d.Key = append(d.Key, fields...) }
}

// Count declares a measure that counts rows.
func Count(name string) Option {
	return func(d *Declaration) {
		d.Measures = append(d.Measures, MeasureDeclaration{Name: name})
	}
}

// Sum declares a measure that sums an integer field. A NULL adds zero.
func Sum(name, field string) Option {
	return func(d *Declaration) {
		d.Measures = append(d.Measures, MeasureDeclaration{Name: name, Field: field})
	}
}

// ReadIndex adds an index over the given key fields to the counter and the
// journal table, for reads that fix no prefix of the key. Every index on the
// journal is paid on every write.
func ReadIndex(fields ...string) Option {
	return func(d *Declaration) { d.ReadIndexes = append(d.ReadIndexes, fields) }
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

// Name implements [schema.Annotation].
func (Annotation) Name() string { return AnnotationName }

// Merge implements [schema.Merger]: the counters of both annotations are kept,
// in order. Two counters of one name are kept too, so that code generation can
// name the conflict instead of losing one of them.
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
	return Annotation{Counters: append(merged, o.Counters...)}
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
