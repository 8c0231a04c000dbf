package entcounter

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
	"github.com/entcounter/entcounter/internal/testdb"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
)

// faultDriver lets a test see, change and fail what is sent to the database.
type faultDriver struct {
	dialect.Driver
	// before is called with every statement, with BEGIN and with COMMIT. It returns
	// the statement to send, or an error in its place.
	before func(query string) (string, error)
}

type faultTx struct {
	dialect.Tx
	before func(query string) (string, error)
}

func (d *faultDriver) BeginTx(ctx context.Context, opts *stdsql.TxOptions) (dialect.Tx, error) {
	if _, err := d.before("BEGIN"); err != nil {
		return nil, err
	}
	tx, err := d.Driver.(interface {
		BeginTx(context.Context, *stdsql.TxOptions) (dialect.Tx, error)
	}).BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &faultTx{tx, d.before}, nil
}

func (d *faultDriver) Exec(ctx context.Context, query string, args, v any) error {
	return faulty(ctx, d.Driver.Exec, d.before, query, args, v)
}

func (d *faultDriver) Query(ctx context.Context, query string, args, v any) error {
	return faulty(ctx, d.Driver.Query, d.before, query, args, v)
}

func (t *faultTx) Exec(ctx context.Context, query string, args, v any) error {
	return faulty(ctx, t.Tx.Exec, t.before, query, args, v)
}

func (t *faultTx) Query(ctx context.Context, query string, args, v any) error {
	return faulty(ctx, t.Tx.Query, t.before, query, args, v)
}

func (t *faultTx) Commit() error {
	if _, err := t.before("COMMIT"); err != nil {
		return errors.Join(err, t.Tx.Rollback())
	}
	return t.Tx.Commit()
}

func faulty(ctx context.Context, send func(context.Context, string, any, any) error, before func(string) (string, error), query string, args, v any) error {
	query, err := before(query)
	if err != nil {
		return err
	}
	return send(ctx, query, args, v)
}

// with returns the counter's operations on a driver with faults.
func (f *fixture) with(before func(query string) (string, error)) *Handle {
	return New(f.def, &faultDriver{f.drv, before})
}

// lostRaceOf returns the error of a lost race as the driver of a kind has it.
func lostRaceOf(kind testdb.Kind) error {
	switch kind {
	case testdb.Postgres:
		return &pgconn.PgError{Code: "40001", Message: "could not serialize access due to concurrent update"}
	case testdb.SQLite:
		return busyError{}
	}
	return &mysql.MySQLError{Number: 1213, Message: "Deadlock found when trying to get lock"}
}

type busyError struct{}

func (busyError) Error() string { return "database is locked (5) (SQLITE_BUSY)" }
func (busyError) Code() int     { return 5 }

