package entcounter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/internal/testdb"
)

// truth counts the files.
func (f *fixture) truth(tb testing.TB) []count {
	tb.Helper()
	src := f.def.Sources[0]
	w := newWriter(f.Handle.sql)
	key := []string{src.Key[0].Name, src.Key[1].Name}
	w.sql("SELECT ").idents(key...).sql(", COUNT(*), COALESCE(SUM(").ident(src.Measures[1].Name).sql("), 0) FROM ").ident(src.Table).
		sql(" WHERE ").ident(key[0]).sql(" IS NOT NULL AND ").ident(key[1]).sql(" IS NOT NULL GROUP BY ").idents(key...).sql(" ORDER BY ").idents(key...)
	return f.counts(tb, f.pool, w.String())
}

func TestRebuild(t *testing.T) {
	for name, def := range map[string]*Definition{"plain": fileCounter(), "reserved words": oddCounter()} {
		t.Run(name, func(t *testing.T) {
			testdb.Each(t, func(t *testing.T, db *testdb.Database) {
				f := newFixtureOf(t, db, def)
				f.rebuildChunk = 3 // more keys than fit at once
				src := def.Sources[0]
				w := newWriter(f.Handle.sql)
				w.sql("INSERT INTO ").ident(src.Table).sql(" (").idents(src.Key[0].Name, src.Key[1].Name, src.Measures[1].Name).
					sql(") VALUES (7, 'new', 10), (7, 'new', 20), (7, 'new', NULL), (7, 'copied', 5), (8, 'new', 1), (8, 'copied', 2)," +
						" (8, 'failed', -3), (9, 'new', 4), (NULL, 'new', 100), (7, NULL, 100)")
				f.exec(t, w.String())

				// A new counter.
				rebuilt, err := f.Rebuild(t.Context(), nil)
				if err != nil || rebuilt.Keys != 6 {
					t.Fatalf("rebuild: %+v, %v", rebuilt, err)
				}
				want := []count{{7, "copied", 1, 5}, {7, "new", 3, 30}, {8, "copied", 1, 2}, {8, "failed", 1, -3}, {8, "new", 1, 1}, {9, "new", 1, 4}}
				wantEqual(t, f.truth(t), want)
				wantEqual(t, f.read(t, nil), want)
				if rebuilt, err = f.Rebuild(t.Context(), nil); err != nil || rebuilt.Keys != 0 {
					t.Errorf("again: %+v, %v", rebuilt, err)
				}

				// Too much, too little, and a key that is nowhere else, folded or not.
				f.journal(t, delta(7, "new", 5, 0))
				f.foldAll(t)
				f.journal(t, delta(7, "copied", 0, -7), delta(7, "gone", 1, 1), delta(8, "new", -1, -1))
				wantEqual(t, f.drift(t), [][2]count{
					{{7, "copied", 1, -2}, {7, "copied", 1, 5}},
					{{7, "gone", 1, 1}, {7, "gone", 0, 0}},
					{{7, "new", 8, 30}, {7, "new", 3, 30}},
					{{8, "new", 0, 0}, {8, "new", 1, 1}},
				})
				wantEqual(t, f.drift(t, 8), [][2]count{{{8, "new", 0, 0}, {8, "new", 1, 1}}})
				wantEqual(t, f.drift(t, 8, "copied"), nil)
				if rebuilt, err = f.Rebuild(t.Context(), []any{7}); err != nil || rebuilt.Keys != 3 {
					t.Errorf("rebuild of a scope: %+v, %v", rebuilt, err)
				}
				wantEqual(t, f.drift(t), [][2]count{{{8, "new", 0, 0}, {8, "new", 1, 1}}})
				if rebuilt, err = f.Rebuild(t.Context(), []any{8, "new"}); err != nil || rebuilt.Keys != 1 {
					t.Errorf("rebuild of a key: %+v, %v", rebuilt, err)
				}
				wantEqual(t, f.drift(t), nil)
				f.foldAll(t)
				wantEqual(t, f.drift(t), nil)
			})
		})
	}
}

