package entcounter

import (
	stdsql "database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqljson"
)

// show renders conjuncts for comparison: ! marks one that is not known, and a pin
// follows the arrow.
func show(cs []conjunct) string {
	var parts []string
	for _, c := range cs {
		s := c.text
		if !c.known {
			s = "!" + s
		}
		if len(c.args) > 0 {
			s += fmt.Sprint(" ", c.args)
		}
		if c.pin != "" {
			s += fmt.Sprintf(" → %s=%v", c.pin, c.value)
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, " ;; ")
}

func TestConjuncts(t *testing.T) {
	neighbours := func(s *sql.Selector) *sql.Selector {
		d := sql.Table("datasets")
		return sql.Select(d.C("id")).From(d).Where(sql.And(sql.EQ(d.C("name"), "x"), sql.GT(d.C("size"), 3)))
	}
	for _, test := range []struct {
		name string
		p    func(s *sql.Selector)
		want string // for MySQL; the other dialects differ in quotes only
	}{
		{"nothing", func(*sql.Selector) {}, ""},
		{"pin", func(s *sql.Selector) { s.Where(sql.EQ(s.C("status"), "new")) }, "`f`.`status` = ? [new] → status=new"},
		{"unqualified", func(s *sql.Selector) { s.Where(sql.EQ("status", "new")) }, "`f`.`status` = ? [new] → status=new"},
		{"booleans", func(s *sql.Selector) { s.Where(sql.EQ(s.C("done"), true)); s.Where(sql.EQ("gone", false)) },
			"`f`.`done` → done=true ;; NOT `f`.`gone` → gone=false"},
		{"and", func(s *sql.Selector) {
			s.Where(sql.And(sql.EQ("a", 1), sql.And(sql.EQ("b", 2), sql.LT("c", 3)), sql.In("d", 4, 5)))
			s.Where(sql.EQ("e", 6))
		}, "`f`.`a` = ? [1] → a=1 ;; `f`.`b` = ? [2] → b=2 ;; `f`.`c` < ? [3] ;; `f`.`d` IN (?, ?) [4 5] ;; `f`.`e` = ? [6] → e=6"},
		{"chained", func(s *sql.Selector) { s.Where(sql.P().EQ("a", 1)) }, "`f`.`a` = ? [1] → a=1"},
		{"or", func(s *sql.Selector) { s.Where(sql.Or(sql.EQ("a", 1), sql.EQ("b", 2))); s.Where(sql.EQ("c", 3)) },
			"(`f`.`a` = ? OR `f`.`b` = ?) [1 2] ;; `f`.`c` = ? [3] → c=3"},
		{"or alone", func(s *sql.Selector) { s.Where(sql.Or(sql.EQ("a", 1), sql.And(sql.EQ("a", 1), sql.EQ("b", 2)))) },
			"(`f`.`a` = ? OR (`f`.`a` = ? AND `f`.`b` = ?)) [1 1 2]"},
		{"not", func(s *sql.Selector) { s.Where(sql.Not(sql.EQ("a", 1))) }, "NOT (`f`.`a` = ?) [1]"},
		{"not and", func(s *sql.Selector) { s.Where(sql.Not(sql.And(sql.EQ("a", 1), sql.EQ("b", 2)))) },
			"NOT (`f`.`a` = ? AND `f`.`b` = ?) [1 2]"},
		{"comparisons", func(s *sql.Selector) {
			s.Where(sql.And(sql.NEQ("a", 1), sql.GTE("b", 2), sql.LTE("c", 3), sql.GT("d", 4), sql.IsNull("e"), sql.NotNull("f"), sql.NotIn("g", 5)))
		}, "`f`.`a` <> ? [1] ;; `f`.`b` >= ? [2] ;; `f`.`c` <= ? [3] ;; `f`.`d` > ? [4] ;; `f`.`e` IS NULL ;; `f`.`f` IS NOT NULL ;; `f`.`g` NOT IN (?) [5]"},
		{"columns", func(s *sql.Selector) { s.Where(sql.ColumnsEQ("a", "b")) }, "`f`.`a` = `f`.`b`"},
		{"tuples", func(s *sql.Selector) { s.Where(sql.CompositeGT([]string{"a", "b"}, 1, 2)) }, "(`f`.`a`, `f`.`b`) > (?, ?) [1 2]"},
		{"patterns", func(s *sql.Selector) { s.Where(sql.HasPrefix("a", "x")) }, "`f`.`a` LIKE ? [x%]"},
		{"no values", func(s *sql.Selector) { s.Where(sql.In("a")); s.Where(sql.NotIn("b")) }, "FALSE ;; NOT (FALSE)"},
		{"odd names", func(s *sql.Selector) { s.Where(sql.EQ(s.C("a ? and b"), 1)) }, "`f`.`a ? and b` = ? [1] → a ? and b=1"},

		{"subquery beside a pin", func(s *sql.Selector) { s.Where(sql.In(s.C("a"), neighbours(s))); s.Where(sql.EQ("b", 2)) },
			"!`f`.`a` IN (SELECT `datasets`.`id` FROM `datasets` WHERE `datasets`.`name` = ? AND `datasets`.`size` > ?) [x 3] ;; `f`.`b` = ? [2] → b=2"},
		{"exists", func(s *sql.Selector) { s.Where(sql.Exists(neighbours(s))) },
			"!EXISTS (SELECT `datasets`.`id` FROM `datasets` WHERE `datasets`.`name` = ? AND `datasets`.`size` > ?) [x 3]"},
		{"other table", func(s *sql.Selector) { s.Where(sql.EQ(sql.Table("g").C("a"), 1)) }, "!`g`.`a` = ? [1]"},
		{"function", func(s *sql.Selector) {
			s.Where(sql.P(func(b *sql.Builder) { b.S("LOWER(").Ident("a").S(") = ").Arg("x") }))
		},
			"!LOWER(`a`) = ? [x]"},
		{"between", func(s *sql.Selector) {
			s.Where(sql.P(func(b *sql.Builder) {
				b.Ident("a").S(" BETWEEN ").Arg(1).S(" AND ").Arg(2).S(" AND ").Ident("b").S(" = ").Arg(3)
			}))
		}, "!`a` BETWEEN ? AND ? AND `b` = ? [1 2 3]"},
		{"between in parentheses", func(s *sql.Selector) {
			s.Where(sql.And(sql.P(func(b *sql.Builder) {
				b.Wrap(func(b *sql.Builder) { b.Ident("a").S(" BETWEEN ").Arg(1).S(" AND ").Arg(2) })
			}), sql.EQ("b", 3)))
		}, "!(`a` BETWEEN ? AND ?) [1 2] ;; `f`.`b` = ? [3] → b=3"},
		{"nil", func(s *sql.Selector) { s.Where(sql.EQ("a", nil)) }, "!`a` = NULL"},
		{"expression", func(s *sql.Selector) { s.Where(sql.EQ("a", sql.Expr("? + 1", 2))) }, "!`a` = ? + 1 [2]"},
		{"not before a comparison", func(s *sql.Selector) {
			s.Where(sql.P(func(b *sql.Builder) { b.S("NOT ").Ident("a").S(" = ").Arg(1) }))
		}, "!NOT `a` = ? [1]"},
		{"comparison of a comparison", func(s *sql.Selector) {
			s.Where(sql.P(func(b *sql.Builder) { b.Ident("a").S(" = ").Arg(1).S(" = ").Arg(2) }))
		}, "!`a` = ? = ? [1 2]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, name := range []string{dialect.MySQL, dialect.SQLite, dialect.Postgres} {
				s := sql.Dialect(name).Select().From(sql.Table("f"))
				test.p(s)
				cs := conjuncts(name, "f", s.P())
				want := test.want
				if name == dialect.Postgres {
					want = strings.ReplaceAll(want, "`", `"`)
				}
				got := show(cs)
				if name == dialect.Postgres && strings.HasPrefix(want, "!") && !strings.Contains(want, ";;") {
					// As ent has written it, where it has not been taken apart.
					for i := range 5 {
						got = strings.ReplaceAll(got, fmt.Sprintf("$%d", i+1), "?")
					}
				}
				if got != want {
					t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
				}
			}
		})
	}
}

