package countergen

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql/schema"
	"entgo.io/ent/entc/gen"
	"entgo.io/ent/schema/field"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/google/uuid"
)

// part is what one type declares of a counter.
type part struct {
	entcounter.Declaration
	// Owner is the type that the declaration stands on.
	Owner   *gen.Type
	counter *counter
	source  *entcounter.Source
	// key columns as this part has them, and the columns that measures sum.
	key      []*keyColumn
	measures []*measure
	tables   []*schema.Table
	nodes    []*node
}

// node is a row that paths of a part lead to.
type node struct {
	typ *gen.Type
	// from is the node whose foreign key refers to the row, and column that key; nil
	// for the counted row.
	from   *node
	column *schema.Column
	edge   string
	// place of the row's table in the source, −1 as long as nothing is read from it.
	place int
}

// keyColumn is one column of a counter's key.
type keyColumn struct {
	// Name of the field of the generated type.
	Name string
	// Field that the values come from, and its type; nil where the generated type
	// has them for itself: a literal, a period, or an enum of several types.
	Field *gen.Field
	Owner *gen.Type
	// Column of the generated tables, but for what only a counted table has.
	Column *schema.Column
	// fresh is set where Field is not: the kind of values.
	fresh field.Type
}

// source describes to the runtime what the part counts.
func (p *part) resolve(tables []*schema.Table) error {
	p.tables = tables
	if err := p.resolveRoot(); err != nil {
		return err
	}
	if err := p.resolveKey(); err != nil {
		return err
	}
	if err := p.resolveMeasures(); err != nil {
		return err
	}
	where, err := p.conditions("condition", p.Where)
	if err != nil {
		return err
	}
	p.source.Where = where
	return nil
}

// resolveRoot finds the counted table: that of the type, or of the pairs of an edge.
func (p *part) resolveRoot() error {
	if p.Over == "" {
		if _, err := p.table(p.Owner.Table()); err != nil {
			return err
		}
		p.source = &entcounter.Source{Table: p.Owner.Table()}
		p.nodes = []*node{{typ: p.Owner}}
		return nil
	}
	i := slices.IndexFunc(p.Owner.Edges, func(e *gen.Edge) bool { return e.Name == p.Over })
	if i < 0 {
		return p.errorf("Over(%q): %s has no such edge: it has %s", p.Over, p.Owner.Name, edgeNames(p.Owner))
	}
	e := p.Owner.Edges[i]
	if !e.M2M() {
		return p.errorf("Over(%q): the edge is not many-to-many: count the rows of %s or of %s, and reach the other side by a path", p.Over, p.Owner.Name, e.Type.Name)
	}
	join, err := p.table(e.Rel.Table)
	if err != nil {
		return err
	}
	own, other := e.Rel.Columns[0], e.Rel.Columns[1]
	if e.IsInverse() {
		own, other = other, own
	}
	ownColumn, _ := join.Column(own)
	otherColumn, _ := join.Column(other)
	if ownColumn == nil || otherColumn == nil {
		return p.errorf("Over(%q): the join table %q has no columns %q and %q", p.Over, join.Name, own, other)
	}
	p.source = &entcounter.Source{Table: join.Name}
	root := &node{}
	p.nodes = []*node{
		root,
		{typ: p.Owner, from: root, column: ownColumn, place: -1},
		{typ: e.Type, from: root, column: otherColumn, edge: e.Name, place: -1},
	}
	return nil
}

func (p *part) table(name string) (*schema.Table, error) {
	i := slices.IndexFunc(p.tables, func(t *schema.Table) bool { return t.Name == name })
	if i < 0 {
		return nil, p.errorf("the table %q is left out by entsql.Skip: a counted table must be part of the schema", name)
	}
	return p.tables[i], nil
}

// start is the node at which paths begin.
func (p *part) start() *node {
	if p.Over == "" {
		return p.nodes[0]
	}
	return p.nodes[1]
}

