package entcountertest_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/enttest"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/ent/filecounters"
	"github.com/entcounter/entcounter/ent/hook"
	"github.com/entcounter/entcounter/entcounter/entcountertest"
	"github.com/entcounter/entcounter/internal/conformance/plain"
	plainfile "github.com/entcounter/entcounter/internal/conformance/plain/file"
	"github.com/entcounter/entcounter/internal/testdb"
)

// fakeT is a test whose failures are looked at.
type fakeT struct {
	testing.TB
	ctx      context.Context
	dir      string
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func newFakeT(t *testing.T) *fakeT { return &fakeT{TB: t, ctx: t.Context()} }

func (f *fakeT) Helper()                  {}
func (f *fakeT) Context() context.Context { return f.ctx }
func (f *fakeT) Cleanup(fn func())        { f.cleanups = append(f.cleanups, fn) }

func (f *fakeT) TempDir() string   { return f.dir }
func (f *fakeT) Fatal(args ...any) { f.Fatalf("%s", fmt.Sprint(args...)) }

func (f *fakeT) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failures = append(f.failures, fmt.Sprintf(format, args...))
}

func (f *fakeT) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	runtime.Goexit()
}

// run calls fn as a test is run, until it ends or is ended.
func (f *fakeT) run(fn func()) *fakeT {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	<-done
	return f
}

// failuresOf runs a test and returns how it failed.
func failuresOf(test func(testing.TB)) ([]string, error) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	f := &fakeT{ctx: context.Background(), dir: dir}
	f.run(func() { test(f) })
	f.end()
	return f.take(), nil
}

// end runs the cleanups as a test that is over does.
func (f *fakeT) end() {
	for _, fn := range slices.Backward(f.cleanups) {
		fn()
	}
	f.cleanups = nil
}

// take returns the failures since the last call.
func (f *fakeT) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	failures := f.failures
	f.failures = nil
	return failures
}

// wants fails the real test unless the fake one has failed once since the last call,
// with a message that matches.
func (f *fakeT) wants(pattern string) {
	f.TB.Helper()
	failures := f.take()
	if len(failures) != 1 || !regexp.MustCompile("(?s)"+pattern).MatchString(failures[0]) {
		f.TB.Fatalf("the test failed %d times, with %q, want once, with %s", len(failures), failures, pattern)
	}
}

// wantsNone fails the real test if the fake one has failed.
func (f *fakeT) wantsNone() {
	f.TB.Helper()
	if failures := f.take(); len(failures) > 0 {
		f.TB.Fatalf("the test failed: %q", failures)
	}
}

// world is a database with two files.
type world struct {
	*testing.T
	db      *testdb.Database
	client  *ent.Client
	dataset int
	files   []int

	datasets int // made by mutate
}

func each(t *testing.T, fn func(w *world)) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) { fn(newWorld(t, db)) })
}

func newWorld(t *testing.T, db *testdb.Database) *world { return newWorldOn(t, db, db.DB(t)) }

