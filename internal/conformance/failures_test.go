package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"entgo.io/ent/dialect"
	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/testdb"
)

// The victim of a deadlock has been rolled back by the server. What its user goes
// on to do would be committed at once on MySQL, and is refused; the commit says why
// and that it may be tried again.
func TestDeadlock(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		if db.Kind == testdb.SQLite {
			return // one writer
		}
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d, ids := w.seed(ctx, "d", 4)
		update := func(tx *ent.Tx, id int) error {
			return tx.File.UpdateOneID(id).SetStatus(file.StatusCopied).AddSize(1).Exec(ctx)
		}
		var (
			txs     = [2]*ent.Tx{w.begin(ctx), w.begin(ctx)}
			errs    [2]error
			both    sync.WaitGroup
			victims int
		)
		no(t, update(txs[0], ids[0]), update(txs[1], ids[1]))
		for i := range txs {
			both.Go(func() {
				if errs[i] = update(txs[i], ids[1-i]); errs[i] == nil {
					errs[i] = txs[i].Commit()
					return
				}
				victims++ // the other one goes on
				refused := func(err error) {
					t.Helper()
					if !errors.Is(err, entcounter.ErrTransactionFailed) && db.Dialect == dialect.MySQL || err == nil {
						t.Errorf("the victim went on: %v", err)
					}
				}
				refused(txs[i].File.Create().SetDataset(d).SetPath("victim").SetSize(1).Exec(ctx))
				refused(txs[i].Dataset.Create().SetName("victim").Exec(ctx))
				refused(txs[i].Dataset.UpdateOneID(d.ID).SetName("victim").Exec(ctx))
				_, err := txs[i].Dataset.Query().All(ctx)
				refused(err)
				_, err = txs[i].ExecContext(ctx, w.quoted("UPDATE `datasets` SET `name` = 'victim'"))
				refused(err)
				if err = txs[i].Commit(); err == nil {
					t.Error("the victim was committed")
				}
				if db.Dialect == dialect.MySQL && (!errors.Is(err, entcounter.ErrTransactionFailed) || !entcounter.Retryable(err)) {
					t.Errorf("the victim's commit does not say that it may be tried again: %v", err)
				}
				if !entcounter.Retryable(errs[i]) {
					t.Errorf("the victim is not told that it may try again: %v", errs[i])
				}
				errs[i] = nil
			})
		}
		both.Wait()
		no(t, errs[0], errs[1])
		if victims != 1 {
			t.Fatalf("%d transactions were victims", victims)
		}
		if got := must(w.client.File.Query().Where(file.StatusEQ(file.StatusCopied)).Count(ctx))(t); got != 2 {
			t.Errorf("%d files were moved", got)
		}
		if n := must(w.client.Dataset.Query().Count(ctx))(t); n != 1 {
			t.Errorf("there are %d datasets", n)
		}
		w.exact(ctx)
	})
}

// A transaction that has only read so far can be the victim of a deadlock, too: of
// its locking reads. What it changes afterwards is refused as well.
func TestDeadlockOfLockingReads(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		if db.Kind == testdb.SQLite {
			return // one writer
		}
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d, ids := w.seed(ctx, "d", 2)
		lock := func(tx *ent.Tx, id int) error {
			_, err := tx.File.Query().Where(file.ID(id)).ForUpdate().All(ctx)
			return err
		}
		var (
			txs     = [2]*ent.Tx{w.begin(ctx), w.begin(ctx)}
			both    sync.WaitGroup
			victims atomic.Int32
		)
		no(t, lock(txs[0], ids[0]), lock(txs[1], ids[1]))
		for i, tx := range txs {
			both.Go(func() {
				if lock(tx, ids[1-i]) == nil {
					no(t, tx.Commit())
					return
				}
				victims.Add(1)
				err := tx.File.Create().SetDataset(d).SetPath("victim").SetSize(1).Exec(ctx)
				if err == nil || db.Dialect == dialect.MySQL && !errors.Is(err, entcounter.ErrTransactionFailed) {
					t.Errorf("the victim went on: %v", err)
				}
				if err := tx.Commit(); err == nil {
					t.Error("the victim was committed")
				}
			})
		}
		both.Wait()
		if n := victims.Load(); n != 1 {
			t.Errorf("%d transactions were victims", n)
		}
		no(t, w.check(ctx))
	})
}

