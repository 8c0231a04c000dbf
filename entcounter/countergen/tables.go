package countergen

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/dialect/sql/schema"
	"entgo.io/ent/schema/field"
	"github.com/entcounter/entcounter/entcounter"
)

// reach describes the tables through which ent can change a counted row: the
// counted ones, those that a foreign key of a counted one refers to, whose edges
// write it, and those from which a deletion arrives at a counted row over foreign
// keys, in one step or in several.
func reach(counters []*counter, tables []*schema.Table) ([]*entcounter.Table, error) {
	counted := make(map[string]map[string]bool) // columns that count, by table
	reached := make(map[string]bool)
	for _, c := range counters {
		for _, source := range c.Definition.Sources {
			reached[source.Table] = true
			source.Columns(func(table string, column entcounter.Column) {
				if counted[table] == nil {
					counted[table] = make(map[string]bool)
				}
				counted[table][column.Name] = true
			})
		}
	}
	// changes reports whether deleting a row that a foreign key of the table refers
	// to changes a counter.
	changes := func(t *schema.Table, fk *schema.ForeignKey) bool {
		switch fk.OnDelete {
		case schema.Cascade:
			return reached[t.Name]
		case schema.SetNull, schema.SetDefault:
			return counted[t.Name][fk.Columns[0].Name]
		default:
			return false
		}
	}
	for grew := true; grew; {
		grew = false
		for _, t := range tables {
			for _, fk := range t.ForeignKeys {
				if changes(t, fk) && !reached[fk.RefTable.Name] {
					reached[fk.RefTable.Name], grew = true, true
				}
			}
		}
	}
	described := make(map[string]*entcounter.Table)
	for _, t := range tables {
		if reached[t.Name] || counted[t.Name] != nil {
			described[t.Name] = describe(t)
		}
	}
	for _, t := range tables {
		if counted[t.Name] == nil {
			continue
		}
		for _, fk := range t.ForeignKeys {
			if described[fk.RefTable.Name] == nil {
				described[fk.RefTable.Name] = describe(fk.RefTable)
			}
		}
	}
	for _, t := range tables {
		for _, fk := range t.ForeignKeys {
			if !changes(t, fk) {
				continue
			}
			if fk.OnDelete == schema.SetDefault {
				for _, c := range counters {
					if slices.ContainsFunc(c.Definition.Sources, func(s *entcounter.Source) bool { return s.Reads(t.Name, fk.Columns[0].Name) }) {
						return nil, c.errorf("foreign key %q sets column %q to its default when the referenced row is deleted, which is not counted: use entsql.OnDelete with Cascade, SetNull or Restrict", fk.Symbol, fk.Columns[0].Name)
					}
				}
			}
			ref := described[fk.RefTable.Name]
			ref.ReferencedBy = append(ref.ReferencedBy, entcounter.ForeignKey{
				Table:     t.Name,
				Column:    columnOf(fk.Columns[0]),
				RefColumn: columnOf(fk.RefColumns[0]),
				OnDelete:  entcounter.DeleteAction(fk.OnDelete),
			})
		}
	}
	for _, t := range described {
		t.DeleteTogether = restrictsItself(t.Name, tables)
		slices.SortStableFunc(t.ReferencedBy, func(a, b entcounter.ForeignKey) int {
			return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Column.Name, b.Column.Name))
		})
	}
	return slices.SortedFunc(maps.Values(described), func(a, b *entcounter.Table) int {
		return cmp.Compare(a.Name, b.Name)
	}), nil
}

// restrictsItself reports whether, among the rows that go when rows of a table are
// deleted, one can refer to another by a foreign key without a delete action.
func restrictsItself(table string, tables []*schema.Table) bool {
	goes := map[string]bool{table: true}
	for grew := true; grew; {
		grew = false
		for _, t := range tables {
			for _, fk := range t.ForeignKeys {
				if fk.OnDelete == schema.Cascade && goes[fk.RefTable.Name] && !goes[t.Name] {
					goes[t.Name], grew = true, true
				}
			}
		}
	}
	return slices.ContainsFunc(tables, func(t *schema.Table) bool {
		return goes[t.Name] && slices.ContainsFunc(t.ForeignKeys, func(fk *schema.ForeignKey) bool {
			restricts := fk.OnDelete == "" || fk.OnDelete == schema.NoAction || fk.OnDelete == schema.Restrict
			return restricts && goes[fk.RefTable.Name]
		})
	})
}

