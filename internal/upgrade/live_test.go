package upgrade

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	entsql "entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/testdb"
	v1 "github.com/entcounter/entcounter/internal/upgrade/v1/ent"
	v1migrate "github.com/entcounter/entcounter/internal/upgrade/v1/ent/migrate"
	v2 "github.com/entcounter/entcounter/internal/upgrade/v2/ent"
	"github.com/entcounter/entcounter/internal/upgrade/v2/ent/filecounters"
	v2migrate "github.com/entcounter/entcounter/internal/upgrade/v2/ent/migrate"
)

// envBuild makes the test binary be a program that builds the counter of v2: driver, dialect and DSN.
const envBuild = "ENTCOUNTER_UPGRADE_BUILD"

func TestMain(m *testing.M) {
	if args := strings.Split(os.Getenv(envBuild), "\n"); len(args) == 3 {
		if err := build(args[0], args[1], args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(testdb.Main(m))
}

// build builds the counter of v2 and prints a line for each scope.
func build(driver, dialectName, dsn string) error {
	pool, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	client := v2.NewClient(v2.Driver(entsql.OpenDB(dialectName, pool)))
	_, err = client.FileCounters.Build(context.Background(), entcounter.BuildOptions{
		ScopeRows: 2000,
		Progress:  func(p entcounter.BuildProgress) { fmt.Println(p.Done, "of", p.Scopes) },
	})
	return err
}

// buildAndKill builds in a process of its own, which is killed at some point in the first half.
func (w *world) buildAndKill() {
	w.Helper()
	self, err := os.Executable()
	no(w, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envBuild+"="+strings.Join([]string{w.db.Driver, w.db.Dialect, w.db.DSN}, "\n"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	no(w, err)
	no(w, cmd.Start())
	kill, last := -1, ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		last = lines.Text()
		var done, scopes int
		if _, err := fmt.Sscanf(last, "%d of %d", &done, &scopes); err != nil {
			w.Fatalf("%q: %v", last, err)
		}
		if kill < 0 {
			kill = 1 + rand.IntN(scopes/2)
		}
		if done == kill {
			time.Sleep(rand.N(20 * time.Millisecond))
			no(w, cmd.Process.Kill())
			break
		}
	}
	if err := cmd.Wait(); err == nil {
		w.Error("the build came to its end before it was killed")
	}
	w.Logf("killed after %s scopes", last)
}

// TestLiveUpgrade takes a table that is written to all the time from no counter to one that is exact.
func TestLiveUpgrade(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		w := newWorld(t, db, "v1", v1migrate.Tables)
		w.fill(*rowsFlag)
		writers, half := *writersFlag, *writersFlag/2
		oldClient := v1.NewClient(v1.Driver(w.driver()))
		oldest := w.start("v1", writers-half, *rowsFlag, writesV1(oldClient))
		old := w.start("v1", half, *rowsFlag, writesV1(oldClient))

		w.diff("add_counter", v2migrate.Tables)
		w.edit("", unbuilt("File"))
		w.apply()

		// The instances are replaced one after the other.
		client := v2.NewClient(v2.Driver(w.driver()))
		oldest.end()
		w.start("v2", half, *rowsFlag, writesV2(client))
		for range 3 {
			if _, err := client.FileCounters.Total(w.ctx, filecounters.Scope{}); !errors.Is(err, entcounter.ErrNotBuilt) {
				t.Fatalf("read before the build: %v", err)
			}
			no(t, pause(w.ctx, 50*time.Millisecond))
		}
		old.end()
		w.start("v2", writers-half, *rowsFlag, writesV2(client))
		w.work(client.Counters())

		file := client.Counters()[0]
		if w.drift(file) == 0 {
			t.Error("nothing differs before the build")
		}
		w.buildAndKill()
		if _, err := client.FileCounters.Total(w.ctx, filecounters.Scope{}); !errors.Is(err, entcounter.ErrNotBuilt) {
			t.Fatalf("read of what is half built: %v", err)
		}
		began := time.Now()
		built, err := client.FileCounters.Build(w.ctx, entcounter.BuildOptions{})
		no(t, err)
		t.Logf("the rest in %s: %+v", time.Since(began).Round(time.Millisecond), built)
		if !built.Resumed || built.Done != built.Scopes || built.Keys == 0 {
			t.Errorf("built: %+v", built)
		}
		for range 3 {
			if keys := w.drift(file); keys != 0 {
				t.Errorf("%d keys differ from a recount after the build", keys)
			}
			total, err := client.FileCounters.Total(w.ctx, filecounters.Scope{})
			no(t, err)
			if total.Count < int64(*rowsFlag)/2 {
				t.Errorf("%d files", total.Count)
			}
			no(t, pause(w.ctx, 50*time.Millisecond))
		}
	})
}

// TestOldWriter has an instance of the old program write after the build. Its writes are not counted until the next
// one; an interrupted build that they may have come into is to be restarted.
func TestOldWriter(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		w := newWorld(t, db, "v1", v1migrate.Tables)
		w.fill(500)
		w.diff("add_counter", v2migrate.Tables)
		w.apply()
		client := v2.NewClient(v2.Driver(w.driver()))
		file := client.Counters()[0]
		_, err := client.FileCounters.Build(w.ctx, entcounter.BuildOptions{ScopeRows: 50})
		no(t, err)
		w.start("v2", 2, 500, writesV2(client))
		old := w.start("v1", 2, 500, writesV1(v1.NewClient(v1.Driver(w.driver()))))
		for deadline := time.Now().Add(20 * time.Second); w.drift(file) == 0; {
			if time.Now().After(deadline) {
				t.Fatal("nothing differs beside an old writer")
			}
		}
		ctx, interrupt := context.WithCancel(w.ctx)
		_, err = client.FileCounters.Build(ctx, entcounter.BuildOptions{ScopeRows: 50, Progress: func(p entcounter.BuildProgress) {
			if p.Done == p.Scopes-1 {
				interrupt()
			}
		}})
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		for made := old.made.Load(); old.made.Load() < made+20; {
			no(t, pause(w.ctx, time.Millisecond))
		}
		old.end()
		built, err := client.FileCounters.Build(w.ctx, entcounter.BuildOptions{Restart: true})
		no(t, err)
		if built.Keys == 0 {
			t.Error("the build has corrected nothing")
		}
		for range 3 {
			if keys := w.drift(file); keys != 0 {
				t.Errorf("%d keys differ from a recount", keys)
			}
		}
	})
}
