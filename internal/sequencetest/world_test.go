package sequencetest

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/conformance/tap"
	"github.com/entcounter/entcounter/internal/sequencetest/ent"
	"github.com/entcounter/entcounter/internal/sequencetest/ent/task"
	"github.com/entcounter/entcounter/internal/sequencetest/ent/taskcounters"
	"github.com/entcounter/entcounter/internal/testdb"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random tests (default: a new one, which is printed)")

func random(t *testing.T) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-seed %d", seed)
	return rand.New(rand.NewPCG(seed, seed))
}

// world is a database with the schema in it and a watched client.
type world struct {
	testing.TB
	db     *testdb.Database
	tap    *tap.Tap
	client *ent.Client
	oracle *sql.DB // connections that nothing watches or breaks
}

func newWorld(tb testing.TB, db *testdb.Database, params map[string]string) *world {
	tb.Helper()
	w := &world{TB: tb, db: db, oracle: db.DB(tb)}
	var pool *sql.DB
	pool, w.tap = tap.Open(tb, db, params)
	w.client = ent.NewClient(ent.Driver(entsql.OpenDB(db.Dialect, pool)), ent.Log(func(...any) {}))
	if err := w.client.Schema.Create(context.Background()); err != nil {
		tb.Fatal(err)
	}
	w.tap.Reset()
	return w
}

// onEach runs fn on every database.
func onEach(t *testing.T, fn func(t *testing.T, w *world)) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) { fn(t, newWorld(t, db, nil)) })
}

// writerFirst makes transactions of SQLite take the write lock when they begin, as a
// program does that has several writers.
func writerFirst(db *testdb.Database) map[string]string {
	if db.Kind != testdb.SQLite {
		return nil
	}
	return map[string]string{"_txlock": "immediate"}
}

func (w *world) projects(n int) []int {
	w.Helper()
	ids := make([]int, n)
	for i := range ids {
		p, err := w.client.Project.Create().SetName(fmt.Sprint("p", i)).Save(context.Background())
		if err != nil {
			w.Fatal(err)
		}
		ids[i] = p.ID
	}
	return ids
}

// create makes a task and returns its number.
func create(ctx context.Context, c *ent.Client, project int, title string) (int, error) {
	t, err := c.Task.Create().SetProjectID(project).SetTitle(title).Save(ctx)
	if err != nil {
		return 0, err
	}
	return t.Number, nil
}

// mustCreate makes a task that must get the number.
func (w *world) mustCreate(c *ent.Client, project int, title string, number int) {
	w.Helper()
	switch got, err := create(context.Background(), c, project, title); {
	case err != nil:
		w.Fatal(err)
	case got != number:
		w.Errorf("task %q has the number %d, want %d", title, got, number)
	}
}

// quoted replaces the backquotes of a statement by the dialect's quotes.
func (w *world) quoted(query string) string {
	if w.db.Dialect == dialect.Postgres {
		return strings.ReplaceAll(query, "`", `"`)
	}
	return query
}

func (w *world) exec(query string) {
	w.Helper()
	if _, err := w.oracle.Exec(w.quoted(query)); err != nil {
		w.Fatal(err)
	}
}

// numbers returns the numbers of a project's tasks as they are stored, in order.
func (w *world) numbers(project int) []int {
	w.Helper()
	return w.ints(fmt.Sprintf("SELECT `number` FROM `tasks` WHERE `project_id` = %d ORDER BY `number`", project))
}

func (w *world) ints(query string) []int {
	w.Helper()
	rows, err := w.oracle.Query(w.quoted(query))
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	numbers := []int{}
	for rows.Next() {
		var n int
		if err := rows.Scan(&n); err != nil {
			w.Fatal(err) // NULL too
		}
		numbers = append(numbers, n)
	}
	if err := rows.Err(); err != nil {
		w.Fatal(err)
	}
	return numbers
}

// consecutive fails the test unless the numbers of each project are 1, 2, … n, the
// next one drawn would be n+1, and the counter is exact.
func (w *world) consecutive(projects ...int) {
	w.Helper()
	for _, p := range projects {
		numbers := w.numbers(p)
		for i, n := range numbers {
			if n != i+1 {
				w.Fatalf("project %d has the numbers %s", p, brief(numbers))
			}
		}
		next := w.ints(fmt.Sprintf("SELECT `next_number` FROM `task_number_sequence` WHERE `project_id` = %d", p))
		if len(next) == 1 && next[0] != len(numbers)+1 && (next[0] != 0 || len(numbers) > 0) {
			w.Fatalf("the next number of project %d is %d, after %s", p, next[0], brief(numbers))
		}
		w.counted(taskcounters.Scope{ProjectID: &p})
	}
}

// counted fails the test unless the counter is exact within a scope.
func (w *world) counted(scope taskcounters.Scope) {
	w.Helper()
	for drift, err := range w.client.TaskCounters.Verify(context.Background(), scope) {
		if err != nil {
			w.Fatal(err)
		}
		w.Errorf("the counter differs: %+v", drift)
	}
}

func brief(numbers []int) string {
	if len(numbers) <= 40 {
		return fmt.Sprint(numbers)
	}
	gap := slices.IndexFunc(numbers, func(n int) bool { return n != numbers[0]+slices.Index(numbers, n) })
	return fmt.Sprintf("%d … %d (%d of them, wrong from place %d)", numbers[0], numbers[len(numbers)-1], len(numbers), gap)
}

// begin begins a transaction that is rolled back at the end of the test at the
// latest.
func (w *world) begin() *ent.Tx {
	w.Helper()
	tx, err := w.client.Tx(context.Background())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (w *world) no(errs ...error) {
	w.Helper()
	for _, err := range errs {
		if err != nil {
			w.Fatal(err)
		}
	}
}

// retry runs a transaction again while it loses against others, and returns how
// often it lost.
func retry(transaction func() error) (lost int, err error) {
	for {
		if err = transaction(); err == nil || !entcounter.Retryable(err) || lost == 200 {
			return lost, err
		}
		lost++
		time.Sleep(rand.N(time.Duration(min(lost, 20)) * time.Millisecond))
	}
}

func ofProject(c *ent.Client, project int) *ent.TaskQuery {
	return c.Task.Query().Where(task.ProjectID(project)).Order(task.ByNumber())
}
