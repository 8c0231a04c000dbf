package entcounter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"entgo.io/ent/schema/field"
	"github.com/entcounter/entcounter/internal/testdb"
)

// build builds the counter in scopes of a few rows, and wants that to succeed.
func (f *fixture) build(tb testing.TB, h *Handle, rows int) BuildProgress {
	tb.Helper()
	p, err := h.Build(tb.Context(), BuildOptions{ScopeRows: rows})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// planned returns the rows of counter_locks that a build has left.
func (f *fixture) planned(tb testing.TB) (left int) {
	tb.Helper()
	err := f.pool.QueryRow("SELECT COUNT(*) FROM counter_locks WHERE operation = 'build' OR operation LIKE 's%.%'").Scan(&left)
	if err != nil {
		tb.Fatal(err)
	}
	return left
}

func TestBuild(t *testing.T) {
	odd := oddCounter()
	for i := range odd.Sources[0].Key {
		odd.Sources[0].Key[i].Faithful = true
	}
	for name, def := range map[string]*Definition{"plain": fileCounter(), "reserved words": odd} {
		t.Run(name, func(t *testing.T) {
			testdb.Each(t, func(t *testing.T, db *testdb.Database) {
				f := newFixtureOf(t, db, def)
				if p := f.build(t, f.Handle, 0); p.Scopes != 0 || p.Keys != 0 {
					t.Errorf("built from nothing: %+v", p)
				}
				f.rebuildChunk = 3 // more keys than fit at once
				src := def.Sources[0]
				w := newWriter(f.Handle.sql)
				w.sql("INSERT INTO ").ident(src.Table).sql(" (").idents(src.Key[0].Name, src.Key[1].Name, src.Measures[1].Name).
					sql(") VALUES (7, 'new', 10), (7, 'new', 20), (7, 'new', NULL), (7, 'copied', 5), (8, 'new', 1), (8, 'copied', 2)," +
						" (8, 'failed', -3), (9, 'new', 4), (NULL, 'new', 100), (7, NULL, 100), (10, 'a', 1), (10, 'b', 1), (10, 'c', 1), (10, 'd', 1)")
				f.exec(t, w.String())
				// Keys that nothing is counted in any more, folded or not.
				f.journal(t, delta(6, "gone", 1, 1), delta(7, "gone", 1, 1))
				f.foldAll(t)
				f.journal(t, delta(7, "new", 1, 1), delta(11, "gone", 1, 1))
				var told []BuildProgress
				p, err := f.Build(t.Context(), BuildOptions{ScopeRows: 3, Progress: func(p BuildProgress) { told = append(told, p) }})
				if err != nil {
					t.Fatal(err)
				}
				// 6 and 8; 9 and 11; 7 copied and gone; 7 new; 10 a to c; 10 d.
				if p.Keys != 13 || p.Done != 6 || p.Scopes != 6 || p.Rows != 12 || p.DoneRows != 12 || p.Resumed {
					t.Errorf("built: %+v", p)
				}
				if len(told) != p.Scopes+1 || told[0].Done != 0 || told[len(told)-1] != p {
					t.Errorf("progress: %+v", told)
				}
				wantEqual(t, f.drift(t), nil)
				f.foldAll(t)
				wantEqual(t, f.truth(t), slices.DeleteFunc(f.stored(t), func(c count) bool { return c.count == 0 }))
				if got, err := f.builtBy(t.Context()); err != nil || got != def.declaration() {
					t.Errorf("built by %q, %v", got, err)
				}
				if p := f.build(t, f.Handle, 4); p.Keys != 0 || p.Done != p.Scopes || p.Resumed {
					t.Errorf("again: %+v", p)
				}
				if n := f.planned(t); n != 0 {
					t.Errorf("%d rows of a plan are left", n)
				}
			})
		})
	}
}

// One value of the first column that has all rows is divided by the next column; a
// table without an index is not divided.
func TestBuildDivides(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		f := newFixture(t, db)
		for i := range 600 {
			f.exec(t, fmt.Sprintf("INSERT INTO `files` (`dataset_id`, `status`, `size`) VALUES (7, 's%d''\"', %d)", i/3, i))
		}
		depth, err := f.divisible(t.Context())
		if err != nil || depth != 2 {
			t.Fatalf("divisible by %d columns, %v", depth, err)
		}
		regions, err := f.divide(t.Context(), 90)
		if err != nil {
			t.Fatal(err)
		}
		rows := int64(0)
		for _, r := range regions {
			rows += r.rows
			if r.rows > 90 || len(r.prefix) != 1 {
				t.Errorf("a region of %d rows with the prefix %v", r.rows, r.prefix)
			}
		}
		if len(regions) != 7 || rows != 600 {
			t.Errorf("%d regions of %d rows", len(regions), rows)
		}
		if p := f.build(t, f.Handle, 90); p.Keys != 200 || p.Scopes != 7 {
			t.Errorf("built: %+v", p)
		}
		wantEqual(t, f.drift(t), nil)

		drop := "DROP INDEX `files_by_key`"
		if db.Dialect == dialect.MySQL {
			drop += " ON `files`"
		}
		f.exec(t, drop)
		f.journal(t, delta(7, "s1'\"", 1, 1), delta(8, "gone", 1, 1))
		if p := f.build(t, f.Handle, 90); p.Keys != 2 || p.Scopes != 1 || p.Rows != 0 {
			t.Errorf("built without an index: %+v", p)
		}
		wantEqual(t, f.drift(t), nil)
	})
}

