package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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

// seed creates a dataset with files of 10, 20, 30, … bytes in New, folds, and
// forgets the statements that it took.
func (w *world) seed(ctx context.Context, name string, n int) (*ent.Dataset, []int) {
	w.Helper()
	d := w.client.Dataset.Create().SetName(name).SaveX(ctx)
	builders := make([]*ent.FileCreate, n)
	for i := range builders {
		builders[i] = w.client.File.Create().SetDataset(d).SetPath(fmt.Sprint(i)).SetSize(int64(10 * (i + 1)))
	}
	var ids []int
	for _, f := range w.client.File.CreateBulk(builders...).SaveX(ctx) {
		ids = append(ids, f.ID)
	}
	if _, err := w.client.FileCounters.Fold(ctx); err != nil {
		w.Fatal(err)
	}
	w.tap.Reset()
	return d, ids
}

// journalIs compares the journal with what it should hold, in any order.
func (w *world) journalIs(ctx context.Context, want ...string) {
	w.Helper()
	got := w.journal(ctx)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.Errorf("the journal holds %q, want %q", got, want)
	}
	w.exact(ctx)
}

func (w *world) begin(ctx context.Context) *ent.Tx {
	w.Helper()
	return must(w.client.Tx(ctx))(w)
}

// no fails the test on an error.
func no(tb testing.TB, errs ...error) {
	tb.Helper()
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
}

func TestRollbackLeavesNoDelta(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d, ids := w.seed(ctx, "d", 3)
		tx := w.begin(ctx)
		tx.File.Update().Where(file.DatasetID(d.ID)).SetStatus(file.StatusCopied).ExecX(ctx)
		tx.File.Create().SetDataset(d).SetPath("new").SetSize(1).ExecX(ctx)
		tx.File.DeleteOneID(ids[0]).ExecX(ctx)
		got, err := tx.FileCounters.Read(ctx, filecounters.Key{DatasetID: d.ID, Status: file.StatusCopied})
		if err != nil || got.Count != 2 || got.Bytes != 50 {
			t.Errorf("in the transaction Copied reads %+v: %v", got, err)
		}
		tx.File.UpdateOneID(ids[1]).SetSize(7).ExecX(ctx)
		no(t, tx.Rollback())
		w.journalIs(ctx)
	})
}

// A create that a unique index refuses counts nothing, and the transaction it was
// tried in goes on where the database lets it.
func TestRefusedCreateInTransaction(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d, ids := w.seed(ctx, "d", 2)
		tx := w.begin(ctx)
		no(t, tx.File.UpdateOneID(ids[0]).SetStatus(file.StatusCopied).Exec(ctx))
		for range 2 {
			err := tx.File.Create().SetDataset(d).SetPath("0").SetSize(5).Exec(ctx)
			if db.Dialect == dialect.Postgres && err != nil && !ent.IsConstraintError(err) {
				continue // the second time: the transaction is aborted
			}
			if !ent.IsConstraintError(err) {
				t.Fatalf("a duplicate was created: %v", err)
			}
		}
		err := tx.File.CreateBulk(
			tx.File.Create().SetDataset(d).SetPath("new").SetSize(5),
			tx.File.Create().SetDataset(d).SetPath("1").SetSize(5),
		).Exec(ctx)
		if err == nil {
			t.Fatal("a duplicate was created in bulk")
		}
		more := tx.File.Create().SetDataset(d).SetPath("other").SetSize(5).Exec(ctx)
		err = tx.Commit()
		if db.Dialect == dialect.Postgres {
			if more == nil || err == nil {
				t.Errorf("an aborted transaction went on: %v, and was committed: %v", more, err)
			}
			w.journalIs(ctx)
			return
		}
		no(t, more, err)
		w.journalIs(ctx,
			fmt.Sprintf("%d New +0 -5", d.ID), // −10 moved, +5 created
			fmt.Sprintf("%d Copied +1 +10", d.ID))
	})
}

