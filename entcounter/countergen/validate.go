package countergen

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql/schema"
	"entgo.io/ent/entc/gen"
	"entgo.io/ent/schema/field"
	"github.com/entcounter/entcounter/entcounter"
)

const (
	// maxKeyBytes is how long an index entry may be in InnoDB.
	maxKeyBytes = 3072
	// maxKeyFields is how many columns an index may have: 16 in MySQL, 32 elsewhere.
	maxKeyFields = 16
	// maxIdentifier is how long a table, column or index name may be: 63 bytes in
	// PostgreSQL, 64 in MySQL.
	maxIdentifier = 63
	// maxCharBytes is how long a character may be in utf8mb4.
	maxCharBytes = 4
)

var (
	counterName = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	measureName = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
)

// errorf makes an error about the counter. Its text names the type, the counter
// and, in the caller's words, the field and the mend.
func (c *counter) errorf(format string, args ...any) error {
	return fmt.Errorf("entcounter: type %s: counter %q: %w", c.Owner.Name, c.Name, fmt.Errorf(format, args...))
}

// checkNames makes sure that counters have names of their own, and that the
// types, files and tables generated for them exist nowhere else.
func checkNames(g *gen.Graph, counters []*counter, tables []*schema.Table) error {
	types := make(map[string]string) // by file name
	for _, t := range g.Nodes {
		types[strings.ToLower(t.Name)] = fmt.Sprintf("type %s", t.Name)
	}
	names := make(map[string]string)
	for _, t := range tables {
		names[strings.ToLower(t.Name)] = fmt.Sprintf("the table %q", t.Name)
	}
	for _, t := range g.Nodes {
		if t.IsView() {
			names[strings.ToLower(t.Table())] = fmt.Sprintf("the view of type %s", t.Name)
		}
	}
	byName := make(map[string]*counter)
	for i, c := range counters {
		if c.Owner.IsView() {
			return c.errorf("%s is a view: declare the counter on the type whose rows are written", c.Owner.Name)
		}
		if !counterName.MatchString(c.Name) {
			return c.errorf("the name must be an exported Go identifier of letters and digits, such as %q", "File")
		}
		if other, ok := byName[c.Name]; ok {
			if other.Owner == c.Owner {
				return c.errorf("it is declared twice: give one of the two another name")
			}
			return c.errorf("type %s declares a counter of this name too: give one of the two another name", other.Owner.Name)
		}
		byName[c.Name] = c
		if taken, ok := types[strings.ToLower(c.Type)]; ok {
			return c.errorf("the generated type would be named %s, which is taken by %s: name the counter differently", c.Type, taken)
		}
		types[strings.ToLower(c.Type)] = fmt.Sprintf("counter %q of type %s", c.Name, c.Owner.Name)
		for _, table := range []string{snake(c.Type), snake(c.Name) + "_counter_journal"} {
			if taken, ok := names[table]; ok {
				return c.errorf("the generated table would be named %q, which is taken by %s: name the counter differently", table, taken)
			}
			names[table] = fmt.Sprintf("counter %q of type %s", c.Name, c.Owner.Name)
			if n := len(table) + len(keyIndexSuffix); n > maxIdentifier {
				return c.errorf("the name is %d bytes too long for the name of an index: shorten it", n-maxIdentifier)
			}
		}
		if i > 0 {
			continue
		}
		if taken, ok := names[entcounter.LockTable]; ok {
			return c.errorf("counters need a table named %q, which is taken by %s: rename that table", entcounter.LockTable, taken)
		}
		for _, t := range g.Nodes {
			switch strings.ToLower(t.Name) {
			case "counters":
				return c.errorf("type %s takes the name of the generated method Client.Counters: rename the type", t.Name)
			case "entcounter":
				return c.errorf("type %s takes the name of the generated file entcounter.go: rename the type", t.Name)
			}
		}
	}
	return nil
}