// join brings a node's table into the source.
func (p *part) join(n *node) error {
	if n.place >= 0 {
		return nil
	}
	if err := p.join(n.from); err != nil {
		return err
	}
	table, err := p.table(n.typ.Table())
	if err != nil {
		return err
	}
	if len(table.PrimaryKey) != 1 {
		return p.errorf("the path over %q leads to %s, whose id has several columns: use a field of %s", n.edge, n.typ.Name, p.Owner.Name)
	}
	p.source.Joins = append(p.source.Joins, entcounter.Join{
		Table:     table.Name,
		From:      n.from.place,
		Column:    columnOf(n.column),
		RefColumn: columnOf(table.PrimaryKey[0]),
	})
	n.place = len(p.source.Joins)
	return nil
}

// next follows an edge of a path.
func (p *part) next(use, path string, n *node, name string) (*node, error) {
	if n == p.start() && p.Over == name {
		return p.nodes[2], nil
	}
	for _, known := range p.nodes {
		if known.from == n && known.edge == name && known != p.nodes[0] {
			return known, nil
		}
	}
	i := slices.IndexFunc(n.typ.Edges, func(e *gen.Edge) bool { return e.Name == name })
	if i < 0 {
		return nil, p.errorf("%s field %q: %s has no edge %q: it has %s", use, path, n.typ.Name, name, edgeNames(n.typ))
	}
	e := n.typ.Edges[i]
	switch {
	case e.M2M():
		return nil, p.errorf("%s field %q: the edge %q of %s leads to many rows: count the pairs of it with entcounter.Over(%[3]q)", use, path, name, n.typ.Name)
	case !e.Unique:
		return nil, p.errorf("%s field %q: the edge %q of %s leads to many rows: declare the counter on %s, whose rows have one value each", use, path, name, n.typ.Name, e.Type.Name)
	case !e.OwnFK():
		return nil, p.errorf("%s field %q: the column of the edge %q is in the table of %s: declare the counter on %[4]s", use, path, name, e.Type.Name)
	}
	if err := p.join(n); err != nil {
		return nil, err
	}
	table, err := p.table(n.typ.Table())
	if err != nil {
		return nil, err
	}
	column, ok := table.Column(e.Rel.Column())
	if !ok {
		return nil, p.errorf("%s field %q: the edge %q of %s has no column", use, path, name, n.typ.Name)
	}
	next := &node{typ: e.Type, from: n, column: column, edge: name, place: -1}
	p.nodes = append(p.nodes, next)
	return next, nil
}

// end is where a path ends: a column, with the field that it belongs to.
type end struct {
	field  *gen.Field
	owner  *gen.Type
	column *schema.Column
	term   entcounter.Term
}

// follow resolves a path.
func (p *part) follow(use, path string) (end, error) {
	names := strings.Split(path, ".")
	n := p.start()
	for _, name := range names[:len(names)-1] {
		next, err := p.next(use, path, n, name)
		if err != nil {
			return end{}, err
		}
		n = next
	}
	name := names[len(names)-1]
	if id := n.typ.ID; id != nil && id.Name == name && n.from != nil {
		// What refers to the row says it already.
		return end{id, n.typ, n.column, entcounter.Term{Column: columnOf(n.column), Join: n.from.place}}, nil
	}
	f, err := p.field(n.typ, use, name)
	if err != nil {
		return end{}, err
	}
	if err := p.join(n); err != nil {
		return end{}, err
	}
	table, err := p.table(n.typ.Table())
	if err != nil {
		return end{}, err
	}
	column, ok := table.Column(f.StorageKey())
	if !ok {
		return end{}, p.errorf("%s field %q has no column: it is left out by entsql.Skip", use, path)
	}
	if by := changesByItself(column); by != "" {
		return end{}, p.errorf("%s field %q: the database changes it by itself (%s), which no mutation tells: set it by ent (UpdateDefault, or a hook), or count by the fields that it depends on", use, path, by)
	}
	if column.Collation == "" && table.Annotation != nil && table.Name != p.source.Table {
		own := *column
		own.Collation = table.Annotation.Collation
		column = &own
	}
	return end{f, n.typ, column, entcounter.Term{Column: columnOf(column), Join: n.place}}, nil
}

