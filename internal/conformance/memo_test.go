package conformance

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/dataset"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/ent/filecounters"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/conformance/tap"
	"github.com/entcounter/entcounter/internal/testdb"
)

// memoWorld is a world with a dataset of three files.
type memoWorld struct {
	*world
	dataset int
	files   []int
}

func eachMemo(t *testing.T, fn func(ctx context.Context, w *memoWorld)) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		params := map[string]string{}
		if db.Kind == testdb.SQLite {
			params["_txlock"] = "immediate"
		}
		w := &memoWorld{world: newWorld(t, db, params)}
		w.dataset = w.client.Dataset.Create().SetName("a").SaveX(t.Context()).ID
		for i := range 3 {
			w.files = append(w.files, w.create(t.Context(), w.client.File, i))
		}
		fn(entcounter.WithMemo(t.Context()), w)
	})
}

func (w *memoWorld) create(ctx context.Context, c *ent.FileClient, i int) int {
	return c.Create().SetDatasetID(w.dataset).SetPath(fmt.Sprint(i)).SetSize(int64(10 + i)).SaveX(ctx).ID
}

// asked is how many statements have read the counter since the last call.
func (w *memoWorld) asked() int {
	n := 0
	for _, s := range w.tap.Statements() {
		if s.Kind == tap.Query && strings.Contains(s.SQL, "file_counter_journal") && strings.Contains(s.SQL, "pending") {
			n++
		}
	}
	w.tap.Reset()
	return n
}

// new is the number of new files as a client reads it.
func (w *memoWorld) new(ctx context.Context, c *ent.FileCountersClient) int64 {
	w.Helper()
	row, err := c.Read(ctx, filecounters.Key{DatasetID: w.dataset, Status: file.StatusNew})
	if err != nil {
		w.Fatal(err)
	}
	return row.Count
}

func (w *memoWorld) begin(ctx context.Context) *ent.Tx {
	w.Helper()
	return must(w.client.Tx(ctx))(w)
}

// Equal reads ask once, whatever they are made of, and give each its own values.
func TestMemoAsksOnce(t *testing.T) {
	eachMemo(t, func(_ context.Context, w *memoWorld) {
		c := w.client.FileCounters
		for _, read := range []struct {
			name string
			read func(context.Context) (any, error)
		}{
			{"Read", func(ctx context.Context) (any, error) {
				return c.Read(ctx, filecounters.Key{DatasetID: w.dataset, Status: file.StatusNew})
			}},
			{"ReadMany", func(ctx context.Context) (any, error) {
				return c.ReadMany(ctx, filecounters.Key{DatasetID: w.dataset, Status: file.StatusNew}, filecounters.Key{DatasetID: w.dataset, Status: file.StatusCopied})
			}},
			{"Total", func(ctx context.Context) (any, error) { return c.Total(ctx, filecounters.ScopeOf(w.dataset)) }},
			{"All", func(ctx context.Context) (any, error) { return c.Query().All(ctx) }},
			{"All of some", func(ctx context.Context) (any, error) { return c.Query().Where(filecounters.CountGT(1)).All(ctx) }},
			{"First", func(ctx context.Context) (any, error) { return c.Query().First(ctx) }},
			{"Count", func(ctx context.Context) (any, error) { return c.Query().Count(ctx) }},
			{"TotalBy", func(ctx context.Context) (any, error) { return c.Query().TotalBy(ctx, filecounters.FieldStatus) }},
			{"Distribution", func(ctx context.Context) (any, error) {
				return c.Query().Distribution(ctx, filecounters.FieldDatasetID, filecounters.FieldCount, 0.5)
			}},
			{"GroupBy", func(ctx context.Context) (any, error) {
				var rows []struct {
					Status file.Status
					Sum    int64
				}
				err := c.Query().GroupBy(filecounters.FieldStatus).Aggregate(ent.Sum(filecounters.FieldBytes)).Scan(ctx, &rows)
				return rows, err
			}},
			{"Select", func(ctx context.Context) (any, error) {
				var rows []filecounters.Measures
				err := c.Query().Select(filecounters.FieldCount, filecounters.FieldBytes).Scan(ctx, &rows)
				return rows, err
			}},
			{"Aggregate", func(ctx context.Context) (any, error) {
				return c.Query().Aggregate(ent.Max(filecounters.FieldCount)).Int(ctx)
			}},
		} {
			ctx := entcounter.WithMemo(t.Context())
			want, err := read.read(t.Context())
			if err != nil {
				t.Fatal(read.name, err)
			}
			w.asked()
			first, err := read.read(ctx)
			if n := w.asked(); err != nil || fmt.Sprint(first) != fmt.Sprint(want) || n != 1 {
				t.Errorf("%s: %v %v, asked %d times, want %v", read.name, first, err, n, want)
			}
			for range 3 {
				again, err := read.read(entcounter.WithMemo(ctx)) // the same memo
				if err != nil || fmt.Sprint(again) != fmt.Sprint(want) {
					t.Errorf("%s again: %v %v, want %v", read.name, again, err, want)
				}
				spoil(reflect.ValueOf(&again))
			}
			if n := w.asked(); n != 0 {
				t.Errorf("%s again: asked %d times", read.name, n)
			}
		}

		ctx := entcounter.WithMemo(t.Context())
		for _, status := range []file.Status{file.StatusNew, file.StatusCopied} {
			if _, err := c.Read(ctx, filecounters.Key{DatasetID: w.dataset, Status: status}); err != nil {
				t.Fatal(err)
			}
		}
		if n := w.asked(); n != 2 {
			t.Errorf("two keys were asked for by %d statements", n)
		}
	})
}

