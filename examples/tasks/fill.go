package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/entcounter/entcounter/examples/internal/database"
	"github.com/entcounter/entcounter/examples/tasks/ent"
	"github.com/entcounter/entcounter/examples/tasks/ent/group"
	"github.com/entcounter/entcounter/examples/tasks/ent/task"
	"github.com/entcounter/entcounter/examples/tasks/ent/taskcounters"
	"github.com/entcounter/entcounter/examples/tasks/ent/user"
)

const (
	groupCount = 12
	userCount  = 40
	period     = 90 // days of which there are tasks
	fillBatch  = 500
)

// fill creates what is missing. The counter tells how much that is.
func (a *app) fill(ctx context.Context) error {
	if err := a.openGroups(ctx); err != nil {
		return err
	}
	total, err := a.client.TaskCounters.Total(ctx, taskcounters.Scope{})
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(a.workers)
	for i := int(total.Count); i < a.tasks && gctx.Err() == nil; i += fillBatch {
		n := min(fillBatch, a.tasks-i)
		g.Go(func() error {
			return database.Retry(gctx, func() error {
				create := make([]*ent.TaskCreate, n)
				for i := range create {
					create[i] = a.newTask(a.client.Task, now().Add(-time.Duration(rand.IntN(period*24*60))*time.Minute))
				}
				err := a.client.Task.CreateBulk(create...).Exec(gctx)
				if err == nil {
					a.created.Add(int64(n))
				}
				return err
			})
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// openGroups finds or creates groups and users. Another process may do the same.
func (a *app) openGroups(ctx context.Context) error {
	ids := func(n int, find func(i int) (int, error), create func(i int) error) (ids []int, err error) {
		for i := range n {
			id, err := find(i)
			if ent.IsNotFound(err) {
				err = database.Retry(ctx, func() error { return create(i) })
				if err == nil || ent.IsConstraintError(err) {
					id, err = find(i)
				}
			}
			if err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
		return ids, nil
	}
	name := func(kind string, i int) string { return fmt.Sprintf("%s %d", kind, i+1) }
	var err error
	a.groups, err = ids(groupCount,
		func(i int) (int, error) {
			return a.client.Group.Query().Where(group.Name(name("group", i))).OnlyID(ctx)
		},
		func(i int) error { return a.client.Group.Create().SetName(name("group", i)).Exec(ctx) })
	if err != nil {
		return err
	}
	a.users, err = ids(userCount,
		func(i int) (int, error) { return a.client.User.Query().Where(user.Name(name("user", i))).OnlyID(ctx) },
		func(i int) error { return a.client.User.Create().SetName(name("user", i)).Exec(ctx) })
	return err
}

// now is the time as every database keeps it.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }

// newTask is some task: the older, the likelier it is done.
func (a *app) newTask(tasks *ent.TaskClient, at time.Time) *ent.TaskCreate {
	create := tasks.Create().
		SetTitle(fmt.Sprintf("task %x", rand.Uint64())).
		SetCreatedAt(at).
		SetGroupID(a.someGroup()).
		SetStatus(statuses[rand.IntN(len(statuses))])
	if time.Since(at) > time.Duration(rand.IntN(period))*24*time.Hour {
		create.SetStatus(task.StatusDone)
	}
	if rand.IntN(5) > 0 {
		create.SetAssigneeID(a.someUser())
	}
	return create
}

func (a *app) someGroup() int {
	return a.groups[min(rand.IntN(len(a.groups)), rand.IntN(len(a.groups)))]
}

func (a *app) someUser() int { return a.users[rand.IntN(len(a.users))] }