func TestRebuildRace(t *testing.T) {
	same := func(query string) string { return query }
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		if twice := newFixture(t, db).raceRebuilds(t, same); twice != 0 {
			t.Errorf("%d of 20 races corrected twice", twice)
		}
	})
	// In Postgres, a lock row that is locked but not written does not do: whoever
	// waits for it goes on with the snapshot from before the wait.
	t.Run("postgres, lock not written", func(t *testing.T) {
		twice := newFixture(t, testdb.New(t, testdb.Postgres)).raceRebuilds(t, func(query string) string {
			if _, where, ok := strings.Cut(query, `SET "version" = "version" + 1 `); ok {
				return `SELECT 1 FROM "counter_locks" ` + where + ` FOR UPDATE`
			} else if strings.HasPrefix(query, `SELECT "version"`) {
				return "SELECT * FROM (VALUES (1), (0)) AS v WHERE $1 || $2 || $3 <> ''"
			} else if strings.HasPrefix(query, `UPDATE "counter_locks"`) {
				return "SELECT 1 WHERE $1 > 0 AND $2 || $3 <> ''"
			}
			return query
		})
		t.Logf("%d of 20 races corrected twice", twice)
		if twice < 10 {
			t.Error("most races were none")
		}
	})
}

// raceRebuilds runs two rebuilds of a corrupted scope at once, 20 times, and
// returns how often they corrected it twice. The one that has the lock goes on
// when the other one waits for it.
func (f *fixture) raceRebuilds(t *testing.T, rewrite func(query string) string) (twice int) {
	f.fill(t, 3, 10)
	if _, err := f.Rebuild(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for race := range 20 {
		f.journal(t, delta(1, "new", 7, 70), delta(1, "copied", -7, -70))
		if race%2 == 0 {
			f.foldAll(t)
		}
		var (
			wg      sync.WaitGroup
			keys    [2]int
			locking atomic.Int32
		)
		h := f.with(func(query string) (string, error) {
			if strings.HasPrefix(query, "UPDATE") && strings.Contains(query, "+ 1") {
				locking.Add(1)
			} else if query != "BEGIN" && query != "COMMIT" {
				for locking.Load() < 2 {
					time.Sleep(time.Millisecond)
				}
				time.Sleep(5 * time.Millisecond)
			}
			return rewrite(query), nil
		})
		for i := range keys {
			wg.Go(func() {
				rebuilt, err := h.Rebuild(t.Context(), []any{1})
				if err != nil {
					t.Error(err)
				}
				keys[i] = rebuilt.Keys
			})
		}
		wg.Wait()
		corrected := keys[0] + keys[1]
		if corrected > 2 {
			twice++
		}
		if drift := f.drift(t); corrected < 2 || (len(drift) > 0) != (corrected > 2) {
			t.Errorf("race %d: drift %v after %d and %d corrections", race, drift, keys[0], keys[1])
		}
		if _, err := f.Rebuild(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	return twice
}

// fill inserts files: datasets × statuses, each with n of them.
func (f *fixture) fill(tb testing.TB, datasets, n int) {
	tb.Helper()
	for dataset := 1; dataset <= datasets; dataset++ {
		for _, status := range loadStatuses {
			w := newWriter(f.Handle.sql)
			w.sql("INSERT INTO ").ident("files").sql(" (").idents("dataset_id", "status", "size").sql(") VALUES ")
			for i := range n {
				if i > 0 {
					w.sql(", ")
				}
				w.sql(fmt.Sprintf("(%d, '%s', %d)", dataset, status, i))
			}
			f.exec(tb, w.String())
		}
	}
}

// Rebuilds and folds find nothing to correct beside writers that journal what
// they change, and every read in one snapshot equals the recount in it.
func TestRebuildBesideWriters(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		const files = 4 * 50 * 2
		f := newFixture(t, db)
		f.fill(t, 2, 50)
		if _, err := f.Rebuild(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), max(*stress, 3*time.Second))
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
		for range 2 {
			loop("folder", func() error { _, err := f.Fold(t.Context()); return err })
		}
		rebuilds := 0
		loop("rebuilder", func() error {
			var scope []any
			if rand.IntN(2) == 0 {
				scope = []any{1 + rand.IntN(2)}
			}
			rebuilt, err := f.Rebuild(t.Context(), scope)
			if err == nil && rebuilt.Keys != 0 {
				err = fmt.Errorf("%d keys corrected where none was wrong", rebuilt.Keys)
			}
			rebuilds++
			return err
		})
		loop("verifier", func() error {
			return f.Verify(t.Context(), nil, func(scan func(...any) error) error { return errors.New("drift") })
		})
		wg.Wait()
		if rebuilds == 0 {
			t.Error("no rebuild came to an end")
		}
		f.foldAll(t)
		wantEqual(t, f.drift(t), nil)
	})
}

