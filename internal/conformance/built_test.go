package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/ent/filecounters"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/testdb"
)

// old inserts files as a program without counters does.
func (w *world) old(ctx context.Context, n int) {
	w.Helper()
	d := w.client.Dataset.Create().SetName(fmt.Sprint("old ", n)).SaveX(ctx)
	numbers := "SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < %d"
	with := "WITH RECURSIVE numbers AS (" + numbers + ") "
	insert := "INSERT INTO `files` (`path`, `status`, `size`, `dataset_id`) "
	rows := "SELECT %s, 'New', 1, %d FROM numbers"
	name := "CAST(n AS CHAR)"
	if w.db.Dialect != dialect.MySQL {
		name = "CAST(n AS TEXT)"
	}
	query := fmt.Sprintf(with+insert+rows, n, name, d.ID)
	if w.db.Dialect == dialect.MySQL {
		query = fmt.Sprintf(insert+with+rows, n, name, d.ID)
	}
	conn, err := w.oracle.Conn(ctx)
	no(w, err)
	defer func() { _ = conn.Close() }()
	switch w.db.Kind {
	case testdb.MySQL:
		_, err = conn.ExecContext(ctx, "SET SESSION cte_max_recursion_depth = 100000")
	case testdb.MariaDB:
		_, err = conn.ExecContext(ctx, "SET SESSION max_recursive_iterations = 100000")
	}
	no(w, err)
	_, err = conn.ExecContext(ctx, w.quoted(query))
	no(w, err)
}

// another returns a client that knows nothing of what the first one has found out.
func (w *world) another() *ent.Client {
	return ent.NewClient(ent.Driver(entDriver(w.db.Dialect, w.db.DB(w))))
}

// reads reads a counter in each of the ways there are.
func reads(ctx context.Context, c *ent.Client) map[string]error {
	errs := make(map[string]error)
	_, errs["Read"] = c.FileCounters.Read(ctx, filecounters.Key{DatasetID: 1, Status: file.StatusNew})
	_, errs["Total"] = c.FileCounters.Total(ctx, filecounters.Scope{})
	_, errs["Query"] = c.FileCounters.Query().All(ctx)
	_, errs["Count"] = c.FileCounters.Query().Count(ctx)
	_, errs["GroupBy"] = c.FileCounters.Query().GroupBy(filecounters.FieldStatus).Aggregate(ent.Sum(filecounters.FieldCount)).Strings(ctx)
	errs["CheckCounters"] = c.CheckCounters(ctx)
	return errs
}

// TestCounterOfATableInUse adds a counter to a table with more rows than a read
// counts by itself.
func TestCounterOfATableInUse(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.Database, params map[string]string) {
		w, ctx := newTables(t, db, params), t.Context()
		w.old(ctx, 10_001)
		for name, err := range reads(ctx, w.client) {
			if name != "GroupBy" && !errors.Is(err, entcounter.ErrNotBuilt) {
				t.Errorf("%s of a counter that is not built: %v", name, err)
			}
			if name == "GroupBy" && err == nil {
				t.Error("a counter that is not built is grouped")
			}
		}
		tx, err := w.client.Tx(ctx)
		no(t, err)
		if _, err := tx.FileCounters.Total(ctx, filecounters.Scope{}); !errors.Is(err, entcounter.ErrNotBuilt) {
			t.Errorf("in a transaction: %v", err)
		}
		no(t, tx.Rollback())
		// New code writes already.
		w.client.File.Create().SetPath("new").SetSize(1).SetDataset(w.client.Dataset.Query().OnlyX(ctx)).ExecX(ctx)
		d := w.client.Dataset.Query().OnlyIDX(ctx)
		_, err = w.client.FileCounters.Rebuild(ctx, filecounters.Scope{DatasetID: &d})
		no(t, err)
		if err := w.client.CheckCounters(ctx); !errors.Is(err, entcounter.ErrNotBuilt) {
			t.Errorf("after a rebuild of one scope: %v", err)
		}
		_, err = w.client.FileCounters.Rebuild(ctx, filecounters.Scope{})
		no(t, err)
		for _, c := range []*ent.Client{w.client, w.another()} {
			no(t, c.CheckCounters(ctx))
			total, err := c.FileCounters.Total(ctx, filecounters.Scope{})
			no(t, err)
			if total.Count != 10_002 {
				t.Errorf("%d files, want 10002", total.Count)
			}
		}
	})
}

// TestCounterOfFewRows adds a counter to a table whose rows are counted at once.
func TestCounterOfFewRows(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.Database, params map[string]string) {
		w, ctx := newTables(t, db, params), t.Context()
		w.old(ctx, 100)
		tx, err := w.client.Tx(ctx)
		no(t, err)
		// A transaction cannot begin the one that a rebuild needs.
		if _, err := tx.FileCounters.Total(ctx, filecounters.Scope{}); !errors.Is(err, entcounter.ErrNotBuilt) {
			t.Errorf("in a transaction: %v", err)
		}
		no(t, tx.Rollback())
		total, err := w.client.FileCounters.Total(ctx, filecounters.Scope{})
		no(t, err)
		if total.Count != 100 {
			t.Errorf("%d files, want 100", total.Count)
		}
		no(t, w.another().CheckCounters(ctx))
		no(t, w.check(ctx))
	})
}

