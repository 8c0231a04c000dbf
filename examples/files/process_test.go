//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/ent/filecounters"
	"github.com/entcounter/entcounter/internal/testdb"
)

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "files")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "files")
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

// process is the program as a user runs it.
func process(t *testing.T, args ...string) (*exec.Cmd, *strings.Builder) {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, &out
}

// A process that is interrupted, killed, or not alone leaves exact counts.
func TestProcess(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		rnd := random(t)
		a := newApp(t, db, tree(t))
		args := []string{"-dsn", db.DSN, "-dir", a.root, "-batch", "5"}
		cmd, out := process(t, args...)
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		mustAgree(t, a)
		total, err := a.client.FileCounters.Total(t.Context(), filecounters.Scope{})
		if err != nil {
			t.Fatal(err)
		}

		ends := make(map[string]int)
		for i := range 9 {
			a.client.Dataset.Delete().ExecX(t.Context())
			cmd, out := process(t, args...)
			waitForWork(t, a, rnd.Int64N(2*total.Count))
			switch i % 3 {
			case 0:
				_ = cmd.Process.Signal(os.Interrupt)
			case 1:
				_ = cmd.Process.Kill()
			case 2: // two at once
				other, otherOut := process(t, args...)
				if err := other.Wait(); err != nil {
					t.Errorf("beside another: %v\n%s", err, otherOut)
				}
			}
			err := cmd.Wait()
			status := cmd.ProcessState.Sys().(syscall.WaitStatus)
			switch {
			case err == nil:
				ends["finished"]++
			case status.Signaled() && i%3 == 1:
				ends["killed"]++
			case status.Signaled() && i%3 == 0: // before it listens to signals
				ends["interrupted early"]++
			case status.ExitStatus() == exitInterrupted && i%3 == 0 && strings.Contains(out.String(), "before anything was done"):
				ends["interrupted early"]++
			case status.ExitStatus() == exitInterrupted && i%3 == 0:
				ends["interrupted"]++
				if !strings.Contains(out.String(), "every count and every sum is right") {
					t.Errorf("an interrupted process does not say that it is exact:\n%s", out)
				}
			default:
				t.Errorf("%v\n%s", err, out)
			}
			mustBeExact(t, a)
		}
		t.Log(ends)
		if cmd, out := process(t, args...); cmd.Wait() != nil {
			t.Errorf("after all: %s", out)
		}
		if status := mustAgree(t, a); len(status) != 1 {
			t.Errorf("status: %v", status)
		}
	})
}

// waitForWork waits until a run has created and copied some files, or for some seconds.
func waitForWork(t *testing.T, a *app, steps int64) {
	t.Helper()
	for range 5000 {
		rows, err := a.client.FileCounters.Query().All(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done := int64(0)
		for _, row := range rows {
			done += row.Count
			if row.Status == file.StatusCopied {
				done += row.Count
			}
		}
		if done >= steps {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
