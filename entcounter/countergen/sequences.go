package countergen

import (
	"fmt"
	"slices"
	"strings"

	"entgo.io/ent/dialect/sql/schema"
	"entgo.io/ent/entc/gen"
	"entgo.io/ent/schema/field"
	"github.com/entcounter/entcounter/entcounter"
)

// sequence is one declared sequence, checked and resolved against the graph.
type sequence struct {
	entcounter.SequenceDeclaration
	// Owner is the type whose rows are numbered.
	Owner *gen.Type
	// Number is the field that holds the numbers, Scope those that make a scope.
	Number     *gen.Field
	Scope      []*keyColumn
	Definition *entcounter.SequenceDefinition
}

// errorf makes an error about the sequence. Its text names the type, the field and,
// in the caller's words, the mend.
func (s *sequence) errorf(format string, args ...any) error {
	return fmt.Errorf("entcounter: type %s: sequence %q: %w", s.Owner.Name, s.Field, fmt.Errorf(format, args...))
}

// declaredSequences collects the declared sequences in the order of the types.
func declaredSequences(g *gen.Graph) ([]*sequence, error) {
	var all []*sequence
	for _, t := range g.Nodes {
		raw, ok := t.Annotations[entcounter.AnnotationName]
		if !ok {
			continue
		}
		var a entcounter.Annotation
		if err := a.Decode(raw); err != nil {
			return nil, fmt.Errorf("entcounter: type %s: %w", t.Name, err)
		}
		for _, d := range a.Sequences {
			all = append(all, &sequence{SequenceDeclaration: d, Owner: t})
		}
	}
	return all, nil
}

// resolveSequences checks the sequences and describes them to the runtime.
func resolveSequences(g *gen.Graph, sequences []*sequence, counters []*counter, tables []*schema.Table) error {
	names := make(map[string]string) // of tables
	for _, t := range tables {
		names[strings.ToLower(t.Name)] = fmt.Sprintf("the table %q", t.Name)
	}
	for _, c := range counters {
		for _, table := range []string{c.Definition.Table, c.Definition.Journal} {
			names[table] = fmt.Sprintf("counter %q of type %s", c.Name, c.Owner().Name)
		}
	}
	for i, s := range sequences {
		if i == 0 && len(counters) == 0 {
			for _, t := range g.Nodes {
				if strings.EqualFold(t.Name, "entcounter") {
					return s.errorf("type %s takes the name of the generated file entcounter.go: rename the type", t.Name)
				}
			}
		}
		if s.Owner.IsView() {
			return s.errorf("%s is a view: declare the sequence on the type whose rows are created", s.Owner.Name)
		}
		for _, other := range sequences[:i] {
			if other.Owner == s.Owner && other.Field == s.Field {
				return s.errorf("it is declared twice: remove one of the two")
			}
		}
		j := slices.IndexFunc(tables, func(t *schema.Table) bool { return t.Name == s.Owner.Table() })
		if j < 0 {
			return s.errorf("the table of %s is left out by entsql.Skip: a numbered table must be part of the schema", s.Owner.Name)
		}
		if err := s.resolve(tables[j]); err != nil {
			return err
		}
		for _, other := range sequences[:i] {
			if slices.ContainsFunc(s.Scope, func(k *keyColumn) bool { return k.Field == other.Number }) ||
				slices.ContainsFunc(other.Scope, func(k *keyColumn) bool { return k.Field == s.Number }) {
				return s.errorf("the numbers of one sequence cannot be the scope of another, %q: use another field", other.Field)
			}
		}
		table := s.Definition.Table
		if taken, ok := names[table]; ok {
			return s.errorf("the generated table would be named %q, which is taken by %s: rename that", table, taken)
		}
		names[table] = fmt.Sprintf("sequence %q of type %s", s.Field, s.Owner.Name)
		if n := len(table); n > maxIdentifier {
			return s.errorf("the generated table would be named %q, which is %d bytes too long: shorten the name of the field", table, n-maxIdentifier)
		}
	}
	return nil
}