// The refused create of one's own transaction.
func TestRefusedCreate(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d, _ := w.seed(ctx, "d", 2)
		if err := w.client.File.Create().SetDataset(d).SetPath("0").SetSize(5).Exec(ctx); !ent.IsConstraintError(err) {
			t.Errorf("a duplicate was created: %v", err)
		}
		if err := w.client.File.Create().SetDatasetID(d.ID + 1000).SetPath("0").SetSize(5).Exec(ctx); !ent.IsConstraintError(err) {
			t.Errorf("a file without a dataset was created: %v", err)
		}
		if err := w.client.File.Create().SetDataset(d).SetPath("9").SetSize(-5).Exec(ctx); !ent.IsValidationError(err) {
			t.Errorf("a negative size was accepted: %v", err)
		}
		refused := errors.New("refused by a hook")
		w.client.File.Use(func(next ent.Mutator) ent.Mutator {
			return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
				if v, err := next.Mutate(ctx, m); err != nil {
					return v, err
				}
				return nil, refused
			})
		})
		tx := w.begin(ctx)
		if err := tx.File.Create().SetDataset(d).SetPath("9").SetSize(5).Exec(ctx); !errors.Is(err, refused) {
			t.Errorf("the hook did not refuse: %v", err)
		}
		no(t, tx.Rollback())
		w.journalIs(ctx)
	})
}

// What a transaction undoes itself leaves nothing to journal.
func TestTransactionSumsUp(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d, ids := w.seed(ctx, "d", 2)
		journal := func(rows ...string) []string {
			for i, r := range rows {
				rows[i] = fmt.Sprintf("%d %s", d.ID, r)
			}
			return rows
		}
		set := func(tx *ent.Tx, statuses ...file.Status) {
			t.Helper()
			for _, s := range statuses {
				no(t, tx.File.UpdateOneID(ids[0]).SetStatus(s).Exec(ctx))
			}
		}
		tx := w.begin(ctx)
		set(tx, file.StatusCopying, file.StatusCopied, file.StatusNew)
		no(t, tx.Commit())
		w.journalIs(ctx)

		tx = w.begin(ctx)
		set(tx, file.StatusCopying, file.StatusCopied)
		no(t, tx.Commit())
		w.journalIs(ctx, journal("New -1 -10", "Copied +1 +10")...)

		tx = w.begin(ctx)
		f := tx.File.Create().SetDataset(d).SetPath("new").SetSize(5).SaveX(ctx)
		no(t, tx.File.DeleteOne(f).Exec(ctx), tx.Commit())
		w.journalIs(ctx, journal("New -1 -10", "Copied +1 +10")...)

		tx = w.begin(ctx)
		no(t, tx.File.UpdateOneID(ids[1]).SetStatus(file.StatusFailed).AddSize(3).Exec(ctx),
			tx.File.DeleteOneID(ids[1]).Exec(ctx), tx.Commit())
		w.journalIs(ctx, journal("New -1 -10", "Copied +1 +10", "New -1 -20")...)
	})
}

// What a mutation returns is not bound to the transaction that was opened for it.
func TestResultOutlivesTheOwnTransaction(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d := must(w.client.Dataset.Create().SetName("d").Save(ctx))(t)
		f := must(w.client.File.Create().SetDataset(d).SetPath("a").SetSize(1).Save(ctx))(t)
		if got := must(f.QueryDataset().Only(ctx))(t); got.ID != d.ID {
			t.Errorf("a created file is in dataset %d", got.ID)
		}
		f = must(f.Update().SetStatus(file.StatusCopied).Save(ctx))(t)
		f = must(f.Update().SetSize(5).Save(ctx))(t)
		if got := must(f.QueryDataset().Only(ctx))(t); got.ID != d.ID || f.Status != file.StatusCopied || f.Size != 5 {
			t.Errorf("an updated file is %v in dataset %d", f, got.ID)
		}
		bulk := must(w.client.File.CreateBulk(w.client.File.Create().SetDataset(d).SetPath("b").SetSize(2),
			w.client.File.Create().SetDataset(d).SetPath("c").SetSize(3)).Save(ctx))(t)
		for _, f := range bulk {
			no(t, f.Update().SetStatus(file.StatusFailed).Exec(ctx))
		}
		d = must(w.client.Dataset.UpdateOne(d).SetName("e").Save(ctx))(t)
		if n := must(d.QueryFiles().Count(ctx))(t); n != 3 {
			t.Errorf("the dataset has %d files", n)
		}
		no(t, w.client.Dataset.DeleteOne(d).Exec(ctx))
		if total := must(w.client.FileCounters.Total(ctx, filecounters.Scope{}))(t); total.Count != 0 || total.Bytes != 0 {
			t.Errorf("after the cascade there are %+v", total)
		}
		w.exact(ctx)
	})
}