// TestFailures fails every single statement of every operation, once with an
// error that stays and once with one that goes away, and by the end of the context.
func TestFailures(t *testing.T) {
	operations := map[string]func(context.Context, *Handle) error{
		"fold":         func(ctx context.Context, h *Handle) error { _, err := h.Fold(ctx); return err },
		"rebuild":      func(ctx context.Context, h *Handle) error { _, err := h.Rebuild(ctx, []any{7}); return err },
		"delete scope": func(ctx context.Context, h *Handle) error { return h.DeleteScope(ctx, []any{9}) },
	}
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		f := newFixture(t, db)
		f.exec(t, "INSERT INTO `files` (`dataset_id`, `status`, `size`) VALUES (7, 'new', 10), (7, 'new', 20)")
		f.journal(t, delta(7, "new", 1, 1), delta(8, "new", 1, 1))
		f.foldAll(t) // the lock rows are there
		reset := func(t *testing.T) (before []count) {
			f.exec(t, "DELETE FROM `file_counter_journal`")
			f.exec(t, "DELETE FROM `file_counters`")
			f.journal(t, delta(7, "new", 3, 60), delta(9, "new", 5, 5))
			f.foldAll(t)
			f.journal(t, delta(7, "new", -2, -30), delta(7, "copied", 2, 30), delta(9, "new", 1, 1))
			return f.read(t, nil)
		}
		for name, run := range operations {
			t.Run(name, func(t *testing.T) {
				reset(t)
				statements := 0
				if err := run(t.Context(), f.with(func(query string) (string, error) { statements++; return query, nil })); err != nil {
					t.Fatal(err)
				}
				after := f.read(t, nil)
				for fail := range statements {
					for _, fault := range []string{"error", "race", "cancel"} {
						before := reset(t)
						boom := errors.New("boom")
						n := 0
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						err := run(ctx, f.with(func(query string) (string, error) {
							n++
							if n-1 != fail {
								return query, nil
							}
							switch fault {
							case "race":
								return "", lostRaceOf(db.Kind)
							case "cancel":
								cancel()
								return query, nil
							}
							return "", boom
						}))
						got := f.read(t, nil)
						switch fault {
						case "error":
							if !errors.Is(err, boom) || !strings.HasPrefix(err.Error(), "entcounter: ") || !strings.Contains(err.Error(), "File") {
								t.Errorf("statement %d failed: got error %v", fail, err)
							}
							wantEqual(t, got, before)
						case "race":
							// The one read that a fold makes before its transaction is not repeated.
							if err != nil && !(name == "fold" && fail == 0) {
								t.Errorf("statement %d lost a race: got error %v", fail, err)
							}
							if err == nil {
								wantEqual(t, got, after)
							}
						case "cancel":
							// The context may end too late to matter.
							if err != nil {
								wantEqual(t, got, before)
							} else {
								wantEqual(t, got, after)
							}
						}
					}
				}
			})
		}
	})
}

func TestFoldThatAlwaysLoses(t *testing.T) {
	f := newFixture(t, testdb.New(t, testdb.SQLite))
	f.journal(t, delta(7, "new", 3, 60))
	attempts := 0
	losing := f.with(func(query string) (string, error) {
		if strings.HasPrefix(query, "UPDATE") {
			attempts++
			return "", busyError{}
		}
		return query, nil
	})
	if folded, err := losing.Fold(t.Context()); err != nil || folded != (Folded{}) {
		t.Errorf("fold: %+v, %v; want nothing and no error", folded, err)
	}
	if attempts != waitAttempts {
		t.Errorf("%d attempts", attempts)
	}
	// Somebody who holds the lock for as long as the server waits is not a fold.
	stuck := f.with(func(query string) (string, error) {
		if strings.HasPrefix(query, "UPDATE") {
			return "", &mysql.MySQLError{Number: 1205}
		}
		return query, nil
	})
	if _, err := stuck.Fold(t.Context()); !timedOut(err) {
		t.Errorf("fold behind a lock that is never free: %v", err)
	}
	// A rebuild that did not happen is an error.
	if _, err := losing.Rebuild(t.Context(), nil); !errors.Is(err, busyError{}) {
		t.Errorf("rebuild: %v", err)
	}
}

// A row that the plain read does not show stays, and is folded later.
func TestFoldLeavesUnseenRow(t *testing.T) {
	for _, kind := range []testdb.Kind{testdb.MariaDB, testdb.MySQL} {
		t.Run(string(kind), func(t *testing.T) {
			f := newFixture(t, testdb.New(t, kind))
			f.journal(t, delta(7, "new", 1, 1), delta(7, "new", 2, 2), delta(7, "new", 4, 4))
			blind := f.with(func(query string) (string, error) {
				if strings.HasPrefix(query, "SELECT `id`, ") {
					query += " AND `count_delta` <> 2"
				}
				return query, nil
			})
			folded, err := blind.Fold(t.Context(), WithBatch(3))
			if err != nil || noLag(folded) != (Folded{Rows: 2, Keys: 1, Deepest: 2, Full: true}) {
				t.Errorf("fold: %+v, %v", folded, err)
			}
			wantEqual(t, f.stored(t), []count{{7, "new", 5, 5}})
			wantEqual(t, f.read(t, nil), []count{{7, "new", 7, 7}})
			f.foldAll(t)
			wantEqual(t, f.stored(t), []count{{7, "new", 7, 7}})
			// What the ADR says in its place.
			f.journal(t, delta(7, "new", 1, 1), delta(7, "new", 2, 2))
			if _, err := blind.Fold(t.Context(), func(c *foldConfig) { c.deleteClaim = true }); err != nil {
				t.Fatal(err)
			}
			wantEqual(t, f.read(t, nil), []count{{7, "new", 8, 8}})
		})
	}
}

