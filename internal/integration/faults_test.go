package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/entcounter/entcounter/internal/conformance/tap"
	"github.com/entcounter/entcounter/internal/integration/ent"
	"github.com/entcounter/entcounter/internal/integration/ent/task"
	"github.com/entcounter/entcounter/internal/integration/ent/user"
	"github.com/entcounter/entcounter/internal/integration/types"
	"github.com/entcounter/entcounter/internal/testdb"
)

// scene is what a mutation of several statements works on.
type scene struct {
	tenant  types.TenantID
	project *ent.Project
	tasks   []*ent.Task
	user    *ent.User
	team    *ent.Team
}

func (w *world) scene(ctx context.Context, n int) scene {
	w.Helper()
	s := scene{tenant: types.TenantID(fmt.Sprint("scene", n))}
	no(w, w.client.Tenant.Create().SetID(s.tenant).Exec(ctx))
	s.project = must(w.client.Project.Create().SetTitle("p").SetTenantID(s.tenant).Save(ctx))(w)
	s.user = w.user(ctx, fmt.Sprint("scene", n))
	s.team = must(w.client.Team.Create().SetName("t").AddUsers(s.user).Save(ctx))(w)
	s.tasks = must(w.client.Task.MapCreateBulk(make([]int, 3), func(b *ent.TaskCreate, i int) {
		b.SetProject(s.project).SetSize(int64(10 * (i + 1))).SetCode(fmt.Sprint("scene", n, " ", i)).SetOwner(s.user)
	}).Save(ctx))(w)
	no(w, w.client.Attachment.Create().SetOrder(n).SetKey("k").SetSize(1).SetTask(s.tasks[0]).SetUploader(s.user).Exec(ctx))
	return s
}

// manyStatements are mutations that take many statements.
var manyStatements = map[string]func(ctx context.Context, c *ent.Client, s scene) error{
	"edges from the other side": func(ctx context.Context, c *ent.Client, s scene) error {
		return c.User.UpdateOneID(s.user.ID).ClearOwned().AddReviewed(s.tasks[0], s.tasks[1]).ClearTeams().AddAge(1).Exec(ctx)
	},
	"edges from the other side, by predicate": func(ctx context.Context, c *ent.Client, s scene) error {
		return c.User.Update().Where(user.ID(s.user.ID)).RemoveOwned(s.tasks[2]).ClearUploads().Exec(ctx)
	},
	"created with edges": func(ctx context.Context, c *ent.Client, s scene) error {
		return c.User.Create().SetName("new").AddReviewed(s.tasks...).AddTeams(s.team).SetTenantID(s.tenant).Exec(ctx)
	},
	"cascade over three levels": func(ctx context.Context, c *ent.Client, s scene) error {
		return c.Tenant.DeleteOneID(s.tenant).Exec(ctx)
	},
	"bulk upsert of rows of which some are there": func(ctx context.Context, c *ent.Client, s scene) error {
		return c.Task.MapCreateBulk(make([]int, 4), func(b *ent.TaskCreate, i int) {
			b.SetProject(s.project).SetSize(1).SetCode(fmt.Sprint(s.tenant, " ", i+1)).SetState(types.Done)
		}).OnConflictColumns(task.FieldCode).Update(func(u *ent.TaskUpsert) { u.UpdateSize().UpdateState() }).Exec(ctx)
	},
	"upsert of rows that meet each other": func(ctx context.Context, c *ent.Client, s scene) error {
		return c.Task.MapCreateBulk([]string{"x", "1", "x"}, func(b *ent.TaskCreate, i int) {
			b.SetProject(s.project).SetSize(int64(i)).SetCode(fmt.Sprint(s.tenant, " ", []string{"x", "1", "x"}[i]))
		}).OnConflictColumns(task.FieldCode).Ignore().Exec(ctx)
	},
}

// Every statement of mutations that take many is broken, in a transaction of its own
// and in one of the user's, who goes on and commits whatever has happened. What is
// committed is counted.
func TestFaultsInManyStatements(t *testing.T) {
	errFault := errors.New("injected fault")
	kinds := map[string]tap.Fault{"refused": tap.Refuse(errFault), "lost after": tap.CutAfter}
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		t.Parallel()
		ctx, w, scenes := t.Context(), newWorld(t, db, nil), 0
		stays, _ := w.project(ctx, "stays", 0)
		run := func(mutation func(context.Context, *ent.Client, scene) error, inTx bool, at int, fault tap.Fault) (broken string, err error) {
			s := w.scene(ctx, scenes)
			scenes++
			w.tap.Reset()
			w.tap.Inject(func(s tap.Statement) tap.Fault {
				if s.Index != at {
					return tap.Pass
				}
				broken = s.String()
				return fault
			})
			defer w.tap.Inject(nil)
			if !inTx {
				return broken, mutation(ctx, w.client, s)
			}
			tx, err := w.client.Tx(ctx)
			if err != nil {
				return broken, err
			}
			err = mutation(ctx, tx.Client(), s)
			return broken, errors.Join(err, tx.Task.Create().SetProject(stays).Exec(ctx), tx.Commit())
		}
		for name, mutation := range manyStatements {
			for _, inTx := range []bool{false, true} {
				for at, reached := 0, true; reached; at++ {
					reached = false
					for kind, fault := range kinds {
						broken, err := run(mutation, inTx, at, fault)
						reached = reached || broken != ""
						if broken == "" {
							no(w, err)
						}
						var drift error
						for range 50 { // until the server has noticed that a connection is gone
							if drift = w.check(ctx); drift == nil {
								break
							}
							time.Sleep(20 * time.Millisecond)
						}
						if drift != nil {
							w.Fatalf("%s, in a transaction: %v, %s: %s\nerror: %v\n%v", name, inTx, kind, broken, err, drift)
						}
					}
				}
			}
			w.fold(ctx)
		}
		w.Logf("%d runs", scenes)
	})
}