// What is written by hand, or by ent for JSON, is not understood, and must not be.
func TestConjunctsRaw(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		args []any
	}{
		"string":               {"`a` = 'x' AND `b` = ?", []any{1}},
		"string with AND":      {"`a` = ' AND ' AND `b` = ?", []any{1}},
		"double quotes":        {"`a` = \"x\" AND `b` = ?", []any{1}},
		"comment":              {"`a` = ? -- AND", []any{1}},
		"hash comment":         {"`a` = ? # AND", []any{1}},
		"block comment":        {"`a` = ? /* AND */ AND `b` = ?", []any{1, 2}},
		"executable comment":   {"`a` = ? /*! OR 1 */", []any{1}},
		"case":                 {"CASE WHEN `a` = ? THEN `b` END AND `c` = ?", []any{1, 2}},
		"xor":                  {"`a` = ? XOR `b` = ?", []any{1, 2}},
		"pipes":                {"`a` = ? || `b` = ?", []any{1, 2}},
		"ampersands":           {"`a` = ? && `b` = ?", []any{1, 2}},
		"null-safe":            {"`a` <=> ?", []any{1}},
		"bare words":           {"a = ?", []any{1}},
		"numbers":              {"`a` = 1", nil},
		"statement end":        {"`a` = ?; DELETE", []any{1}},
		"open parenthesis":     {"(`a` = ? AND `b` = ?", []any{1, 2}},
		"closing parenthesis":  {"`a` = ?) OR (`b` = ?", []any{1, 2}},
		"too few arguments":    {"`a` = ? AND `b` = ?", []any{1}},
		"too many arguments":   {"`a` = ?", []any{1, 2}},
		"numbered":             {"`a` = ?1", []any{1}},
		"open quote":           {"`a` = ? AND `b", []any{1}},
		"collation":            {"`a` = ? COLLATE nocase", []any{1}},
		"arithmetic":           {"`a` = ? + ?", []any{1, 2}},
		"backslash":            {"`a` = \\?", []any{1}},
		"nothing between ANDs": {"`a` = ? AND AND `b` = ?", []any{1, 2}},
		"nil argument":         {"`a` = ?", []any{nil}},
		"querier argument":     {"`a` = ?", []any{sql.Raw("1")}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range conjuncts(dialect.SQLite, "f", sql.ExprP(test.text, test.args...)) {
				if c.known || c.pin != "" {
					t.Errorf("%q: known %v, pins %q", c.text, c.known, c.pin)
				}
			}
		})
	}
	if cs := conjuncts(dialect.Postgres, "f", sql.ExprP(`"a" = $2 AND "b" = $1`, 1, 2)); len(cs) != 1 || cs[0].known {
		t.Errorf("placeholders out of order: %s", show(cs))
	}
	for _, name := range []string{dialect.MySQL, dialect.SQLite, dialect.Postgres} {
		if cs := conjuncts(name, "f", sqljson.ValueEQ("a", "x", sqljson.Path("b"))); len(cs) != 1 || cs[0].known {
			t.Errorf("%s: JSON: %s", name, show(cs))
		}
	}
}

