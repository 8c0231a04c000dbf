// Package replay runs random steps that can be run again, all or some of them: a
// step depends on the seed and its own number alone.
package replay

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/entcounter/entcounter/internal/testdb"
)

// Command is the command that runs a test of a package below internal again, with
// its flags seed and steps.
func Command(t *testing.T, kind testdb.Kind, seed uint64, steps int) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	command := fmt.Sprintf("go test ./internal/%s -run '%s$' -seed %d -steps %d", filepath.Base(dir), t.Name(), seed, steps)
	if kind != testdb.SQLite {
		command = fmt.Sprintf("go run ./internal/testdb/with -%s -- %s", kind, command)
	}
	return command
}

// Run runs steps 0 to n−1 by run, which tells which of the steps it is given it found
// to have failed: the very one if it looks closely, or else perhaps a later one. A
// failing run is replayed closely, with fewer and fewer steps, and those that matter
// are named.
func Run(t *testing.T, command string, n int, run func(steps []int, closely bool) (int, error), name func(step int) string) {
	t.Helper()
	steps := make([]int, n)
	for i := range steps {
		steps[i] = i
	}
	failed, err := run(steps, false)
	if err == nil {
		return
	}
	t.Errorf("step %d: %v\n\nreplay: %s", failed, err, command)
	shrunk, err := shrink(steps[:failed+1], time.Minute, func(steps []int) (int, error) { return run(steps, true) })
	if err == nil {
		t.Log("it does not fail again when it is replayed: a race, or left to chance by the server")
		return
	}
	for _, i := range shrunk {
		t.Log(name(i))
	}
	t.Logf("fails with these steps alone: %v", err)
}

// shrink removes steps from a failing run as long as it fails.
func shrink(steps []int, limit time.Duration, run func([]int) (int, error)) ([]int, error) {
	var last error
	fails := func(some []int) bool {
		failed, err := run(some)
		if err == nil {
			return false
		}
		steps, last = some[:slices.Index(some, failed)+1], err
		return true
	}
	if !fails(steps) {
		return nil, nil
	}
	deadline := time.Now().Add(limit)
	for size := max(len(steps)/2, 1); ; size = max(size/2, 1) {
		removed := false
		for start := 0; start < len(steps) && time.Now().Before(deadline); {
			if fails(slices.Concat(steps[:start], steps[min(start+size, len(steps)):])) {
				removed = true
			} else {
				start += size
			}
		}
		if size == 1 && !removed || time.Now().After(deadline) {
			return steps, last
		}
	}
}