// checkSchemas makes sure that all tables are in the connection's own database
// schema, where the counters are kept. ent switches the feature on by itself where
// types have an entsql.Schema annotation.
func checkSchemas(g *gen.Graph, c *counter) error {
	on, err := g.FeatureEnabled(gen.FeatureSchemaConfig.Name)
	if err != nil {
		return fmt.Errorf("entcounter: %w", err)
	}
	if on {
		return c.errorf("types are in database schemas of their own (entsql.Schema or the feature %q), and counters are kept in the schema of the connection: leave both out, and choose the schema by the connection, with the database in the DSN or search_path in PostgreSQL", gen.FeatureSchemaConfig.Name)
	}
	return nil
}

// resolveKey finds and checks the fields of the key.
func (c *counter) resolveKey(table *schema.Table) error {
	if len(c.Declaration.Key) == 0 {
		return c.errorf("it has no key: add entcounter.Key with the fields that rows are grouped by")
	}
	if n := len(c.Declaration.Key); n > maxKeyFields {
		return c.errorf("the key has %d fields, and an index no more than %d in MySQL: leave some out", n, maxKeyFields)
	}
	size := 0
	for i, name := range c.Declaration.Key {
		if slices.Contains(c.Declaration.Key[:i], name) {
			return c.errorf("key field %q is listed twice: remove one of the two", name)
		}
		f, err := c.field("key", name)
		if err != nil {
			return err
		}
		if mend := unfitForKey(f); mend != "" {
			return c.errorf("key field %q is of type %s: %s", name, f.Type.Type, mend)
		}
		if f.HasValueScanner() {
			return c.errorf("key field %q has an external ValueScanner, with which rows cannot be grouped in the database: use a GoType that implements field.ValueScanner", name)
		}
		if err := c.checkReserved("key", name, f.StorageKey()); err != nil {
			return err
		}
		column, ok := table.Column(f.StorageKey())
		if !ok {
			return c.errorf("key field %q has no column: it is left out by entsql.Skip", name)
		}
		n, mend := keyBytes(column)
		if mend != "" {
			return c.errorf("key field %q cannot be indexed: %s", name, mend)
		}
		size += n
		c.Key = append(c.Key, &keyField{Field: f, Column: column})
	}
	if size > maxKeyBytes {
		name, n := c.longest()
		return c.errorf("the key takes %d bytes, and an index no more than %d: key field %q alone takes %d, limit it with MaxLen or leave it out of the key", size, maxKeyBytes, name, n)
	}
	return nil
}

// longest returns the key field that takes most of an index entry.
func (c *counter) longest() (name string, size int) {
	for _, k := range c.Key {
		if n, _ := keyBytes(k.Column); n > size {
			name, size = k.Name, n
		}
	}
	return name, size
}

// field finds a field of the counted type by its name. An edge of that name, or
// one that owns a column of that name, is named in the error together with the
// way to make its column a field.
func (c *counter) field(use, name string) (*gen.Field, error) {
	for _, f := range c.Owner.Fields {
		if f.Name == name {
			return f, nil
		}
	}
	if id := c.Owner.ID; id != nil && id.Name == name {
		return nil, c.errorf("%s field %q is the primary key, which is different in each row: use another field", use, name)
	}
	for _, e := range c.Owner.Edges {
		switch {
		case !e.OwnFK() && e.Name == name:
			return nil, c.errorf("%s field %q is an edge whose column is not in the table of %s: use a field of %[3]s", use, name, c.Owner.Name)
		case !e.OwnFK() || e.Name != name && e.Rel.Column() != name:
			continue
		case e.Field() != nil:
			return nil, c.errorf("%s field %q is an edge: use its field %q", use, name, e.Field().Name)
		default:
			field := snake(e.Name) + "_id"
			return nil, c.errorf("%s field %q is an edge without a field: declare a field %q, add Field(%[3]q) to the edge %q, and use %[3]q", use, name, field, e.Name)
		}
	}
	names := make([]string, len(c.Owner.Fields))
	for i, f := range c.Owner.Fields {
		names[i] = f.Name
	}
	return nil, c.errorf("%s field %q does not exist in %s: it has %s", use, name, c.Owner.Name, strings.Join(names, ", "))
}

