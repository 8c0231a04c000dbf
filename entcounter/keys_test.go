package entcounter

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
	"entgo.io/ent/schema/field"
	"github.com/entcounter/entcounter/internal/testdb"
)

// lookupCounter is a counter with a key of text, without a counted table.
func lookupCounter() *Definition {
	return &Definition{
		assumeBuilt: true,
		Name:        "Word", Table: "word_counters", Journal: "word_counter_journal",
		Key: []Column{
			{Name: "shelf", Type: field.TypeInt, Faithful: true, Bits: 64},
			{Name: "word", Type: field.TypeString, Faithful: true},
			{Name: "page", Type: field.TypeInt, Faithful: true, Bits: 64},
		},
		Measures: []Measure{{Name: "count", Delta: "count_delta"}},
	}
}

func TestLookupPredicate(t *testing.T) {
	d := lookupCounter()
	tests := []struct {
		name string
		keys [][]any
		want string
		args []any
	}{
		{"none", nil, "FALSE", nil},
		{"one", [][]any{{1, "a", 2}}, "`t`.`shelf` = ? AND `t`.`word` = ? AND `t`.`page` = ?", []any{int64(1), "a", int64(2)}},
		{"twice", [][]any{{1, "a", 2}, {int8(1), "a", uint(2)}}, "`t`.`shelf` = ? AND `t`.`word` = ? AND `t`.`page` = ?", []any{int64(1), "a", int64(2)}},
		{"last", [][]any{{1, "a", 2}, {1, "a", 3}}, "`t`.`shelf` = ? AND `t`.`word` = ? AND `t`.`page` IN (?, ?)", []any{int64(1), "a", int64(2), int64(3)}},
		{
			"middle", [][]any{{1, "a", 2}, {1, "b", 2}, {1, "a", 3}},
			"`t`.`shelf` = ? AND (`t`.`word` = ? AND `t`.`page` IN (?, ?) OR `t`.`word` = ? AND `t`.`page` = ?)",
			[]any{int64(1), "a", int64(2), int64(3), "b", int64(2)},
		},
		{
			"first", [][]any{{1, "a", 2}, {4, "a", 2}},
			"`t`.`shelf` = ? AND `t`.`word` = ? AND `t`.`page` = ? OR `t`.`shelf` = ? AND `t`.`word` = ? AND `t`.`page` = ?",
			[]any{int64(1), "a", int64(2), int64(4), "a", int64(2)},
		},
		{"null", [][]any{{1, nil, 2}, {1, "a", 2}}, "`t`.`shelf` = ? AND `t`.`word` = ? AND `t`.`page` = ?", []any{int64(1), "a", int64(2)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, err := d.Lookup(tt.keys)
			if err != nil {
				t.Fatal(err)
			}
			s := sql.Dialect(dialect.MySQL).Select("*").From(sql.Table("t"))
			l.Predicate(s)
			query, args := s.Query()
			plain := strings.NewReplacer("(", "", ")", "").Replace
			_, where, _ := strings.Cut(query, " WHERE ")
			if plain(where) != plain(tt.want) {
				t.Errorf("predicate %s, not %s", where, tt.want)
			}
			if !slices.Equal(args, tt.args) {
				t.Errorf("arguments %v, not %v", args, tt.args)
			}
		})
	}
	if _, err := d.Lookup([][]any{{1, "a"}}); err == nil {
		t.Error("a key of two values is accepted")
	}
}