// FuzzConjuncts holds what is said of a predicate against what SQLite makes of
// it: the conjuncts together match the rows that the predicate matches, known ones
// refer to no other columns than they say, and a pin holds for every row matched.
func FuzzConjuncts(f *testing.F) {
	for _, seed := range []string{
		"", "\x00\x01\x02", "\x10\x00\x01\x00\x11\x02\x03", "\x0e\x00\x01\x0f\x02\x03\x0d\x04", "\x11\x05\x06\x07\x12\x08\x09\x10\x0a\x0b",
	} {
		f.Add([]byte(seed), "")
	}
	for _, text := range []string{
		"`a` = ? AND `b` = ?", "`a` = ? OR `b` = ?", "(`a` = ? AND (NOT (`b` = ?) OR `c` IN (?, ?)))", "(`a`, `b`) IN ((?, ?), (?, ?))",
		"NOT `a` AND `c`", "`t`.`a` = ? AND `x`.`b` = ?", "`a` BETWEEN ? AND ? AND `b` = ?", "? = `a`", "`a` = ? AND EXISTS (SELECT 1 WHERE ? > ?)",
		"`a` IS NOT NULL AND `b` LIKE ? ESCAPE ?", "`a` NOT LIKE ?", "`a` = `b` AND NOT FALSE", "CASE WHEN `a` = ? AND `b` = ? THEN `c` END",
	} {
		f.Add([]byte("\x01\x02\x03\x00\x01"), text)
	}
	db, err := stdsql.Open("sqlite", ":memory:")
	if err != nil {
		f.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	f.Cleanup(func() { _ = db.Close() })
	// c is boolean, as the bare columns of a predicate have to be.
	if _, err := db.Exec("CREATE TABLE `t` (`id` integer PRIMARY KEY, `a` integer, `b` text, `c` bool, `d` integer)"); err != nil {
		f.Fatal(err)
	}
	for _, a := range []any{nil, 0, 1, 2} {
		for _, b := range []any{nil, "", "x", "1"} {
			for _, c := range []any{nil, false, true} {
				for _, d := range []any{0, 1} {
					if _, err := db.Exec("INSERT INTO `t` (`a`, `b`, `c`, `d`) VALUES (?, ?, ?, ?)", a, b, c, d); err != nil {
						f.Fatal(err)
					}
				}
			}
		}
	}
	match := func(p *sql.Predicate) ([]int64, error) {
		s := sql.Dialect(dialect.SQLite).Select("id").From(sql.Table("t")).OrderBy("id")
		if p != nil {
			s.Where(p)
		}
		query, args := s.Query()
		rows, err := db.Query(query, args...)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		var ids []int64
		for rows.Next() {
			var id int64
			if err := rows.Scan(&id); err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
		return ids, rows.Err()
	}
	f.Fuzz(func(t *testing.T, program []byte, text string) {
		g := generator{program: program}
		build := func() *sql.Predicate {
			g.at = 0
			if text == "" {
				return g.predicate(0)
			}
			args := make([]any, strings.Count(text, "?"))
			for i := range args {
				args[i] = g.value()
			}
			return sql.ExprP(text, args...)
		}
		want, err := match(build())
		if err != nil {
			t.Skip() // not SQL
		}
		cs := conjuncts(dialect.SQLite, "t", build())
		understood := slices.ContainsFunc(cs, func(c conjunct) bool { return c.known })
		all := make([]*sql.Predicate, len(cs))
		for i, c := range cs {
			all[i] = c.predicate(nil)
			if c.pin != "" {
				if !c.known || !slices.Equal(c.columns, []string{c.pin}) {
					t.Errorf("pin of %q in %q: known %v, columns %v", c.pin, c.text, c.known, c.columns)
				}
			}
			if !c.known {
				continue
			}
			for _, column := range c.columns {
				if !slices.Contains([]string{"id", "a", "b", "c", "d"}, strings.ToLower(column)) {
					t.Errorf("%q refers to %q, and ran", c.text, column)
				}
			}
		}
		if understood {
			got, err := match(sql.And(all...))
			if err != nil {
				t.Fatalf("%s: %v", show(cs), err)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s\nmatches %v, the predicate %v", show(cs), got, want)
			}
		}
		for _, c := range cs {
			if _, boolean := c.value.(bool); c.pin == "" || boolean && !strings.EqualFold(c.pin, "c") {
				continue // only c is boolean
			}
			// The rows that match the predicate and have another value, or none.
			s := sql.Dialect(dialect.SQLite).Select("id").From(sql.Table("t")).
				Where(sql.And(build(), sql.P(func(b *sql.Builder) { b.Ident(c.pin).S(" IS NOT ").Arg(c.value) })))
			query, args := s.Query()
			var id int64
			if err := db.QueryRow(query, args...).Scan(&id); err != stdsql.ErrNoRows {
				t.Errorf("row %d (%v) matches %s, which pins %s to %v", id, err, show(cs), c.pin, c.value)
			}
		}
	})
}

// generator makes a predicate of a fuzzer's bytes, by ent's builders.
type generator struct {
	program []byte
	at      int
}

func (g *generator) next(n int) int {
	if g.at >= len(g.program) {
		return 0
	}
	g.at++
	return int(g.program[g.at-1]) % n
}

func (g *generator) value() any {
	return []any{0, 1, 2, "", "x", "1", int64(1), true, "a' AND `a` = ?"}[g.next(9)]
}

func (g *generator) column() string {
	name := string("abcd"[g.next(4)])
	if g.next(2) == 1 {
		return sql.Table("t").C(name)
	}
	return name
}

func (g *generator) predicate(depth int) *sql.Predicate {
	n := 20
	if depth > 4 {
		n = 14
	}
	switch g.next(n) {
	case 0, 1, 2:
		return sql.EQ(g.column(), g.value())
	case 3:
		return sql.NEQ(g.column(), g.value())
	case 4:
		return sql.LT(g.column(), g.value())
	case 5:
		return sql.GTE(g.column(), g.value())
	case 6:
		return sql.In(g.column(), g.value(), g.value())
	case 7:
		return sql.NotIn(g.column(), g.value())
	case 8:
		return sql.IsNull(g.column())
	case 9:
		return sql.ColumnsEQ(g.column(), g.column())
	case 10:
		return sql.EQ("c", g.next(2) == 1)
	case 11:
		return sql.HasPrefix(g.column(), "x_")
	case 12:
		return sql.CompositeGT([]string{g.column(), g.column()}, g.value(), g.value())
	case 13:
		return sql.In(g.column(), sql.Select("a").From(sql.Table("t")).Where(sql.EQ("b", g.value())))
	case 14:
		return sql.Not(g.predicate(depth + 1))
	case 15:
		return sql.Or(g.predicate(depth+1), g.predicate(depth+1))
	default:
		return sql.And(g.predicate(depth+1), g.predicate(depth+1))
	}
}
