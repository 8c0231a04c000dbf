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
	// Reads are the key fields that reads fix, where an index is expected.
	Reads [][]string `json:"reads,omitempty"`
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
// journal is paid on every write. See [Reads].
func ReadIndex(fields ...string) Option {
	return func(d *Declaration) { d.ReadIndexes = append(d.ReadIndexes, fields) }
}

// Reads declares that the application reads by the given key fields: that it fixes
// each of them to a value or a list of values, in whatever order. It changes
// nothing that is generated. Where neither the key nor a [ReadIndex] begins with
// these fields, code generation warns on standard error that such a read scans both
// tables.
func Reads(fields ...string) Option {
	return func(d *Declaration) { d.Reads = append(d.Reads, fields) }
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