// move moves a file to another status, in a transaction with its deltas. The
// delta is derived from the affected rows of a conditional update.
func (f *fixture) move(id int) error {
	ctx := context.Background()
	from, to := loadStatuses[rand.IntN(4)], loadStatuses[rand.IntN(4)]
	if from == to {
		return nil
	}
	tx, err := f.drv.Tx(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var res sql.Result
	query := f.rebind("UPDATE `files` SET `status` = ? WHERE `id` = ? AND `status` = ?")
	if err := tx.Exec(ctx, query, []any{to, id, from}, &res); err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return err
	}
	var rows sql.Rows
	if err := tx.Query(ctx, f.rebind("SELECT `dataset_id`, `size` FROM `files` WHERE `id` = ?"), []any{id}, &rows); err != nil {
		return err
	}
	var dataset, size int64
	for rows.Next() {
		err = rows.Scan(&dataset, &size)
	}
	if err := errors.Join(err, rows.Close()); err != nil {
		return err
	}
	if err := insertJournal(ctx, tx, f.db.Dialect, f.def, []Delta{delta(dataset, from, -1, -size), delta(dataset, to, 1, size)}); err != nil {
		return err
	}
	return tx.Commit()
}

// A snapshot that does not show the last rebuild is not used.
func TestRebuildStaleSnapshot(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		f := newFixture(t, db)
		f.exec(t, "INSERT INTO `files` (`dataset_id`, `status`, `size`) VALUES (7, 'new', 10)")
		if _, err := f.Rebuild(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		f.exec(t, "UPDATE `counter_locks` SET `version` = `version` - 1 WHERE `operation` = 'rebuilt'")
		attempts := 0
		h := f.with(func(query string) (string, error) {
			if query == "BEGIN" {
				if attempts++; attempts == 3 {
					f.exec(t, "UPDATE `counter_locks` SET `version` = `version` + 1 WHERE `operation` = 'rebuilt'")
				}
			}
			return query, nil
		})
		if rebuilt, err := h.Rebuild(t.Context(), nil); err != nil || rebuilt.Keys != 0 || attempts != 3 {
			t.Errorf("rebuild: %+v, %v after %d attempts", rebuilt, err, attempts)
		}
		if err := f.DeleteScope(t.Context(), []any{1}); err != nil {
			t.Fatal(err)
		}
		if rebuilt, err := f.Rebuild(t.Context(), nil); err != nil || rebuilt.Keys != 0 {
			t.Errorf("rebuild after a deletion: %+v, %v", rebuilt, err)
		}
	})
}

func TestDeleteScope(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		f := newFixture(t, db)
		f.journal(t, delta(7, "new", 3, 60), delta(8, "new", 1, 1), delta(8, "copied", 1, 1))
		f.foldAll(t)
		f.journal(t, delta(7, "copied", 1, 10), delta(8, "new", 1, 1))
		if err := f.DeleteScope(t.Context(), []any{7}); err != nil {
			t.Fatal(err)
		}
		wantEqual(t, f.read(t, nil), []count{{8, "copied", 1, 1}, {8, "new", 2, 2}})
		if n := f.backlog(t); n != 1 {
			t.Errorf("%d rows in the journal, want 1", n)
		}
		if err := f.DeleteScope(t.Context(), []any{int32(8), "new"}); err != nil {
			t.Fatal(err)
		}
		wantEqual(t, f.read(t, nil), []count{{8, "copied", 1, 1}})
		for _, scope := range [][]any{nil, {}} {
			if err := f.DeleteScope(t.Context(), scope); !errors.Is(err, ErrEmptyScope) {
				t.Errorf("scope %v: got %v, want ErrEmptyScope", scope, err)
			}
		}
		wantEqual(t, f.read(t, nil), []count{{8, "copied", 1, 1}})
	})
}

func TestScopeErrors(t *testing.T) {
	f := newFixture(t, testdb.New(t, testdb.SQLite))
	for want, scope := range map[string][]any{
		"scope of 3 values, the key has 2 columns": {7, "new", 1},
		"key column status":                        {7, 3.5},
		"key column dataset_id":                    {"seven"},
		"key column dataset_id: no value":          {nil, "new"},
	} {
		for name, err := range map[string]error{
			"Rebuild":     func() error { _, err := f.Rebuild(t.Context(), scope); return err }(),
			"Verify":      f.Verify(t.Context(), scope, nil),
			"DeleteScope": f.DeleteScope(t.Context(), scope),
		} {
			if err == nil || !strings.HasPrefix(err.Error(), "entcounter: ") || !strings.Contains(err.Error(), "counter File") || !strings.Contains(err.Error(), want) {
				t.Errorf("%s(%v): got error %v, want one with %q", name, scope, err, want)
			}
		}
	}
}

