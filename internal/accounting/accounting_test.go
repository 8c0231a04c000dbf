package accounting

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/entcounter/entcounter/internal/dsn"
	"github.com/entcounter/entcounter/internal/testdb"
)

func TestMain(m *testing.M) { os.Exit(testdb.Main(m)) }

// What a query reads is told as what it is, and nothing as nothing.
func TestOf(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		const rows = 200
		values := make([]string, rows)
		for i := range values {
			values[i] = fmt.Sprintf("(%d, %d, '2026-11-30 00:00:00')", i, i%10)
		}
		for _, statement := range []string{
			"CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER NOT NULL, at TIMESTAMP NULL)",
			"INSERT INTO t (id, v, at) VALUES " + strings.Join(values, ", "),
		} {
			if _, err := db.DB(t).ExecContext(ctx, statement); err != nil {
				t.Fatal(err)
			}
		}
		src, err := dsn.Parse(db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		a, err := Open(ctx, src)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = a.DB.Close() }()
		tx, err := a.DB.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		placeholder := "?"
		if db.Kind == testdb.Postgres {
			placeholder = "$1"
		}
		query := func(condition string, arg any) func() error {
			return func() error {
				var n int
				return tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM t WHERE "+condition+" "+placeholder, arg).Scan(&n)
			}
		}
		for _, test := range []struct {
			name  string
			scans int64
			read  func() error
		}{
			{"nothing", 0, func() error { return nil }},
			{"integer", 1, query("v >=", 3)},
			{"text", 1, query("'x' || v >=", "x3")},
			{"time", 1, query("at <=", time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))},
			{"twice", 2, func() error {
				if err := query("v >=", 3)(); err != nil {
					return err
				}
				return query("v >=", 4)()
			}},
		} {
			usage, err := a.Of(ctx, tx, test.read)
			if err != nil {
				t.Fatalf("%s: %v", test.name, err)
			}
			// SQLite counts the steps between rows, MySQL and MariaDB also the end.
			if n := usage.Rows; n < test.scans*(rows-1) || n > test.scans*(rows+3) {
				t.Errorf("%s: %d rows read, want %d scans of %d", test.name, n, test.scans, rows)
			}
			if steps := usage.Steps > 0; steps != (db.Kind == testdb.SQLite && test.scans > 0) {
				t.Errorf("%s: %d steps", test.name, usage.Steps)
			}
		}
		t.Log(a.Unit())
	})
}

// What fails is told.
func TestReplayErrors(t *testing.T) {
	db := testdb.New(t, testdb.SQLite)
	if _, err := db.DB(t).ExecContext(t.Context(), "CREATE TABLE t (id INTEGER)"); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{"SELECT nonsense": "no such column: nonsense", "SELECT": "incomplete input"} {
		if _, err := replay(db.DSN, []statement{{query: query}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", query, err)
		}
	}
	if _, err := replay("file:/nowhere/at/all.db", nil); err == nil || !strings.Contains(err.Error(), "unable to open") {
		t.Errorf("%v", err)
	}
}
