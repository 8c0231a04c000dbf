package sequencetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"entgo.io/ent/dialect"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/sequencetest/ent"
	"github.com/entcounter/entcounter/internal/sequencetest/ent/task"
	"github.com/entcounter/entcounter/internal/sequencetest/ent/taskcounters"
	"github.com/entcounter/entcounter/internal/testdb"
)

const clients = 16

// inParallel runs do by that many clients, and fails the test on their errors.
func (w *world) inParallel(n int, do func(client int) error) {
	w.Helper()
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	w.no(errors.Join(errs...))
}

var levels = []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

// Clients create in a few scopes, alone, in batches, by upsert and in transactions
// of several creates, of which many are rolled back or fail.
func TestConcurrent(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		w := newWorld(t, db, writerFirst(db))
		rnd := random(t)
		p := w.projects(3)
		seeds := make([]uint64, clients)
		for i := range seeds {
			seeds[i] = rnd.Uint64()
		}
		var lost, created, undone atomic.Int64
		w.inParallel(clients, func(client int) error {
			ctx := context.Background()
			rnd := rand.New(rand.NewPCG(seeds[client], 0))
			for i := range 60 {
				title := func(j int) string { return fmt.Sprintf("%d-%d-%d", client, i, j) }
				do := rnd.IntN(10)
				project, other := p[rnd.IntN(len(p))], p[rnd.IntN(len(p))]
				n, keep := 1+rnd.IntN(5), rnd.IntN(3) > 0
				var level *sql.TxOptions
				if db.Kind != testdb.SQLite {
					level = &sql.TxOptions{Isolation: levels[rnd.IntN(len(levels))]}
				}
				again, err := retry(func() error {
					switch {
					case do < 3:
						_, err := create(ctx, w.client, project, title(0))
						return err
					case do < 4:
						return w.client.Task.MapCreateBulk(make([]struct{}, n), func(c *ent.TaskCreate, j int) {
							c.SetProjectID([]int{project, other}[j%2]).SetTitle(title(j))
						}).Exec(ctx)
					case do < 5:
						return w.client.Task.MapCreateBulk(make([]struct{}, n), func(c *ent.TaskCreate, j int) {
							c.SetProjectID(project).SetTitle(fmt.Sprint("shared", rnd.IntN(40), "-", j))
						}).OnConflictColumns(task.FieldProjectID, task.FieldTitle).UpdateNewValues().Exec(ctx)
					case do < 6:
						// Somebody else may be there first.
						_, err := create(ctx, w.client, project, fmt.Sprint("taken", rnd.IntN(20)))
						if ent.IsConstraintError(err) && !entcounter.Retryable(err) {
							undone.Add(1)
							return nil
						}
						return err
					}
					tx, err := w.client.BeginTx(ctx, level)
					if err != nil {
						return err
					}
					for j := range n {
						if _, err := create(ctx, tx.Client(), project, title(j)); err != nil {
							return errors.Join(err, tx.Rollback())
						}
					}
					if !keep {
						undone.Add(int64(n))
						return tx.Rollback()
					}
					return tx.Commit()
				})
				lost.Add(int64(again))
				if err != nil {
					return err
				}
			}
			return nil
		})
		for _, project := range p {
			created.Add(int64(len(w.numbers(project))))
		}
		t.Logf("%d tasks created, %d undone, %d transactions lost and run again", created.Load(), undone.Load(), lost.Load())
		if undone.Load() < clients || created.Load() < 10*clients {
			t.Error("too little happened")
		}
		w.consecutive(p...)
	})
}

// Many clients use a scope for the first time at the same moment, some of which roll
// back.
func TestFirstUseRace(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		w := newWorld(t, db, writerFirst(db))
		const scopes = 12
		p := w.projects(scopes)
		for i, project := range p[:scopes/2] { // with rows of before
			if i%2 == 0 {
				w.exec(fmt.Sprintf("INSERT INTO `tasks` (`project_id`, `number`, `title`, `done`) VALUES (%d, 1, 'before', FALSE)", project))
			}
		}
		w.no(func() error { _, err := w.client.TaskCounters.Rebuild(t.Context(), taskcounters.Scope{}); return err }())
		var lost atomic.Int64
		for _, project := range p {
			start := make(chan struct{})
			var ready sync.WaitGroup
			ready.Add(clients)
			go func() { ready.Wait(); close(start) }()
			w.inParallel(clients, func(client int) error {
				ready.Done()
				<-start
				ctx := context.Background()
				again, err := retry(func() error {
					if client%4 > 0 {
						_, err := create(ctx, w.client, project, fmt.Sprint(client))
						return err
					}
					tx, err := w.client.Tx(ctx)
					if err != nil {
						return err
					}
					_, err = create(ctx, tx.Client(), project, fmt.Sprint(client))
					return errors.Join(err, tx.Rollback())
				})
				lost.Add(int64(again))
				return err
			})
		}
		t.Logf("%d transactions lost and run again", lost.Load())
		w.consecutive(p...)
	})
}