// describe tells the runtime about a table, without its references.
func describe(t *schema.Table) *entcounter.Table {
	described := &entcounter.Table{Name: t.Name}
	for _, c := range t.PrimaryKey {
		described.ID = append(described.ID, columnOf(c))
	}
	for _, c := range t.Columns {
		if c.Unique && !slices.Contains(t.PrimaryKey, c) {
			described.Unique = append(described.Unique, []entcounter.Column{columnOf(c)})
		}
		if hasDefault(c) {
			described.Defaults = append(described.Defaults, c.Name)
		}
	}
	for _, idx := range t.Indexes {
		if !idx.Unique || isPartial(idx) {
			continue
		}
		var columns []entcounter.Column
		for _, c := range idx.Columns {
			columns = append(columns, columnOf(c))
		}
		described.Unique = append(described.Unique, columns)
	}
	return described
}

// isPartial reports whether two rows with equal columns may both be in a unique
// index, or two with different ones may conflict.
func isPartial(idx *schema.Index) bool {
	a := idx.Annotation
	return a != nil && (a.Where != "" || a.Prefix != 0 || len(a.PrefixColumns) > 0)
}

// hasDefault reports whether the database supplies a value other than NULL for
// the column when an insert leaves it out.
func hasDefault(c *schema.Column) bool {
	if c.Default != nil || c.Increment {
		return true
	}
	for _, t := range c.SchemaType {
		t = strings.ToLower(t)
		for _, word := range []string{"serial", "default", "generated", "identity", " as "} {
			if strings.Contains(t, word) {
				return true
			}
		}
	}
	return false
}

const (
	// keyIndexSuffix makes the name of a journal's index over the key.
	keyIndexSuffix = "_by_key"
	counterNameLen = 64
	operationLen   = 16
	declarationLen = 2000
)

// migrateTables returns the tables that keep the counters.
func migrateTables(counters []*counter, tables []*schema.Table) []*schema.Table {
	var all []*schema.Table
	names := takenNames(tables)
	for _, c := range counters {
		i := slices.IndexFunc(tables, func(t *schema.Table) bool { return t.Name == c.Definition.Sources[0].Table })
		counterTable, journal := c.tables(names)
		for _, t := range []*schema.Table{counterTable, journal} {
			t.Annotation = textAnnotation(tables[i].Annotation)
		}
		if n := c.JournalPartitions(); n > 0 {
			if journal.Annotation == nil {
				journal.Annotation = &entsql.Annotation{}
			}
			// ent appends these to the statement on MySQL only.
			journal.Annotation.Options = fmt.Sprintf("PARTITION BY HASH (`%s`) PARTITIONS %d", entcounter.ColumnJournalID, n)
		}
		all = append(all, counterTable, journal)
	}
	locks := schema.NewTable(entcounter.LockTable).
		SetComment("One row for each counter and operation. Whoever folds or rebuilds a counter writes its row first. The rebuilt row has the declaration that the counter was built by; a paused row keeps workers from folding.").
		AddPrimary(&schema.Column{Name: "counter_name", Type: field.TypeString, Size: counterNameLen}).
		AddPrimary(&schema.Column{Name: "operation", Type: field.TypeString, Size: operationLen}).
		AddColumn(&schema.Column{Name: "version", Type: field.TypeInt64}).
		AddColumn(&schema.Column{Name: "declaration", Type: field.TypeString, Size: declarationLen}).
		AddColumn(&schema.Column{Name: "done_at", Type: field.TypeTime, SchemaType: timeTypes, Nullable: true}).
		AddColumn(&schema.Column{Name: "total_rows", Type: field.TypeInt64, Nullable: true}).
		AddColumn(&schema.Column{Name: "last_rows", Type: field.TypeInt64, Nullable: true}).
		AddColumn(&schema.Column{Name: "last_micros", Type: field.TypeInt64, Nullable: true})
	return append(all, locks)
}

// tables returns the table of folded rows and the journal of a counter.
func (c *counter) tables(names relationNames) (counter, journal *schema.Table) {
	counter = schema.NewTable(c.Definition.Table).
		SetComment(fmt.Sprintf("The folded rows of the %s counter.", c.Name))
	journal = schema.NewTable(c.Definition.Journal).
		SetComment(fmt.Sprintf("The deltas of the %s counter that are not folded yet.", c.Name)).
		AddPrimary(&schema.Column{Name: entcounter.ColumnJournalID, Type: field.TypeInt64, Increment: true})
	for _, k := range c.Key {
		counter.AddPrimary(tableColumn(k.Column))
		journal.AddColumn(tableColumn(k.Column))
	}
	for _, m := range c.Definition.Measures {
		counter.AddColumn(&schema.Column{Name: m.Name, Type: field.TypeInt64})
		journal.AddColumn(&schema.Column{Name: m.Delta, Type: field.TypeInt64})
	}
	counter.AddColumn(timeColumn(entcounter.ColumnUpdatedAt))
	journal.AddColumn(timeColumn(entcounter.ColumnInsertedAt))
	key := columnNames(journal.Columns[1 : 1+len(c.Key)])
	journal.AddIndex(names.index(journal.Name+keyIndexSuffix, key), false, key)
	for _, fields := range c.ReadIndexes() {
		columns := c.columns(fields)
		for _, t := range []*schema.Table{counter, journal} {
			t.AddIndex(names.index(t.Name+"_by_"+strings.Join(columns, "_"), columns), false, columns)
		}
	}
	return counter, journal
}