// Every operation that runs in a transaction of its own refuses to run in the
// user's.
func TestOperationsInTransaction(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		f := newFixture(t, db)
		f.exec(t, "INSERT INTO `files` (`dataset_id`, `status`, `size`) VALUES (7, 'new', 10), (7, 'new', 20)")
		if err := f.Journal(t.Context(), delta(7, "new", 1, 1)); !errors.Is(err, ErrNoTransaction) {
			t.Errorf("Journal outside of a transaction: %v", err)
		}
		inner, err := f.drv.Tx(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		tx := newTx(inner, db.Dialect)
		h := New(f.def, dialect.Debug(opDriver{tx: tx}, func(...any) {}))
		_, foldErr := h.Fold(t.Context())
		_, rebuildErr := h.Rebuild(t.Context(), nil)
		for name, err := range map[string]error{
			"Fold":        foldErr,
			"Rebuild":     rebuildErr,
			"DeleteScope": h.DeleteScope(t.Context(), []any{7}),
			"Run":         NewWorker([]*Handle{h}, WorkerOptions{}).Run(t.Context()),
		} {
			if !errors.Is(err, ErrInTransaction) || !strings.Contains(err.Error(), "File") {
				t.Errorf("%s: got %v, want ErrInTransaction", name, err)
			}
		}
		// Journal and Verify belong there.
		if err := h.Journal(t.Context(), delta(7, "new", 1, 10), delta(7, "new", 1, 20)); err != nil {
			t.Fatal(err)
		}
		for want, delta := range map[string]Delta{
			"3 measures given":      {Key: []any{7, "new"}, Measures: []int64{1, 2, 3}},
			"1 key values given":    {Key: []any{7}, Measures: []int64{1, 2}},
			"status: no value":      {Key: []any{7, nil}, Measures: []int64{1, 2}},
			"column \"dataset_id\"": {Key: []any{"x", "new"}, Measures: []int64{1, 2}},
		} {
			if err := h.Journal(t.Context(), delta); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "File") {
				t.Errorf("Journal(%v): got %v, want an error with %q", delta, err, want)
			}
		}
		if err := h.Verify(t.Context(), nil, func(func(...any) error) error { return errors.New("drift") }); err != nil {
			t.Errorf("Verify in a transaction: %v", err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		wantEqual(t, f.read(t, nil), []count{{7, "new", 2, 30}})
		if n := f.backlog(t); n != 1 {
			t.Errorf("%d rows in the journal, want 1", n)
		}
	})
}

// A visitor's error ends a verification and is what it returns.
func TestVerifyStops(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		f := newFixture(t, db)
		f.fill(t, 5, 1)
		stop := errors.New("enough")
		visited := 0
		err := f.Verify(t.Context(), nil, func(func(...any) error) error { visited++; return stop })
		if !errors.Is(err, stop) || visited != 1 {
			t.Errorf("got %v after %d keys", err, visited)
		}
		wantEqual(t, len(f.drift(t)), 20)
	})
}

func TestBacklog(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		if db.Dialect == dialect.MySQL {
			// A driver that reads times, in a zone that the server does not have.
			db = &testdb.Database{Kind: db.Kind, Dialect: db.Dialect, Driver: db.Driver,
				DSN: db.WithParams(map[string]string{"loc": "America/New_York", "parseTime": "true", "time_zone": "'+05:30'"})}
		}
		f := newFixture(t, db)
		b, err := f.Backlog(t.Context())
		if err != nil || b.Rows != 0 || !b.Oldest.IsZero() {
			t.Errorf("empty: %+v, %v", b, err)
		}
		f.journal(t, delta(7, "new", 1, 1))
		time.Sleep(20 * time.Millisecond)
		f.journal(t, delta(7, "new", 1, 1))
		b, err = f.Backlog(t.Context())
		if err != nil || b.Rows != 2 {
			t.Errorf("two rows: %+v, %v", b, err)
		}
		// The clock is the server's, which in the tests is this machine's.
		if age := time.Since(b.Oldest); age < 0 || age > time.Minute || b.Oldest.Location() != time.UTC {
			t.Errorf("the oldest of two rows is from %v, %v ago", b.Oldest, age)
		}
	})
}