// TestCounterOfNewTables reads in a transaction what nobody has built or read before.
func TestCounterOfNewTables(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.Database, params map[string]string) {
		w, ctx := newTables(t, db, params), t.Context()
		tx, err := w.client.Tx(ctx)
		no(t, err)
		d := tx.Dataset.Create().SetName("d").SaveX(ctx)
		tx.File.Create().SetPath("f").SetSize(1).SetDataset(d).ExecX(ctx)
		n, err := tx.FileCounters.Read(ctx, filecounters.Key{DatasetID: d.ID, Status: file.StatusNew})
		no(t, err)
		if n.Count != 1 {
			t.Errorf("%d files, want 1", n.Count)
		}
		no(t, tx.Commit())
		no(t, w.check(ctx))
	})
}

// TestRecountsInTransactions recounts a counter that nobody has read yet once in a transaction that reads it, and
// never again when that has committed. One that rolls back proves nothing: it may have seen what only it has done.
func TestRecountsInTransactions(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.Database, params map[string]string) {
		w, ctx := newTables(t, db, params), t.Context()
		recounts := func(ended func(*ent.Tx) error) (n int) {
			w.tap.Reset()
			tx, err := w.client.Tx(ctx)
			no(t, err)
			for range 3 {
				_, err := tx.FileCounters.Total(ctx, filecounters.Scope{})
				no(t, err)
			}
			no(t, ended(tx))
			for _, query := range w.tap.SQL() {
				if strings.Contains(query, "HAVING") {
					n++
				}
			}
			return n
		}
		for i, want := range []int{1, 1, 1, 0} {
			end := (*ent.Tx).Rollback
			if i == 2 {
				end = (*ent.Tx).Commit
			}
			if n := recounts(end); n != want {
				t.Errorf("transaction %d recounts %d times, want %d", i, n, want)
			}
		}

		// What a transaction undoes, its recount does not hold for.
		c := w.another()
		tx, err := c.Tx(ctx)
		no(t, err)
		d := tx.Dataset.Create().SetName("d").SaveX(ctx)
		for _, stmt := range []string{"SAVEPOINT a", "DELETE FROM counter_locks"} {
			_, err = tx.ExecContext(ctx, stmt)
			no(t, err)
		}
		_, err = tx.FileCounters.Total(ctx, filecounters.Scope{})
		no(t, err)
		_, err = tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT a")
		no(t, err)
		_, err = tx.ExecContext(ctx, w.quoted(fmt.Sprintf("INSERT INTO `files` (`path`, `status`, `size`, `dataset_id`) VALUES ('raw', 'New', 1, %d)", d.ID)))
		no(t, err)
		if _, err = tx.FileCounters.Total(ctx, filecounters.Scope{}); !errors.Is(err, entcounter.ErrNotBuilt) {
			t.Errorf("read after a row that is not counted, and a savepoint: %v", err)
		}
		no(t, tx.Rollback())
	})
}

// TestUnbuilt keeps reads from building a counter over few rows.
func TestUnbuilt(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.Database, params map[string]string) {
		w, ctx := newTables(t, db, params), t.Context()
		w.old(ctx, 10)
		_, err := w.oracle.ExecContext(ctx, "INSERT INTO counter_locks (counter_name, operation, version, declaration) VALUES ('File', 'rebuilt', 0, 'unbuilt')")
		no(t, err)
		w.client.File.Create().SetPath("new").SetSize(1).SetDataset(w.client.Dataset.Query().OnlyX(ctx)).ExecX(ctx)
		_, err = w.client.FileCounters.Fold(ctx)
		no(t, err)
		for range 2 {
			for name, err := range reads(ctx, w.client) {
				if name != "GroupBy" && !errors.Is(err, entcounter.ErrNotBuilt) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		p, err := w.client.FileCounters.Build(ctx, entcounter.BuildOptions{})
		no(t, err)
		if p.Keys != 1 {
			t.Errorf("built: %+v", p)
		}
		no(t, w.client.CheckCounters(ctx))
		no(t, w.check(ctx))
	})
}

// TestChangedDeclaration reads a counter that another declaration has built.
func TestChangedDeclaration(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.Database, params map[string]string) {
		w, ctx := newTables(t, db, params), t.Context()
		w.old(ctx, 10)
		no(t, w.client.CheckCounters(ctx))
		_, err := w.oracle.ExecContext(ctx, w.quoted("UPDATE `counter_locks` SET `declaration` = 'SELECT another' WHERE `operation` = 'rebuilt'"))
		no(t, err)
		c := w.another()
		for name, err := range reads(ctx, c) {
			if name != "GroupBy" && !errors.Is(err, entcounter.ErrDeclarationChanged) {
				t.Errorf("%s: %v", name, err)
			}
			if name == "GroupBy" && err == nil {
				t.Error("a counter of another declaration is grouped")
			}
		}
		_, err = c.FileCounters.Rebuild(ctx, filecounters.Scope{})
		no(t, err)
		no(t, c.CheckCounters(ctx))
		no(t, w.another().CheckCounters(ctx))
	})
}