// An index serves columns that it begins with, in any order, if the term is one of
// them as it is.
func TestDivisible(t *testing.T) {
	integer := Column{Name: "a", Type: field.TypeInt64, Faithful: true}
	text := Column{Name: "b", Type: field.TypeString, Faithful: true}
	key := func(terms ...Term) *Source { return &Source{Key: terms} }
	for _, c := range []struct {
		source  *Source
		indexes [][]string
		want    int
	}{
		{key(Term{Column: integer}, Term{Column: text}), nil, 0},
		{key(Term{Column: integer}, Term{Column: text}), [][]string{{"x"}, {"a"}}, 1},
		{key(Term{Column: integer}, Term{Column: text}), [][]string{{"b", "a"}}, 2},
		{key(Term{Column: integer}, Term{Column: text}), [][]string{{"x", "a", "b"}, {"", "a"}}, 0},
		{key(Term{Literal: "A"}, Term{Column: integer}), nil, 1},
		{key(Term{Literal: "A"}, Term{Column: integer}), [][]string{{"a", "x"}}, 2},
		{key(Term{Column: integer, Null: int64(0)}), [][]string{{"a"}}, 0},
		{key(Term{Column: integer, Join: 1}), [][]string{{"a"}}, 0},
		{key(Term{Column: Column{Name: "a", Type: field.TypeTime}, Bucket: Day}), [][]string{{"a"}}, 0},
		{key(Term{Column: Column{Name: "a", Type: field.TypeTime, Faithful: true}}), [][]string{{"a"}}, 0},
		{key(Term{Column: Column{Name: "a", Type: field.TypeInt64}}), [][]string{{"a"}}, 0},
	} {
		indexes := make(map[string][]string)
		for i, columns := range c.indexes {
			indexes[fmt.Sprint(i)] = columns
		}
		if got := c.source.divisible(indexes); got != c.want {
			t.Errorf("%+v with indexes %v: %d, want %d", c.source.Key, c.indexes, got, c.want)
		}
	}
}

