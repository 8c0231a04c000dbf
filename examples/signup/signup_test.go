//go:build unix

package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"entgo.io/ent/dialect"

	"github.com/entcounter/entcounter/examples/internal/database"
	"github.com/entcounter/entcounter/examples/signup/ent"
	"github.com/entcounter/entcounter/examples/signup/ent/user"
	"github.com/entcounter/entcounter/internal/testdb"
)

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "signup")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "signup")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	if err != nil {
		err = errors.New(string(out))
	}
	return path, err
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := build(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// signup is the program as a user runs it.
func signup(t *testing.T, db *testdb.Database, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	out := new(bytes.Buffer)
	cmd := exec.Command(path, append([]string{"-dsn", db.DSN}, args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// counts returns what the tables say, read without ent and without the counter: the
// number of users, and that of the counter.
func counts(t *testing.T, db *testdb.Database) (users, counted int) {
	t.Helper()
	quote := "`"
	if db.Dialect == dialect.Postgres {
		quote = `"`
	}
	query := strings.ReplaceAll("SELECT (SELECT COUNT(*) FROM `users`), (SELECT COALESCE(SUM(`users`), 0) FROM `user_counters`) + (SELECT COALESCE(SUM(`users_delta`), 0) FROM `user_counter_journal`)", "`", quote)
	if err := db.DB(t).QueryRow(query).Scan(&users, &counted); err != nil {
		t.Fatal(err)
	}
	return users, counted
}

func TestSignup(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		for run, args := range [][]string{
			{"-processes", "6", "-workers", "2", "-operations", "60", "-emails", "40"},
			{"-processes", "3", "-workers", "4", "-operations", "60", "-emails", "5"},
			{"-processes", "1", "-workers", "1", "-operations", "0"},
		} {
			cmd, out := signup(t, db, args...)
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range []string{"the counter is right", "users before"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is missing in\n%s", want, out)
				}
			}
			// The first run counts those of before once, whoever of the processes did it.
			if run == 0 && !strings.Contains(out.String(), fmt.Sprintf("\nagreed     %d users before", old)) {
				t.Errorf("not all users of before\n%s", out)
			}
			if users, counted := counts(t, db); users != counted || users < old {
				t.Errorf("%d users, counted %d\n%s", users, counted, out)
			}
		}
	})
}

// A run that is interrupted leaves an exact counter, and says so.
func TestInterrupt(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		cmd, out := signup(t, db, "-operations", "1000000")
		client := openTest(t, db)
		for start := time.Now(); time.Since(start) < 20*time.Second; time.Sleep(10 * time.Millisecond) {
			if n, err := client.User.Query().Where(user.EmailHasPrefix("user")).Count(t.Context()); err == nil && n > 20 {
				break
			}
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || !strings.Contains(out.String(), "the counter is right") {
			t.Errorf("exit code %d\n%s", code, out)
		}
		if users, counted := counts(t, db); users != counted {
			t.Errorf("%d users, counted %d", users, counted)
		}
	})
}

// openTest connects to a database whose tables the program may still have to create.
func openTest(t *testing.T, db *testdb.Database) *ent.Client {
	t.Helper()
	src, err := database.Parse(db.DSN, "signup")
	if err != nil {
		t.Fatal(err)
	}
	client, _, err := open(t.Context(), src, 2, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// The program's own check sees a user that nothing has counted, and one that a
// process did not tell of.
func TestCheck(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := context.Background()
		cmd, out := signup(t, db, "-processes", "1", "-operations", "10")
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		client := openTest(t, db)
		compare := func(before int, did done) (exact, agrees bool, report string) {
			t.Helper()
			c, err := newCheck(ctx, client)
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			exact = c.print(&b)
			agrees = c.agrees(&b, before, did)
			return exact, agrees, b.String()
		}
		users, _ := counts(t, db)
		if exact, agrees, report := compare(users-3, done{Inserted: 5, Deleted: 2}); !exact || !agrees {
			t.Error(report)
		}
		if exact, agrees, report := compare(users-3, done{Inserted: 5, Deleted: 1}); !exact || agrees {
			t.Error(report)
		}
		if _, err := client.ExecContext(ctx, "INSERT INTO users (email, plan, changes) VALUES ('uncounted', 'paid', 0)"); err != nil {
			t.Fatal(err)
		}
		if exact, _, report := compare(users, done{}); exact || !strings.Contains(report, "WRONG") {
			t.Error(report)
		}
		if _, err := client.ExecContext(ctx, "UPDATE users SET changes = changes + 1 WHERE email = 'uncounted'"); err != nil {
			t.Fatal(err)
		}
		if _, err := client.User.Delete().Where(user.Email("uncounted")).Exec(ctx); err != nil {
			t.Fatal(err)
		}
		if exact, _, report := compare(users, done{}); exact || !strings.Contains(report, "WRONG") {
			t.Error(report)
		}
	})
}

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-h"}, exitOK, "number of processes to start"},
		{[]string{"more"}, exitUsage, `unexpected argument "more"`},
		{[]string{"-processes", "0"}, exitUsage, "-processes is not between 1 and 64"},
		{[]string{"-workers", "65"}, exitUsage, "-workers is not between 1 and 64"},
		{[]string{"-operations", "-1"}, exitUsage, "-operations is negative"},
		{[]string{"-emails", "1"}, exitUsage, "-emails is less than 2"},
		{[]string{"-process", "-1"}, exitUsage, "-process is negative"},
		{[]string{"-dsn", "nonsense"}, exitUsage, "cannot tell what database it means"},
		{[]string{"-dsn", "sqlite:/nowhere/at/all/signup.db"}, exitFailed, "connecting to sqlite:/nowhere/at/all/signup.db"},
	} {
		var out bytes.Buffer
		if code := run(context.Background(), test.args, strings.NewReader(""), &out, &out); code != test.code || !strings.Contains(out.String(), test.want) {
			t.Errorf("%v: exit code %d, want %d and %q\n%s", test.args, code, test.code, test.want, &out)
		}
	}
}

// A table of somebody else's stays as it is.
func TestForeignTable(t *testing.T) {
	db := testdb.New(t, testdb.SQLite)
	pool, err := sql.Open(db.Driver, db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pool.Close() }()
	if _, err := pool.Exec("CREATE TABLE users (name TEXT)"); err != nil {
		t.Fatal(err)
	}
	cmd, out := signup(t, db)
	if err := cmd.Wait(); err == nil || !strings.Contains(out.String(), `there is a table "users" that is not this program's`) {
		t.Errorf("%v\n%s", err, out)
	}
}