// A row answers for each of the keys that the database holds equal to its own,
// with every collation.
func TestLookupCollations(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		collations := map[testdb.Kind][]string{
			testdb.SQLite:   {"", "NOCASE"},
			testdb.MariaDB:  {"utf8mb4_bin", "utf8mb4_general_ci", "utf8mb4_unicode_ci"},
			testdb.MySQL:    {"utf8mb4_bin", "utf8mb4_0900_ai_ci", "utf8mb4_general_ci"},
			testdb.Postgres: {"", "entcounter_ci"},
		}
		conn := db.DB(t)
		drv := sql.OpenDB(db.Dialect, conn)
		ctx := context.Background()
		exec := func(query string, args ...any) {
			t.Helper()
			if _, err := conn.ExecContext(ctx, query, args...); err != nil {
				t.Fatalf("%s: %v", query, err)
			}
		}
		if db.Kind == testdb.Postgres {
			exec(`CREATE COLLATION entcounter_ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`)
		}
		for _, collation := range collations[db.Kind] {
			t.Run(collation, func(t *testing.T) {
				d := lookupCounter()
				d.Table += "_" + strings.ToLower(collation)
				d.Journal += "_" + strings.ToLower(collation)
				createLookupTables(t, ctx, drv, d, collation)
				insert := sql.Dialect(db.Dialect).Insert(d.Journal).Columns("shelf", "word", "page", "count_delta", "inserted_at")
				stored := [][]any{{1, "a", 1}, {1, "Zoë ", 1}, {2, "B", 1}, {2, "B", 2}, {1, "only", 3}}
				for i, key := range stored {
					insert.Values(append(slices.Clone(key), 1<<i, sql.Raw(nowExpr(db.Dialect)))...)
				}
				query, args := insert.Query()
				exec(query, args...)

				asked := [][]any{
					{1, "A", 1}, {1, "a", 1}, {1, "zoe", 1}, {1, "ZOË", 1}, {1, "Zoë", 1}, {1, "Zoë ", 1}, {2, "b", 2}, {2, "B", 1},
					{1, "none", 1}, {1, "a", 2}, {2, "a", 1}, {1, "only", 3}, {1, "ONLY", 3}, {1, "a", 1},
				}
				for _, keys := range [][][]any{asked[:1], asked[:2], asked[:3], asked[:7], asked, {{2, "b", 1}, {2, "b", 2}}} {
					for i, got := range readLookup(t, ctx, drv, d, keys) {
						var want int64
						for j, other := range stored {
							if keys[i][0] == other[0] && keys[i][2] == other[2] && equalWords(t, ctx, drv, collation, keys[i][1].(string), other[1].(string)) {
								want += 1 << j
							}
						}
						if got != want {
							t.Errorf("of %d keys, %v reads %d, not %d", len(keys), keys[i], got, want)
						}
					}
				}
				if collation != collations[db.Kind][0] {
					return
				}
				// More keys than SQLite takes nested conditions.
				const others = 1001
				var keys [][]any
				for i := range others {
					keys = append(keys, []any{1, fmt.Sprint("w", i), 1})
				}
				keys = append(keys, []any{1, "a", 1})
				if got := readLookup(t, ctx, drv, d, keys); got[others] != 1 || got[0] != 0 {
					t.Errorf("after %d other keys, the last reads %d", others, got[others])
				}
			})
		}
	})
}

func createLookupTables(t *testing.T, ctx context.Context, drv dialect.Driver, d *Definition, collation string) {
	t.Helper()
	b := func(columns ...string) {
		t.Helper()
		var res sql.Result
		if err := drv.Exec(ctx, strings.Join(columns, ""), []any{}, &res); err != nil {
			t.Fatal(err)
		}
	}
	word := "VARCHAR(40)"
	if collation != "" {
		word += " COLLATE " + collation
	}
	key := "shelf BIGINT NOT NULL, word " + word + " NOT NULL, page BIGINT NOT NULL, "
	timeType := map[string]string{dialect.MySQL: "DATETIME(6)", dialect.Postgres: "TIMESTAMPTZ(6)", dialect.SQLite: "DATETIME"}[drv.Dialect()]
	b("CREATE TABLE ", d.Table, " (", key, "count BIGINT NOT NULL, updated_at ", timeType, " NOT NULL, PRIMARY KEY (shelf, word, page))")
	b("CREATE TABLE ", d.Journal, " (", key, "count_delta BIGINT NOT NULL, inserted_at ", timeType, " NOT NULL)")
}

