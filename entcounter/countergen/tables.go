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
	for _, c := range counters {
		columns := counted[c.Owner.Table()]
		if columns == nil {
			columns = make(map[string]bool)
			counted[c.Owner.Table()] = columns
		}
		for _, k := range c.Key {
			columns[k.Column.Name] = true
		}
		for _, m := range c.Measures {
			if m.Column != nil {
				columns[m.Column.Name] = true
			}
		}
	}
	reached := make(map[string]bool)
	for table := range counted {
		reached[table] = true
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
		if reached[t.Name] {
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
					if c.Owner.Table() == t.Name {
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
)

// migrateTables returns the tables that keep the counters.
func migrateTables(counters []*counter, tables []*schema.Table) []*schema.Table {
	var all []*schema.Table
	for _, c := range counters {
		i := slices.IndexFunc(tables, func(t *schema.Table) bool { return t.Name == c.Owner.Table() })
		counterTable, journal := c.tables()
		for _, t := range []*schema.Table{counterTable, journal} {
			t.Annotation = textAnnotation(tables[i].Annotation)
		}
		all = append(all, counterTable, journal)
	}
	locks := schema.NewTable(entcounter.LockTable).
		SetComment("One row for each counter and operation. Whoever folds or rebuilds a counter writes its row first.").
		AddPrimary(&schema.Column{Name: "counter_name", Type: field.TypeString, Size: counterNameLen}).
		AddPrimary(&schema.Column{Name: "operation", Type: field.TypeString, Size: operationLen}).
		AddColumn(&schema.Column{Name: "version", Type: field.TypeInt64})
	return append(all, locks)
}

// tables returns the table of folded rows and the journal of a counter.
func (c *counter) tables() (counter, journal *schema.Table) {
	counter = schema.NewTable(c.Definition.Table).
		SetComment(fmt.Sprintf("The folded rows of the %s counter.", c.Name))
	journal = schema.NewTable(c.Definition.Journal).
		SetComment(fmt.Sprintf("The deltas of the %s counter that are not folded yet.", c.Name)).
		AddPrimary(&schema.Column{Name: entcounter.ColumnJournalID, Type: field.TypeInt64, Increment: true})
	for _, k := range c.Key {
		counter.AddPrimary(keyColumn(k.Column))
		journal.AddColumn(keyColumn(k.Column))
	}
	for _, m := range c.Definition.Measures {
		counter.AddColumn(&schema.Column{Name: m.Name, Type: field.TypeInt64})
		journal.AddColumn(&schema.Column{Name: m.Delta, Type: field.TypeInt64})
	}
	counter.AddColumn(timeColumn(entcounter.ColumnUpdatedAt))
	journal.AddColumn(timeColumn(entcounter.ColumnInsertedAt))
	journal.AddIndex(journal.Name+keyIndexSuffix, false, c.columns(c.Declaration.Key))
	for _, fields := range c.ReadIndexes {
		columns := c.columns(fields)
		counter.AddIndex(indexName(counter.Name, columns), false, columns)
		journal.AddIndex(indexName(journal.Name, columns), false, columns)
	}
	return counter, journal
}

// columns returns the columns of key fields.
func (c *counter) columns(fields []string) []string {
	columns := make([]string, len(fields))
	for i, name := range fields {
		j := slices.Index(c.Declaration.Key, name)
		columns[i] = c.Key[j].Column.Name
	}
	return columns
}

// keyColumn copies what decides which values of a counted column are equal: its
// type, size and collation. NULL is never a key, and nothing has a default.
func keyColumn(c *schema.Column) *schema.Column {
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

// timeColumn returns a column for a time of the database's own UTC clock, in
// microseconds. It has no default, which each database would write in its own
// way: the runtime sets it.
func timeColumn(name string) *schema.Column {
	return &schema.Column{
		Name: name,
		Type: field.TypeTime,
		SchemaType: map[string]string{
			dialect.MySQL:    "datetime(6)",
			dialect.Postgres: "timestamptz(6)",
			dialect.SQLite:   "datetime",
		},
	}
}

// textAnnotation copies what decides how a table compares text.
func textAnnotation(a *entsql.Annotation) *entsql.Annotation {
	if a == nil || a.Charset == "" && a.Collation == "" {
		return nil
	}
	return &entsql.Annotation{Charset: a.Charset, Collation: a.Collation}
}

// indexName names a read index after its table and columns. A name that is too
// long for a database ends in a hash of what was cut off.
func indexName(table string, columns []string) string {
	name := table + "_by_" + strings.Join(columns, "_")
	if len(name) <= maxIdentifier {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := "_" + hex.EncodeToString(sum[:4])
	return name[:maxIdentifier-len(hash)] + hash
}