// selfChange is how a column's type or default says that an update of other columns
// changes it.
var selfChange = regexp.MustCompile(`(?i)\bon\s+update\b|\bgenerated\s+always\s+as\s*\(|\bas\s*\(`)

// changesByItself returns that text, or nothing.
func changesByItself(c *schema.Column) string {
	texts := slices.Sorted(maps.Values(c.SchemaType))
	if c.Default != nil {
		texts = append(texts, fmt.Sprint(c.Default))
	}
	for _, text := range texts {
		if found := selfChange.FindString(text); found != "" {
			return text
		}
	}
	return ""
}

func edgeNames(t *gen.Type) string {
	if len(t.Edges) == 0 {
		return "none"
	}
	names := make([]string, len(t.Edges))
	for i, e := range t.Edges {
		names[i] = e.Name
	}
	return strings.Join(names, ", ")
}

// keyColumnOf resolves one column of the key.
func (p *part) keyColumnOf(d entcounter.KeyDeclaration) (*keyColumn, entcounter.Term, error) {
	var none entcounter.Term
	if d.Field == "" && d.Literal == "" {
		return nil, none, p.errorf("NullAs(%q): the key has no column of this name before it", d.Name)
	}
	if d.Literal != "" {
		if len(d.Null) > 0 {
			return nil, none, p.errorf("key field %q is a literal, which is never NULL: leave NullAs out", d.Name)
		}
		column := &schema.Column{Name: d.Name, Type: field.TypeEnum, Enums: []string{d.Literal}}
		return &keyColumn{Name: d.Name, Column: column, fresh: field.TypeEnum}, entcounter.Term{Literal: d.Literal}, nil
	}
	e, err := p.follow("key", d.Field)
	if err != nil {
		return nil, none, err
	}
	f, term := e.field, e.term
	k := &keyColumn{Name: d.Name, Field: f, Owner: e.owner, Column: e.column}
	switch {
	case d.Bucket != "":
		if !slices.Contains(entcounter.Periods(), d.Bucket) {
			return nil, none, p.errorf("key field %q: the period %q is none of entcounter.Hour, Day, Week, Month", d.Name, d.Bucket)
		}
		if f.Type.Type != field.TypeTime {
			return nil, none, p.errorf("key field %q: field %q is of type %s, and only a time has periods", d.Name, d.Field, f.Type.Type)
		}
		term.Bucket, term.Zoneless = d.Bucket, zoneless(e.column)
		k = &keyColumn{Name: d.Name, Column: &schema.Column{Name: d.Name, Type: field.TypeString, Size: int64(len("2006-01-02T15"))}, fresh: field.TypeString}
	default:
		if mend := unfitForKey(f); mend != "" {
			return nil, none, p.errorf("key field %q is of type %s: %s", d.Field, f.Type.Type, mend)
		}
		if f.HasValueScanner() {
			return nil, none, p.errorf("key field %q has an external ValueScanner, with which rows cannot be grouped in the database: use a GoType that implements field.ValueScanner", d.Field)
		}
	}
	if d.Name != d.Field || strings.Contains(d.Field, ".") {
		own := *k.Column
		own.Name = d.Name
		k.Column = &own
	}
	if len(d.Null) > 0 {
		if term.Null, err = p.constant(fmt.Sprintf("NullAs(%q)", d.Name), k.Column, d.Null[0]); err != nil {
			return nil, none, err
		}
	}
	return k, term, nil
}

