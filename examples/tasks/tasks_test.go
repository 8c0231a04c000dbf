//go:build unix

package main

import (
	"bytes"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	entsql "entgo.io/ent/dialect/sql"

	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/examples/internal/console"
	"github.com/entcounter/entcounter/examples/internal/database"
	"github.com/entcounter/entcounter/examples/tasks/ent"
	"github.com/entcounter/entcounter/examples/tasks/ent/daycounters"
	"github.com/entcounter/entcounter/examples/tasks/ent/daytaskcounters"
	"github.com/entcounter/entcounter/examples/tasks/ent/task"
	"github.com/entcounter/entcounter/examples/tasks/ent/taskcounters"
	"github.com/entcounter/entcounter/internal/testdb"
)

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "tasks")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "tasks")
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

// tasks is the program as a user runs it.
func tasks(t *testing.T, db *testdb.Database, args ...string) (*exec.Cmd, *bytes.Buffer) {
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

// newApp returns a run on a database, whose messages go to the test's log.
func newApp(t *testing.T, db *testdb.Database) *app {
	t.Helper()
	src, err := database.Parse(db.DSN, "tasks")
	if err != nil {
		t.Fatal(err)
	}
	client, _, err := open(t.Context(), src, 4+spareConnections)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return &app{
		options: options{tasks: 1000, workers: 4},
		source:  src,
		client:  client,
		console: console.New(t.Output()),
	}
}

// mustBeExact compares all counters with a recount.
func mustBeExact(t *testing.T, a *app, after string) {
	t.Helper()
	for drift, err := range a.client.TaskCounters.Verify(t.Context(), taskcounters.Scope{}) {
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("after %s: %+v", after, drift)
	}
	for drift, err := range a.client.DayCounters.Verify(t.Context(), daycounters.Scope{}) {
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("after %s: %+v", after, drift)
	}
	for drift, err := range a.client.DayTaskCounters.Verify(t.Context(), daytaskcounters.Scope{}) {
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("after %s: %+v", after, drift)
	}
}

func TestTasks(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		for range 2 { // on an empty database, and on that of an earlier run
			cmd, out := tasks(t, db, "-tasks", "1500", "-operations", "300", "-filters", "60")
			if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "every number is right") {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		mustBeExact(t, newApp(t, db), "two runs")
		cmd, out := tasks(t, db, "-filter", exampleFilter)
		if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "exact      1 filters") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// Each operation by itself leaves the counters as a recount has them.
func TestOperations(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		a := newApp(t, db)
		if err := a.fill(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustBeExact(t, a, "filling")
		w := &worker{app: a}
		order := []operation{softDelete, softDelete}
		for op := range operations {
			order = append(order, op)
		}
		for _, op := range order {
			done := 0
			for try := 0; done == 0; try++ {
				n, err := w.do(t.Context(), op)
				if err != nil && !errors.Is(err, errNothing) {
					t.Fatalf("%s: %v", op, err)
				}
				if done = n; try == 1000 {
					t.Fatalf("%s: nothing to do", op)
				}
			}
			mustBeExact(t, a, op.String())
		}
	})
}

// Days begin at midnight in UTC, wherever a task was created.
func TestDays(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		a := newApp(t, db)
		a.tasks = 0
		if err := a.fill(t.Context()); err != nil {
			t.Fatal(err)
		}
		midnight := now().Truncate(24 * time.Hour)
		kiritimati := time.FixedZone("LINT", 14*3600)
		for _, at := range []time.Time{midnight.Add(-time.Second), midnight, midnight.In(kiritimati), midnight.Add(time.Hour)} {
			a.client.Task.Create().SetTitle("x").SetGroupID(a.groups[0]).SetCreatedAt(at.UTC()).ExecX(t.Context())
		}
		tx, err := a.client.Tx(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		today, yesterday := entcounter.Day.Of(midnight), entcounter.Day.Of(midnight.Add(-time.Second))
		for _, test := range []struct {
			filter filter
			want   int64
		}{
			{filter{from: today, to: today}, 3},
			{filter{from: yesterday, to: yesterday}, 1},
			{filter{from: yesterday, to: today, assignees: []int{unassigned}}, 4},
			{filter{from: yesterday, to: today, assignees: a.users}, 0},
			{filter{from: today, to: today, groups: a.groups[:1], statuses: []task.Status{task.StatusNew}}, 3},
		} {
			stored, err := test.filter.stored(t.Context(), tx)
			if err != nil {
				t.Fatal(err)
			}
			scanned, err := test.filter.scanned(t.Context(), tx)
			if err != nil {
				t.Fatal(err)
			}
			if stored != test.want || scanned != test.want {
				t.Errorf("%s: counter %d, COUNT(*) %d, want %d", test.filter, stored, scanned, test.want)
			}
		}
	})
}

