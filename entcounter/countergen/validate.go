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
	// maxPartitions keeps a read, which looks into each, and a server's open files
	// within reason.
	maxPartitions = 1024
	// maxCharBytes is how long a character may be in utf8mb4.
	maxCharBytes = 4
)

var (
	counterName = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	measureName = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
)

// errorf makes an error about a declaration. Its text names the type, the counter
// and, in the caller's words, the field and the mend.
func (p *part) errorf(format string, args ...any) error {
	return fmt.Errorf("entcounter: type %s: counter %q: %w", p.Owner.Name, p.Name, fmt.Errorf(format, args...))
}

// errorf makes an error about the counter as a whole.
func (c *counter) errorf(format string, args ...any) error {
	return c.Parts[0].errorf(format, args...)
}

// unite makes sure that another part of the counter has the same columns, and takes
// over the values that enums have in it.
func (c *counter) unite(p *part) error {
	first := c.Parts[0]
	names := func(p *part) string {
		var all []string
		for _, k := range p.key {
			all = append(all, k.Name)
		}
		for _, m := range p.measures {
			all = append(all, m.Name)
		}
		return strings.Join(all, ", ")
	}
	isLiteral := func(t entcounter.Term) bool { return t.Literal != nil }
	if !slices.ContainsFunc(p.source.Key, isLiteral) || !slices.ContainsFunc(first.source.Key, isLiteral) {
		return p.errorf("type %s declares a counter of this name too: give one of the two another name, or tell their rows apart by a key column entcounter.Literal in each", first.Owner.Name)
	}
	if len(p.key) != len(first.key) || names(p) != names(first) {
		return p.errorf("type %s declares a counter of this name with other columns (%s, here %s): give them the same key columns and measures, or the counters different names", first.Owner.Name, names(first), names(p))
	}
	for i, k := range p.key {
		known := c.Key[i]
		if l := p.source.Key[i].Literal; l != nil {
			for _, other := range c.Parts {
				if other == p {
					break
				}
				if other.source.Key[i].Literal == l {
					return p.errorf("key field %q is the literal %q in type %s too: it tells the types apart, so give each its own", k.Name, l, other.Owner.Name)
				}
			}
		}
		if mend := k.differs(known); mend != "" {
			return p.errorf("key field %q differs from that of type %s in its %s: a counter has one column for both", k.Name, first.Owner.Name, mend)
		}
		if k.Column.Type != field.TypeEnum {
			continue
		}
		united := *known.Column
		united.Enums = slices.Clone(united.Enums)
		for _, v := range k.Column.Enums {
			if !slices.Contains(united.Enums, v) {
				united.Enums = append(united.Enums, v)
			}
		}
		c.Key[i] = &keyColumn{Name: known.Name, Column: &united, fresh: field.TypeEnum}
		if known.Field != nil && k.Field == known.Field {
			c.Key[i] = known
		}
	}
	return nil
}