func TestNoSkipLocked(t *testing.T) {
	for _, kind := range []testdb.Kind{testdb.MariaDB, testdb.MySQL} {
		t.Run(string(kind), func(t *testing.T) {
			f := newFixture(t, testdb.New(t, kind))
			f.pool.SetMaxOpenConns(1)
			f.journal(t, delta(7, "new", 1, 1))
			old := f.with(func(query string) (string, error) {
				return strings.ReplaceAll(query, "SKIP LOCKED", "SKIP UNKNOWN WORDS"), nil
			})
			_, err := old.Fold(t.Context())
			if !errors.Is(err, ErrNoSkipLocked) {
				t.Fatalf("got %v, want ErrNoSkipLocked", err)
			}
			var version string
			if err := f.pool.QueryRow("SELECT VERSION()").Scan(&version); err != nil {
				t.Fatal(err)
			}
			for _, part := range []string{"File", "MySQL 8.0", "MariaDB 10.6", version} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not name %q", err, part)
				}
			}
			wantEqual(t, f.read(t, nil), []count{{7, "new", 1, 1}})
		})
	}
}

func TestServerErrors(t *testing.T) {
	for _, test := range []struct {
		err                    error
		race, busy, timeout, o bool
	}{
		{err: nil},
		{err: errors.New("Error 1213: not from a server")},
		{err: lostRaceOf(testdb.MySQL), race: true},
		{err: &mysql.MySQLError{Number: 1020}, race: true},
		{err: &mysql.MySQLError{Number: 1205}, timeout: true},
		{err: &mysql.MySQLError{Number: 1690}, o: true},
		{err: lostRaceOf(testdb.Postgres), race: true},
		{err: &pgconn.PgError{Code: "40P01"}, race: true},
		{err: &pgconn.PgError{Code: "55P03"}, timeout: true},
		{err: &pgconn.PgError{Code: "22003"}, o: true},
		{err: busyError{}, busy: true, timeout: true},
		{err: errors.Join(errors.New("first"), &pgconn.PgError{Code: "40001"}), race: true},
		{err: (&Handle{def: fileCounter()}).wrap("folding", busyError{}), busy: true, timeout: true},
		{err: errors.New("SQL logic error: integer overflow (1)"), o: true},
	} {
		got := fmt.Sprint(lostRace(test.err), busy(test.err), timedOut(test.err), overflows(test.err))
		if want := fmt.Sprint(test.race, test.busy, test.timeout, test.o); got != want {
			t.Errorf("%v: got %s, want %s", test.err, got, want)
		}
	}
}

// A pool of one connection is enough for every operation, and a database in
// memory is a database.
func TestMemory(t *testing.T) {
	db := testdb.NewMemory(t)
	f := newFixture(t, db)
	f.pool.SetMaxOpenConns(1)
	f.exec(t, "INSERT INTO `files` (`dataset_id`, `status`, `size`) VALUES (7, 'new', 10), (7, 'new', 20), (8, 'new', 1)")
	if _, err := f.Rebuild(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	f.foldAll(t)
	f.journal(t, delta(8, "new", 1, 1))
	wantEqual(t, f.drift(t), [][2]count{{{8, "new", 2, 2}, {8, "new", 1, 1}}})
	if err := f.DeleteScope(t.Context(), []any{8}); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, f.stored(t), []count{{7, "new", 2, 30}})
	wantEqual(t, f.read(t, nil), []count{{7, "new", 2, 30}})
	f.journal(t, delta(7, "new", 1, math.MaxInt64))
	if _, err := f.Fold(t.Context()); !errors.Is(err, ErrOverflow) {
		t.Errorf("got %v, want ErrOverflow", err)
	}
}