// Every way to reach a transaction's client counts in it.
func TestClientsOfATransaction(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d, ids := w.seed(ctx, "d", 6)
		tx := w.begin(ctx)
		status := func(c *ent.Client, id int) {
			t.Helper()
			no(t, c.File.UpdateOneID(id).SetStatus(file.StatusCopied).Exec(ctx))
		}
		no(t, tx.File.UpdateOneID(ids[0]).SetStatus(file.StatusCopied).Exec(ctx))
		status(tx.Client(), ids[1])
		status(tx.Client().Debug(), ids[2])
		status(tx.Client().Debug().Debug(), ids[3])
		f := must(tx.File.Get(ctx, ids[4]))(t)
		no(t, f.Update().SetStatus(file.StatusCopied).Exec(ctx))
		if _, err := tx.Client().Tx(ctx); err == nil {
			t.Error("a transaction began in a transaction")
		}
		no(t, w.client.Debug().Schema.Create(context.Background()))
		got := must(tx.Client().Debug().FileCounters.Read(ctx, filecounters.Key{DatasetID: d.ID, Status: file.StatusCopied}))(t)
		if got.Count != 5 {
			t.Errorf("the transaction sees %d files in Copied", got.Count)
		}
		no(t, tx.Commit())
		w.journalIs(ctx, fmt.Sprintf("%d New -5 -150", d.ID), fmt.Sprintf("%d Copied +5 +150", d.ID))

		debug := w.client.Debug()
		no(t, debug.File.UpdateOneID(ids[5]).SetStatus(file.StatusCopied).Exec(ctx))
		w.exact(ctx)
	})
}

func TestIsolationLevels(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		for i, level := range []sql.IsolationLevel{
			sql.LevelDefault, sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable,
		} {
			d, ids := w.seed(ctx, fmt.Sprint(i), 4)
			tx, err := w.client.BeginTx(ctx, &sql.TxOptions{Isolation: level})
			no(t, err)
			no(t,
				tx.File.Update().Where(file.DatasetID(d.ID), file.SizeLT(30)).SetStatus(file.StatusCopied).Exec(ctx),
				tx.File.DeleteOneID(ids[3]).Exec(ctx),
				tx.File.Create().SetDataset(d).SetPath("new").SetSize(1).Exec(ctx),
				tx.File.Create().SetDataset(d).SetPath("0").SetSize(100).OnConflictColumns("dataset_id", "path").UpdateNewValues().Exec(ctx))
			got := must(read(ctx, tx.FileCounters))(t)
			want := counts{{d.ID, file.StatusNew}: {3, 131}, {d.ID, file.StatusCopied}: {1, 20}}
			for k := range got {
				if k.Dataset != d.ID {
					delete(got, k)
				}
			}
			if diff := got.diff(want); diff != "" {
				t.Errorf("at %v the transaction reads:%s", level, diff)
			}
			no(t, tx.Commit())
			w.exact(ctx)
		}
		// A read-only transaction reads, and writes as little as one of ent's.
		if db.Kind == testdb.SQLite {
			return
		}
		tx, err := w.client.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
		no(t, err)
		must(read(ctx, tx.FileCounters))(t)
		if err := tx.File.Update().SetStatus(file.StatusNew).Exec(ctx); err == nil {
			t.Error("a read-only transaction wrote")
		}
		no(t, tx.Rollback())
		w.exact(ctx)
	})
}

// A pool of one connection is enough for everything, in a transaction or not.
func TestPoolOfOneConnection(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		w := newWorld(t, db, nil)
		w.pool.SetMaxOpenConns(1)
		d, ids := w.seed(ctx, "d", 5)
		all := func(c *ent.Client) {
			t.Helper()
			no(t,
				c.File.Update().Where(file.DatasetID(d.ID), file.StatusEQ(file.StatusNew)).SetStatus(file.StatusCopying).Exec(ctx),
				c.File.Update().Where(file.HasDatasetWith(dataset.Name("d"))).AddSize(1).Exec(ctx),
				c.File.UpdateOneID(ids[0]).SetStatus(file.StatusFailed).Exec(ctx),
				c.File.Create().SetDataset(d).SetPath("x").SetSize(1).OnConflictColumns("dataset_id", "path").UpdateNewValues().Exec(ctx),
				c.File.CreateBulk(
					c.File.Create().SetDataset(d).SetPath("x").SetSize(1),
					c.File.Create().SetDataset(d).SetPath("y").SetSize(1),
				).OnConflictColumns("dataset_id", "path").Ignore().Exec(ctx))
			must(c.File.Delete().Where(file.SizeGT(40)).Exec(ctx))(t)
			must(c.FileCounters.Query().All(ctx))(t)
			must(c.FileCounters.Total(ctx, filecounters.Scope{DatasetID: &d.ID}))(t)
			must(c.FileCounters.Backlog(ctx))(t)
			for _, err := range c.FileCounters.Verify(ctx, filecounters.Scope{}) {
				t.Error(err)
			}
		}
		all(w.client)
		must(w.client.FileCounters.Fold(ctx))(t)
		must(w.client.FileCounters.Rebuild(ctx, filecounters.Scope{}))(t)
		tx := w.begin(ctx)
		all(tx.Client())
		no(t, tx.Commit())
		no(t, w.client.Dataset.DeleteOne(d).Exec(ctx))
		no(t, w.client.FileCounters.DeleteScope(ctx, filecounters.Scope{DatasetID: &d.ID}))
		w.exact(ctx)
	})
}