// unfitForKey returns why a field cannot be part of a key and what to do, or
// nothing if it can.
func unfitForKey(f *gen.Field) string {
	switch t := f.Type.Type; {
	case t.Float():
		return "floating-point numbers are not exactly equal often enough to group by: use an integer, such as cents"
	case t == field.TypeTime:
		return "nearly every row has a time of its own: store the day in a field of its own and use that"
	case t == field.TypeJSON, t == field.TypeOther:
		return "its values cannot be compared on every database: store the part to group by in a field of its own and use that"
	case t == field.TypeBytes && f.Column().Size == 0 && f.Column().SchemaType[dialect.MySQL] == "":
		return "it has no limit and cannot be indexed: add MaxLen"
	}
	return ""
}

var sizedType = regexp.MustCompile(`^(?:national )?(varchar|char|nchar|nvarchar|varbinary|binary)\((\d+)\)`)

// keyBytes returns how much of an InnoDB index entry a column takes, or why it
// cannot be indexed.
func keyBytes(c *schema.Column) (size int, mend string) {
	if t := strings.ToLower(c.SchemaType[dialect.MySQL]); t != "" {
		if m := sizedType.FindStringSubmatch(t); m != nil {
			n, err := strconv.Atoi(m[2])
			if err != nil {
				return 0, fmt.Sprintf("its database type %q is too long", t)
			}
			if strings.HasSuffix(m[1], "binary") {
				return n, ""
			}
			return n * maxCharBytes, ""
		}
		for _, long := range []string{"text", "blob", "json", "geometry"} {
			if strings.Contains(t, long) {
				return 0, fmt.Sprintf("MySQL does not index a column of type %q: use a type with a limit", t)
			}
		}
		return 8, ""
	}
	switch {
	case c.Type == field.TypeString:
		n := int(c.Size)
		if n == 0 {
			n = int(schema.DefaultStringLen)
		}
		return n * maxCharBytes, ""
	case c.Type == field.TypeBytes:
		return int(c.Size), ""
	case c.Type == field.TypeUUID:
		return 36 * maxCharBytes, ""
	case c.Type == field.TypeEnum:
		return 2, ""
	default:
		return 8, ""
	}
}

// resolveMeasures finds and checks the measures and the fields they sum.
func (c *counter) resolveMeasures(table *schema.Table) error {
	if len(c.Declaration.Measures) == 0 {
		return c.errorf("it has no measure: add entcounter.Count or entcounter.Sum")
	}
	for i, d := range c.Declaration.Measures {
		switch {
		case !measureName.MatchString(d.Name):
			return c.errorf("measure %q: the name must be in the style of a field's, such as %q", d.Name, "count")
		case slices.ContainsFunc(c.Declaration.Measures[:i], func(m entcounter.MeasureDeclaration) bool { return m.Name == d.Name }):
			return c.errorf("measure %q is declared twice: give one of the two another name", d.Name)
		case slices.Contains(c.Declaration.Key, d.Name):
			return c.errorf("measure %q has the name of a key field: give it another name", d.Name)
		case len(d.Name)+len("_delta") > maxIdentifier:
			return c.errorf("measure %q: the name is %d bytes too long for a column: shorten it", d.Name, len(d.Name)+len("_delta")-maxIdentifier)
		}
		if err := c.checkReserved("measure", d.Name, d.Name); err != nil {
			return err
		}
		m := &measure{MeasureDeclaration: d}
		if d.Field != "" {
			f, err := c.field(fmt.Sprintf("measure %q:", d.Name), d.Field)
			if err != nil {
				return err
			}
			if t := f.Type.Type; !t.Integer() {
				mend := "only an integer can be summed"
				if t.Float() {
					mend = "a sum of floating-point numbers is not exact: store an integer, such as cents or bytes"
				}
				return c.errorf("measure %q: field %q is of type %s: %s", d.Name, d.Field, t, mend)
			}
			if f.HasValueScanner() {
				return c.errorf("measure %q: field %q has an external ValueScanner, and what the database holds cannot be summed: use a plain integer field", d.Name, d.Field)
			}
			column, ok := table.Column(f.StorageKey())
			if !ok {
				return c.errorf("measure %q: field %q has no column: it is left out by entsql.Skip", d.Name, d.Field)
			}
			m.Summed, m.Column = f, column
		}
		c.Measures = append(c.Measures, m)
	}
	return nil
}