func newWorldOn(t *testing.T, db *testdb.Database, pool *sql.DB) *world {
	client := enttest.NewClient(t, enttest.WithOptions(ent.Driver(entsql.OpenDB(db.Dialect, pool))))
	t.Cleanup(func() { _ = client.Close() })
	w := &world{T: t, db: db, client: client}
	w.dataset = client.Dataset.Create().SetName("a").SaveX(t.Context()).ID
	for i := range 2 {
		w.files = append(w.files, client.File.Create().SetDatasetID(w.dataset).SetPath(fmt.Sprint(i)).SetSize(int64(10*(i+1))).SaveX(t.Context()).ID)
	}
	return w
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// raw changes rows without ent.
func (w *world) raw(on execer, query string) {
	w.Helper()
	if _, err := on.ExecContext(context.Background(), query); err != nil {
		w.Fatal(err)
	}
}

const (
	setCopied   = "UPDATE files SET status = 'Copied' WHERE size = 10"
	newDiffers  = `counter File, key dataset_id=\d+ status="New": count counted 2, recounted 1; bytes counted 30, recounted 20`
	copyDiffers = `counter File, key dataset_id=\d+ status="Copied": count counted 0, recounted 1; bytes counted 0, recounted 10`
)

// Writes that go through the client never fail a guarded test.
func TestGuardAcceptsWhatIsCounted(t *testing.T) {
	each(t, func(w *world) {
		ctx := w.Context()
		ft := newFakeT(w.T)
		entcountertest.Guard(ft, w.client)
		w.client.File.UpdateOneID(w.files[0]).SetStatus(file.StatusCopying).ExecX(ctx)
		w.client.File.Create().SetDatasetID(w.dataset).SetPath("0").SetSize(9).OnConflict(conflict(w)...).UpdateNewValues().ExecX(ctx)
		var bulk []*ent.FileCreate
		for i := range 20 {
			bulk = append(bulk, w.client.File.Create().SetDatasetID(w.dataset).SetPath(fmt.Sprint("b", i)).SetSize(1))
		}
		w.client.File.CreateBulk(bulk...).ExecX(ctx)
		tx, err := w.client.Tx(ctx)
		if err != nil {
			w.Fatal(err)
		}
		tx.File.Update().Where(file.StatusEQ(file.StatusNew)).SetStatus(file.StatusCopied).ExecX(ctx)
		tx.Client().File.Delete().Where(file.SizeLT(5)).ExecX(ctx)
		if err := tx.Commit(); err != nil {
			w.Fatal(err)
		}
		if _, err := w.client.File.Create().SetDatasetID(w.dataset).SetPath("1").SetSize(5).Save(ctx); err == nil {
			w.Fatal("a second file with one path")
		}
		w.client.Dataset.DeleteOneID(w.client.Dataset.Create().SetName("empty").SaveX(ctx).ID).ExecX(ctx)
		ft.end()
		ft.wantsNone()
	})
}

// conflict is the conflict clause for the path of a file.
func conflict(w *world) []entsql.ConflictOption {
	if w.db.Dialect == dialect.MySQL {
		return nil
	}
	return []entsql.ConflictOption{entsql.ConflictColumns(file.FieldDatasetID, file.FieldPath)}
}

// Writes that go round the hooks are found after the next mutation, or at the end.
func TestGuardFindsWhatIsNotCounted(t *testing.T) {
	each(t, func(w *world) {
		ctx := w.Context()
		stranger := plain.NewClient(plain.Driver(entsql.OpenDB(w.db.Dialect, w.db.DB(w))))
		upsert := fmt.Sprintf("INSERT INTO files (dataset_id, path, size, status) VALUES (%d, '0', 10, 'Copied') ", w.dataset)
		if w.db.Dialect == dialect.MySQL {
			upsert += "ON DUPLICATE KEY UPDATE status = VALUES(status)"
		} else {
			upsert += "ON CONFLICT (dataset_id, path) DO UPDATE SET status = EXCLUDED.status"
		}
		for _, way := range []struct {
			name   string
			change func()
		}{
			{"raw SQL", func() { w.raw(w.client, setCopied) }},
			{"upsert by hand", func() { w.raw(w.client, upsert) }},
			{"in a transaction", func() { w.inTx(func(tx *ent.Tx) { w.raw(tx, setCopied) }) }},
			{"client without counters", func() { stranger.File.Update().Where(plainfile.Size(10)).SetStatus(plainfile.StatusCopied).ExecX(ctx) }},
			{"another connection", func() { w.raw(w.db.DB(w), setCopied) }},
		} {
			change := way.change
			w.Run(way.name, func(t *testing.T) {
				ft := newFakeT(t)
				entcountertest.Guard(ft, w.client)
				w.mutate()
				ft.wantsNone()
				change()
				w.mutate()
				ft.wants(`counters differ from a recount after mutation 2, Dataset\.Create \(entcountertest_test\.go:\d+\); ` +
					`they were right the last time after mutation 1, Dataset\.Create \(entcountertest_test\.go:\d+\):`)
				w.mutate()
				ft.wantsNone()
				ft.end()
				ft.wantsNone() // said already
				w.mend()

				ft = newFakeT(t)
				entcountertest.Guard(ft, w.client)
				change()
				ft.end()
				ft.wants(`when the test ended; they were right the last time when the test began:.*` + copyDiffers + `.*Journal`)
				w.mutate()
				ft.wantsNone()
				w.mend()
			})
		}
	})
}

// mutate makes a mutation that changes no counter.
func (w *world) mutate() {
	w.datasets++
	w.client.Dataset.Create().SetName(fmt.Sprint("more ", w.datasets)).ExecX(w.Context())
}

// mend makes the files and their counts what they were.
func (w *world) mend() {
	w.Helper()
	w.raw(w.client, "UPDATE files SET status = 'New'")
	if _, err := w.client.FileCounters.Rebuild(w.Context(), filecounters.Scope{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) inTx(fn func(*ent.Tx)) {
	w.Helper()
	tx, err := w.client.Tx(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	fn(tx)
	if err := tx.Commit(); err != nil {
		w.Fatal(err)
	}
}

// What goes uncounted in a transaction is found in it, though it is rolled back.
func TestGuardLooksIntoTransactions(t *testing.T) {
	each(t, func(w *world) {
		ctx := w.Context()
		ft := newFakeT(w.T)
		entcountertest.Guard(ft, w.client)
		tx, err := w.client.Tx(ctx)
		if err != nil {
			w.Fatal(err)
		}
		tx.File.UpdateOneID(w.files[1]).AddSize(5).ExecX(ctx)
		ft.wantsNone()
		w.raw(tx, setCopied)
		tx.File.UpdateOneID(w.files[1]).AddSize(-5).ExecX(ctx)
		ft.wants(`after mutation 2, File\.UpdateOne .*; they were right the last time after mutation 1, File\.UpdateOne.*` + newDiffers)
		if err := tx.Rollback(); err != nil {
			w.Fatal(err)
		}
		ft.end()
		ft.wantsNone()
	})
}

// A hook of the user's that writes behind ent's back is told by its own mutation.
func TestGuardNamesTheMutation(t *testing.T) {
	each(t, func(w *world) {
		ctx := w.Context()
		ft := newFakeT(w.T)
		entcountertest.Guard(ft, w.client)
		w.client.Dataset.Use(func(next ent.Mutator) ent.Mutator {
			return hook.DatasetFunc(func(ctx context.Context, m *ent.DatasetMutation) (ent.Value, error) {
				if name, _ := m.Name(); name == "wrong" {
					w.raw(w.client, setCopied)
				}
				return next.Mutate(ctx, m)
			})
		})
		w.client.Dataset.Create().SetName("right").ExecX(ctx)
		w.client.Dataset.Create().SetName("wrong").ExecX(ctx)
		ft.wants(`after mutation 2, Dataset\.Create`)
		w.client.Dataset.Create().SetName("right again").ExecX(ctx)
		ft.end()
		ft.wantsNone()
	})
}

// A test whose client is closed before the end is told so.
func TestGuardOnAClosedClient(t *testing.T) {
	w := newWorld(t, testdb.New(t, testdb.SQLite))
	ft := newFakeT(t)
	entcountertest.Guard(ft, w.client)
	if err := w.client.Close(); err != nil {
		t.Fatal(err)
	}
	ft.end()
	ft.wants(`the client was closed.*t\.Cleanup, called before Guard, instead of defer`)
}

// A test that is rolled back as a whole is guarded in its transaction.
func TestGuardOfATransaction(t *testing.T) {
	each(t, func(w *world) {
		ctx := w.Context()
		tx, err := w.client.Tx(ctx)
		if err != nil {
			w.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		ft := newFakeT(w.T)
		entcountertest.Guard(ft, tx.Client())
		tx.File.UpdateOneID(w.files[0]).SetStatus(file.StatusCopying).ExecX(ctx)
		ft.wantsNone()
		w.raw(tx, setCopied)
		ft.end()
		ft.wants(`when the test ended; they were right the last time after mutation 1`)
	})
}

// A guard does not begin on counters that are wrong or tables that are missing.
func TestGuardBegins(t *testing.T) {
	each(t, func(w *world) {
		if err := w.client.CheckCounters(w.Context()); err != nil {
			w.Fatal(err)
		}
		w.raw(w.client, setCopied)
		ft := newFakeT(w.T)
		ft.run(func() { entcountertest.Guard(ft, w.client) }).wants(`before the test:.*` + newDiffers)

		empty := ent.NewClient(ent.Driver(entsql.OpenDB(w.db.Dialect, testdb.New(w, w.db.Kind).DB(w))))
		ft.run(func() { entcountertest.Guard(ft, empty) }).wants(`create the tables first`)
	})
}

// In a transaction of InnoDB at REPEATABLE READ, rows that others have changed and
// their counts need not agree. That is no failure, before or after.
func TestGuardBesideOthers(t *testing.T) {
	each(t, func(w *world) {
		ctx := w.Context()
		levels := []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead}
		if w.db.Kind == testdb.SQLite {
			levels = []sql.IsolationLevel{sql.LevelDefault}
		}
		for _, level := range levels {
			ft := newFakeT(w.T)
			entcountertest.Guard(ft, w.client)
			tx, err := w.client.BeginTx(ctx, &sql.TxOptions{Isolation: level})
			if err != nil {
				w.Fatal(err)
			}
			before := tx.File.Query().CountX(ctx) // takes the snapshot
			w.client.File.UpdateOneID(w.files[0]).SetStatus(file.StatusCopying).ExecX(ctx)
			err = tx.File.UpdateOneID(w.files[0]).SetStatus(file.StatusCopied).Exec(ctx)
			if w.db.Dialect == dialect.MySQL && err != nil || before != 2 {
				w.Fatal(before, err)
			}
			if err == nil {
				err = tx.Commit()
			} else {
				err = tx.Rollback() // PostgreSQL at REPEATABLE READ and SQLite refuse it
			}
			if err != nil {
				w.Fatal(err)
			}
			ft.end()
			ft.wantsNone()
			w.client.File.UpdateOneID(w.files[0]).SetStatus(file.StatusNew).ExecX(ctx)
		}
	})
}

// A test whose client has one connection is guarded without a second one.
func TestGuardOnOneConnection(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		pool := db.DB(t)
		pool.SetMaxOpenConns(1)
		w := newWorldOn(t, db, pool)
		ft := newFakeT(t)
		entcountertest.Guard(ft, w.client)
		w.inTx(func(tx *ent.Tx) {
			tx.File.UpdateOneID(w.files[1]).SetStatus(file.StatusFailed).ExecX(t.Context())
			w.raw(tx, setCopied)
			tx.File.UpdateOneID(w.files[1]).SetStatus(file.StatusNew).ExecX(t.Context())
		})
		w.mutate()
		ft.end()
		pattern := `after mutation 2, File\.UpdateOne`
		if db.Dialect == dialect.MySQL {
			// Without a second connection nobody knows what others have committed.
			pattern = `after mutation 3, Dataset\.Create.*; they were right the last time after mutation 1.*, and first seen, in an old snapshot, after mutation 2, File\.UpdateOne`
		}
		ft.wants(pattern)
	})
}

// A bulk is compared once, not once for each of its rows.
func TestGuardOfABulk(t *testing.T) {
	db := testdb.New(t, testdb.SQLite)
	compared := 0
	client := enttest.NewClient(t, enttest.WithOptions(
		ent.Driver(entsql.OpenDB(db.Dialect, db.DB(t))), ent.Debug(),
		ent.Log(func(args ...any) {
			if strings.Contains(fmt.Sprint(args...), " HAVING ") {
				compared++
			}
		}),
	))
	ft := newFakeT(t)
	entcountertest.Guard(ft, client)
	compared = 0
	var bulk []*ent.DatasetCreate
	for i := range 50 {
		bulk = append(bulk, client.Dataset.Create().SetName(fmt.Sprint(i)))
	}
	client.Dataset.CreateBulk(bulk...).ExecX(t.Context())
	client.Dataset.Create().SetName("another").ExecX(t.Context())
	if compared != 2 {
		t.Errorf("compared %d times after 2 creates", compared)
	}
	ft.end()
	ft.wantsNone()
}

// Goroutines of a test are guarded.
func TestGuardOfGoroutines(t *testing.T) {
	each(t, func(w *world) {
		ft := newFakeT(w.T)
		entcountertest.Guard(ft, w.client)
		var writers sync.WaitGroup
		for i := range 4 {
			writers.Go(func() {
				for range 5 {
					status := []file.Status{file.StatusNew, file.StatusCopied}[i%2]
					if err := w.client.File.Update().Where(file.ID(w.files[i/2])).SetStatus(status).Exec(w.Context()); err != nil {
						w.Error(err)
					}
				}
			})
		}
		writers.Wait()
		ft.end()
		ft.wantsNone()
	})
}

func TestRequireExact(t *testing.T) {
	each(t, func(w *world) {
		ft := newFakeT(w.T)
		ft.run(func() { entcountertest.RequireExact(ft, w.client) }).wantsNone()
		w.inTx(func(tx *ent.Tx) {
			tx.File.UpdateOneID(w.files[1]).SetStatus(file.StatusFailed).ExecX(w.Context())
			ft.run(func() { entcountertest.RequireExact(ft, tx) }).wantsNone()
			w.raw(tx, setCopied)
			ft.run(func() { entcountertest.RequireExact(ft, tx) }).wants(copyDiffers)
		})
		ft.run(func() { entcountertest.RequireExact(ft, w.client) }).wants(copyDiffers + ".*Journal")

		for i := range 12 {
			w.raw(w.client, fmt.Sprintf("INSERT INTO datasets (name) VALUES ('more %d')", i))
			w.raw(w.client, fmt.Sprintf("INSERT INTO files (path, size, status, dataset_id) SELECT 'x', 1, 'New', MAX(id) FROM datasets WHERE %d = %d", i, i))
		}
		ft.run(func() { entcountertest.RequireExact(ft, w.client) })
		if failures := ft.take(); len(failures) != 1 || strings.Count(failures[0], "\n\tcounter") != 10 || !strings.Contains(failures[0], "… and 4 more") {
			w.Errorf("%q", failures)
		}
	})
}

func TestRequireCount(t *testing.T) {
	each(t, func(w *world) {
		ft := newFakeT(w.T)
		key := filecounters.Key{DatasetID: w.dataset, Status: file.StatusNew}
		ft.run(func() {
			entcountertest.RequireCount(ft, w.client.FileCounters, key, filecounters.Measures{Count: 2, Bytes: 30})
			w.inTx(func(tx *ent.Tx) {
				tx.File.UpdateOneID(w.files[1]).AddSize(1).ExecX(w.Context())
				entcountertest.RequireCount(ft, tx.FileCounters, key, filecounters.Measures{Count: 2, Bytes: 31})
			})
		}).wantsNone()
		ft.run(func() {
			entcountertest.RequireCount(ft, w.client.FileCounters, key, filecounters.Measures{Count: 2, Bytes: 30})
		}).wants(`filecounters\.Key\{DatasetID:\d+ Status:New\} counts filecounters\.Measures\{Count:2 Bytes:31\}, want filecounters\.Measures\{Count:2 Bytes:30\}`)
		ft.run(func() {
			entcountertest.RequireCount(ft, w.client.FileCounters, key, struct{ Files int64 }{2})
		}).wants(`has no Files`)
		ft.run(func() { entcountertest.RequireCount(ft, w.client.FileCounters, key, 2) }).wants(`give the Measures of the counter`)
	})
}
