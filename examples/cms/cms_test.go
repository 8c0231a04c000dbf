//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	entsql "entgo.io/ent/dialect/sql"

	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/examples/cms/ent"
	"github.com/entcounter/entcounter/examples/cms/ent/entry"
	"github.com/entcounter/entcounter/examples/cms/ent/entrycounters"
	"github.com/entcounter/entcounter/examples/cms/ent/sitecounters"
	"github.com/entcounter/entcounter/examples/cms/ent/termcounters"
	"github.com/entcounter/entcounter/examples/internal/console"
	"github.com/entcounter/entcounter/examples/internal/database"
	"github.com/entcounter/entcounter/internal/testdb"
)

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "cms")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "cms")
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

// cms is the program as a user runs it.
func cms(t *testing.T, db *testdb.Database, args ...string) (*exec.Cmd, *bytes.Buffer) {
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
	src, err := database.Parse(db.DSN, "cms")
	if err != nil {
		t.Fatal(err)
	}
	client, _, err := open(t.Context(), src, 4+spareConnections)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return &app{
		options: options{entries: 300, media: 200, users: 20, workers: 4},
		source:  src,
		client:  client,
		console: console.New(t.Output()),
	}
}

// mustBeExact compares all counters with a recount.
func mustBeExact(t *testing.T, a *app, after string) {
	t.Helper()
	for drift, err := range a.client.EntryCounters.Verify(t.Context(), entrycounters.Scope{}) {
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("after %s: %+v", after, drift)
	}
	for drift, err := range a.client.TermCounters.Verify(t.Context(), termcounters.Scope{}) {
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("after %s: %+v", after, drift)
	}
	for drift, err := range a.client.SiteCounters.Verify(t.Context(), sitecounters.Scope{}) {
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("after %s: %+v", after, drift)
	}
}

// compare shows the pages in both ways, and returns the report.
func compare(t *testing.T, a *app) *report {
	t.Helper()
	r, err := a.compare(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCMS(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		for range 2 { // on an empty database, and on that of an earlier run
			cmd, out := cms(t, db, "-entries", "600", "-media", "300", "-users", "10", "-operations", "300")
			if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "every number is right") {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		mustBeExact(t, newApp(t, db), "two runs")
	})
}

// Rows that were there before the counters are counted when the program starts.
func TestBuild(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		src, err := database.Parse(db.DSN, "cms")
		if err != nil {
			t.Fatal(err)
		}
		pool, _, err := src.Open(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		client := ent.NewClient(ent.Driver(entsql.OpenDB(src.Dialect, pool)))
		t.Cleanup(func() { _ = client.Close() })
		if err := client.Schema.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		const rows, batches = 1005, 10 // more than a counter looks at by itself
		for range batches {
			query := "INSERT INTO media (name) VALUES ('old')" + strings.Repeat(", ('old')", rows-1)
			if _, err := client.ExecContext(t.Context(), query); err != nil {
				t.Fatal(err)
			}
		}
		if err := client.CheckCounters(t.Context()); !errors.Is(err, entcounter.ErrNotBuilt) {
			t.Errorf("before: %v, want %v", err, entcounter.ErrNotBuilt)
		}
		cmd, out := cms(t, db, "-entries", "20", "-media", "0", "-users", "1", "-operations", "0")
		if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "10,050") || !strings.Contains(out.String(), "every number is right") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// Each operation by itself leaves the counters as a recount has them, and so does
// the whole of them at once, which is looked at meanwhile.
func TestOperations(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		a := newApp(t, db)
		if err := a.fill(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustBeExact(t, a, "filling")
		e := &editor{app: a}
		order := []operation{softDelete, softDelete, addTerm}
		for op := range operations {
			order = append(order, op)
		}
		for _, op := range order {
			done := 0
			for try := 0; done == 0; try++ {
				n, err := e.do(t.Context(), op)
				if err != nil && !errors.Is(err, errNothing) {
					t.Fatalf("%s: %v", op, err)
				}
				if done = n; try == 1000 {
					t.Fatalf("%s: nothing to do", op)
				}
			}
			mustBeExact(t, a, op.String())
		}

		a.operations = 300
		editing := make(chan error, 1)
		go func() { editing <- a.edit(t.Context()) }()
		for looked := 1; ; looked++ {
			select {
			case err := <-editing:
				if err != nil {
					t.Fatal(err)
				}
				mustBeExact(t, a, "editing")
				t.Logf("looked %d times meanwhile", looked)
				return
			default:
			}
			if r := compare(t, a); r.wrongs > 0 {
				t.Fatalf("while editing: %+v", r.wrong)
			}
		}
	})
}

// The sweep publishes what is due and nothing else.
func TestSweep(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		a := newApp(t, db)
		a.entries, a.media, a.users = 0, 0, 0
		if err := a.fill(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := a.site.collections[0]
		past, future := now().Add(-time.Hour), now().Add(time.Hour)
		for i := range 7 {
			create := a.client.Entry.Create().SetCollectionID(c.ID).SetTitle("scheduled").AddTermIDs(a.site.terms[0][0])
			switch {
			case i < 3:
				create.SetScheduledAt(past)
			case i < 5:
				create.SetScheduledAt(future)
			case i == 5:
				create.SetScheduledAt(past).SetDeletedAt(past)
			}
			create.SaveX(t.Context())
		}
		look := func(want entrycounters.Measures, visible int64) {
			t.Helper()
			n, err := a.client.EntryCounters.Read(t.Context(), entrycounters.Key{CollectionID: c.ID})
			if err != nil {
				t.Fatal(err)
			}
			if got := (entrycounters.Measures{Total: n.Total, Published: n.Published, Draft: n.Draft, Scheduled: n.Scheduled}); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			key := termcounters.Key{TaxonomyID: a.site.taxonomies[0].ID, TermID: a.site.terms[0][0]}
			if term, err := a.client.TermCounters.Read(t.Context(), key); err != nil || term.Total != want.Total || term.Visible != visible {
				t.Errorf("%+v, %v, want %d visible", term, err, visible)
			}
		}
		look(entrycounters.Measures{Total: 6, Draft: 6, Scheduled: 5}, 0)
		if err := a.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		look(entrycounters.Measures{Total: 6, Published: 3, Draft: 3, Scheduled: 2}, 3)
		a.client.Entry.Update().Where(entry.DeletedAtNotNil()).ClearDeletedAt().ExecX(t.Context())
		look(entrycounters.Measures{Total: 7, Published: 3, Draft: 4, Scheduled: 3}, 3)
		mustBeExact(t, a, "sweeping")
	})
}