// columns returns the columns of key fields.
func (c *counter) columns(fields []string) []string {
	columns := make([]string, len(fields))
	for i, name := range fields {
		j := slices.IndexFunc(c.Key, func(k *keyColumn) bool { return k.Name == name })
		columns[i] = c.Key[j].Column.Name
	}
	return columns
}

func columnNames(columns []*schema.Column) []string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.Name
	}
	return names
}

// tableColumn copies what decides which values of a counted column are equal: its
// type, size and collation. NULL is never a key, and nothing has a default.
func tableColumn(c *schema.Column) *schema.Column {
	column := &schema.Column{
		Name:      c.Name,
		Type:      c.Type,
		Attr:      c.Attr,
		Size:      c.Size,
		Enums:     c.Enums,
		Collation: c.Collation,
	}
	for name, t := range c.SchemaType {
		if column.SchemaType == nil {
			column.SchemaType = make(map[string]string)
		}
		column.SchemaType[name] = withoutSequence(t)
	}
	if c.Type == field.TypeBytes && c.SchemaType[dialect.MySQL] == "" {
		// Where ent uses a BLOB, which MySQL cannot index whole.
		if column.SchemaType == nil {
			column.SchemaType = make(map[string]string)
		}
		column.SchemaType[dialect.MySQL] = fmt.Sprintf("varbinary(%d)", c.Size)
	}
	return column
}

// withoutSequence returns the integer type under a PostgreSQL serial.
func withoutSequence(t string) string {
	switch strings.ToLower(t) {
	case "smallserial", "serial2":
		return "smallint"
	case "serial", "serial4":
		return "integer"
	case "bigserial", "serial8":
		return "bigint"
	default:
		return t
	}
}

// timeTypes are the column types of a time.
var timeTypes = map[string]string{
	dialect.MySQL:    "datetime(6)",
	dialect.Postgres: "timestamptz(6)",
	dialect.SQLite:   "datetime",
}

// timeColumn returns a column for a time of the database's own UTC clock, in
// microseconds. It has no default, which each database would write in its own
// way: the runtime sets it.
func timeColumn(name string) *schema.Column {
	return &schema.Column{Name: name, Type: field.TypeTime, SchemaType: timeTypes}
}

// textAnnotation copies what decides how a table compares text.
func textAnnotation(a *entsql.Annotation) *entsql.Annotation {
	if a == nil || a.Charset == "" && a.Collation == "" {
		return nil
	}
	return &entsql.Annotation{Charset: a.Charset, Collation: a.Collation}
}

// tableNames returns the names of a counter's tables. A long one is cut, so that
// the name of its index over the key is not too long.
func (c *counter) tableNames() (counter, journal string) {
	const limit = maxIdentifier - len(keyIndexSuffix)
	cut := func(name string) string {
		if len(name) <= limit {
			return name
		}
		return hashed(name, limit, name)
	}
	return cut(snake(c.Type)), cut(snake(c.Name) + "_counter_journal")
}

// relationNames are the names of tables and indexes that are taken. PostgreSQL
// and SQLite keep one set of them for the whole schema.
type relationNames map[string]bool

func takenNames(tables []*schema.Table) relationNames {
	names := make(relationNames)
	for _, t := range tables {
		names[strings.ToLower(t.Name)] = true
		for _, idx := range t.Indexes {
			names[strings.ToLower(idx.Name)] = true
		}
	}
	return names
}

// index returns the name of an index over the columns. One that is too long, or
// taken, ends in a hash of the whole name and the columns.
func (taken relationNames) index(name string, columns []string) string {
	if len(name) > maxIdentifier || taken[strings.ToLower(name)] {
		name = hashed(name, maxIdentifier, name+"\x00"+strings.Join(columns, "\x00"))
	}
	taken[strings.ToLower(name)] = true
	return name
}

// hashed returns a name of no more bytes than the limit, cut where need be, that
// ends in a hash of the text.
func hashed(name string, limit int, text string) string {
	sum := sha256.Sum256([]byte(text))
	hash := "_" + hex.EncodeToString(sum[:4])
	return name[:min(len(name), limit-len(hash))] + hash
}
