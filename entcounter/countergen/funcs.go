package countergen

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"entgo.io/ent/dialect/sql/schema"
	"entgo.io/ent/schema/field"
	"github.com/entcounter/entcounter/entcounter"
)

// templateFuncs write Go values as the source text of generated code.
var templateFuncs = template.FuncMap{
	"entcounter_column":        columnLiteral,
	"entcounter_columns":       columnLiterals,
	"entcounter_term":          termLiteral,
	"entcounter_summand":       summandLiteral,
	"entcounter_condition":     conditionLiteral,
	"entcounter_migrateColumn": migrateColumnLiteral,
	"entcounter_columnRefs":    columnRefs,
	"entcounter_strings":       stringsLiteral,
}

// columnLiteral writes the fields of an entcounter.Column.
func columnLiteral(c entcounter.Column) string {
	if c.Name == "" {
		return "{}"
	}
	parts := []string{fmt.Sprintf("Name: %q", c.Name), "Type: field." + c.Type.ConstName()}
	if c.Faithful {
		parts = append(parts, "Faithful: true")
	}
	if c.Bits > 0 {
		parts = append(parts, "Bits: "+strconv.Itoa(c.Bits))
	}
	if len(c.Values) > 0 {
		parts = append(parts, "Values: "+stringsLiteral(c.Values))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// termLiteral writes the fields of an entcounter.Term.
func termLiteral(t entcounter.Term) string {
	var parts []string
	if t.Name != "" {
		parts = append(parts, "Column: entcounter.Column"+columnLiteral(t.Column))
	}
	if t.Join > 0 {
		parts = append(parts, "Join: "+strconv.Itoa(t.Join))
	}
	if t.Literal != nil {
		parts = append(parts, "Literal: "+valueLiteral(t.Literal))
	}
	if t.Bucket != "" {
		parts = append(parts, fmt.Sprintf("Bucket: %q", t.Bucket))
	}
	if len(t.Zoneless) > 0 {
		parts = append(parts, "Zoneless: "+stringsLiteral(t.Zoneless))
	}
	if t.Null != nil {
		parts = append(parts, "Null: "+valueLiteral(t.Null))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// summandLiteral writes the fields of an entcounter.Summand.
func summandLiteral(s entcounter.Summand) string {
	var parts []string
	if s.Name != "" {
		parts = append(parts, "Term: entcounter.Term"+termLiteral(s.Term))
	}
	if s.Factor != 0 {
		parts = append(parts, fmt.Sprintf("Factor: %d", s.Factor))
	}
	if s.If != nil {
		parts = append(parts, "If: &entcounter.Condition"+conditionLiteral(s.If))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// conditionLiteral writes the fields of an entcounter.Condition.
func conditionLiteral(c *entcounter.Condition) string {
	parts := []string{fmt.Sprintf("Op: %q", c.Op)}
	if len(c.Of) > 0 {
		of := make([]string, len(c.Of))
		for i := range c.Of {
			of[i] = conditionLiteral(&c.Of[i])
		}
		return "{" + parts[0] + ", Of: []entcounter.Condition{" + strings.Join(of, ", ") + "}}"
	}
	parts = append(parts, "Term: entcounter.Term"+termLiteral(c.Term))
	if len(c.Values) > 0 {
		values := make([]string, len(c.Values))
		for i, v := range c.Values {
			values[i] = valueLiteral(v)
		}
		parts = append(parts, "Values: entcounter.Constants{"+strings.Join(values, ", ")+"}")
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// valueLiteral writes a value in the form that columns store.
func valueLiteral(v any) string {
	switch v := v.(type) {
	case int64:
		return fmt.Sprintf("int64(%d)", v)
	case uint64:
		return fmt.Sprintf("uint64(%d)", v)
	default:
		return fmt.Sprintf("%#v", v)
	}
}

// columnLiterals writes the elements of a []entcounter.Column.
func columnLiterals(columns []entcounter.Column) string {
	parts := make([]string, len(columns))
	for i, c := range columns {
		parts[i] = columnLiteral(c)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// migrateColumnLiteral writes the fields of a schema.Column.
func migrateColumnLiteral(c *schema.Column) string {
	parts := []string{fmt.Sprintf("Name: %q", c.Name), "Type: field." + c.Type.ConstName()}
	if c.Increment {
		parts = append(parts, "Increment: true")
	}
	if c.Nullable {
		parts = append(parts, "Nullable: true")
	}
	if c.Size > 0 {
		parts = append(parts, "Size: "+strconv.FormatInt(c.Size, 10))
	}
	if c.Attr != "" {
		parts = append(parts, fmt.Sprintf("Attr: %q", c.Attr))
	}
	if c.Type == field.TypeEnum {
		parts = append(parts, "Enums: "+stringsLiteral(c.Enums))
	}
	if c.Collation != "" {
		parts = append(parts, fmt.Sprintf("Collation: %q", c.Collation))
	}
	if len(c.SchemaType) > 0 {
		var types []string
		for _, name := range slices.Sorted(maps.Keys(c.SchemaType)) {
			types = append(types, fmt.Sprintf("%q: %q", name, c.SchemaType[name]))
		}
		parts = append(parts, "SchemaType: map[string]string{"+strings.Join(types, ", ")+"}")
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// columnRefs writes the columns of a table that are among the given ones, as
// elements of the variable that holds the table's columns.
func columnRefs(variable string, t *schema.Table, columns []*schema.Column) string {
	parts := make([]string, len(columns))
	for i, c := range columns {
		j := slices.IndexFunc(t.Columns, func(o *schema.Column) bool { return o.Name == c.Name })
		parts[i] = fmt.Sprintf("%s[%d]", variable, j)
	}
	return "[]*schema.Column{" + strings.Join(parts, ", ") + "}"
}

func stringsLiteral(values []string) string {
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = strconv.Quote(v)
	}
	return "[]string{" + strings.Join(parts, ", ") + "}"
}
