package sequencetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/entcounter/entcounter/internal/conformance/tap"
	"github.com/entcounter/entcounter/internal/sequencetest/ent"
	"github.com/entcounter/entcounter/internal/sequencetest/ent/task"
	"github.com/entcounter/entcounter/internal/testdb"
)

// creates that a test breaks at each of their statements. They work on two projects,
// the first of which has a task "taken", and the second none.
var creates = []struct {
	name string
	run  func(ctx context.Context, c *ent.Client, p []int) error
}{
	{"create", func(ctx context.Context, c *ent.Client, p []int) error {
		_, err := create(ctx, c, p[0], "new")
		return err
	}},
	{"first use", func(ctx context.Context, c *ent.Client, p []int) error {
		_, err := create(ctx, c, p[1], "new")
		return err
	}},
	{"bulk", func(ctx context.Context, c *ent.Client, p []int) error {
		return c.Task.MapCreateBulk(make([]struct{}, 5), func(c *ent.TaskCreate, i int) {
			c.SetProjectID(p[i%2]).SetTitle(fmt.Sprint("new", i))
		}).Exec(ctx)
	}},
	{"upsert", func(ctx context.Context, c *ent.Client, p []int) error {
		return c.Task.MapCreateBulk(make([]struct{}, 3), func(c *ent.TaskCreate, i int) {
			c.SetProjectID(p[0]).SetTitle([]string{"new", "taken", "newer"}[i]).SetDone(true)
		}).OnConflictColumns(task.FieldProjectID, task.FieldTitle).UpdateNewValues().Exec(ctx)
	}},
	{"upsert of one that exists", func(ctx context.Context, c *ent.Client, p []int) error {
		return c.Task.Create().SetProjectID(p[0]).SetTitle("taken").SetDone(true).
			OnConflictColumns(task.FieldProjectID, task.FieldTitle).UpdateNewValues().Exec(ctx)
	}},
	{"upsert of a new one", func(ctx context.Context, c *ent.Client, p []int) error {
		return c.Task.Create().SetProjectID(p[0]).SetTitle("new").
			OnConflictColumns(task.FieldProjectID, task.FieldTitle).UpdateNewValues().Exec(ctx)
	}},
	{"create after a failed one", func(ctx context.Context, c *ent.Client, p []int) error {
		if _, err := create(ctx, c, p[0], "taken"); !ent.IsConstraintError(err) {
			return fmt.Errorf("of the first create: %w", err)
		}
		_, err := create(ctx, c, p[0], "new")
		return err
	}},
}

var errFault = errors.New("injected fault")

// faults are the ways in which a statement is broken.
func faults(cancel context.CancelFunc) map[string]tap.Fault {
	return map[string]tap.Fault{
		"refused":         tap.Refuse(errFault),
		"lost before":     tap.CutBefore,
		"lost after":      tap.CutAfter,
		"context is over": tap.Call(cancel),
		"answer lost":     tap.Run(errFault),
	}
}

// TestFaults breaks each statement of each create in each way, in a transaction of
// the create's own and in one of the user's, who then commits whatever has happened.
// The numbers are consecutive afterwards, and an error means that no row was made.
func TestFaults(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		for _, c := range creates {
			for _, inTx := range []bool{false, true} {
				name := c.name
				if inTx {
					name += " in a transaction"
				}
				if c.name == "create after a failed one" && inTx && w.db.Kind == testdb.Postgres {
					continue // the error has aborted the transaction
				}
				t.Run(name, func(t *testing.T) {
					w := &world{TB: t, db: w.db, tap: w.tap, client: w.client, oracle: w.oracle}
					for at := 0; ; at++ {
						reached := false
						for kind := range faults(nil) {
							reached = breakAt(t, w, kind, at, inTx, c.run) || reached
						}
						if !reached {
							if at < 4 {
								t.Errorf("only %d statements", at)
							}
							return
						}
					}
				})
			}
		}
	})
}

// breakAt reports whether there was a statement to break.
func breakAt(t *testing.T, w *world, kind string, at int, inTx bool, run func(context.Context, *ent.Client, []int) error) bool {
	t.Helper()
	p := w.projects(2)
	w.mustCreate(w.client, p[0], "taken", 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.tap.Reset()
	broken := ""
	w.tap.Inject(func(s tap.Statement) tap.Fault {
		if s.Index != at {
			return tap.Pass
		}
		broken = s.String()
		if kind == "answer lost" && !strings.Contains(s.SQL, "number") && s.Kind != tap.Commit {
			return tap.Pass // only what numbers and what gets a number is proof against that
		}
		return faults(cancel)[kind]
	})
	var err, createErr error
	if inTx {
		err = func() error {
			tx, err := w.client.Tx(context.Background())
			if err != nil {
				return err
			}
			createErr = run(ctx, tx.Client(), p)
			return tx.Commit()
		}()
	} else {
		err = run(ctx, w.client, p)
	}
	w.tap.Inject(nil)
	issued := strings.Join(w.tap.Texts(), "\n\t")
	if broken == "" {
		w.no(err, createErr)
		return false
	}
	what := fmt.Sprintf("%s: %s\n\t%s\nerror: %v, of the create in it: %v", kind, broken, issued, err, createErr)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(what)
		}
	})
	// The server may take a moment to notice that a connection is gone, whose locks
	// the next create waits for.
	deadline := time.Now().Add(20 * time.Second)
	var next []int
	for _, project := range p {
		n, err := create(context.Background(), w.client, project, "after")
		for err != nil && time.Now().Before(deadline) {
			time.Sleep(20 * time.Millisecond)
			n, err = create(context.Background(), w.client, project, "after")
		}
		if err != nil {
			t.Fatalf("the next create: %v\n%s", err, what)
		}
		next = append(next, n)
	}
	uncertain := strings.HasPrefix(broken, "COMMIT")
	rows := w.ints(fmt.Sprintf("SELECT COUNT(*) FROM `tasks` WHERE `project_id` IN (%d, %d)", p[0], p[1]))[0] - 2
	done := w.ints(fmt.Sprintf("SELECT COUNT(*) FROM `tasks` WHERE `project_id` = %d AND `title` = 'taken' AND `done`", p[0]))[0]
	switch {
	case uncertain:
	case err != nil && (rows > 1 || done > 0):
		t.Errorf("%d rows, %d of them changed, in spite of an error\n%s", rows, done, what)
	case err == nil && createErr == nil && rows < 2 && done == 0:
		t.Errorf("nothing was done without an error\n%s", what)
	}
	for i, project := range p {
		if n := len(w.numbers(project)); next[i] != n {
			t.Errorf("the next number is %d, after %d rows\n%s", next[i], n-1, what)
		}
	}
	w.consecutive(p...)
	return true
}