// spoil sets all integers that can be reached to something else.
func spoil(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			spoil(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			spoil(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				spoil(v.Field(i))
			}
		}
	case reflect.Int, reflect.Int64:
		if v.CanSet() {
			v.SetInt(-1)
		}
	}
}

// What the request itself does is never missed, and what others do is not looked for.
func TestMemoSeesOwnChanges(t *testing.T) {
	eachMemo(t, func(ctx context.Context, w *memoWorld) {
		n := 100
		inTx := func(fn func(*ent.Tx)) func(context.Context) {
			return func(ctx context.Context) {
				tx := w.begin(ctx)
				fn(tx)
				if err := tx.Commit(); err != nil {
					w.Fatal(err)
				}
			}
		}
		var doomed int
		for _, change := range []struct {
			name   string
			change func(context.Context)
		}{
			{"create", func(ctx context.Context) { n++; w.create(ctx, w.client.File, n) }},
			{"bulk", func(ctx context.Context) {
				n++
				w.client.File.CreateBulk(w.client.File.Create().SetDatasetID(w.dataset).SetPath(fmt.Sprint(n)).SetSize(1)).ExecX(ctx)
			}},
			{"upsert", func(ctx context.Context) {
				n++
				create := w.client.File.Create().SetDatasetID(w.dataset).SetPath(fmt.Sprint(n)).SetSize(1)
				if w.db.Dialect == dialect.MySQL {
					create.OnConflict().UpdateNewValues().ExecX(ctx)
				} else {
					create.OnConflictColumns(file.FieldDatasetID, file.FieldPath).UpdateNewValues().ExecX(ctx)
				}
			}},
			{"update of one", func(ctx context.Context) {
				w.client.File.UpdateOneID(w.files[0]).SetStatus(file.StatusCopied).ExecX(ctx)
			}},
			{"update", func(ctx context.Context) {
				w.client.File.Update().Where(file.ID(w.files[0])).SetStatus(file.StatusNew).ExecX(ctx)
			}},
			{"delete", func(ctx context.Context) { w.client.File.Delete().Where(file.ID(w.files[2])).ExecX(ctx) }},
			{"move", func(ctx context.Context) {
				doomed = w.client.Dataset.Create().SetName("doomed").SaveX(ctx).ID
				w.client.File.UpdateOneID(w.files[1]).SetDatasetID(doomed).ExecX(ctx)
			}},
			{"cascade", func(ctx context.Context) {
				w.client.File.Update().Where(file.ID(w.files[0])).SetDatasetID(doomed).ExecX(t.Context())
				w.client.Dataset.Delete().Where(dataset.ID(doomed)).ExecX(ctx)
			}},
			{"transaction", inTx(func(tx *ent.Tx) { n++; w.create(ctx, tx.File, n) })},
			{"transaction with SQL", inTx(func(tx *ent.Tx) {
				n++
				if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO files (dataset_id, path, size, status) VALUES (%d, '%d', 5, 'New')", w.dataset, n)); err != nil {
					w.Fatal(err)
				}
				key := filecounters.Key{DatasetID: w.dataset, Status: file.StatusNew}
				if err := tx.FileCounters.Journal(ctx, filecounters.Delta{Key: key, Measures: filecounters.Measures{Count: 1, Bytes: 5}}); err != nil {
					w.Fatal(err)
				}
			})},
			{"rebuild", func(ctx context.Context) {
				if _, err := w.oracle.ExecContext(ctx, "UPDATE files SET status = 'Failed' WHERE size = 1"); err != nil {
					w.Fatal(err)
				}
				if _, err := w.client.FileCounters.Rebuild(ctx, filecounters.Scope{}); err != nil {
					w.Fatal(err)
				}
			}},
			{"deletion of a scope", func(ctx context.Context) {
				if err := w.client.FileCounters.DeleteScope(ctx, filecounters.ScopeOf(w.dataset)); err != nil {
					w.Fatal(err)
				}
			}},
			{"rebuild after it", func(ctx context.Context) {
				if _, err := w.client.FileCounters.Rebuild(ctx, filecounters.Scope{}); err != nil {
					w.Fatal(err)
				}
			}},
		} {
			before := w.new(ctx, w.client.FileCounters)
			change.change(ctx)
			got, want := w.new(ctx, w.client.FileCounters), w.new(t.Context(), w.client.FileCounters)
			if got != want || got == before {
				t.Errorf("%s: %d new files, want %d, before %d", change.name, got, want, before)
			}
		}

		before := w.new(ctx, w.client.FileCounters)
		n++
		w.create(t.Context(), w.client.File, n)
		if got := w.new(ctx, w.client.FileCounters); got != before {
			t.Errorf("%d new files after another's change, want %d as before", got, before)
		}
		entcounter.ForgetMemo(ctx)
		if got := w.new(ctx, w.client.FileCounters); got != before+1 {
			t.Errorf("%d new files once forgotten, want %d", got, before+1)
		}
		entcounter.ForgetMemo(t.Context()) // none
	})
}