// A region that was written as text is the same region.
func TestRegionText(t *testing.T) {
	d := fileCounter()
	for _, r := range []region{
		{prefix: []any{}},
		{prefix: []any{int64(-7)}},
		{prefix: []any{}, values: []any{int64(1), int64(1) << 62, uint64(1) << 63}},
		{prefix: []any{int64(7)}, values: []any{"", "new", `"'<ü`}},
	} {
		text, ok := r.encode()
		if !ok {
			t.Fatalf("%v has no text", r)
		}
		got, err := d.region(text)
		if err != nil || fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", r) {
			t.Errorf("%s: %#v, %v, want %#v", text, got, err, r)
		}
	}
	for _, r := range []region{{values: []any{"\xff"}}, {values: []any{[]byte{1}}}, {prefix: []any{time.Now()}}} {
		if text, ok := r.encode(); ok {
			t.Errorf("%v: %s", r, text)
		}
	}
	for _, text := range []string{"", "{", `{"p":[1,"a"],"v":["b"]}`, `{"p":["a"]}`, `{"v":[1.5]}`} {
		if r, err := d.region(text); err == nil {
			t.Errorf("%s is read as %v", text, r)
		}
	}
}

// A build goes on where an interrupted one has stopped, wherever that was.
func TestBuildInterrupted(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		f := newFixture(t, db)
		f.fill(t, 3, 10)
		f.build(t, f.Handle, 0) // the lock rows are there
		reset := func() {
			f.exec(t, "DELETE FROM `file_counter_journal`")
			f.exec(t, "DELETE FROM `file_counters`")
			f.journal(t, delta(1, "new", 3, 3), delta(4, "gone", 1, 1))
		}
		reset()
		statements := 0
		whole := f.build(t, f.with(func(query string) (string, error) { statements++; return query, nil }), 20)
		if whole.Scopes < 7 || whole.Keys != 13 {
			t.Fatalf("%+v", whole)
		}
		killed := errors.New("killed")
		first, step := 1, 1
		if db.Kind != testdb.SQLite { // where there is little time for all
			first, step = 1+rand.IntN(6), 6
		}
		for n := first; n <= statements; n += step {
			reset()
			left := n
			// What is sent is lost from here on, and no rollback arrives either.
			h := f.with(func(query string) (string, error) {
				if left--; left <= 0 {
					return "", killed
				}
				return query, nil
			})
			first, err := h.Build(t.Context(), BuildOptions{ScopeRows: 20})
			if !errors.Is(err, killed) || !strings.Contains(err.Error(), "building counter File") {
				t.Fatalf("statement %d: %v", n, err)
			}
			rest := f.build(t, f.Handle, 20)
			if first.Keys+rest.Keys != 13 && first.Keys+rest.Keys != 13-4 {
				t.Errorf("interrupted at statement %d: %d and %d keys corrected", n, first.Keys, rest.Keys)
			}
			if drift := f.drift(t); drift != nil || f.planned(t) != 0 {
				t.Fatalf("interrupted at statement %d: drift %v, %d rows of a plan", n, drift, f.planned(t))
			}
		}
	})
}

// A build that goes on does not do again what is done, and one that is to restart does.
func TestBuildResumes(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		f := newFixture(t, db)
		f.fill(t, 3, 10)
		interrupt := func(restart bool) {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := f.Build(ctx, BuildOptions{ScopeRows: 20, Restart: restart, Progress: func(p BuildProgress) {
				if p.Done == 2 {
					cancel()
				}
			}})
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		interrupt(false)
		corrected := f.backlog(t)
		p := f.build(t, f.Handle, 1) // the scopes are those of the plan
		if !p.Resumed || p.Scopes != 6 || corrected == 0 || int64(p.Keys)+corrected != 12 {
			t.Errorf("after %d keys: %+v", corrected, p)
		}
		wantEqual(t, f.drift(t), nil)

		interrupt(false)
		f.exec(t, "INSERT INTO `files` (`dataset_id`, `status`, `size`) VALUES (1, 'new', 1), (2, 'new', 1), (3, 'new', 1)") // by an old program
		p, err := f.Build(t.Context(), BuildOptions{ScopeRows: 1000, Restart: true})
		if err != nil || p.Resumed || p.Scopes != 1 || p.Keys != 3 {
			t.Errorf("restarted: %+v, %v", p, err)
		}
		wantEqual(t, f.drift(t), nil)

		// Another declaration has plans of its own.
		interrupt(false)
		changed := *f.def
		source := *f.def.Sources[0]
		source.Where = &Condition{Op: OpEQ, Term: source.Key[0], Values: Constants{int64(2)}}
		changed.Sources = []*Source{&source}
		h := New(&changed, f.drv)
		p, err = h.Build(t.Context(), BuildOptions{ScopeRows: 20})
		if err != nil || p.Resumed || p.Keys != 8 {
			t.Errorf("another declaration: %+v, %v", p, err)
		}
		if n := f.planned(t); n != 0 {
			t.Errorf("%d rows of plans are left", n)
		}

		// A rebuild of everything leaves a build nothing to do.
		interrupt(false)
		if _, err := f.Rebuild(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if p := f.build(t, f.Handle, 20); p.Resumed || p.Keys != 0 {
			t.Errorf("after a rebuild: %+v", p)
		}
		wantEqual(t, f.drift(t), nil)
	})
}

