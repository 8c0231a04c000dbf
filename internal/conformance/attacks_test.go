package conformance

import (
	"context"
	"errors"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/testdb"
)

// What a reader of the README alone found to make a count wrong, or an ent call do
// something else.

// A transaction that a statement of the user's own has ended takes no counted
// mutation any more, and what was changed before is counted.
func TestStatementEndsTransaction(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		statements := []string{"COMMIT", "/* done */ commit;", "ROLLBACK"}
		if db.Dialect == dialect.MySQL {
			statements = append(statements, "CREATE TABLE other (id INT)", "START TRANSACTION", "begin")
		}
		for _, statement := range statements {
			t.Run(statement, func(t *testing.T) {
				ctx := t.Context()
				w := newWorld(t, testdb.New(t, db.Kind), nil)
				d, ids := w.seed(ctx, "d", 3)
				tx := w.begin(ctx)
				no(t, tx.File.UpdateOneID(ids[0]).SetStatus(file.StatusCopied).Exec(ctx))
				must(tx.ExecContext(ctx, statement))(t)
				err := tx.File.Create().SetDatasetID(d.ID).SetPath("late").SetSize(1).Exec(ctx)
				if !errors.Is(err, entcounter.ErrTransactionFailed) {
					t.Errorf("a create after %s: %v", statement, err)
				}
				_ = tx.Rollback()
				w.exact(ctx)
			})
		}
	})
}

func TestSavepointsInDisguise(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		for _, pair := range [][2]string{
			{"/* c */ SAVEPOINT s", "ROLLBACK TO SAVEPOINT s"},
			{"-- x\nSAVEPOINT s", "-- x\nROLLBACK TO SAVEPOINT s"},
			{" savepoint s", "rollback  to\ts"},
			{"SAVEPOINT s", "/* c */ROLLBACK /* d */ TO s"},
		} {
			ctx := t.Context()
			w := newWorld(t, testdb.New(t, db.Kind), nil)
			_, ids := w.seed(ctx, "d", 3)
			tx := w.begin(ctx)
			no(t, tx.File.UpdateOneID(ids[0]).SetStatus(file.StatusCopied).Exec(ctx))
			must(tx.ExecContext(ctx, pair[0]))(t)
			no(t, tx.File.UpdateOneID(ids[1]).SetStatus(file.StatusCopied).Exec(ctx))
			must(tx.ExecContext(ctx, pair[1]))(t)
			no(t, tx.Commit())
			w.exact(ctx)
		}
	})
}

// A call whose context has ended before it is not a failure of the transaction.
func TestContextEndedBefore(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		dead, cancel := context.WithCancel(ctx)
		cancel()
		w := newWorld(t, db, nil)
		d, ids := w.seed(ctx, "d", 3)
		tx := w.begin(ctx)
		no(t, tx.File.UpdateOneID(ids[0]).SetStatus(file.StatusCopied).Exec(ctx))
		for name, call := range map[string]func() error{
			"create": func() error { return tx.File.Create().SetDatasetID(d.ID).SetPath("x").SetSize(1).Exec(dead) },
			"update": func() error { return tx.File.UpdateOneID(ids[1]).SetStatus(file.StatusCopied).Exec(dead) },
			"query":  func() error { _, err := tx.File.Query().All(dead); return err },
			"read":   func() error { _, err := tx.FileCounters.Query().All(dead); return err },
			"exec":   func() error { _, err := tx.ExecContext(dead, "SELECT 1"); return err },
		} {
			if err := call(); !errors.Is(err, context.Canceled) || errors.Is(err, entcounter.ErrTransactionFailed) {
				t.Errorf("%s: %v", name, err)
			}
		}
		no(t, tx.File.UpdateOneID(ids[2]).SetStatus(file.StatusFailed).Exec(ctx))
		no(t, tx.Commit())
		w.exact(ctx)
	})
}

// An id that a mutation changes is an error, and nothing is counted wrongly.
func TestChangedID(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d, _ := w.seed(ctx, "d", 3)
		move := func(u *entsql.UpdateBuilder) {
			u.Set(file.FieldID, entsql.Expr("id + 1000")).Set(file.FieldStatus, "Failed")
		}
		if err := w.client.File.Update().Modify(move).Exec(ctx); err == nil {
			t.Error("Modify changed ids")
		}
		w.exact(ctx)
		f := w.client.File.Query().FirstX(ctx)
		err := w.client.File.Create().SetDatasetID(d.ID).SetPath(f.Path).SetSize(7).
			OnConflict(entsql.ConflictColumns(file.FieldDatasetID, file.FieldPath), entsql.ResolveWith(func(u *entsql.UpdateSet) { u.Set(file.FieldID, f.ID+5000) })).
			Exec(ctx)
		if err == nil {
			t.Error("an upsert changed an id")
		}
		w.exact(ctx)
	})
}

// An update of many rows whose expression reads the table is one statement, as
// without counters.
func TestExpressionReadsTable(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		const rows = 2100
		d, _ := w.seed(ctx, "d", rows)
		w.client.File.Update().SetSize(0).ExecX(ctx)
		w.client.File.Update().Modify(func(u *entsql.UpdateBuilder) {
			u.Set(file.FieldSize, entsql.Expr("(SELECT COUNT(*) FROM (SELECT * FROM files) AS f WHERE f.size = 0)"))
		}).ExecX(ctx)
		w.exact(ctx)
		if n := w.client.File.Query().Where(file.DatasetID(d.ID), file.Size(rows)).CountX(ctx); n != rows {
			t.Errorf("%d of %d rows have the size that one statement gives them", n, rows)
		}
	})
}

// Upserts of new keys outside of transactions do not get in each other's way.
func TestUpsertsOfNewKeys(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d, _ := w.seed(ctx, "d", 1)
		errs := make(chan error)
		const writers, each = 8, 20
		for n := range writers {
			go func() {
				var err error
				for i := range each {
					err = errors.Join(err, w.client.File.Create().SetDatasetID(d.ID).SetPath(string(rune('a'+n))+string(rune('a'+i))).SetSize(1).
						OnConflictColumns(file.FieldDatasetID, file.FieldPath).UpdateNewValues().Exec(ctx))
				}
				errs <- err
			}()
		}
		for range writers {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		w.exact(ctx)
	})
}

// A client on a transaction of database/sql gets an error, not a panic.
func TestClientOnSQLTx(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d, _ := w.seed(ctx, "d", 1)
		tx := must(w.pool.BeginTx(ctx, nil))(t)
		defer func() { _ = tx.Rollback() }()
		client := ent.NewClient(ent.Driver(entsql.NewDriver(db.Dialect, entsql.Conn{ExecQuerier: tx})))
		if err := client.File.Create().SetDatasetID(d.ID).SetPath("x").SetSize(1).Exec(ctx); err == nil {
			t.Error("a create that nothing counts")
		}
	})
}