// zoneless lists the dialects in which a column of a time has no time zone.
func zoneless(c *schema.Column) []string {
	var dialects []string
	if t := strings.ToLower(c.SchemaType[dialect.MySQL]); t != "" && !strings.HasPrefix(t, "timestamp") {
		dialects = append(dialects, dialect.MySQL)
	}
	if t := strings.ToLower(c.SchemaType[dialect.Postgres]); t != "" && !strings.Contains(t, "tz") && !strings.Contains(t, "with time zone") {
		dialects = append(dialects, dialect.Postgres)
	}
	return dialects
}

// resolveKey finds and checks the columns of the key.
func (p *part) resolveKey() error {
	if len(p.Key) == 0 {
		return p.errorf("it has no key: add entcounter.Key with the fields that rows are grouped by")
	}
	if n := len(p.Key); n > maxKeyFields {
		return p.errorf("the key has %d fields, and an index no more than %d in MySQL: leave some out", n, maxKeyFields)
	}
	size := 0
	for i, d := range p.Key {
		if slices.ContainsFunc(p.Key[:i], func(o entcounter.KeyDeclaration) bool { return o.Name == d.Name }) {
			if d.Field == "" && d.Literal == "" {
				continue
			}
			return p.errorf("key field %q is listed twice: remove one of the two", d.Name)
		}
		if !measureName.MatchString(d.Name) && (d.Name != d.Field || d.Literal != "") {
			return p.errorf("key field %q: the name must be in the style of a field's, such as %q", d.Name, "dataset_status")
		}
		k, term, err := p.keyColumnOf(d)
		if err != nil {
			return err
		}
		if err := p.checkReserved("key", d.Name, k.Column.Name); err != nil {
			return err
		}
		n, mend := keyBytes(k.Column)
		if mend != "" {
			return p.errorf("key field %q cannot be indexed: %s", d.Name, mend)
		}
		size += n
		p.key = append(p.key, k)
		p.source.Key = append(p.source.Key, term)
	}
	if size > maxKeyBytes {
		name, n := p.longest()
		return p.errorf("the key takes %d bytes, and an index no more than %d: key field %q alone takes %d, limit it with MaxLen or leave it out of the key", size, maxKeyBytes, name, n)
	}
	return nil
}

// longest returns the key field that takes most of an index entry.
func (p *part) longest() (name string, size int) {
	for _, k := range p.key {
		if n, _ := keyBytes(k.Column); n > size {
			name, size = k.Name, n
		}
	}
	return name, size
}

// resolveMeasures finds and checks the measures and the fields they sum.
func (p *part) resolveMeasures() error {
	if len(p.Measures) == 0 {
		return p.errorf("it has no measure: add entcounter.Count or entcounter.Sum")
	}
	for i, d := range p.Measures {
		switch {
		case !measureName.MatchString(d.Name):
			return p.errorf("measure %q: the name must be in the style of a field's, such as %q", d.Name, "count")
		case slices.ContainsFunc(p.Measures[:i], func(m entcounter.MeasureDeclaration) bool { return m.Name == d.Name }):
			return p.errorf("measure %q is declared twice: give one of the two another name", d.Name)
		case slices.ContainsFunc(p.Key, func(k entcounter.KeyDeclaration) bool { return k.Name == d.Name }):
			return p.errorf("measure %q has the name of a key field: give it another name", d.Name)
		case len(d.Name)+len("_delta") > maxIdentifier:
			return p.errorf("measure %q: the name is %d bytes too long for a column: shorten it", d.Name, len(d.Name)+len("_delta")-maxIdentifier)
		}
		if err := p.checkReserved("measure", d.Name, d.Name); err != nil {
			return err
		}
		m := &measure{MeasureDeclaration: d}
		var summand entcounter.Summand
		if d.Field != "" {
			e, err := p.follow(fmt.Sprintf("measure %q:", d.Name), d.Field)
			if err != nil {
				return err
			}
			f := e.field
			if f.HasValueScanner() {
				return p.errorf("measure %q: field %q has an external ValueScanner, and what the database holds cannot be summed: use a plain integer field", d.Name, d.Field)
			}
			if t := f.Type.Type; d.Scale != nil {
				if mend := unfitDecimal(e.column, *d.Scale); mend != "" {
					return p.errorf("measure %q: field %q: %s", d.Name, d.Field, mend)
				}
			} else if !t.Integer() {
				mend := "only an integer can be summed"
				if t.Float() {
					mend = "a sum of floating-point numbers is not exact: store an integer, such as cents or bytes"
				}
				if isDecimal(e.column) {
					mend = "sum it with entcounter.SumDecimal"
				}
				return p.errorf("measure %q: field %q is of type %s: %s", d.Name, d.Field, t, mend)
			}
			m.Summed = f
			summand.Term = e.term
			if d.Scale != nil {
				summand.Factor = int64(math.Pow10(*d.Scale))
			}
		}
		var err error
		if summand.If, err = p.conditions(fmt.Sprintf("measure %q:", d.Name), d.If); err != nil {
			return err
		}
		p.measures = append(p.measures, m)
		p.source.Measures = append(p.source.Measures, summand)
	}
	return nil
}