// The database says that the counters are read instead of the tables.
func TestRowsRead(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		a := newApp(t, db)
		if err := a.fill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := a.foldAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := compare(t, a)
		if r.wrongs > 0 || r.pending() > 0 {
			t.Fatalf("%d pending, wrong: %+v", r.pending(), r.wrong)
		}
		pairs := int64(0)
		for _, l := range r.editor {
			pairs += l.stored.total
		}
		scans := []int64{int64(a.entries + a.media + a.users), pairs}
		if db.Kind == testdb.MySQL { // which does not account for what InnoDB counts by itself
			scans[0] = int64(a.entries)
		}
		for i, v := range r.views {
			t.Logf("%s: %+v by scanning, %+v from counters", v.name, v.byScanning, v.byCounters)
			// SQLite counts steps from row to row, one fewer than rows in each scan.
			if v.byScanning.Rows < scans[i]-3 {
				t.Errorf("%s: %d rows read by scanning, which has to read %d", v.name, v.byScanning.Rows, scans[i])
			}
			places := int64(len(v.stored))
			if n := v.byCounters.Rows; n < places-2 || n > 7*places+10 { // MySQL and MariaDB also read temporary tables
				t.Errorf("%s: %d rows read from counters for %d places", v.name, n, places)
			}
		}
	})
}

// The program's own comparison sees rows that nothing has counted.
func TestWrong(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		args := []string{"-entries", "40", "-media", "10", "-users", "5", "-operations", "0"}
		cmd, out := cms(t, db, args...)
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		a := newApp(t, db)
		if _, err := a.client.ExecContext(t.Context(), "UPDATE entries SET status = 'draft' WHERE status = 'published'"); err != nil {
			t.Fatal(err)
		}
		if _, err := a.client.ExecContext(t.Context(), "INSERT INTO users (email) VALUES ('uncounted')"); err != nil {
			t.Fatal(err)
		}
		cmd, out = cms(t, db, args...)
		err := cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(out.String(), "WRONG") ||
			!strings.Contains(out.String(), "user 0") || !strings.Contains(out.String(), "collection ") || !strings.Contains(out.String(), "term ") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// A run that is interrupted leaves exact counters, and says so.
func TestInterrupt(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		a := newApp(t, db)
		cmd, out := cms(t, db, "-entries", "100", "-media", "100", "-operations", "1000000")
		for start := time.Now(); time.Since(start) < 20*time.Second; time.Sleep(10 * time.Millisecond) {
			total, err := a.client.EntryCounters.Total(t.Context(), entrycounters.Scope{})
			if err == nil && total.Total > 90 && total.Total != 100 {
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

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-h"}, exitOK, "number of concurrent editors"},
		{[]string{"more"}, exitUsage, `unexpected argument "more"`},
		{[]string{"-entries", "-1"}, exitUsage, "cannot be negative"},
		{[]string{"-workers", "0"}, exitUsage, "-workers is not between 1 and 256"},
		{[]string{"-dsn", "nonsense"}, exitUsage, "cannot tell what database it means"},
		{[]string{"-dsn", "sqlite:/nowhere/at/all/cms.db"}, exitFailed, "connecting to sqlite:/nowhere/at/all/cms.db"},
	} {
		var out bytes.Buffer
		if code := run(t.Context(), test.args, &out, &out); code != test.code || !strings.Contains(out.String(), test.want) {
			t.Errorf("%v: exit code %d, want %d and %q\n%s", test.args, code, test.code, test.want, &out)
		}
	}
}