// readLookup reads counts as generated code does.
func readLookup(t *testing.T, ctx context.Context, drv dialect.Driver, d *Definition, keys [][]any) []int64 {
	t.Helper()
	l, err := d.Lookup(keys)
	if err != nil {
		t.Fatal(err)
	}
	counts := make([]int64, len(keys))
	spec := sqlgraph.NewQuerySpec(d.Table, []string{"shelf", "word", "page", "count"}, nil)
	spec.Predicate = l.Predicate
	spec.Modifiers = append(spec.Modifiers, l.Mark)
	spec.ScanValues = func(columns []string) ([]any, error) {
		values := make([]any, len(columns))
		for i, c := range columns {
			switch c {
			case "word":
				values[i] = new(sql.NullString)
			case "shelf", "page", "count":
				values[i] = new(sql.NullInt64)
			default:
				values[i] = new(sql.UnknownType)
			}
		}
		return values, nil
	}
	spec.Assign = func(columns []string, values []any) error {
		var selected sql.SelectValues
		for i, c := range columns[4:] {
			selected.Set(c, values[4+i])
		}
		key := []any{values[0].(*sql.NullInt64).Int64, values[1].(*sql.NullString).String, values[2].(*sql.NullInt64).Int64}
		positions, err := l.Positions(key, selected.Get)
		for _, i := range positions {
			if counts[i] != 0 {
				t.Errorf("two rows answer for %v", keys[i])
			}
			counts[i] = values[3].(*sql.NullInt64).Int64
		}
		return err
	}
	s := &Schema{Counters: []*Definition{d}}
	if err := s.QueryNodes(ctx, drv, spec); err != nil {
		t.Fatal(err)
	}
	return counts
}

// equalWords asks the database whether it holds two words equal.
func equalWords(t *testing.T, ctx context.Context, drv dialect.Driver, collation, a, b string) bool {
	t.Helper()
	query := "SELECT CASE WHEN ? = ? THEN 1 ELSE 0 END"
	if drv.Dialect() == dialect.Postgres {
		query = "SELECT CASE WHEN CAST($1 AS VARCHAR) = CAST($2 AS VARCHAR) THEN 1 ELSE 0 END"
	}
	if collation != "" {
		query = strings.Replace(query, " THEN", " COLLATE "+collation+" THEN", 1)
	}
	rows := &sql.Rows{}
	if err := drv.Query(ctx, query, []any{a, b}, rows); err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n, err := sql.ScanInt(rows)
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

// Keys of text are found by index, and matched by an index too, so that each costs the
// same, however many there are.
func TestLookupCost(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		conn := db.DB(t)
		drv := sql.OpenDB(db.Dialect, conn)
		ctx := t.Context()
		d := lookupCounter()
		createLookupTables(t, ctx, drv, d, "")
		if _, err := conn.ExecContext(ctx, "CREATE INDEX word_counter_journal_by_key ON word_counter_journal (shelf, word, page)"); err != nil {
			t.Fatal(err)
		}
		key := func(i int) []any { return []any{i % 1500, fmt.Sprint("w", i), i % 3} }
		for _, table := range []string{d.Table, d.Journal} {
			columns := []string{"shelf", "word", "page", "count", "updated_at"}
			if table == d.Journal {
				columns = []string{"shelf", "word", "page", "count_delta", "inserted_at"}
			}
			for first := 0; first < 3000; first += 500 {
				insert := sql.Dialect(db.Dialect).Insert(table).Columns(columns...)
				for i := first; i < first+500; i++ {
					insert.Values(append(key(i), 1, sql.Raw(nowExpr(db.Dialect)))...)
				}
				query, args := insert.Query()
				if _, err := conn.ExecContext(ctx, query, args...); err != nil {
					t.Fatal(err)
				}
			}
		}
		if db.Dialect == dialect.MySQL {
			_, _ = conn.ExecContext(ctx, "ANALYZE TABLE word_counters, word_counter_journal")
		} else {
			_, _ = conn.ExecContext(ctx, "ANALYZE")
		}
		last := &lastQuery{Driver: drv}
		var keys [][]any
		for i := range 250 {
			keys = append(keys, key(i))
		}
		for i, count := range readLookup(t, ctx, last, d, keys) {
			if count != 2 {
				t.Fatalf("key %v reads %d", keys[i], count)
			}
		}
		f := &fixture{db: db, pool: conn}
		scanned, plan := f.fullScans(t, last.query, last.args)
		for _, table := range scanned {
			if strings.HasPrefix(table, "word_") && db.Dialect != dialect.SQLite || table == d.Table || table == d.Journal {
				t.Errorf("reads all of %s:\n%s", table, plan)
			}
		}
		if db.Dialect == dialect.SQLite && !strings.Contains(plan, "AUTOMATIC") {
			t.Errorf("rows and keys are matched without an index:\n%s", plan)
		}
	})
}