// resolve finds and checks the fields and the index of the sequence.
func (s *sequence) resolve(table *schema.Table) error {
	if s.Start == 0 {
		s.Start = 1
	}
	if s.Start < 0 {
		return s.errorf("it starts at %d: entcounter.Start takes a positive number", s.Start)
	}
	var err error
	if s.Number, err = s.field("", s.Field); err != nil {
		return err
	}
	f := s.Number
	column, ok := table.Column(f.StorageKey())
	switch {
	case !f.Type.Type.Integer():
		return s.errorf("the field is of type %s: only an integer can hold numbers", f.Type.Type)
	case f.HasValueScanner(), f.Type.ValueScanner(), f.HasGoType() && !f.ConvertedToBasic():
		return s.errorf("the field has a Go type that converts its values: use a plain integer")
	case !ok:
		return s.errorf("the field has no column: it is left out by entsql.Skip")
	case f.IsEdgeField():
		return s.errorf("the field is that of an edge: use a field of its own")
	case f.Default:
		return s.errorf("the field has a default, which would be taken for a number: remove it")
	case !f.Optional:
		return s.errorf("the field is required, but callers do not set it: add Optional()")
	case !f.Immutable:
		return s.errorf("the field can be changed by an update: add Immutable()")
	case len(column.SchemaType) > 0:
		return s.errorf("the field has a database type of its own, which may store another number: remove SchemaType")
	}
	number := columnOf(column)
	if !fits(number, s.Start) {
		return s.errorf("it starts at %d, which a field of type %s cannot hold: use a larger type", s.Start, f.Type.Type)
	}
	s.Definition = &entcounter.SequenceDefinition{
		Name:     s.Owner.Name + "." + s.Field,
		Table:    snake(s.Owner.Name) + "_" + snake(s.Field) + "_sequence",
		Numbered: table.Name,
		Number:   number,
		Start:    s.Start,
	}
	if err := s.resolveScope(table); err != nil {
		return err
	}
	return s.checkIndex(table)
}

// fits reports whether an integer column holds a number.
func fits(c entcounter.Column, n int64) bool {
	size := c.Bits
	if !strings.HasPrefix(c.Type.String(), "uint") {
		size--
	}
	return size >= 63 || n < 1<<size
}

// resolveScope finds and checks the fields of the scope.
func (s *sequence) resolveScope(table *schema.Table) error {
	if n := len(s.Per); n > maxKeyFields {
		return s.errorf("the scope has %d fields, and an index no more than %d in MySQL: leave some out", n, maxKeyFields)
	}
	size := 0
	for i, name := range s.Per {
		if name == s.Field {
			return s.errorf("the field is part of its own scope: remove it from entcounter.Per")
		}
		if slices.Contains(s.Per[:i], name) {
			return s.errorf("scope field %q is listed twice: remove one of the two", name)
		}
		f, err := s.field("scope ", name)
		if err != nil {
			return err
		}
		column, ok := table.Column(f.StorageKey())
		switch mend := unfitForKey(f); {
		case mend != "":
			return s.errorf("scope field %q is of type %s: %s", name, f.Type.Type, mend)
		case f.HasValueScanner():
			return s.errorf("scope field %q has an external ValueScanner, with which rows cannot be found in the database: use a GoType that implements field.ValueScanner", name)
		case !ok:
			return s.errorf("scope field %q has no column: it is left out by entsql.Skip", name)
		case f.Optional, f.Nillable:
			return s.errorf("scope field %q is optional, and a row without it would belong to no scope: make it required", name)
		case !f.Immutable:
			return s.errorf("scope field %q can be changed by an update, which would take a row with its number into another scope: add Immutable(), also to its edge if it has one", name)
		case column.Name == entcounter.ColumnNextNumber:
			return s.errorf("scope field %q: the generated table has a column of this name: rename the field", name)
		}
		n, mend := keyBytes(column)
		if mend != "" {
			return s.errorf("scope field %q cannot be indexed: %s", name, mend)
		}
		if size += n; size > maxKeyBytes {
			return s.errorf("the scope takes more than the %d bytes that an index can have: limit field %q with MaxLen, or leave it out", maxKeyBytes, name)
		}
		s.Scope = append(s.Scope, &keyColumn{Name: name, Field: f, Owner: s.Owner, Column: column})
		s.Definition.Scope = append(s.Definition.Scope, columnOf(column))
	}
	return nil
}

