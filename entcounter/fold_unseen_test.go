//go:build unix

package entcounter

import (
	"math"
	"syscall"
	"testing"
	"time"

	"entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/internal/testdb"
)

// In MariaDB a claim can return a row that a plain read right after it does not
// show. The fold leaves it in the journal; one that deletes it loses it.
func TestFoldUnseenRowsMariaDB(t *testing.T) {
	run := func(t *testing.T, enough int, opts ...FoldOption) (l *load, unseen int) {
		t.Helper()
		limit := time.Minute
		if *stress > 0 {
			limit, enough = *stress, math.MaxInt
		}
		l = startLoad(t, testdb.New(t, testdb.MariaDB))
		time.Sleep(100 * time.Millisecond) // for the writers to have connections
		if !l.yield(t) {
			t.Log("the server's threads keep their priority: it is a matter of luck what is seen here")
		}
		var folds, rows int
		opts = append(opts, func(c *foldConfig) {
			c.observe = func(claimed, summed int) { unseen += claimed - summed }
		})
		started := time.Now()
		for time.Since(started) < limit && unseen < enough {
			folded, err := l.folds.Fold(t.Context(), opts...)
			if err != nil {
				t.Fatal(err)
			}
			folds++
			rows += folded.Rows
		}
		t.Logf("%d folds of %d rows in %v; a plain read did not show %d", folds, rows, time.Since(started).Round(time.Second), unseen)
		l.stop()
		return l, unseen
	}
	t.Run("left", func(t *testing.T) {
		l, unseen := run(t, 3)
		if off := l.off(t); off != 0 {
			t.Errorf("the counter is off by %d", off)
		}
		if unseen == 0 {
			t.Error("the plain reads showed all: nothing was put to the test")
		}
	})
	t.Run("deleted", func(t *testing.T) {
		l, unseen := run(t, 1, func(c *foldConfig) { c.deleteClaim = true })
		off := l.off(t)
		t.Logf("the counter is off by %d", off)
		if unseen > 0 && off == 0 {
			t.Errorf("%d rows were deleted unsummed, and the counter is right", unseen)
		}
		if unseen == 0 {
			t.Errorf("the fault did not show")
		}
	})
}

// yield gives the server's threads of the writers a low priority, where the
// server runs on this machine and root runs the test. A commit is then often
// interrupted half-way in favour of a fold. It tells whether it could.
func (l *load) yield(t *testing.T) bool {
	if syscall.Geteuid() != 0 {
		return false
	}
	rows, err := l.folds.drv.(*sql.Driver).DB().QueryContext(t.Context(),
		"SELECT TID FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND ID <> CONNECTION_ID()")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var tid int
		if err := rows.Scan(&tid); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Setpriority(syscall.PRIO_PROCESS, tid, 16); err != nil {
			return false // another machine's
		}
		// The server keeps the thread for another connection.
		t.Cleanup(func() { _ = syscall.Setpriority(syscall.PRIO_PROCESS, tid, 0) })
	}
	return rows.Err() == nil
}