// Pages, totals and distributions agree with the database about the order of text,
// and about which text is equal.
func TestReadsCollations(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		collations := map[testdb.Kind][]string{
			testdb.SQLite:   {"", "NOCASE"},
			testdb.MariaDB:  {"utf8mb4_bin", "utf8mb4_general_ci", "utf8mb4_unicode_ci"},
			testdb.MySQL:    {"utf8mb4_bin", "utf8mb4_0900_ai_ci", "utf8mb4_general_ci"},
			testdb.Postgres: {`"C"`, "entcounter_ci"},
		}
		conn := db.DB(t)
		drv := sql.OpenDB(db.Dialect, conn)
		ctx := t.Context()
		if db.Kind == testdb.Postgres {
			if _, err := conn.ExecContext(ctx, `CREATE COLLATION entcounter_ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`); err != nil {
				t.Fatal(err)
			}
		}
		for i, collation := range collations[db.Kind] {
			t.Run(collation, func(t *testing.T) {
				d := lookupCounter()
				d.Table += fmt.Sprint(i)
				d.Journal += fmt.Sprint(i)
				createLookupTables(t, ctx, drv, d, collation)
				insert := func(table string, columns []string, words ...string) {
					t.Helper()
					b := sql.Dialect(db.Dialect).Insert(table).Columns(append([]string{"shelf", "word", "page"}, columns...)...)
					for i, word := range words {
						b.Values(i%2, word, 1, 1, sql.Raw(nowExpr(db.Dialect)))
					}
					query, args := b.Query()
					if _, err := conn.ExecContext(ctx, query, args...); err != nil {
						t.Fatal(err)
					}
				}
				insert(d.Table, []string{"count", "updated_at"}, "b", "B2", "Zoë", "a", "é", "c'", "straße")
				insert(d.Journal, []string{"count_delta", "inserted_at"}, "B", "b2", "zoë", "d", "E", "e", "C'", "STRASSE", "_", "")
				// What the database says of all words, by itself.
				var want []string
				from := fmt.Sprintf("(SELECT shelf, word FROM %s UNION ALL SELECT shelf, word FROM %s)", d.Table, d.Journal)
				rows, err := conn.QueryContext(ctx, "SELECT MIN(shelf), COUNT(*) FROM "+from+" AS t GROUP BY shelf, word ORDER BY shelf, word")
				if err != nil {
					t.Fatal(err)
				}
				defer rows.Close()
				for rows.Next() {
					var shelf, n int64
					if err := rows.Scan(&shelf, &n); err != nil {
						t.Fatal(err)
					}
					want = append(want, fmt.Sprint(shelf, " ", n))
				}
				var distinct int64
				if err := conn.QueryRowContext(ctx, "SELECT COUNT(DISTINCT word) FROM "+from+" AS t").Scan(&distinct); err != nil {
					t.Fatal(err)
				}

				f := &fixture{Handle: New(d, drv), db: db, pool: conn, drv: drv}
				var got []string
				var last []any
				for {
					var page []*sample
					spec := f.sampleSpec(&page)
					spec.Limit = 2
					if last != nil {
						spec.Predicate = d.After(last)
					}
					if err := f.schema().QueryNodes(ctx, drv, spec); err != nil {
						t.Fatal(err)
					}
					for _, s := range page {
						got = append(got, fmt.Sprint(s.key[0], " ", s.count))
					}
					if len(page) < 2 {
						break
					}
					last = page[1].key
				}
				if !slices.Equal(got, want) {
					t.Errorf("pages have\n%v\nnot\n%v", got, want)
				}
				var words []*sample
				if err := d.RollUp(ctx, drv, f.sampleSpec(&words), "word"); err != nil {
					t.Fatal(err)
				}
				dist, err := d.distribute(ctx, drv, f.sampleSpec(new([]*sample)), "word", "count", nil)
				if err != nil {
					t.Fatal(err)
				}
				if int64(len(words)) != distinct || int64(dist.distinct) != distinct || dist.rows != 17 {
					t.Errorf("%d words, %+v, not %d", len(words), dist, distinct)
				}
			})
		}
	})
}