// isDecimal reports whether a column is a fixed-point number on every database.
func isDecimal(c *schema.Column) bool {
	for _, name := range []string{dialect.MySQL, dialect.Postgres, dialect.SQLite} {
		t := strings.ToLower(c.SchemaType[name])
		if !strings.HasPrefix(t, "decimal") && !strings.HasPrefix(t, "numeric") {
			return false
		}
	}
	return true
}

// unfitDecimal returns why a column cannot be summed as a decimal, and what to do.
func unfitDecimal(c *schema.Column, scale int) string {
	switch {
	case scale < 0 || scale > 15:
		return fmt.Sprintf("a scale of %d: it is the number of decimal places, from 0 to 15", scale)
	case !isDecimal(c):
		return "it is no decimal on every database: give it a SchemaType of decimal or numeric for MySQL, PostgreSQL and SQLite"
	}
	return ""
}

// conditions resolves conditions that are to hold together.
func (p *part) conditions(use string, all []entcounter.Condition) (*entcounter.Condition, error) {
	if len(all) == 0 {
		return nil, nil
	}
	c := all[0]
	if len(all) > 1 {
		c = entcounter.And(all...)
	}
	resolved, err := p.condition(use, c)
	return &resolved, err
}

func (p *part) condition(use string, c entcounter.Condition) (entcounter.Condition, error) {
	switch c.Op {
	case entcounter.OpAnd, entcounter.OpOr, entcounter.OpNot:
		if len(c.Of) == 0 {
			return c, p.errorf("%s entcounter.%s has no conditions: list some, or leave it out", use, operatorNames[c.Op])
		}
		of := make([]entcounter.Condition, len(c.Of))
		for i, o := range c.Of {
			var err error
			if of[i], err = p.condition(use, o); err != nil {
				return c, err
			}
		}
		return entcounter.Condition{Op: c.Op, Of: of}, nil
	}
	name, ok := operatorNames[c.Op]
	if !ok {
		return c, p.errorf("%s the operator %q does not exist: make conditions with entcounter.EQ, In and the like", use, c.Op)
	}
	e, err := p.follow(use, c.Field)
	if err != nil {
		return c, err
	}
	resolved := entcounter.Condition{Op: c.Op, Term: e.term}
	if c.Op == entcounter.OpIsNull || c.Op == entcounter.OpNotNull {
		return resolved, nil
	}
	use = fmt.Sprintf("%s %s(%q)", use, name, c.Field)
	if len(c.Values) == 0 {
		return c, p.errorf("%s has no values to compare with: list some", use)
	}
	ordered := c.Op == entcounter.OpLT || c.Op == entcounter.OpLTE || c.Op == entcounter.OpGT || c.Op == entcounter.OpGTE
	unordered := map[field.Type]string{field.TypeBool: "a bool", field.TypeEnum: "an enum", field.TypeUUID: "a UUID"}
	if kind := unordered[e.field.Type.Type]; ordered && kind != "" {
		return c, p.errorf("%s: %s has no order that all databases agree on: use EQ, NEQ, In or NotIn", use, kind)
	}
	if e.field.HasValueScanner() {
		return c, p.errorf("%s: the field has an external ValueScanner, and what the database holds cannot be compared", use)
	}
	for _, v := range c.Values {
		value, err := p.constant(use, e.column, v)
		if err != nil {
			return c, err
		}
		resolved.Values = append(resolved.Values, value)
	}
	return resolved, nil
}

