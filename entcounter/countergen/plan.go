package countergen

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"entgo.io/ent/dialect/sql/schema"
	"entgo.io/ent/entc/gen"
	"entgo.io/ent/schema/field"
	"github.com/entcounter/entcounter/entcounter"
)

// plan is everything that the templates need to know about the counters of one
// graph.
type plan struct {
	Counters  []*counter
	Sequences []*sequence
	// Tables that the runtime must know, sorted by name.
	Tables []*entcounter.Table
	// Migrate lists the generated tables: two for each counter, then the locks, then
	// one for each sequence.
	Migrate []*schema.Table
	// Sqlgraph lists what the drop-in package exports.
	Sqlgraph *exports
}

// counter is one declared counter, checked and resolved against the graph.
type counter struct {
	// Name as declared.
	Name string
	// Parts are the declarations of the counter, by one type or several.
	Parts []*part
	// Type is the name of the generated view: FileCounters.
	Type string
	// View is the generated view, once the graph has it.
	View       *gen.Type
	Key        []*keyColumn
	Measures   []*measure
	Definition *entcounter.Definition
}

// Owner is the type that the counter, or its first part, is declared on.
func (c *counter) Owner() *gen.Type { return c.Parts[0].Owner }

// Rows names what is counted, for people.
func (c *counter) Rows() string {
	var names []string
	for _, p := range c.Parts {
		name := p.Owner.Name
		if p.Over != "" {
			name += "." + p.Over
		}
		names = append(names, name)
	}
	return enumerate(names)
}

// measure is one measure of a counter.
type measure struct {
	entcounter.MeasureDeclaration
	// Field that is summed, nil for a count of rows.
	Summed *gen.Field
}

// StructField returns the name of the measure in Go.
func (m *measure) StructField() string { return pascal(m.Name) }

// Constant returns the name of the column's constant in the view's package.
func (m *measure) Constant() string { return "Field" + pascal(m.Name) }

// newPlan reads and checks the counters and sequences that the types of a graph
// declare. It returns nil if there are none.
func newPlan(g *gen.Graph) (*plan, error) {
	declared, err := declarations(g)
	if err != nil {
		return nil, err
	}
	sequences, err := declaredSequences(g)
	if err != nil || len(declared)+len(sequences) == 0 {
		return nil, err
	}
	if g.Storage == nil || g.Storage.Name != "sql" {
		return nil, fmt.Errorf("entcounter: counters and sequences need an SQL database: generate with the storage driver %q", "sql")
	}
	var errorf func(format string, args ...any) error
	if len(declared) > 0 {
		errorf = declared[0].errorf
	} else {
		errorf = sequences[0].errorf
	}
	if err := checkSchemas(g, errorf); err != nil {
		return nil, err
	}
	tables, err := g.Tables()
	if err != nil {
		return nil, err
	}
	p := &plan{Counters: declared, Sequences: sequences}
	if err := checkNames(g, p.Counters, tables); err != nil {
		return nil, err
	}
	for _, c := range p.Counters {
		if err := c.resolve(tables); err != nil {
			return nil, err
		}
	}
	if p.Tables, err = reach(p.Counters, tables); err != nil {
		return nil, err
	}
	if err := resolveSequences(g, sequences, p.Counters, tables); err != nil {
		return nil, err
	}
	p.Tables = withNumbered(p.Tables, sequences, tables)
	if len(p.Counters) > 0 {
		p.Migrate = migrateTables(p.Counters, tables)
	}
	p.Migrate = append(p.Migrate, sequenceTables(sequences, tables)...)
	return p, nil
}

// declarations collects the declared counters in the order of the types.
func declarations(g *gen.Graph) ([]*counter, error) {
	var all []*counter
	for _, t := range g.Nodes {
		raw, ok := t.Annotations[entcounter.AnnotationName]
		if !ok {
			continue
		}
		var a entcounter.Annotation
		if err := a.Decode(raw); err != nil {
			return nil, fmt.Errorf("entcounter: type %s: %w", t.Name, err)
		}
		for _, d := range a.Counters {
			p := &part{Declaration: d, Owner: t}
			i := slices.IndexFunc(all, func(c *counter) bool { return c.Name == d.Name })
			if i < 0 {
				i = len(all)
				all = append(all, &counter{Name: d.Name, Type: d.Name + "Counters"})
			}
			p.counter = all[i]
			all[i].Parts = append(all[i].Parts, p)
		}
	}
	return all, nil
}

