package entcounter

import (
	"testing"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqljson"
	"github.com/stretchr/testify/require"
)

func TestSettersOf(t *testing.T) {
	for _, tt := range []struct {
		name     string
		modify   func(*sql.UpdateBuilder)
		columns  []string
		filters  bool
		notKnown bool
	}{
		{name: "nothing", modify: func(*sql.UpdateBuilder) {}},
		{name: "value", modify: func(u *sql.UpdateBuilder) { u.Set("status", "new") }, columns: []string{"status"}},
		{name: "null and value", modify: func(u *sql.UpdateBuilder) { u.SetNull("a").Set("b", 1).Add("c", 2) }, columns: []string{"a", "b", "c"}},
		{
			name:    "expressions with commas and parentheses",
			modify:  func(u *sql.UpdateBuilder) { u.Set("a", sql.Expr("GREATEST(b, (c), ?)", 1)).Set("d", 1) },
			columns: []string{"a", "d"},
		},
		{
			name:    "a string that looks like a clause",
			modify:  func(u *sql.UpdateBuilder) { u.Set("a", sql.Expr("' WHERE , \"'")).Set("d", 1) },
			columns: []string{"a", "d"},
		},
		{name: "predicate", modify: func(u *sql.UpdateBuilder) { u.Set("a", 1).Where(sql.EQ("b", 1)) }, columns: []string{"a"}, filters: true},
		{name: "predicate only", modify: func(u *sql.UpdateBuilder) { u.Where(sql.EQ("b", 1)) }, filters: true},
		{name: "raw predicate after an expression", modify: func(u *sql.UpdateBuilder) { u.Set("a", sql.Expr("1 where b")) }, columns: []string{"a"}, filters: true},
		{name: "comment", modify: func(u *sql.UpdateBuilder) { u.Set("a", sql.Expr("1 -- ")).Set("b", 1) }, notKnown: true},
		{name: "block comment", modify: func(u *sql.UpdateBuilder) { u.Set("a", sql.Expr("1 /*")).Set("b", sql.Expr("*/ 1")) }, notKnown: true},
		{name: "escape", modify: func(u *sql.UpdateBuilder) { u.Set("a", sql.Expr(`'\'`)).Set("b", sql.Expr("', 1")) }, notKnown: true},
		{name: "open parenthesis", modify: func(u *sql.UpdateBuilder) { u.Set("a", sql.Expr("(1")) }, notKnown: true},
		{name: "open string", modify: func(u *sql.UpdateBuilder) { u.Set("a", sql.Expr("'1")) }, notKnown: true},
		{name: "dollar quote", modify: func(u *sql.UpdateBuilder) { u.Set("a", sql.Expr("$x$, b = 1$x$")) }, notKnown: true},
		{name: "more assignments in an expression", modify: func(u *sql.UpdateBuilder) { u.Set("a", sql.Expr("1, b = 2")) }, notKnown: true},
		{name: "prefix", modify: func(u *sql.UpdateBuilder) { u.Prefix(sql.Expr("WITH x AS (SELECT 1)")).Set("a", 1) }, notKnown: true},
	} {
		for _, d := range []string{dialect.MySQL, dialect.Postgres, dialect.SQLite} {
			t.Run(tt.name+"/"+d, func(t *testing.T) {
				u := sql.Dialect(d).Update("files")
				tt.modify(u)
				query, _ := u.Query()
				columns, filters, ok := settersOf(query)
				require.Equal(t, tt.notKnown, !ok, query)
				if ok {
					require.Equal(t, tt.columns, columns, query)
					require.Equal(t, tt.filters, filters, query)
				}
			})
		}
	}
}

func TestSettersOfJSONAppend(t *testing.T) {
	for _, d := range []string{dialect.MySQL, dialect.Postgres, dialect.SQLite} {
		u := sql.Dialect(d).Update("files")
		sqljson.Append(u, "labels", []string{"a"})
		query, _ := u.Query()
		columns, filters, ok := settersOf(query)
		require.True(t, ok, query)
		require.False(t, filters, query)
		require.Equal(t, []string{"labels"}, columns, query)
	}
}

func TestSettersOfOrderAndLimit(t *testing.T) {
	u := sql.Dialect(dialect.MySQL).Update("files").Set("a", 1).OrderBy("b").Limit(3)
	query, _ := u.Query()
	columns, filters, ok := settersOf(query)
	require.True(t, ok)
	require.True(t, filters)
	require.Equal(t, []string{"a"}, columns)
}