// Builds that run at once share the scopes, and correct no key twice.
func TestBuildsAtOnce(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		f := newFixture(t, db)
		f.fill(t, 12, 5)
		f.build(t, f.Handle, 0)
		for race := range 5 {
			for dataset := range 12 {
				f.journal(t, delta(int64(dataset+1), "new", 7, 70), delta(int64(dataset+1), "gone", -7, -70))
			}
			var (
				wg   sync.WaitGroup
				keys [3]int
			)
			for i := range keys {
				wg.Go(func() {
					p, err := f.Build(t.Context(), BuildOptions{ScopeRows: 10, Restart: race == 4})
					if err != nil {
						t.Error(err)
					}
					keys[i] = p.Keys
				})
			}
			wg.Wait()
			if sum := keys[0] + keys[1] + keys[2]; sum != 24 {
				t.Errorf("race %d: %v keys corrected, want 24 in all", race, keys)
			}
			wantEqual(t, f.drift(t), nil)
			if n := f.planned(t); n != 0 {
				t.Errorf("race %d: %d rows of a plan are left", race, n)
			}
		}
	})
}

// A correction that another one has made meanwhile is not made again; one of another
// key does not matter; and others cannot keep a build from its end.
func TestBuildOvertaken(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		f := newFixture(t, db)
		f.fill(t, 2, 5)
		f.build(t, f.Handle, 0)
		for _, times := range []int{1, maxOvertaken, maxOvertaken + 5} {
			for what, others := range map[string]func() error{
				"rebuild":        func() error { _, err := f.Rebuild(t.Context(), []any{1}); return err },
				"scope deletion": func() error { return f.DeleteScope(t.Context(), []any{3}) },
			} {
				f.journal(t, delta(1, "new", 7, 70), delta(2, "new", 7, 70), delta(3, "gone", 1, 1))
				overtaken, measured := 0, false
				h := f.with(func(query string) (string, error) {
					if strings.Contains(query, "HAVING") && strings.Contains(query, "version") {
						measured = true
					} else if measured && query == "BEGIN" && overtaken < times {
						measured = false
						overtaken++
						if err := others(); err != nil {
							return "", err
						}
					}
					return query, nil
				})
				f.build(t, h, 5)
				if overtaken == 0 {
					t.Error("nothing came in between")
				}
				if drift := f.drift(t); drift != nil {
					t.Errorf("%s, %d times: drift %v", what, times, drift)
				}
			}
		}
	})
}

// Without looking whether another correction came in between, one is made twice.
func TestBuildBlind(t *testing.T) {
	f := newFixture(t, testdb.New(t, testdb.SQLite))
	f.fill(t, 2, 5)
	f.build(t, f.Handle, 0)
	f.journal(t, delta(1, "new", 7, 70))
	rebuilt, blind := false, false
	h := f.with(func(query string) (string, error) {
		switch {
		case strings.Contains(query, "HAVING"):
			blind = true
		case blind && query == "BEGIN" && !rebuilt:
			rebuilt = true
			_, err := f.Rebuild(t.Context(), []any{1})
			return query, err
		case strings.HasPrefix(query, "SELECT `version` FROM"):
			if rebuilt {
				return "SELECT n FROM (SELECT 4 AS n UNION ALL SELECT 3) WHERE ? || ? || ? <> ''", nil
			}
		}
		return query, nil
	})
	f.build(t, h, 100)
	wantEqual(t, f.drift(t), [][2]count{{{1, "new", -2, -60}, {1, "new", 5, 10}}})
}

