package sequencetest

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/entcounter/entcounter/internal/sequencetest/ent"
	"github.com/entcounter/entcounter/internal/sequencetest/ent/task"
	"github.com/entcounter/entcounter/internal/sequencetest/ent/taskcounters"
	"github.com/entcounter/entcounter/internal/testdb"
)

var stepsFlag = flag.Int("steps", 400, "steps of the random test on each database")

// state is what a database should hold: the numbers of tasks by project and title,
// and the next number of each project.
type state struct {
	tasks map[string]int // by project and title
	next  map[int]int
}

func (s state) clone() state { return state{maps.Clone(s.tasks), maps.Clone(s.next)} }

func taskKey(project int, title string) string { return fmt.Sprint(project, " ", title) }

// model draws random writes and knows what each must do.
type model struct {
	*world
	rnd      *rand.Rand
	projects []int
	state    state
	fresh    int // titles given out
}

// title is one that is not there, or, at times, one that may be.
func (m *model) title() string {
	if m.rnd.IntN(3) == 0 {
		return fmt.Sprint("shared", m.rnd.IntN(6))
	}
	m.fresh++
	return fmt.Sprint("t", m.fresh)
}

func (m *model) project() int { return m.projects[m.rnd.IntN(len(m.projects))] }

// insert takes a task into the state.
func (m *model) insert(project int, title string) int {
	n := m.state.next[project]
	m.state.next[project]++
	m.state.tasks[taskKey(project, title)] = n
	return n
}

// step does one random write by the client, which is that of a transaction if inTx.
func (m *model) step(ctx context.Context, c *ent.Client, tx *ent.Tx) {
	m.Helper()
	kind := m.rnd.IntN(10)
	size := 1
	if kind >= 4 {
		size = 1 + m.rnd.IntN(7)
	}
	type row struct {
		project int
		title   string
	}
	rows := make([]row, size)
	exists, repeated := false, false
	for i := range rows {
		rows[i] = row{m.project(), m.title()}
		_, there := m.state.tasks[taskKey(rows[i].project, rows[i].title)]
		exists = exists || there
		repeated = repeated || slices.Contains(rows[:i], rows[i])
	}
	builders := make([]*ent.TaskCreate, size)
	for i, r := range rows {
		builders[i] = c.Task.Create().SetProjectID(r.project).SetTitle(r.title).SetDone(m.rnd.IntN(2) == 0)
	}
	switch {
	case kind == 0:
		r := rows[0]
		if _, err := c.Task.Delete().Where(task.ProjectID(r.project), task.Title(r.title)).Exec(ctx); err != nil {
			m.Fatal(err)
		}
		delete(m.state.tasks, taskKey(r.project, r.title))
	case kind < 7: // create, one or several
		savepoint := (exists || repeated) && tx != nil && m.db.Kind == testdb.Postgres
		if savepoint {
			m.run(tx, "SAVEPOINT failing")
		}
		var (
			tasks []*ent.Task
			err   error
		)
		if kind < 4 {
			var one *ent.Task
			one, err = builders[0].Save(ctx)
			tasks = []*ent.Task{one}
		} else {
			tasks, err = c.Task.CreateBulk(builders...).Save(ctx)
		}
		if savepoint {
			m.run(tx, "ROLLBACK TO SAVEPOINT failing")
		}
		if exists || repeated {
			if !ent.IsConstraintError(err) {
				m.Fatalf("create of %v: error %v", rows, err)
			}
			return
		}
		if err != nil {
			m.Fatal(err)
		}
		for i, r := range rows {
			if n := m.insert(r.project, r.title); tasks[i].Number != n {
				m.Fatalf("task %v has the number %d, want %d", r, tasks[i].Number, n)
			}
		}
	default: // upsert
		if repeated && m.db.Kind == testdb.Postgres {
			return // meets a row twice, which it refuses
		}
		err := c.Task.CreateBulk(builders...).OnConflictColumns(task.FieldProjectID, task.FieldTitle).UpdateNewValues().Exec(ctx)
		if err != nil {
			m.Fatal(err)
		}
		for _, r := range rows {
			if _, there := m.state.tasks[taskKey(r.project, r.title)]; !there {
				m.insert(r.project, r.title)
			}
		}
	}
}

func (m *model) run(tx *ent.Tx, query string) {
	m.Helper()
	if _, err := tx.ExecContext(context.Background(), query); err != nil {
		m.Fatal(err)
	}
}

// transaction does some writes in a transaction, with savepoints, and commits or rolls
// back.
func (m *model) transaction(ctx context.Context) {
	m.Helper()
	before := m.state.clone()
	tx := m.begin()
	for range m.rnd.IntN(8) {
		if m.rnd.IntN(3) > 0 {
			m.step(ctx, tx.Client(), tx)
			continue
		}
		saved := m.state.clone()
		m.run(tx, "SAVEPOINT s")
		for range m.rnd.IntN(4) {
			m.step(ctx, tx.Client(), tx)
		}
		if m.rnd.IntN(2) == 0 {
			m.run(tx, "ROLLBACK TO SAVEPOINT s")
			m.state = saved
		}
		m.run(tx, "RELEASE SAVEPOINT s")
	}
	if m.rnd.IntN(3) == 0 {
		m.no(tx.Rollback())
		m.state = before
		return
	}
	m.no(tx.Commit())
}

// Random creates, upserts, failures, deletions, savepoints and rollbacks give exactly
// the numbers that they should.
func TestModel(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := context.Background()
		w := newWorld(t, db, nil)
		m := &model{world: w, rnd: random(t), projects: w.projects(3), state: state{make(map[string]int), make(map[int]int)}}
		for _, p := range m.projects {
			m.state.next[p] = 1
		}
		for step := range *stepsFlag {
			if m.rnd.IntN(4) == 0 {
				m.transaction(ctx)
			} else {
				m.step(ctx, w.client, nil)
			}
			if step%10 > 0 && step != *stepsFlag-1 {
				continue
			}
			stored := make(map[string]int)
			for _, task := range w.client.Task.Query().AllX(ctx) {
				stored[taskKey(task.ProjectID, task.Title)] = task.Number
			}
			if !maps.Equal(stored, m.state.tasks) {
				t.Fatalf("step %d: tasks are\n%v\nwant\n%v", step, stored, m.state.tasks)
			}
			w.counted(taskcounters.Scope{})
		}
		t.Logf("next numbers: %v", m.state.next)
	})
}