// Package returns the import path of the view's package.
func (c *counter) Package() string {
	return path.Join(c.Owner().Config.Package, strings.ToLower(c.Type))
}

// Client returns the type name of the view's client.
func (c *counter) Client() string { return c.View.ClientName() }

// HasPartitions reports whether any journal is partitioned.
func (p *plan) HasPartitions() bool {
	return slices.ContainsFunc(p.Counters, func(c *counter) bool { return c.JournalPartitions() > 0 })
}

// Counter returns the counter behind a generated type, or nil.
func (p *plan) Counter(typeName string) *counter {
	if p == nil {
		return nil
	}
	for _, c := range p.Counters {
		if c.Type == typeName {
			return c
		}
	}
	return nil
}

// resolve finds the declared fields and describes the counter to the runtime.
func (c *counter) resolve(tables []*schema.Table) error {
	table, journal := c.tableNames()
	c.Definition = &entcounter.Definition{Name: c.Name, Table: table, Journal: journal}
	for _, p := range c.Parts {
		if err := p.resolve(tables); err != nil {
			return err
		}
		c.Definition.Sources = append(c.Definition.Sources, p.source)
	}
	first := c.Parts[0]
	c.Key, c.Measures = first.key, first.measures
	for _, p := range c.Parts[1:] {
		if err := c.unite(p); err != nil {
			return err
		}
	}
	if err := c.checkReadIndexes(); err != nil {
		return err
	}
	if err := c.checkReads(); err != nil {
		return err
	}
	for _, k := range c.Key {
		column := columnOf(k.Column)
		column.Values = k.Column.Enums
		c.Definition.Key = append(c.Definition.Key, column)
	}
	for _, m := range c.Measures {
		c.Definition.Measures = append(c.Definition.Measures, entcounter.Measure{Name: m.Name, Delta: m.Name + "_delta"})
	}
	return c.checkColumns()
}

// columnOf describes a column to the runtime.
func columnOf(c *schema.Column) entcounter.Column {
	return entcounter.Column{
		Name:     c.Name,
		Type:     c.Type,
		Faithful: faithful(c),
		Bits:     bits(c.Type),
	}
}

// faithful reports whether the database stores a value of the column exactly as
// ent passes it. A database type of the user's own choice may round, pad, cut or
// compute.
func faithful(c *schema.Column) bool {
	if len(c.SchemaType) > 0 {
		return false
	}
	switch c.Type {
	case field.TypeString, field.TypeEnum, field.TypeBool, field.TypeUUID:
		return true
	default:
		return c.Type.Integer()
	}
}

// bits returns the size of an integer type, 0 for other types.
func bits(t field.Type) int {
	switch t {
	case field.TypeInt8, field.TypeUint8:
		return 8
	case field.TypeInt16, field.TypeUint16:
		return 16
	case field.TypeInt32, field.TypeUint32:
		return 32
	case field.TypeInt, field.TypeInt64, field.TypeUint, field.TypeUint64:
		return 64
	default:
		return 0
	}
}

// Naming as ent does it.
var (
	pascal = gen.Funcs["pascal"].(func(string) string)
	snake  = gen.Funcs["snake"].(func(string) string)
)

// IsKey reports whether a field of the view belongs to the key.
func (c *counter) IsKey(f *gen.Field) bool {
	return slices.ContainsFunc(c.Key, func(k *keyColumn) bool { return k.Name == f.Name })
}

// Prefix begins the names of functions in the ent package that belong to the
// counter alone.
func (c *counter) Prefix() string { return strings.ToLower(c.Type[:1]) + c.Type[1:] }

// OwnType returns the type of a field of the view, as its package writes it.
func (c *counter) OwnType(f *gen.Field) string {
	return strings.TrimPrefix(f.Type.String(), c.View.Package()+".")
}

// GoKeyText lists the key fields by their names in Go.
func (c *counter) GoKeyText() string {
	names := make([]string, len(c.Key))
	for i := range c.Key {
		names[i] = c.View.Fields[i].StructField()
	}
	return strings.Join(names, ", ")
}