// Rows that are numbered by hand while others create, as the README says.
func TestImport(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		w := newWorld(t, db, writerFirst(db))
		p := w.projects(1)[0]
		w.mustCreate(w.client, p, "first", 1)
		imported := func(round int) error {
			ctx := context.Background()
			tx, err := w.client.Tx(ctx)
			if err != nil {
				return err
			}
			exec := func(query string, args ...any) error {
				_, err := tx.ExecContext(ctx, w.quoted(fmt.Sprintf(query, args...)))
				return err
			}
			set := "ON CONFLICT (`project_id`) DO UPDATE SET `next_number` = 0"
			if db.Dialect == dialect.MySQL {
				set = "ON DUPLICATE KEY UPDATE `next_number` = 0"
			}
			err = exec("INSERT INTO `task_number_sequence` (`project_id`, `next_number`) VALUES (%d, 0) "+set, p)
			if err == nil {
				var last []*ent.Task
				last, err = tx.Task.Query().Where(task.ProjectID(p), task.NumberNotNil()).Order(ent.Desc(task.FieldNumber)).Limit(1).All(ctx)
				for i := 1; err == nil && i <= 5; i++ {
					n := last[0].Number + i
					err = errors.Join(
						exec("INSERT INTO `tasks` (`project_id`, `number`, `title`, `done`) VALUES (%d, %d, 'by hand %d-%d', FALSE)", p, n, round, i),
						tx.TaskCounters.Journal(ctx, taskcounters.Delta{
							Key:      taskcounters.Key{ProjectID: p},
							Measures: taskcounters.Measures{Count: 1, Numbers: int64(n)},
						}),
					)
				}
			}
			if err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		}
		var collided atomic.Int64
		w.inParallel(clients, func(client int) error {
			for i := range 30 {
				_, err := retry(func() error {
					if client == 0 {
						return imported(i)
					}
					_, err := create(context.Background(), w.client, p, fmt.Sprint(client, "-", i))
					if ent.IsConstraintError(err) && db.Kind == testdb.MariaDB {
						// Locks are free there an instant before a snapshot shows the rows.
						collided.Add(1)
						_, err = create(context.Background(), w.client, p, fmt.Sprint(client, "-", i))
					}
					return err
				})
				if err != nil {
					return fmt.Errorf("client %d: %w", client, err)
				}
			}
			return nil
		})
		t.Logf("%d creates collided", collided.Load())
		// An import leaves it to the next create to look for the greatest number.
		_, err := create(context.Background(), w.client, p, "last")
		w.no(err)
		if n := len(w.numbers(p)); n != 1+(clients-1)*30+5*30+1 {
			t.Errorf("%d tasks", n)
		}
		w.consecutive(p)
	})
}

// Batches over several scopes, in whatever order they list them, do not deadlock.
func TestBatchesDoNotDeadlock(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		w := newWorld(t, db, writerFirst(db))
		p := w.projects(6)
		for _, project := range p {
			w.mustCreate(w.client, project, "first", 1)
		}
		w.inParallel(8, func(client int) error {
			for i := range 30 {
				order := rand.Perm(len(p))
				err := w.client.Task.MapCreateBulk(order, func(c *ent.TaskCreate, j int) {
					c.SetProjectID(p[order[j]]).SetTitle(fmt.Sprint(client, "-", i))
				}).Exec(context.Background())
				if err != nil {
					return err
				}
			}
			return nil
		})
		w.consecutive(p...)
	})
}

// A transaction that holds a scope makes others wait, and those of other scopes not.
func TestWaiting(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		if w.db.Kind == testdb.SQLite {
			return // every writer waits for every other
		}
		p := w.projects(2)
		w.mustCreate(w.client, p[0], "a", 1)
		tx := w.begin()
		w.mustCreate(tx.Client(), p[0], "b", 2)
		w.mustCreate(w.client, p[1], "other", 1)
		got := make(chan int)
		go func() {
			n, _ := create(context.Background(), w.client, p[0], "c")
			got <- n
		}()
		w.mustCreate(tx.Client(), p[0], "d", 3)
		select {
		case n := <-got:
			t.Fatalf("number %d was given while it was not known whether the ones before it stay", n)
		default:
		}
		w.no(tx.Rollback())
		if n := <-got; n != 2 {
			t.Errorf("number %d after the rollback, want 2", n)
		}
		w.consecutive(p...)
	})
}