// Transactions and what is outside of them are kept apart.
func TestMemoInTransactions(t *testing.T) {
	eachMemo(t, func(ctx context.Context, w *memoWorld) {
		outside := w.client.FileCounters
		for _, end := range []struct {
			name string
			end  func(*ent.Tx) error
			want int64
		}{
			{"rollback", (*ent.Tx).Rollback, 3},
			{"commit", (*ent.Tx).Commit, 4},
		} {
			w.new(ctx, outside)
			tx := w.begin(ctx)
			if got := w.new(ctx, tx.FileCounters); got != 3 {
				t.Errorf("%d new files in the transaction, want 3", got)
			}
			w.create(ctx, tx.File, 10)
			if got := w.new(ctx, tx.FileCounters); got != 4 {
				t.Errorf("%d new files after a create in the transaction, want 4", got)
			}
			if got := w.new(ctx, outside); got != 3 {
				t.Errorf("%d new files outside, want 3", got)
			}
			w.new(ctx, tx.FileCounters)
			if err := end.end(tx); err != nil {
				t.Fatal(err)
			}
			if got := w.new(ctx, outside); got != end.want {
				t.Errorf("%d new files after the %s, want %d", got, end.name, end.want)
			}
			if row, err := tx.FileCounters.Query().First(ctx); err == nil {
				t.Errorf("a transaction that is over reads %v", row)
			}
		}
	})
}

// In a transaction, an answer lasts until any statement that may have waited, locked
// or written.
func TestMemoWithinATransaction(t *testing.T) {
	eachMemo(t, func(ctx context.Context, w *memoWorld) {
		tx := w.begin(ctx)
		defer func() { _ = tx.Rollback() }()
		w.new(ctx, tx.FileCounters)
		w.asked()
		exec := func(query string) func() {
			return func() {
				if _, err := tx.ExecContext(ctx, query); err != nil {
					w.Fatal(err)
				}
			}
		}
		for _, statement := range []struct {
			name string
			run  func()
			want int
		}{
			{"nothing", func() {}, 0},
			{"a plain query", func() { tx.File.Query().AllX(ctx) }, 0},
			{"another read", func() { _, _ = tx.FileCounters.Total(ctx, filecounters.Scope{}) }, 1},
			{"an uncounted mutation", func() { tx.Dataset.Update().SetName("b").ExecX(ctx) }, 1},
			{"a counted mutation", func() { tx.File.Update().Where(file.ID(w.files[0])).SetStatus(file.StatusCopying).ExecX(ctx) }, 1},
			{"one by a context without memo", func() {
				tx.File.Update().Where(file.ID(w.files[0])).SetStatus(file.StatusFailed).ExecX(t.Context())
			}, 1},
			{"a savepoint", exec("SAVEPOINT a"), 1},
			{"going back to it", exec("ROLLBACK TO SAVEPOINT a"), 1},
			{"a query of the user's own", func() {
				rows, err := tx.QueryContext(ctx, "SELECT 1")
				if err != nil {
					w.Fatal(err)
				}
				_ = rows.Close()
			}, 1},
			{"a locking query", func() {
				if w.db.Kind == testdb.SQLite {
					tx.File.Update().Where(file.ID(w.files[0])).AddSize(0).ExecX(ctx) // has no others
					return
				}
				tx.File.Query().ForUpdate().AllX(ctx)
			}, 1},
		} {
			statement.run()
			w.new(ctx, tx.FileCounters)
			w.new(ctx, tx.FileCounters)
			if n := w.asked(); n != statement.want {
				t.Errorf("after %s the counter was asked %d times, want %d", statement.name, n, statement.want)
			}
		}
		other := entcounter.WithMemo(t.Context())
		w.new(other, tx.FileCounters)
		if n := w.asked(); n != 1 {
			t.Errorf("another memo asked %d times, want once", n)
		}
	})
}