// A commit hook that mutates inside the commit is counted with the rest; one that
// does so after it, or in a rollback, is on its own.
func TestCommitHooks(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d, ids := w.seed(ctx, "d", 4)
		tx := w.begin(ctx)
		tx.OnCommit(func(next ent.Committer) ent.Committer {
			return ent.CommitFunc(func(ctx context.Context, tx *ent.Tx) error {
				if err := tx.File.UpdateOneID(ids[1]).SetStatus(file.StatusCopied).Exec(ctx); err != nil {
					return err
				}
				got, err := tx.FileCounters.Read(ctx, filecounters.Key{DatasetID: d.ID, Status: file.StatusCopied})
				if err != nil || got.Count != 2 {
					return fmt.Errorf("inside the commit Copied reads %+v: %w", got, err)
				}
				if err := tx.File.UpdateOneID(ids[2]).SetStatus(file.StatusCopied).Exec(ctx); err != nil {
					return err
				}
				return next.Commit(ctx, tx)
			})
		})
		no(t, tx.File.UpdateOneID(ids[0]).SetStatus(file.StatusCopied).Exec(ctx), tx.Commit())
		w.exact(ctx)
		if got := must(w.client.FileCounters.Read(ctx, filecounters.Key{DatasetID: d.ID, Status: file.StatusCopied}))(t); got.Count != 3 {
			t.Errorf("after the commit Copied reads %+v", got)
		}

		// One that refuses to commit.
		refused := errors.New("no")
		tx = w.begin(ctx)
		tx.OnCommit(func(ent.Committer) ent.Committer {
			return ent.CommitFunc(func(_ context.Context, tx *ent.Tx) error { return errors.Join(refused, tx.Rollback()) })
		})
		no(t, tx.File.UpdateOneID(ids[3]).SetStatus(file.StatusCopied).Exec(ctx))
		if err := tx.Commit(); !errors.Is(err, refused) {
			t.Error(err)
		}
		w.exact(ctx)

		tx = w.begin(ctx)
		tx.OnRollback(func(next ent.Rollbacker) ent.Rollbacker {
			return ent.RollbackFunc(func(ctx context.Context, tx *ent.Tx) error {
				return errors.Join(tx.File.UpdateOneID(ids[3]).SetStatus(file.StatusFailed).Exec(ctx), next.Rollback(ctx, tx))
			})
		})
		no(t, tx.File.UpdateOneID(ids[3]).SetStatus(file.StatusCopied).Exec(ctx), tx.Rollback())
		w.exact(ctx)
	})
}

// A hook that mutates further rows through the client of the mutation, and one
// that changes what the mutation sets, are counted as they turn out.
func TestHooksThatMutate(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d, ids := w.seed(ctx, "d", 4)
		w.client.File.Use(func(next ent.Mutator) ent.Mutator {
			return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
				fm := m.(*ent.FileMutation)
				if status, ok := fm.Status(); ok && status == file.StatusFailed {
					fm.SetStatus(file.StatusNew) // try again
					if err := fm.Client().File.Create().SetDatasetID(d.ID).SetPath(fmt.Sprint("retry", time.Now().UnixNano())).SetSize(1).Exec(ctx); err != nil {
						return nil, err
					}
				}
				return next.Mutate(ctx, m)
			})
		})
		no(t, w.client.File.Update().Where(file.DatasetID(d.ID), file.StatusEQ(file.StatusNew)).SetStatus(file.StatusFailed).Exec(ctx))
		w.exact(ctx)
		no(t, w.client.File.UpdateOneID(ids[0]).SetStatus(file.StatusFailed).Exec(ctx))
		tx := w.begin(ctx)
		no(t, tx.File.Update().SetStatus(file.StatusFailed).Exec(ctx), tx.Commit())
		w.exact(ctx)
		if got := must(w.client.FileCounters.Total(ctx, filecounters.Scope{DatasetID: &d.ID}))(t); got.Count != 7 {
			t.Errorf("there are %d files", got.Count)
		}
	})
}