// differs tells in what the column of one part is not that of another.
func (k *keyColumn) differs(o *keyColumn) string {
	a, b := k.Column, o.Column
	switch {
	case a.Name != b.Name:
		return fmt.Sprintf("column, %q and %q", a.Name, b.Name)
	case a.Type != b.Type:
		return fmt.Sprintf("type, %s and %s", a.Type, b.Type)
	case a.Size != b.Size:
		return "size"
	case a.Collation != b.Collation:
		return "collation"
	case !maps.Equal(a.SchemaType, b.SchemaType):
		return "database type"
	case k.Field != nil && o.Field != nil && k.Field.HasGoType() && k.Field.Type.String() != o.Field.Type.String():
		return fmt.Sprintf("Go type, %s and %s", k.Field.Type, o.Field.Type)
	}
	return ""
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
	for i, c := range counters {
		if !counterName.MatchString(c.Name) {
			return c.errorf("the name must be an exported Go identifier of letters and digits, such as %q", "File")
		}
		if n := len(c.Name) - counterNameLen; n > 0 {
			return c.errorf("the name is %d bytes too long: shorten it to %d", n, counterNameLen)
		}
		for j, p := range c.Parts {
			if p.Owner.IsView() {
				return p.errorf("%s is a view: declare the counter on the type whose rows are written", p.Owner.Name)
			}
			if n := p.JournalPartitions; n != 0 && (n < 2 || n > maxPartitions) {
				return p.errorf("the journal cannot have %d partitions: give PartitionJournal 2 to %d, or leave it out", n, maxPartitions)
			}
			twice := func(o *part) bool { return o.Owner == p.Owner && o.Over == p.Over }
			if slices.ContainsFunc(c.Parts[:j], twice) {
				return p.errorf("it is declared twice: give one of the two another name")
			}
		}
		if taken, ok := types[strings.ToLower(c.Type)]; ok {
			return c.errorf("the generated type would be named %s, which is taken by %s: name the counter differently", c.Type, taken)
		}
		types[strings.ToLower(c.Type)] = fmt.Sprintf("counter %q of type %s", c.Name, c.Owner().Name)
		counterTable, journal := c.tableNames()
		for _, table := range []string{counterTable, journal} {
			if taken, ok := names[table]; ok {
				return c.errorf("the generated table would be named %q, which is taken by %s: name the counter differently", table, taken)
			}
			names[table] = fmt.Sprintf("counter %q of type %s", c.Name, c.Owner().Name)
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
func checkSchemas(g *gen.Graph, errorf func(format string, args ...any) error) error {
	on, err := g.FeatureEnabled(gen.FeatureSchemaConfig.Name)
	if err != nil {
		return fmt.Errorf("entcounter: %w", err)
	}
	if on {
		return errorf("types are in database schemas of their own (entsql.Schema or the feature %q), and counters and sequences are kept in the schema of the connection: leave both out, and choose the schema by the connection, with the database in the DSN or search_path in PostgreSQL", gen.FeatureSchemaConfig.Name)
	}
	return nil
}

// field finds a field of a type by its name. An edge of that name, or
// one that owns a column of that name, is named in the error together with the
// way to make its column a field.
func (p *part) field(t *gen.Type, use, name string) (*gen.Field, error) {
	for _, f := range t.Fields {
		if f.Name == name {
			return f, nil
		}
	}
	if id := t.ID; id != nil && id.Name == name {
		return nil, p.errorf("%s field %q is the primary key, which is different in each row: use another field", use, name)
	}
	for _, e := range t.Edges {
		switch {
		case !e.OwnFK() && e.Name == name:
			return nil, p.errorf("%s field %q is an edge whose column is not in the table of %s: use a field of %[3]s", use, name, t.Name)
		case !e.OwnFK() || e.Name != name && e.Rel.Column() != name:
			continue
		case e.Field() != nil:
			return nil, p.errorf("%s field %q is an edge: use its field %q", use, name, e.Field().Name)
		default:
			field := snake(e.Name) + "_id"
			return nil, p.errorf("%s field %q is an edge without a field: declare a field %q, add Field(%[3]q) to the edge %q, and use %[3]q", use, name, field, e.Name)
		}
	}
	names := make([]string, len(t.Fields))
	for i, f := range t.Fields {
		names[i] = f.Name
	}
	return nil, p.errorf("%s field %q does not exist in %s: it has %s", use, name, t.Name, strings.Join(names, ", "))
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

// checkReserved refuses names that the generated tables and types use.
func (p *part) checkReserved(use string, names ...string) error {
	reserved := []string{entcounter.ColumnUpdatedAt, entcounter.ColumnPending, entcounter.ColumnInsertedAt, entcounter.ColumnJournalID}
	for _, name := range names {
		if !slices.Contains(reserved, name) {
			continue
		}
		if use == "key" {
			return p.errorf("key field %q: the generated tables have a column of this name: rename the field", name)
		}
		return p.errorf("measure %q: the generated tables have a column of this name: give the measure another name", name)
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
		if name := pascal(k.Name); k.fresh == field.TypeEnum && hasNoShortcut(name) {
			return c.errorf("%s: its values need a Go type %s, and the generated package has another thing of this name: give the column another name", use, name)
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

// keyNames returns the names of the key columns.
func (c *counter) keyNames() []string {
	names := make([]string, len(c.Key))
	for i, k := range c.Key {
		names[i] = k.Name
	}
	return names
}

// ReadIndexes are the declared ones of all parts.
func (c *counter) ReadIndexes() [][]string {
	return c.ofParts(func(p *part) [][]string { return p.ReadIndexes })
}

// Reads are the declared ones of all parts.
func (c *counter) Reads() [][]string {
	return c.ofParts(func(p *part) [][]string { return p.Reads })
}

// JournalPartitions is how many partitions the journal has: the greatest number that
// a part declares.
func (c *counter) JournalPartitions() int {
	n := 0
	for _, p := range c.Parts {
		n = max(n, p.JournalPartitions)
	}
	return n
}

// ofParts collects lists of columns: all of the first part, and those that further
// parts add.
func (c *counter) ofParts(lists func(*part) [][]string) [][]string {
	var all [][]string
	for i, p := range c.Parts {
		for _, list := range lists(p) {
			if i == 0 || !slices.ContainsFunc(all, func(o []string) bool { return slices.Equal(o, list) }) {
				all = append(all, list)
			}
		}
	}
	return all
}

// checkReadIndexes makes sure that read indexes are over fields of the key.
func (c *counter) checkReadIndexes() error {
	seen := make(map[string]bool)
	key := c.keyNames()
	for _, index := range c.ReadIndexes() {
		if len(index) == 0 {
			return c.errorf("a read index has no fields: list fields of the key")
		}
		for i, name := range index {
			if !slices.Contains(key, name) {
				return c.errorf("read index field %q is not part of the key (%s): add it to the key, or leave it out", name, strings.Join(key, ", "))
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
