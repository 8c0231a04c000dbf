// Package replay runs random steps that can be run again, all or some of them: a
// step depends on the seed and its own number alone.
package replay

import (
	"slices"
	"testing"
	"time"
)

// Run runs steps 0 to n−1 of a seed by run, which tells which of the steps it is
// given failed. A failing run is replayed with fewer and fewer steps, and those
// that matter are named.
func Run(t *testing.T, seed uint64, n int, run func(steps []int) (int, error), name func(step int) string) {
	t.Helper()
	steps := make([]int, n)
	for i := range steps {
		steps[i] = i
	}
	failed, err := run(steps)
	if err == nil {
		return
	}
	t.Errorf("step %d: %v\n\nreplay: go test -run '%s$' -seed %d -steps %d", failed, err, t.Name(), seed, n)
	shrunk, err := shrink(steps[:failed+1], time.Minute, func(steps []int) error {
		_, err := run(steps)
		return err
	})
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
func shrink(steps []int, limit time.Duration, fails func([]int) error) ([]int, error) {
	last := fails(steps)
	if last == nil {
		return nil, nil
	}
	deadline := time.Now().Add(limit)
	for size := max(len(steps)/2, 1); ; size = max(size/2, 1) {
		removed := false
		for start := 0; start < len(steps) && time.Now().Before(deadline); {
			fewer := slices.Concat(steps[:start], steps[min(start+size, len(steps)):])
			if err := fails(fewer); err != nil {
				steps, last, removed = fewer, err, true
				continue
			}
			start += size
		}
		if size == 1 && !removed || time.Now().After(deadline) {
			return steps, last
		}
	}
}