// Builds beside writers that journal what they change find what was there before, and
// then nothing.
func TestBuildBesideWriters(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		const files = 4 * 50 * 2
		f := newFixture(t, db)
		f.fill(t, 2, 50)
		ctx, stop := context.WithTimeout(t.Context(), max(*stress, 2*time.Second))
		defer stop()
		var wg sync.WaitGroup
		loop := func(what string, fn func() error) {
			wg.Go(func() {
				for ctx.Err() == nil {
					if err := fn(); err != nil {
						t.Errorf("%s: %v", what, err)
						return
					}
				}
			})
		}
		for range 8 {
			loop("writer", func() error { return f.move(rand.IntN(files) + 1) })
		}
		loop("folder", func() error { _, err := f.Fold(t.Context()); return err })
		time.Sleep(100 * time.Millisecond)
		first := f.build(t, f.Handle, 60)
		again := f.build(t, f.Handle, 60)
		loop("builder", func() error {
			p, err := f.Build(t.Context(), BuildOptions{ScopeRows: 60})
			if err == nil && p.Keys != 0 {
				err = fmt.Errorf("%d keys corrected where none was wrong", p.Keys)
			}
			return err
		})
		loop("verifier", func() error {
			return f.Verify(t.Context(), nil, func(scan func(...any) error) error { return errors.New("drift") })
		})
		wg.Wait()
		if first.Keys != 8 || again.Keys != 0 {
			t.Errorf("first build %+v, second %+v", first, again)
		}
		f.foldAll(t)
		wantEqual(t, f.drift(t), nil)
	})
}

func TestBuildErrors(t *testing.T) {
	f := newFixture(t, testdb.New(t, testdb.SQLite))
	if _, err := f.Build(t.Context(), BuildOptions{ScopeRows: -1}); err == nil || !strings.Contains(err.Error(), "building counter File: scopes of -1 rows") {
		t.Error(err)
	}
	inner, err := f.drv.Tx(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = inner.Rollback() }()
	if _, err := New(f.def, opDriver{tx: newTx(inner, f.db.Dialect)}).Build(t.Context(), BuildOptions{}); !errors.Is(err, ErrInTransaction) {
		t.Error(err)
	}
}

func TestProgressBar(t *testing.T) {
	var (
		out strings.Builder
		now time.Time
	)
	show := func(terminal bool) string {
		out.Reset()
		b := newBar(&out, terminal, func() time.Time { return now })
		for done := range 21 {
			b.show(BuildProgress{Counter: "File", Scopes: 20, Done: done, Rows: 2000, DoneRows: int64(100 * done), Keys: 3 * done})
			now = now.Add(time.Second)
		}
		b.show(BuildProgress{Counter: "Other", Scopes: 1})
		b.show(BuildProgress{Counter: "Other", Scopes: 1, Done: 1})
		return out.String()
	}
	lines := strings.Split(show(false), "\n")
	wantEqual(t, len(lines), 11+2+1)
	wantEqual(t, lines[5], "File [###############...............]  50%  10 of 20 scopes, 1000 of about 2000 rows, 30 keys corrected, 10s left")
	wantEqual(t, lines[10], "File [##############################] 100%  20 of 20 scopes, 2000 of about 2000 rows, 60 keys corrected")
	wantEqual(t, lines[11], "Other [..............................]   0%  0 of 1 scopes, 0 keys corrected")
	text := show(true)
	if strings.Count(text, "\r") != 23 || strings.Count(text, "\n") != 2 || !strings.HasSuffix(text, "\x1b[K\n") {
		t.Errorf("on a terminal: %q", text)
	}
}