var operatorNames = map[entcounter.Operator]string{
	entcounter.OpEQ: "EQ", entcounter.OpNEQ: "NEQ", entcounter.OpIn: "In", entcounter.OpNotIn: "NotIn",
	entcounter.OpLT: "LT", entcounter.OpLTE: "LTE", entcounter.OpGT: "GT", entcounter.OpGTE: "GTE",
	entcounter.OpIsNull: "IsNull", entcounter.OpNotNull: "NotNull",
	entcounter.OpAnd: "And", entcounter.OpOr: "Or", entcounter.OpNot: "Not",
}

// constant checks a declared value against the column that it is compared with or
// stored in, and returns it in the column's form.
func (p *part) constant(use string, c *schema.Column, v any) (any, error) {
	mismatch := func() (any, error) {
		text := fmt.Sprintf("%#v", v)
		if unfit, ok := v.(entcounter.Unfit); ok {
			text = "of Go type " + string(unfit)
		}
		return nil, p.errorf("%s: the value %s does not fit the column %q of type %s", use, text, c.Name, c.Type)
	}
	switch {
	case c.Type == field.TypeTime:
		return nil, p.errorf("%s compares a time with a constant: a row would be counted or not as time passes, or by the clock of the generator. Count by a period with entcounter.Bucket, and read the periods that matter", use)
	case c.Type.Float():
		return nil, p.errorf("%s: floating-point numbers are not exactly equal often enough to compare: use an integer, such as cents", use)
	case v == entcounter.Unfit("<nil>"):
		return nil, p.errorf("%s compares with nil, which nothing equals: use entcounter.IsNull or entcounter.NotNull", use)
	case c.Type.Integer():
		switch v := v.(type) {
		case int64:
			if fitsInteger(c.Type, v) {
				return v, nil
			}
		case uint64:
			if c.Type == field.TypeUint64 || c.Type == field.TypeUint {
				return v, nil
			}
		}
		return mismatch()
	case c.Type == field.TypeBool:
		if b, ok := v.(bool); ok {
			return b, nil
		}
	case c.Type == field.TypeEnum:
		s, ok := v.(string)
		if ok && !slices.Contains(c.Enums, s) {
			return nil, p.errorf("%s: %q is no value of the enum %q: it has %s", use, s, c.Name, strings.Join(c.Enums, ", "))
		}
		if ok {
			return s, nil
		}
	case c.Type == field.TypeString:
		if s, ok := v.(string); ok {
			return s, nil
		}
	case c.Type == field.TypeUUID:
		if s, ok := v.(string); ok {
			id, err := uuid.Parse(s)
			if err == nil {
				return id.String(), nil
			}
		}
	}
	return mismatch()
}

// fitsInteger reports whether a value is one of an integer type.
func fitsInteger(t field.Type, v int64) bool {
	n := bits(t)
	if t >= field.TypeUint8 && t <= field.TypeUint64 {
		return v >= 0 && (n >= 63 || v < 1<<n)
	}
	return n == 64 || v >= -1<<(n-1) && v < 1<<(n-1)
}
