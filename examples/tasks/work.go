package main

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/entcounter/entcounter/examples/internal/database"
	"github.com/entcounter/entcounter/examples/tasks/ent"
	"github.com/entcounter/entcounter/examples/tasks/ent/task"
)

// operation is what a worker can do.
type operation int

// The operations.
const (
	create operation = iota
	change
	assign
	unassign
	move
	softDelete
	restore
	finish
	abandon
	operations
)

var operationNames = [operations]string{
	create: "created", change: "changed", assign: "assigned", unassign: "unassigned", move: "moved",
	softDelete: "deleted", restore: "restored", finish: "finished at once", abandon: "given up",
}

func (o operation) String() string { return operationNames[o] }

// work has workers work at once, while somebody asks for numbers.
func (a *app) work(ctx context.Context) error {
	askCtx, stop := context.WithCancel(ctx)
	defer stop()
	var left, working atomic.Int64
	left.Store(int64(a.operations))
	working.Store(int64(a.workers))
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.askUntil(askCtx) })
	for range a.workers {
		g.Go(func() error {
			defer func() {
				if working.Add(-1) == 0 {
					stop()
				}
			}()
			w := &worker{app: a}
			for left.Add(-1) >= 0 {
				if err := w.random(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// askUntil asks for random filters until the context ends.
func (a *app) askUntil(ctx context.Context) error {
	for {
		err := a.ask(ctx, a.random())
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		a.asked.Add(1)
	}
}

// errWrong says that a counter was wrong.
var errWrong = errors.New("WRONG")

// ask asks for a filter in both ways, in one snapshot.
func (a *app) ask(ctx context.Context, f filter) error {
	tx, err := a.client.BeginTx(ctx, &stdsql.TxOptions{Isolation: stdsql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	stored, err := f.stored(ctx, tx)
	if err != nil {
		return err
	}
	scanned, err := f.scanned(ctx, tx)
	if err != nil {
		return err
	}
	if stored != scanned {
		return fmt.Errorf("%w: counter %d, COUNT(*) %d: %s", errWrong, stored, scanned, f)
	}
	return nil
}

// worker works with tasks and remembers what it has thrown away.
type worker struct {
	*app
	trash []int
}

// errNothing says that there is nothing to do an operation on.
var errNothing = errors.New("nothing to do")

// random does one operation, and others in its place where there is nothing to do.
func (w *worker) random(ctx context.Context) error {
	for {
		op := operation(rand.IntN(int(operations)))
		var n int
		err := database.Retry(ctx, func() (err error) {
			n, err = w.do(ctx, op)
			return err
		})
		switch {
		case errors.Is(err, errNothing), err == nil && n == 0:
			// Somebody else was faster, or there was nothing.
		case err != nil:
			return fmt.Errorf("%s: %w", op, err)
		default:
			w.done[op].Add(int64(n))
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// do does one operation on something random and returns how many tasks it concerned.
func (w *worker) do(ctx context.Context, op operation) (int, error) {
	switch op {
	case create:
		return 1, w.newTask(w.client.Task, now()).Exec(ctx)
	case restore:
		return w.restore(ctx)
	case abandon:
		return 1, w.abandon(ctx)
	case finish: // what waits for somebody, in one update
		return w.client.Task.Update().
			Where(task.StatusEQ(task.StatusWaiting), task.AssigneeID(w.someUser()), task.GroupID(w.someGroup()), task.DeletedAtIsNil()).
			SetStatus(task.StatusDone).
			Save(ctx)
	}
	id, err := w.task(ctx)
	if err != nil {
		return 0, err
	}
	// What somebody else has deleted meanwhile stays as it is.
	update := w.client.Task.Update().Where(task.ID(id), task.DeletedAtIsNil())
	switch op {
	case change:
		update.SetStatus(statuses[rand.IntN(len(statuses))])
	case assign:
		update.SetAssigneeID(w.someUser())
	case unassign:
		update.Where(task.AssigneeIDNotNil()).ClearAssigneeID()
	case move:
		update.SetGroupID(w.someGroup())
	case softDelete:
		update.SetDeletedAt(now())
	}
	n, err := update.Save(ctx)
	if err == nil && n > 0 && op == softDelete {
		w.trash = append(w.trash, id)
	}
	return n, err
}

// task returns the id of some task that is not deleted.
func (w *worker) task(ctx context.Context) (int, error) {
	last, err := w.client.Task.Query().Order(ent.Desc(task.FieldID)).FirstID(ctx)
	if err != nil {
		return 0, nothing(err)
	}
	id, err := w.client.Task.Query().
		Where(task.IDGTE(1+rand.IntN(last)), task.DeletedAtIsNil()).
		Order(task.ByID()).
		FirstID(ctx)
	return id, nothing(err)
}

// restore takes a task out of the worker's trash.
func (w *worker) restore(ctx context.Context) (int, error) {
	if len(w.trash) == 0 {
		return 0, errNothing
	}
	id := w.trash[len(w.trash)-1]
	n, err := w.client.Task.Update().Where(task.ID(id), task.DeletedAtNotNil()).ClearDeletedAt().Save(ctx)
	if err == nil {
		w.trash = w.trash[:len(w.trash)-1]
	}
	return n, err
}

// abandon creates a task and rolls back. The next task gets its number.
func (w *worker) abandon(ctx context.Context) error {
	tx, err := w.client.Tx(ctx)
	if err != nil {
		return err
	}
	err = w.newTask(tx.Task, now()).Exec(ctx)
	return errors.Join(err, tx.Rollback())
}

// nothing turns the error that there is no row into errNothing.
func nothing(err error) error {
	if ent.IsNotFound(err) {
		return errNothing
	}
	return err
}