// severally is a modifier that changes nothing, and keeps a mutation from being one
// statement in PostgreSQL.
func severally(*entsql.UpdateBuilder) {}

// A mutation that fails after its first statement has changed rows poisons the
// transaction: what it changed is uncounted and cannot be committed.
func TestHalfDoneMutationPoisonsTheTransaction(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d, ids := w.seed(ctx, "d", 3)
		cause := errors.New("unplugged")
		for _, second := range []string{"commit", "mutate", "read", "rollback"} {
			tx := w.begin(ctx)
			no(t, tx.File.UpdateOneID(ids[0]).SetStatus(file.StatusCopied).Exec(ctx))
			changed := false
			w.tap.Inject(func(s tap.Statement) tap.Fault {
				if changed && s.Is("SELECT") {
					return tap.Refuse(cause)
				}
				changed = changed || s.Is("UPDATE") && strings.Contains(s.SQL, "size")
				return tap.Pass
			})
			// ent reads the row back after the update.
			err := tx.File.UpdateOneID(ids[1]).AddSize(1).Modify(severally).Exec(ctx)
			w.tap.Inject(nil)
			if !errors.Is(err, cause) {
				t.Fatalf("the mutation did not fail: %v", err)
			}
			poisoned := func(err error) {
				t.Helper()
				if !errors.Is(err, entcounter.ErrTransactionFailed) || !errors.Is(err, cause) {
					t.Errorf("%s: %v", second, err)
				}
			}
			switch second {
			case "mutate":
				poisoned(tx.File.UpdateOneID(ids[2]).SetStatus(file.StatusCopied).Exec(ctx))
				poisoned(tx.Dataset.UpdateOneID(d.ID).SetName("e").Exec(ctx))
			case "read":
				_, err := tx.FileCounters.Query().All(ctx)
				poisoned(err)
				_, err = tx.File.Query().All(ctx)
				poisoned(err)
			}
			if second == "rollback" {
				no(t, tx.Rollback())
			} else {
				poisoned(tx.Commit())
			}
			w.journalIs(ctx)
		}
	})
}

// Going back to a savepoint undoes what a mutation that failed half-way has left, and
// with it the reason why the transaction cannot commit.
func TestSavepointAfterAHalfDoneMutation(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d, ids := w.seed(ctx, "d", 4)
		cause := errors.New("unplugged")
		tx := w.begin(ctx)
		no(t, tx.File.UpdateOneID(ids[0]).SetStatus(file.StatusCopied).Exec(ctx))
		must(tx.ExecContext(ctx, "SAVEPOINT mine"))(t)
		for range 2 {
			no(t, tx.File.UpdateOneID(ids[1]).SetStatus(file.StatusFailed).Exec(ctx))
			changed := false
			w.tap.Inject(func(s tap.Statement) tap.Fault {
				if changed && s.Is("SELECT") {
					return tap.Refuse(cause)
				}
				changed = changed || s.Is("UPDATE") && strings.Contains(s.SQL, "size")
				return tap.Pass
			})
			err := tx.File.UpdateOneID(ids[2]).AddSize(1).Modify(severally).Exec(ctx)
			w.tap.Inject(nil)
			if !errors.Is(err, cause) {
				t.Fatalf("the mutation did not fail: %v", err)
			}
			if _, err := tx.ExecContext(ctx, "SELECT 1"); !errors.Is(err, entcounter.ErrTransactionFailed) {
				t.Errorf("the failed transaction took a statement: %v", err)
			}
			if _, err := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT other"); err == nil {
				t.Error("there is no such savepoint")
			}
			if err := tx.File.UpdateOneID(ids[2]).AddSize(1).Modify(severally).Exec(ctx); !errors.Is(err, entcounter.ErrTransactionFailed) {
				t.Errorf("the failed transaction took a mutation: %v", err)
			}
			must(tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT mine"))(t)
		}
		no(t, tx.File.UpdateOneID(ids[3]).SetStatus(file.StatusCopied).Exec(ctx), tx.Commit())
		w.journalIs(ctx,
			fmt.Sprintf("%d New -1 -10", d.ID), fmt.Sprintf("%d Copied +1 +10", d.ID), // before the savepoint
			fmt.Sprintf("%d New -1 -40", d.ID), fmt.Sprintf("%d Copied +1 +40", d.ID))
		w.exact(ctx)
	})
}