// field finds a field of the numbered type by its name.
func (s *sequence) field(use, name string) (*gen.Field, error) {
	names := make([]string, len(s.Owner.Fields))
	for i, f := range s.Owner.Fields {
		if f.Name == name {
			return f, nil
		}
		names[i] = f.Name
	}
	if id := s.Owner.ID; id != nil && id.Name == name {
		return nil, s.errorf("%sfield %q is the primary key: use another field", use, name)
	}
	for _, e := range s.Owner.Edges {
		switch {
		case e.Name != name && (!e.OwnFK() || e.Rel.Column() != name):
		case !e.OwnFK():
			return nil, s.errorf("%sfield %q is an edge whose column is not in the table of %s: use a field of %[3]s", use, name, s.Owner.Name)
		case e.Field() != nil:
			return nil, s.errorf("%sfield %q is an edge: use its field %q", use, name, e.Field().Name)
		default:
			return nil, s.errorf("%sfield %q is an edge without a field: declare a field %q, add Field(%[3]q) to the edge %q, and use %[3]q", use, name, snake(e.Name)+"_id", e.Name)
		}
	}
	return nil, s.errorf("%sfield %q does not exist in %s: it has %s", use, name, s.Owner.Name, strings.Join(names, ", "))
}

// checkIndex makes sure that a unique index holds the scope and then the number: it
// keeps the numbers apart whoever writes them, and finds the greatest one.
func (s *sequence) checkIndex(table *schema.Table) error {
	if len(s.Scope) == 0 {
		if column, ok := table.Column(s.Number.StorageKey()); ok && column.Unique {
			return nil
		}
	}
	for _, idx := range table.Indexes {
		last := len(idx.Columns) - 1
		if !idx.Unique || isPartial(idx) || last != len(s.Scope) || idx.Columns[last].Name != s.Definition.Number.Name {
			continue
		}
		if !slices.ContainsFunc(idx.Columns[:last], func(c *schema.Column) bool {
			return !slices.ContainsFunc(s.Scope, func(k *keyColumn) bool { return k.Column.Name == c.Name })
		}) {
			return nil
		}
	}
	if len(s.Scope) == 0 {
		return s.errorf("nothing keeps two rows from having one number: add Unique() to the field")
	}
	quoted := make([]string, 0, len(s.Scope)+1)
	for _, name := range append(slices.Clone(s.Per), s.Field) {
		quoted = append(quoted, fmt.Sprintf("%q", name))
	}
	return s.errorf("nothing keeps two rows of a scope from having one number: add index.Fields(%s).Unique() to the indexes of %s, with the number last", strings.Join(quoted, ", "), s.Owner.Name)
}

// table returns the table of the sequence.
func (s *sequence) table() *schema.Table {
	t := schema.NewTable(s.Definition.Table).
		SetComment(fmt.Sprintf("The next number of each scope of the sequence %s.", s.Definition.Name))
	for _, k := range s.Scope {
		t.AddPrimary(tableColumn(k.Column))
	}
	if len(s.Scope) == 0 {
		t.AddPrimary(&schema.Column{Name: entcounter.ColumnSequenceID, Type: field.TypeInt64})
	}
	return t.AddColumn(&schema.Column{Name: entcounter.ColumnNextNumber, Type: field.TypeInt64})
}

// sequenceTables returns the tables that keep the sequences.
func sequenceTables(sequences []*sequence, tables []*schema.Table) []*schema.Table {
	var all []*schema.Table
	for _, s := range sequences {
		i := slices.IndexFunc(tables, func(t *schema.Table) bool { return t.Name == s.Owner.Table() })
		t := s.table()
		t.Annotation = textAnnotation(tables[i].Annotation)
		all = append(all, t)
	}
	return all
}

// withNumbered adds the numbered tables to those that the runtime must know.
func withNumbered(described []*entcounter.Table, sequences []*sequence, tables []*schema.Table) []*entcounter.Table {
	for _, s := range sequences {
		i, found := slices.BinarySearchFunc(described, s.Owner.Table(), func(t *entcounter.Table, name string) int { return strings.Compare(t.Name, name) })
		if !found {
			j := slices.IndexFunc(tables, func(t *schema.Table) bool { return t.Name == s.Owner.Table() })
			described = slices.Insert(described, i, describe(tables[j]))
		}
	}
	return described
}

// SequencesOf returns the sequences over a type.
func (p *plan) SequencesOf(typeName string) []*sequence {
	if p == nil {
		return nil
	}
	var found []*sequence
	for _, s := range p.Sequences {
		if s.Owner.Name == typeName {
			found = append(found, s)
		}
	}
	return found
}