// A mutation that waits for a lock for too long has changed nothing. The
// transaction goes on where the database lets it.
func TestLockTimeout(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		params := map[string]string{}
		switch db.Dialect {
		case dialect.MySQL:
			params["innodb_lock_wait_timeout"] = "1"
		case dialect.SQLite:
			params["_pragma"] = "busy_timeout(200)"
		case dialect.Postgres:
			params["lock_timeout"] = "300ms"
		}
		w := newWorld(t, db, params)
		d, ids := w.seed(ctx, "d", 4)
		holder, err := newPool(t, w).Tx(ctx)
		no(t, err)
		no(t, holder.File.UpdateOneID(ids[0]).SetStatus(file.StatusCopied).Exec(ctx))

		tx := w.begin(ctx)
		first := tx.File.UpdateOneID(ids[1]).SetStatus(file.StatusFailed).Exec(ctx)
		timedOut := tx.File.UpdateOneID(ids[0]).SetStatus(file.StatusFailed).Exec(ctx)
		if timedOut == nil || !entcounter.Retryable(timedOut) {
			t.Errorf("the second writer of a row: %v", timedOut)
		}
		third := tx.File.UpdateOneID(ids[2]).SetStatus(file.StatusFailed).Exec(ctx)
		switch db.Dialect {
		case dialect.MySQL:
			no(t, first, third, tx.Commit(), holder.Commit())
			want := []string{"Copied +1 +10", "Failed +2 +50", "New -1 -10", "New -2 -50"}
			for i := range want {
				want[i] = fmt.Sprintf("%d %s", d.ID, want[i])
			}
			w.journalIs(ctx, want...)
		case dialect.Postgres: // aborted
			no(t, first)
			if err := tx.Commit(); third == nil || err == nil {
				t.Errorf("an aborted transaction went on: %v, %v", third, err)
			}
			no(t, holder.Commit())
			w.journalIs(ctx, fmt.Sprintf("%d Copied +1 +10", d.ID), fmt.Sprintf("%d New -1 -10", d.ID))
		case dialect.SQLite: // there was no getting in at all
			if first == nil || third == nil {
				t.Errorf("two writers at once: %v, %v", first, third)
			}
			no(t, tx.Commit(), holder.Commit())
			w.journalIs(ctx, fmt.Sprintf("%d Copied +1 +10", d.ID), fmt.Sprintf("%d New -1 -10", d.ID))
		}
	})
}

// A SQLite transaction that has read may not write once another has: nothing is
// lost, and the transaction can be tried again.
func TestStaleSnapshot(t *testing.T) {
	ctx := t.Context()
	w := newWorld(t, testdb.New(t, testdb.SQLite), nil)
	_, ids := w.seed(ctx, "d", 3)
	tx := w.begin(ctx)
	must(tx.File.Query().All(ctx))(t)
	no(t, w.client.File.UpdateOneID(ids[0]).SetStatus(file.StatusCopied).Exec(ctx))
	err := tx.File.UpdateOneID(ids[1]).SetStatus(file.StatusCopied).Exec(ctx)
	if !entcounter.Retryable(err) {
		t.Errorf("a write after another's: %v", err)
	}
	no(t, tx.Commit())
	w.exact(ctx)
}

// Serializable transactions that lose against each other leave nothing behind.
func TestSerializationFailure(t *testing.T) {
	ctx := t.Context()
	w := newWorld(t, testdb.New(t, testdb.Postgres), map[string]string{"default_transaction_isolation": "serializable"})
	d, _ := w.seed(ctx, "d", 10)
	var (
		all       sync.WaitGroup
		mu        sync.Mutex
		committed int
	)
	for i := range 6 {
		all.Go(func() {
			for {
				err := func() error {
					tx, err := w.client.Tx(ctx)
					if err != nil {
						return err
					}
					n, err := tx.File.Query().Where(file.DatasetID(d.ID), file.StatusEQ(file.StatusNew)).Count(ctx)
					if err == nil {
						err = tx.File.Create().SetDataset(d).SetPath(fmt.Sprint("new", i)).SetSize(int64(n)).Exec(ctx)
					}
					if err == nil {
						err = tx.File.Update().Where(file.DatasetID(d.ID), file.StatusEQ(file.StatusNew), file.SizeLT(20)).AddSize(1).Exec(ctx)
					}
					if err != nil {
						return errors.Join(err, tx.Rollback())
					}
					return tx.Commit()
				}()
				if err == nil {
					mu.Lock()
					committed++
					mu.Unlock()
					return
				}
				if !entcounter.Retryable(err) {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if committed != 6 {
		t.Errorf("%d transactions were committed", committed)
	}
	w.exact(ctx)
}

// A context that is over before a mutation begins, or a commit, changes nothing.
func TestContextIsOver(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d, ids := w.seed(ctx, "d", 3)
		over, cancel := context.WithCancel(ctx)
		cancel()
		for _, m := range mutations {
			if err := m.run(over, w.client, d.ID, ids); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", m.name, err)
			}
			tx := w.begin(ctx)
			if err := m.run(over, tx.Client(), d.ID, ids); err == nil {
				t.Errorf("%s in a transaction succeeded", m.name)
			}
			no(t, tx.Rollback())
		}
		if got := w.journal(ctx); !slices.Equal(got, []string{}) {
			t.Errorf("journalled %q", got)
		}
		w.exact(ctx)
	})
}