// checkReserved refuses names that the generated tables and types use.
func (c *counter) checkReserved(use string, names ...string) error {
	reserved := []string{entcounter.ColumnUpdatedAt, entcounter.ColumnPending, entcounter.ColumnInsertedAt, entcounter.ColumnJournalID}
	for _, name := range names {
		if !slices.Contains(reserved, name) {
			continue
		}
		if use == "key" {
			return c.errorf("key field %q: the generated tables have a column of this name: rename the field", name)
		}
		return c.errorf("measure %q: the generated tables have a column of this name: give the measure another name", name)
	}
	return nil
}

// checkColumns makes sure that the columns of a generated table differ.
func (c *counter) checkColumns() error {
	columns := make(map[string]string) // what uses a name, by the name
	for _, k := range c.Key {
		use := fmt.Sprintf("key field %q", k.Name)
		if taken, ok := columns[strings.ToLower(k.Column.Name)]; ok {
			return c.errorf("%s and %s are stored in columns of one name, %q: rename one of the two", taken, use, k.Column.Name)
		}
		columns[strings.ToLower(k.Column.Name)] = use
	}
	for _, m := range c.Measures {
		for _, name := range []string{m.Name, m.Name + "_delta"} {
			if taken, ok := columns[name]; ok {
				return c.errorf("measure %q needs a column %q, which is taken by %s: give the measure another name", m.Name, name, taken)
			}
		}
	}
	for _, m := range c.Measures {
		for _, name := range []string{m.Name, m.Name + "_delta"} {
			if taken, ok := columns[name]; ok {
				return c.errorf("measure %q needs a column %q, which is taken by %s: give the measure another name", m.Name, name, taken)
			}
			columns[name] = fmt.Sprintf("measure %q", m.Name)
		}
	}
	return nil
}

// checkReadIndexes makes sure that read indexes are over fields of the key.
func (c *counter) checkReadIndexes() error {
	seen := make(map[string]bool)
	for _, index := range c.ReadIndexes {
		if len(index) == 0 {
			return c.errorf("a read index has no fields: list fields of the key")
		}
		for i, name := range index {
			if !slices.Contains(c.Declaration.Key, name) {
				return c.errorf("read index field %q is not part of the key (%s): add it to the key, or leave it out", name, strings.Join(c.Declaration.Key, ", "))
			}
			if slices.Contains(index[:i], name) {
				return c.errorf("read index field %q is listed twice: remove one of the two", name)
			}
		}
		id := strings.Join(index, ",")
		if seen[id] {
			return c.errorf("the read index (%s) is declared twice: remove one of the two", strings.Join(index, ", "))
		}
		seen[id] = true
	}
	return nil
}

// checkIdentifiers makes sure that the Go names in the view's package differ.
// ent checks neither that nor, for a measure, that its name is free.
func (c *counter) checkIdentifiers() error {
	taken := make(map[string]string)
	for _, name := range []string{"Label", "Table", "Columns", "ValidColumn", "OrderOption", "And", "Or", "Not"} {
		taken[name] = "ent's " + name
	}
	for _, name := range declaredTypes {
		taken[name] = "the generated type " + name
	}
	methods := []string{"String", "Unwrap"}
	for _, f := range c.View.Fields {
		use := fmt.Sprintf("key field %q", f.Name)
		if slices.ContainsFunc(c.Measures, func(m *measure) bool { return m.Name == f.Name }) {
			use = fmt.Sprintf("measure %q", f.Name)
		}
		if slices.Contains(methods, f.StructField()) {
			return c.errorf("%s: ent generates a method named %s on every type: rename it", use, f.StructField())
		}
		for _, name := range slices.Sorted(maps.Keys(identifiers(f))) {
			if other, ok := taken[name]; ok {
				return c.errorf("%s: the generated name %s is taken by %s: rename it", use, name, other)
			}
			taken[name] = use
		}
	}
	return nil
}

// identifiers returns what ent declares for a field in its type's package.
func identifiers(f *gen.Field) map[string]bool {
	names := map[string]bool{f.Constant(): true, f.OrderName(): true}
	if f.IsEnum() {
		names[f.Validator()] = true
	} else if !hasNoShortcut(f.StructField()) {
		names[f.StructField()] = true
	}
	for _, op := range f.Ops() {
		names[f.StructField()+op.Name()] = true
	}
	return names
}