// A transaction that is forgotten counts nothing once its connection is gone.
func TestForgottenTransaction(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		w := newWorld(t, db, nil)
		d, ids := w.seed(t.Context(), "d", 3)
		ctx, cancel := context.WithCancel(t.Context())
		tx := w.begin(ctx)
		no(t, tx.File.UpdateOneID(ids[0]).SetStatus(file.StatusCopied).Exec(ctx))
		must(tx.FileCounters.Query().All(ctx))(t)
		no(t, tx.File.UpdateOneID(ids[1]).SetStatus(file.StatusCopied).Exec(ctx))
		cancel() // database/sql rolls back
		w.eventually(func() error {
			if err := tx.Commit(); err == nil {
				t.Fatal("a transaction whose context is over was committed")
			}
			return w.client.File.Update().Where(file.DatasetID(d.ID)).SetStatus(file.StatusFailed).Exec(t.Context())
		})
		w.exact(t.Context())
	})
}

// eventually tries again for a while what may have to wait for a server.
func (w *world) eventually(f func() error) {
	w.Helper()
	var err error
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	w.Fatal(err)
}

// Savepoints by hand, through ent's sql/execquery feature.
func TestSavepoints(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d, ids := w.seed(ctx, "d", 6)
		tx := w.begin(ctx)
		run := func(query string) {
			t.Helper()
			must(tx.ExecContext(ctx, query))(t)
		}
		copied := func(id int) {
			t.Helper()
			no(t, tx.File.UpdateOneID(id).SetStatus(file.StatusCopied).Exec(ctx))
		}
		copied(ids[0])
		run("SAVEPOINT a")
		copied(ids[1])
		run("SAVEPOINT b")
		copied(ids[2])
		run("ROLLBACK TO SAVEPOINT b")
		copied(ids[3])
		if got := must(tx.FileCounters.Read(ctx, filecounters.Key{DatasetID: d.ID, Status: file.StatusCopied}))(t); got.Count != 3 {
			t.Errorf("after the rollback to b, Copied reads %+v", got)
		}
		run("ROLLBACK TO SAVEPOINT a")
		copied(ids[4])
		run("savepoint c")
		copied(ids[5])
		run(" rollback to c")
		run("RELEASE SAVEPOINT a")
		no(t, tx.Commit())
		w.exact(ctx)
		if got := must(w.client.FileCounters.Read(ctx, filecounters.Key{DatasetID: d.ID, Status: file.StatusCopied}))(t); got.Count != 2 {
			t.Errorf("Copied reads %+v", got)
		}
	})
}

// A statement of one's own is refused in a transaction that PostgreSQL has aborted,
// and so is a read of a counter. Going back to a savepoint revives it, and what was
// counted since then is forgotten.
func TestSavepointAfterAnAbort(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d, ids := w.seed(ctx, "d", 4)
		tx := w.begin(ctx)
		no(t, tx.File.UpdateOneID(ids[0]).SetStatus(file.StatusCopied).Exec(ctx))
		must(tx.ExecContext(ctx, "SAVEPOINT mine"))(t)
		no(t, tx.File.UpdateOneID(ids[1]).SetStatus(file.StatusFailed).Exec(ctx))
		if err := tx.File.Create().SetDataset(d).SetPath("0").SetSize(1).Exec(ctx); !ent.IsConstraintError(err) {
			t.Errorf("a duplicate was created: %v", err)
		}
		if db.Dialect == dialect.Postgres {
			if _, err := tx.ExecContext(ctx, "SELECT 1"); err == nil {
				t.Error("an aborted transaction took a statement")
			}
			if _, err := read(ctx, tx.FileCounters); err == nil {
				t.Error("an aborted transaction read a counter")
			}
		}
		must(tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT mine"))(t)
		no(t, tx.File.UpdateOneID(ids[2]).SetStatus(file.StatusCopied).Exec(ctx), tx.Commit())
		w.journalIs(ctx,
			fmt.Sprintf("%d New -1 -10", d.ID), fmt.Sprintf("%d Copied +1 +10", d.ID), // before the savepoint
			fmt.Sprintf("%d New -1 -30", d.ID), fmt.Sprintf("%d Copied +1 +30", d.ID))

		// Without one, the commit says that the transaction has failed.
		if db.Dialect != dialect.Postgres {
			return
		}
		tx = w.begin(ctx)
		no(t, tx.File.UpdateOneID(ids[3]).SetStatus(file.StatusCopied).Exec(ctx))
		if err := tx.File.Create().SetDataset(d).SetPath("0").SetSize(1).Exec(ctx); !ent.IsConstraintError(err) {
			t.Errorf("a duplicate was created: %v", err)
		}
		if _, err := tx.ExecContext(ctx, "COMMIT"); err == nil {
			t.Error("a statement committed an aborted transaction with deltas to write")
		}
		if err := tx.Commit(); !errors.Is(err, entcounter.ErrTransactionFailed) {
			t.Errorf("the commit of an aborted transaction: %v", err)
		}
		w.exact(ctx)
	})
}