// Errors are not remembered, nor is what may differ without a change.
func TestMemoDoesNotRemember(t *testing.T) {
	eachMemo(t, func(ctx context.Context, w *memoWorld) {
		c := w.client.FileCounters
		broken := errors.New("broken")
		w.tap.Inject(func(s tap.Statement) tap.Fault {
			if s.Kind == tap.Query {
				return tap.Refuse(broken)
			}
			return tap.Pass
		})
		if _, err := c.Query().All(ctx); !errors.Is(err, broken) {
			t.Fatal(err)
		}
		w.tap.Inject(nil)
		if got := w.new(ctx, c); got != 3 {
			t.Errorf("%d new files after an error, want 3", got)
		}
		w.asked()

		ended, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := c.Query().All(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("a read whose context has ended: %v", err)
		}
		if w.db.Kind != testdb.SQLite { // it has no session variables
			name := map[testdb.Kind]string{testdb.Postgres: "app.tenant"}[w.db.Kind]
			if name == "" {
				name = "@tenant"
			}
			for _, value := range []string{"a", "b", "a"} {
				w.new(entsql.WithVar(ctx, name, value), c)
			}
			if n := w.asked(); n != 2 {
				t.Errorf("with two values of a session variable the counter was asked %d times, want twice", n)
			}
		}
		routed := ent.NewClient(ent.Driver(router{entDriver(w.db.Dialect, w.pool)}))
		w.new(ctx, routed.FileCounters)
		w.new(ctx, routed.FileCounters)
		if n := w.asked(); n != 2 {
			t.Errorf("through a driver of the user's the counter was asked %d times, want twice", n)
		}
		w.new(ctx, w.client.Debug().FileCounters)
		if n := w.asked(); n != 0 {
			t.Errorf("through the debug driver the counter was asked %d times, want none", n)
		}
	})
}

// router is a driver of the user's.
type router struct{ dialect.Driver }

// A query that has been run in several ways hands out nodes of its transaction.
func TestMemoLeavesNodesAlone(t *testing.T) {
	eachMemo(t, func(ctx context.Context, w *memoWorld) {
		tx := w.begin(ctx)
		query := tx.FileCounters.Query()
		if _, err := query.Aggregate(ent.Count()).Int(ctx); err != nil {
			t.Fatal(err)
		}
		rows, err := query.All(ctx)
		if err != nil || len(rows) != 1 {
			t.Fatal(rows, err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		rows[0].Unwrap() // panics on a node of no transaction
	})
}

// Goroutines that share a memo see what each of them has written, and nobody sees a
// count go back.
func TestMemoShared(t *testing.T) {
	eachMemo(t, func(ctx context.Context, w *memoWorld) {
		var (
			writers, readers sync.WaitGroup
			done             = make(chan struct{})
			c                = w.client.FileCounters
		)
		const rounds = 30
		for i := range 3 {
			own := w.client.Dataset.Create().SetName(fmt.Sprint("own ", i)).SaveX(ctx).ID
			writers.Go(func() {
				for n := int64(1); n <= rounds; n++ {
					err := retry(func() error {
						return w.client.File.Create().SetDatasetID(own).SetPath(fmt.Sprint(n)).SetSize(1).Exec(ctx)
					})
					if err != nil {
						t.Error(err)
						return
					}
					total, err := c.Total(ctx, filecounters.ScopeOf(own))
					if err != nil || total.Count != n {
						t.Errorf("%d files after %d creates: %v", total.Count, n, err)
					}
				}
			})
			readers.Go(func() {
				for last := int64(0); ; {
					select {
					case <-done:
						return
					default:
					}
					total, err := c.Total(ctx, filecounters.ScopeOf(own))
					if err != nil || total.Count < last {
						t.Errorf("%d files after %d: %v", total.Count, last, err)
						return
					}
					last = total.Count
				}
			})
		}
		writers.Wait()
		close(done)
		readers.Wait()
		w.exact(ctx)
	})
}

// retry runs a mutation again that has lost against others.
func retry(mutation func() error) error {
	err := mutation()
	for range 20 {
		if !entcounter.Retryable(err) {
			break
		}
		err = mutation()
	}
	return err
}