// A write makes the same statements and the same journal rows, however many filters were
// asked.
func TestCostOfWrites(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		a := newApp(t, db)
		if err := a.fill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := a.foldAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		pool, err := sql.Open(a.source.Driver, a.source.DSN)
		if err != nil {
			t.Fatal(err)
		}
		var statements atomic.Int64
		client := ent.NewClient(ent.Driver(entsql.OpenDB(db.Dialect, pool)), ent.Log(func(...any) { statements.Add(1) })).Debug()
		t.Cleanup(func() { _ = client.Close() })
		writes := func() (made, journaled int64) {
			statements.Store(0)
			id := client.Task.Create().SetTitle("x").SetGroupID(a.groups[0]).SetCreatedAt(now()).SaveX(t.Context()).ID
			client.Task.UpdateOneID(id).SetStatus(task.StatusDone).SetAssigneeID(a.users[0]).ExecX(t.Context())
			client.Task.Update().Where(task.ID(id)).SetDeletedAt(now()).ExecX(t.Context())
			made = statements.Load()
			for _, c := range a.client.Counters() {
				folded, err := c.Fold(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				journaled += int64(folded.Rows)
			}
			return made, journaled
		}
		statementsBefore, rowsBefore := writes()
		r, err := a.compare(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		if r.wrongs > 0 {
			t.Errorf("%+v", r.wrong)
		}
		made, rows := writes()
		if made == 0 || made != statementsBefore || rows != rowsBefore || rows != 4*3 {
			t.Errorf("%d statements and %d journal rows before, %d and %d after; want 12 rows", statementsBefore, rowsBefore, made, rows)
		}
	})
}

// The program's own comparison sees tasks that nothing has counted.
func TestWrong(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		args := []string{"-tasks", "50", "-operations", "0", "-filters", "10"}
		cmd, out := tasks(t, db, args...)
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		a := newApp(t, db)
		if _, err := a.client.ExecContext(t.Context(), "UPDATE tasks SET deleted_at = created_at WHERE status = 'done'"); err != nil {
			t.Fatal(err)
		}
		cmd, out = tasks(t, db, args...)
		err := cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(out.String(), "WRONG") ||
			!strings.Contains(out.String(), "numbers    1 to ") {
			t.Errorf("%v\n%s", err, out)
		}
		if _, err := a.client.ExecContext(t.Context(), "DELETE FROM tasks WHERE number = 7"); err != nil {
			t.Fatal(err)
		}
		cmd, out = tasks(t, db, args...)
		err = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != exitFailed || strings.Contains(out.String(), "each once") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// A run that is interrupted leaves exact counters, and says so.
func TestInterrupt(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		a := newApp(t, db)
		cmd, out := tasks(t, db, "-tasks", "500", "-operations", "1000000")
		for start := time.Now(); time.Since(start) < 20*time.Second; time.Sleep(10 * time.Millisecond) {
			n, err := a.client.Task.Query().Where(task.DeletedAtNotNil()).Count(t.Context())
			if err == nil && n > 0 {
				break
			}
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || !strings.Contains(out.String(), "every number is right") {
			t.Errorf("exit code %d\n%s", code, out)
		}
		mustBeExact(t, a, "interruption")
	})
}

func TestFilter(t *testing.T) {
	f, err := parseFilter(`[{"name":"assignee","op":"in","val":[0,7]},{"name":"created_at","op":"between","val":["2026-11-30T23:30:00-02:00","2026-12-03"]},{"name":"status","op":"in","val":["in-progr"]}]`)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"name":"status","op":"in","val":["in-progr"]},{"name":"assignee","op":"in","val":[0,7]},{"name":"created_at","op":"between","val":["2026-12-01","2026-12-03"]}]`
	if f.String() != want || f.counter() != "DayTask" {
		t.Errorf("%s of %s, want %s", f, f.counter(), want)
	}
	if again, err := parseFilter(f.String()); err != nil || again.String() != want {
		t.Errorf("%s, %v", again, err)
	}
	for text, want := range map[string]string{
		`nonsense`:                                                                                      "it is no list of conditions",
		`[{"name":"status","val":["new"]}]`:                                                             `status has no operator ""`,
		`[{"name":"size","op":"in","val":[]}]`:                                                          `there is no filter "size"`,
		`[{"name":"status","op":"in","val":["newer"]}]`:                                                 `"newer" is none of`,
		`[{"name":"status","op":"in","val":[]}]`:                                                        "the list is empty",
		`[{"name":"group","op":"in","val":["a"]}]`:                                                      "is no list of values",
		`[{"name":"group","op":"in","val":[1]},{"name":"group","op":"in","val":[2]}]`:                   "group is there twice",
		`[{"name":"created_at","op":"between","val":["2026-11-30"]}]`:                                   "needs two",
		`[{"name":"created_at","op":"between","val":["today","2026-11-30"]}]`:                           `"today" is no day`,
		`[{"name":"created_at","op":">","val":["2026-11-30"]}]`:                                         `no operator ">"`,
		`[{"name":"created_at","op":"between","val":["2026-11-30","2026-11-30"],"field":"created_at"}]`: "unknown field",
	} {
		if _, err := parseFilter(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-h"}, exitOK, "number of concurrent workers"},
		{[]string{"more"}, exitUsage, `unexpected argument "more"`},
		{[]string{"-tasks", "-1"}, exitUsage, "cannot be negative"},
		{[]string{"-workers", "0"}, exitUsage, "-workers is not between 1 and 256"},
		{[]string{"-filters", "100001"}, exitUsage, "-filters is not between 0 and 100000"},
		{[]string{"-filter", "status=new"}, exitUsage, "-filter: it is no list of conditions"},
		{[]string{"-dsn", "nonsense"}, exitUsage, "cannot tell what database it means"},
		{[]string{"-dsn", "sqlite:/nowhere/at/all/tasks.db"}, exitFailed, "connecting to sqlite:/nowhere/at/all/tasks.db"},
	} {
		var out bytes.Buffer
		if code := run(t.Context(), test.args, &out, &out); code != test.code || !strings.Contains(out.String(), test.want) {
			t.Errorf("%v: exit code %d, want %d and %q\n%s", test.args, code, test.code, test.want, &out)
		}
	}
}