// SQL of one's own is not counted, and Journal counts it.
func TestJournal(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d, _ := w.seed(ctx, "d", 3)
		delta := func(status file.Status, m filecounters.Measures) filecounters.Delta {
			return filecounters.Delta{Key: filecounters.Key{DatasetID: d.ID, Status: status}, Measures: m}
		}
		change := func(tx *ent.Tx) {
			t.Helper()
			must(tx.ExecContext(ctx, w.quoted(fmt.Sprintf("UPDATE `files` SET `status` = 'Copied' WHERE `dataset_id` = %d AND `size` = 10", d.ID))))(t)
			no(t, tx.FileCounters.Journal(ctx, delta(file.StatusNew, filecounters.Measures{Count: -1, Bytes: -10}),
				delta(file.StatusCopied, filecounters.Measures{Count: 1, Bytes: 10})))
		}
		tx := w.begin(ctx)
		change(tx)
		no(t, tx.Rollback())
		w.journalIs(ctx)
		tx = w.begin(ctx)
		change(tx)
		// It adds up with what ent changes in the same transaction.
		no(t, tx.File.Update().Where(file.StatusEQ(file.StatusCopied)).SetStatus(file.StatusFailed).Exec(ctx), tx.Commit())
		w.journalIs(ctx, fmt.Sprintf("%d New -1 -10", d.ID), fmt.Sprintf("%d Failed +1 +10", d.ID))

		if err := w.client.FileCounters.Journal(ctx, delta(file.StatusNew, filecounters.Measures{Count: 1})); !errors.Is(err, entcounter.ErrNoTransaction) {
			t.Errorf("outside of a transaction: %v", err)
		}
		tx = w.begin(ctx)
		if _, err := tx.FileCounters.Fold(ctx); !errors.Is(err, entcounter.ErrInTransaction) {
			t.Errorf("fold in a transaction: %v", err)
		}
		if _, err := tx.FileCounters.Rebuild(ctx, filecounters.Scope{}); !errors.Is(err, entcounter.ErrInTransaction) {
			t.Errorf("rebuild in a transaction: %v", err)
		}
		if err := tx.FileCounters.DeleteScope(ctx, filecounters.Scope{DatasetID: &d.ID}); !errors.Is(err, entcounter.ErrInTransaction) {
			t.Errorf("deletion of a scope in a transaction: %v", err)
		}
		no(t, tx.Rollback())
		if err := w.client.FileCounters.DeleteScope(ctx, filecounters.Scope{}); !errors.Is(err, entcounter.ErrEmptyScope) {
			t.Errorf("deletion of everything: %v", err)
		}
		w.exact(ctx)
	})
}

// The context of a mutation in a transaction may be over when that commits: its
// deltas are written all the same.
func TestMutationContextEndsBeforeTheCommit(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		_, ids := w.seed(ctx, "d", 3)
		tx := w.begin(ctx)
		short, cancel := context.WithCancel(ctx)
		no(t, tx.File.UpdateOneID(ids[0]).SetStatus(file.StatusCopied).Exec(short))
		cancel()
		no(t, tx.Commit())
		w.exact(ctx)
		if len(w.journal(ctx)) != 2 {
			t.Error("the deltas are missing")
		}
	})
}
