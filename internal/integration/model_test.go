package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqljson"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/conformance/replay"
	"github.com/entcounter/entcounter/internal/integration/ent"
	"github.com/entcounter/entcounter/internal/integration/ent/attachment"
	"github.com/entcounter/entcounter/internal/integration/ent/blob"
	"github.com/entcounter/entcounter/internal/integration/ent/card"
	"github.com/entcounter/entcounter/internal/integration/ent/device"
	"github.com/entcounter/entcounter/internal/integration/ent/folder"
	"github.com/entcounter/entcounter/internal/integration/ent/membership"
	"github.com/entcounter/entcounter/internal/integration/ent/memo"
	"github.com/entcounter/entcounter/internal/integration/ent/memocounters"
	"github.com/entcounter/entcounter/internal/integration/ent/node"
	"github.com/entcounter/entcounter/internal/integration/ent/predicate"
	"github.com/entcounter/entcounter/internal/integration/ent/project"
	"github.com/entcounter/entcounter/internal/integration/ent/reviewcounters"
	"github.com/entcounter/entcounter/internal/integration/ent/route"
	"github.com/entcounter/entcounter/internal/integration/ent/stop"
	"github.com/entcounter/entcounter/internal/integration/ent/task"
	"github.com/entcounter/entcounter/internal/integration/ent/taskcounters"
	"github.com/entcounter/entcounter/internal/integration/ent/team"
	"github.com/entcounter/entcounter/internal/integration/ent/tenant"
	"github.com/entcounter/entcounter/internal/integration/ent/token"
	"github.com/entcounter/entcounter/internal/integration/ent/user"
	"github.com/entcounter/entcounter/internal/integration/schema"
	"github.com/entcounter/entcounter/internal/integration/types"
	"github.com/entcounter/entcounter/internal/testdb"
	"github.com/google/uuid"
)

// TestModel runs random sequences of everything that the client can do to any of
// the types, in and out of transactions, and compares all counters with a recount.
func TestModel(t *testing.T) {
	seed := seed()
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		t.Parallel()
		bothWays(t, db, func(t *testing.T, db *testdb.Database, params map[string]string) {
			steps := *stepsFlag
			if db.Dialect == dialect.MySQL {
				steps /= 2 // in each of both ways
			}
			replay.Run(t, replay.Command(t, db.Kind, seed, *stepsFlag), steps, func(steps []int, closely bool) (int, error) {
				return runModel(newWorld(t, testdb.New(t, db.Kind), params), seed, steps, closely)
			}, func(i int) string { return stepOf(seed, i, alone).name })
		})
	})
}

// TestModelOfManyClients has several clients run random steps at once. Whenever one
// looks, the counters equal the recount in the same snapshot.
func TestModelOfManyClients(t *testing.T) {
	const clients = 4
	seed := seed()
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		t.Parallel()
		var params map[string]string
		if db.Dialect == dialect.SQLite {
			params = map[string]string{"_txlock": "immediate"} // a transaction that reads first would never get to write
		}
		w := newWorld(t, db, params)
		w.tap.Forget()
		var (
			ctx            = t.Context()
			steps          = int64(*stepsFlag / 5)
			writers        sync.WaitGroup
			next, ran      atomic.Int64
			over           = make(chan struct{})
			looks, refused = 0, atomic.Int64{}
		)
		fail := func(err error) {
			next.Store(steps)
			t.Errorf("%v\n\nrun again: %s", err, replay.Command(t, db.Kind, seed, *stepsFlag))
		}
		for range clients {
			writers.Go(func() {
				for i := next.Add(1) - 1; i < steps; i = next.Add(1) - 1 {
					s := stepOf(seed, int(i), together)
					_, reason, err := s.run(ctx, w)
					if err != nil {
						fail(fmt.Errorf("%s: %w", s.name, err))
					}
					if reason != nil {
						refused.Add(1)
					}
					ran.Add(1)
				}
			})
		}
		go func() { writers.Wait(); close(over) }()
		for running := true; running; looks++ {
			select {
			case <-over:
				running = false
			case <-time.After(20 * time.Millisecond):
			}
			if err := w.check(ctx); err != nil {
				fail(err)
				break
			}
		}
		<-over
		w.exact(ctx)
		w.Logf("%d steps, of which %d were refused, and %d looks", ran.Load(), refused.Load(), looks)
	})
}

// runModel runs the given steps of a seed and tells which one failed. It looks at the
// counters after each step, or after each batch of steps at only the last one.
func runModel(w *world, seed uint64, steps []int, closely bool) (int, error) {
	const batch = 25
	ctx := context.Background()
	succeeded, changed := 0, 0
	w.tap.Forget()
	for n, i := range steps {
		look := closely || n%batch == batch-1 || n == len(steps)-1
		s := stepOf(seed, i, alone)
		err := func() error {
			if !look {
				_, _, err := s.run(ctx, w)
				return err
			}
			before, err := w.journal(ctx)
			if err != nil {
				return err
			}
			outcome, refused, err := s.run(ctx, w)
			if err == nil {
				err = w.check(ctx)
			}
			if err == nil {
				err = w.journalledAs(ctx, before, outcome)
			}
			if err != nil && refused != nil {
				err = fmt.Errorf("%w, after the error %q", err, refused)
			}
			if outcome == oncePer && refused == nil && err == nil {
				succeeded++
				after, err := w.journal(ctx)
				if err != nil {
					return err
				}
				if !maps.Equal(before, after) {
					changed++
				}
			}
			return err
		}()
		if err != nil {
			return i, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	w.Logf("of %d steps that were looked at %d succeeded and %d changed a counter", len(steps)/batch, succeeded, changed)
	return 0, nil
}

// step is one step of a run. It tells what to expect of the journals, and the error
// that the step was refused with if it may well be.
type step struct {
	name string
	run  func(context.Context, *world) (expect outcome, refused, err error)
}

// outcome is what is expected of the journals after a step.
type outcome uint8

const (
	anything  outcome = iota
	oncePer           // at most one row for each key
	untouched         // nothing was committed
)

func (w *world) journalledAs(ctx context.Context, before map[string][2]int64, o outcome) error {
	switch o {
	case untouched:
		after, err := w.journal(ctx)
		if err != nil {
			return err
		}
		for name := range before {
			if before[name] != after[name] {
				return fmt.Errorf("the journal of %s changed from %v to %v", name, before[name], after[name])
			}
		}
	case oncePer:
		var last []any
		for _, c := range counters {
			last = append(last, before[c.name][0])
		}
		rows, err := w.oracle.QueryContext(ctx, w.twiceSQL, last...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		var twice []string
		for rows.Next() {
			var name, key string
			if err := rows.Scan(&name, &key); err != nil {
				return err
			}
			twice = append(twice, name+" "+key)
		}
		if len(twice) > 0 {
			return fmt.Errorf("these keys were journalled twice in one transaction, or with zero: %q", twice)
		}
		return rows.Err()
	}
	return nil
}

// company is whether other clients write at the same time.
type company bool

const (
	alone    company = false
	together company = true
)

// stepOf makes step i of a seed.
func stepOf(seed uint64, i int, with company) step {
	r := random{rand.New(rand.NewPCG(seed, uint64(i))), with}
	switch n := r.IntN(100); {
	case n < 70:
		m := r.mutation()
		return step{m.name, func(ctx context.Context, w *world) (outcome, error, error) {
			err := m.run(ctx, w.client)
			switch {
			case err == nil:
				return oncePer, nil, nil
			case r.expects(err):
				return untouched, err, nil
			}
			return anything, nil, err
		}}
	case n < 90:
		return r.transaction()
	case n < 95:
		pick, batch := r.IntN(len(counters)), 1+r.IntN(30)
		return step{"fold " + counters[pick].name, func(ctx context.Context, w *world) (outcome, error, error) {
			_, err := handle(w.client, pick).Fold(ctx, entcounter.WithBatch(batch))
			return anything, nil, err
		}}
	case n < 97:
		pick := r.IntN(len(counters))
		return step{"rebuild " + counters[pick].name, func(ctx context.Context, w *world) (outcome, error, error) {
			rebuilt, err := handle(w.client, pick).Rebuild(ctx, nil)
			if err == nil && rebuilt.Keys > 0 {
				err = fmt.Errorf("corrected %d keys of a counter that was right", rebuilt.Keys)
			}
			return untouched, nil, err
		}}
	default:
		return step{"verify", func(ctx context.Context, w *world) (outcome, error, error) {
			if with == together {
				return anything, nil, verify(ctx, w.client)
			}
			return untouched, nil, errors.Join(verify(ctx, w.client), compare(ctx, w.client))
		}}
	}
}

func handle(c *ent.Client, i int) *entcounter.Handle {
	all := c.Counters()
	return all[slices.IndexFunc(all, func(h *entcounter.Handle) bool { return h.Name() == counters[i].name })]
}

// compare reads some counters by the client and compares them with what it
// counts.
func compare(ctx context.Context, c *ent.Client) error {
	type key [2]string
	want := make(map[key][4]int64)
	tasks, err := c.Task.Query().All(ctx)
	if err != nil {
		return err
	}
	for _, t := range tasks {
		m := want[key{t.ProjectID.String(), string(t.State)}]
		m[0], m[1], m[3] = m[0]+1, m[1]+t.Size, m[3]+int64(int32(t.Retries)) // it may be below zero where the database has no unsigned type
		if t.Weight != nil {
			m[2] += int64(*t.Weight)
		}
		want[key{t.ProjectID.String(), string(t.State)}] = m
		if t.ReviewerID != nil {
			k := key{fmt.Sprint(*t.ReviewerID), "reviews " + string(t.State)}
			m := want[k]
			m[0]++
			want[k] = m
		}
	}
	memos, err := c.Memo.Query().All(schema.SkipSoftDelete(ctx))
	if err != nil {
		return err
	}
	for _, x := range memos {
		k := key{x.Board, fmt.Sprint(x.Deleted)}
		m := want[k]
		want[k] = [4]int64{m[0] + 1, m[1] + x.Size}
	}
	got := make(map[key][4]int64)
	taskRows, err := c.TaskCounters.Query().All(ctx)
	if err != nil {
		return err
	}
	for _, r := range taskRows {
		one, err := c.TaskCounters.Read(ctx, taskcounters.Key{ProjectID: r.ProjectID, State: r.State})
		if err = same(one, r, err); err != nil {
			return err
		}
		got[key{r.ProjectID.String(), string(r.State)}] = [4]int64{r.Count, r.Bytes, r.Weight, r.Retries}
	}
	reviewRows, err := c.ReviewCounters.Query().All(ctx)
	if err != nil {
		return err
	}
	for _, r := range reviewRows {
		one, err := c.ReviewCounters.Read(ctx, reviewcounters.Key{ReviewerID: r.ReviewerID, State: r.State})
		if err = same(one, r, err); err != nil {
			return err
		}
		got[key{fmt.Sprint(r.ReviewerID), "reviews " + string(r.State)}] = [4]int64{r.Tasks}
	}
	memoRows, err := c.MemoCounters.Query().All(ctx)
	if err != nil {
		return err
	}
	for _, r := range memoRows {
		one, err := c.MemoCounters.Read(ctx, memocounters.Key{Board: r.Board, Deleted: r.Deleted})
		if err = same(one, r, err); err != nil {
			return err
		}
		got[key{r.Board, fmt.Sprint(r.Deleted)}] = [4]int64{r.Count, r.Bytes}
	}
	for k := range got {
		if got[k] == [4]int64{} {
			delete(got, k)
		}
	}
	for k := range want {
		if got[k] != want[k] {
			return fmt.Errorf("key %v reads %v, want %v", k, got[k], want[k])
		}
		delete(got, k)
	}
	if len(got) > 0 {
		return fmt.Errorf("these keys have no rows: %v", got)
	}
	return nil
}

// same compares a key that is read by itself with what it is among all.
func same(one, among fmt.Stringer, err error) error {
	if err == nil && one.String() != among.String() {
		err = fmt.Errorf("by itself %s, and among all %s", one, among)
	}
	return err
}

// expects reports whether an error is one that a mutation may end with here.
func (r random) expects(err error) bool {
	if r.with == together && entcounter.Retryable(err) {
		return true
	}
	if ent.IsConstraintError(err) || ent.IsNotFound(err) || ent.IsValidationError(err) || errors.Is(err, sql.ErrNoRows) {
		return true
	}
	return slices.ContainsFunc([]string{
		"NOT NULL constraint failed", "Error 1048", "SQLSTATE 23502", // a task without a project
		"SQLSTATE 21000",            // one bulk upsert that meets a row twice
		"SQLSTATE 42601",            // a column that is set twice
		"Error 3008",                // a cascade of more than 15 levels
		"Error 6575",                // the same, in other words
		"more than 1 node",          // an edge that only one can have, for several
		"violates check",            // an unsigned number below zero
		"ut of range",               // a small integer
		"Error 1690",                // the same
		"inconsistent id val",       // ent: ids for some of a batch
		"clearing a required",       // ent: an edge that must be
		"unexpected Tenant.ID type", // ent: an upsert with an id of a string type
	}, func(text string) bool { return strings.Contains(err.Error(), text) })
}

type action struct {
	name string
	run  func(context.Context, *ent.Client) error
}

func (r random) transaction() step {
	var (
		parts  []action
		names  []string
		commit = r.IntN(4) > 0
		goOn   = r.IntN(2) == 0
		reads  = r.IntN(10) == 0
	)
	for range 1 + r.IntN(5) {
		m := r.mutation()
		parts, names = append(parts, m), append(names, m.name)
	}
	name := fmt.Sprintf("transaction (commit %v, go on %v, reads %v):\n\t%s", commit, goOn, reads, strings.Join(names, "\n\t"))
	return step{name, func(ctx context.Context, w *world) (expect outcome, refused, err error) {
		tx, err := w.client.Tx(ctx)
		if err != nil {
			return anything, nil, err
		}
		expect = oncePer
		for i, p := range parts {
			err := p.run(ctx, tx.Client())
			switch {
			case err == nil:
			case errors.Is(err, entcounter.ErrTransactionFailed):
				if refused == nil {
					return anything, nil, errors.Join(fmt.Errorf("the transaction failed without a reason: %w", err), tx.Rollback())
				}
			case !r.expects(err):
				return anything, nil, errors.Join(err, tx.Rollback())
			case w.db.Dialect == dialect.Postgres || !goOn:
				return untouched, err, tx.Rollback()
			default:
				refused = err // and perhaps the transaction is lost
			}
			// Together, a transaction may read rows as others have left them after its
			// snapshot was taken: those that it changes itself, on MySQL.
			if reads && r.with == alone && i%2 == 0 && refused == nil {
				expect = anything
				if err := errors.Join(verify(ctx, tx.Client()), compare(ctx, tx.Client())); err != nil {
					return anything, nil, errors.Join(fmt.Errorf("in the transaction, after %s: %w", p.name, err), tx.Rollback())
				}
			}
		}
		if !commit {
			return untouched, refused, tx.Rollback()
		}
		err = tx.Commit()
		if refused != nil && errors.Is(err, entcounter.ErrTransactionFailed) {
			return untouched, refused, nil
		}
		return expect, refused, err
	}}
}

// random makes random parts of steps.
type random struct {
	*rand.Rand
	with company
}

// Ids are few, so that mutations meet.
func (r random) tenant() types.TenantID { return types.TenantID(fmt.Sprint("tenant", r.IntN(4))) }
func (r random) projectID() uuid.UUID {
	return uuid.NewSHA1(uuid.Nil, []byte{'p', byte(r.IntN(6))})
}
func (r random) site() uuid.UUID        { return uuid.NewSHA1(uuid.Nil, []byte{'s', byte(r.IntN(3))}) }
func (r random) deviceID() uuid.UUID    { return uuid.NewSHA1(uuid.Nil, []byte{'d', byte(r.IntN(12))}) }
func (r random) word(n int) string      { return string(rune('a' + r.IntN(n))) }
func (r random) small() int             { return r.IntN(30) }
func (r random) maybe(n int) bool       { return r.IntN(n) == 0 }
func (r random) state() types.State     { return states[r.IntN(len(states))] }
func (r random) tokenID() types.TokenID { return types.TokenID(r.IntN(12)) }

var states = []types.State{types.Open, types.Doing, types.Done, types.Failed}

// ids are the ids that there are of a type, in order.
func ids[ID any](ctx context.Context, q interface {
	IDs(context.Context) ([]ID, error)
}) []ID {
	all, _ := q.IDs(ctx)
	return all
}

func users(ctx context.Context, c *ent.Client) []int {
	return ids(ctx, c.User.Query().Order(ent.Asc("id")))
}
func tasks(ctx context.Context, c *ent.Client) []int {
	return ids(ctx, c.Task.Query().Order(ent.Asc("id")))
}
func cards(ctx context.Context, c *ent.Client) []int {
	return ids(ctx, c.Card.Query().Order(ent.Asc("id")))
}
func teams(ctx context.Context, c *ent.Client) []int {
	return ids(ctx, c.Team.Query().Order(ent.Asc("id")))
}
func nodes(ctx context.Context, c *ent.Client) []int {
	return ids(ctx, c.Node.Query().Order(ent.Asc("id")))
}
func stops(ctx context.Context, c *ent.Client) []int {
	return ids(ctx, c.Stop.Query().Order(ent.Asc("id")))
}
func routes(ctx context.Context, c *ent.Client) []int {
	return ids(ctx, c.Route.Query().Order(ent.Asc("id")))
}
func folders(ctx context.Context, c *ent.Client) []int {
	return ids(ctx, c.Folder.Query().Order(ent.Asc("id")))
}

// attachments are in the order of their names: their ids differ from run to run.
func attachments(ctx context.Context, c *ent.Client) []uuid.UUID {
	return ids(ctx, c.Attachment.Query().Order(ent.Asc(attachment.FieldOrder, attachment.FieldKey, attachment.FieldSize, attachment.FieldTaskID)))
}

// one picks one of some ids, or an id that there is not.
func one(ids []int, pick uint64) int {
	if len(ids) == 0 || pick%41 == 0 {
		return 1 << 30
	}
	return ids[pick/41%uint64(len(ids))]
}

func oneUUID(ids []uuid.UUID, pick uint64) uuid.UUID {
	if len(ids) == 0 {
		return uuid.Nil
	}
	return ids[pick%uint64(len(ids))]
}

// some picks some of some ids.
func some[ID any](ids []ID, pick uint64) []ID {
	var picked []ID
	for i, id := range ids {
		if pick>>(2*i%64)&3 == 0 {
			picked = append(picked, id)
		}
	}
	return picked
}

func (r random) mutation() action {
	kinds := []func() action{
		r.tenants, r.projects, r.users, r.users, r.users, r.cards, r.teams, r.memberships,
		r.createTasks, r.createTasks, r.updateTasks, r.updateTasks, r.updateTasks, r.updateTask, r.deleteTasks, r.upsertTasks,
		r.attachments, r.attachments, r.nodes, r.nodes, r.folders, r.folders, r.stops, r.tokens, r.devices, r.blobs, r.memos,
	}
	return kinds[r.IntN(len(kinds))]()
}

func (r random) tenants() action {
	id, kind, pick, name := r.tenant(), r.IntN(9), r.Uint64(), r.word(5)
	projects := []uuid.UUID{r.projectID(), r.projectID()}
	return action{fmt.Sprintf("tenant %s, kind %d, %d", id, kind, pick), func(ctx context.Context, c *ent.Client) error {
		switch kind {
		case 0, 1:
			return c.Tenant.Create().SetID(id).Exec(ctx)
		case 2:
			return c.Tenant.Create().SetID(id).AddUserIDs(some(users(ctx, c), pick)...).AddProjectIDs(projects...).Exec(ctx)
		case 3:
			return c.Tenant.DeleteOneID(id).Exec(ctx)
		case 4:
			_, err := c.Tenant.Delete().Where(tenant.Not(tenant.HasProjects())).Exec(ctx)
			return err
		case 5:
			return c.Tenant.UpdateOneID(id).ClearUsers().AddUserIDs(some(users(ctx, c), pick)...).Exec(ctx)
		case 6:
			return c.Tenant.UpdateOneID(id).RemoveUserIDs(some(users(ctx, c), pick)...).SetName(name).Exec(ctx)
		case 7:
			return c.Tenant.Update().Where(tenant.Or(tenant.Name(name), tenant.ID(id))).ClearUsers().ClearProjects().Exec(ctx)
		default:
			return c.Tenant.Create().SetID(id).SetName(name).OnConflictColumns(tenant.FieldID).UpdateNewValues().Exec(ctx)
		}
	}}
}

func (r random) projects() action {
	id, kind, tid, pick, title := r.projectID(), r.IntN(9), r.tenant(), r.Uint64(), r.word(4)
	return action{fmt.Sprintf("project %.4s, kind %d, %s, %d", id, kind, tid, pick), func(ctx context.Context, c *ent.Client) error {
		switch kind {
		case 0, 1:
			return c.Project.Create().SetID(id).SetTitle(title).Exec(ctx)
		case 2:
			return c.Project.Create().SetID(id).SetTitle(title).SetTenantID(tid).Exec(ctx)
		case 3:
			return c.Project.DeleteOneID(id).Exec(ctx)
		case 4:
			_, err := c.Project.Delete().Where(project.Title(title)).Exec(ctx)
			return err
		case 5:
			return c.Project.UpdateOneID(id).SetTenantID(tid).Exec(ctx)
		case 6:
			return c.Project.UpdateOneID(id).ClearTenant().AddTaskIDs(some(tasks(ctx, c), pick)...).Exec(ctx)
		case 7:
			return c.Project.Create().SetID(id).SetTitle(title).OnConflictColumns(project.FieldID).Ignore().Exec(ctx)
		default:
			return c.Project.Update().SetTitle(title).Exec(ctx)
		}
	}}
}

func (r random) users() action {
	var (
		kind, pick, tid, name = r.IntN(16), r.Uint64(), r.tenant(), r.word(6)
		age                   = int16(r.IntN(90))
	)
	return action{fmt.Sprintf("user#%d %s, kind %d, %s", pick, name, kind, tid), func(ctx context.Context, c *ent.Client) error {
		var (
			all   = users(ctx, c)
			id    = one(all, pick)
			other = one(all, pick>>8)
			owned = some(tasks(ctx, c), pick)
			own   = one(cards(ctx, c), pick>>4)
		)
		where := user.Or(user.Name(name), user.AgeLT(age/8))
		switch kind {
		case 0:
			return c.User.Create().SetName(name).SetAge(age).Exec(ctx)
		case 1:
			return c.User.Create().SetName(name).SetTenantID(tid).SetSpouseID(other).Exec(ctx)
		case 2:
			return c.User.Create().SetName(name).AddOwnedIDs(owned...).SetCardID(own).Exec(ctx)
		case 3:
			return c.User.CreateBulk(
				c.User.Create().SetName(name).SetAge(age).AddTeamIDs(some(teams(ctx, c), pick)...),
				c.User.Create().SetName(name).AddReviewedIDs(owned...),
			).Exec(ctx)
		case 4:
			return c.User.UpdateOneID(id).SetSpouseID(other).AddAge(1).Exec(ctx)
		case 5:
			return c.User.UpdateOneID(id).ClearSpouse().ClearCard().Exec(ctx)
		case 6:
			return c.User.UpdateOneID(id).ClearCard().SetCardID(own).Exec(ctx)
		case 7:
			return c.User.UpdateOneID(id).ClearOwned().AddOwnedIDs(owned...).ClearReviewed().Exec(ctx)
		case 8:
			return c.User.UpdateOneID(id).RemoveOwnedIDs(owned...).AddReviewedIDs(owned...).AddUploadIDs(some(attachments(ctx, c), pick)...).Exec(ctx)
		case 9:
			return c.User.UpdateOneID(id).ClearTeams().AddTeamIDs(some(teams(ctx, c), pick)...).Exec(ctx)
		case 10:
			return c.User.UpdateOneID(id).RemoveTeamIDs(some(teams(ctx, c), pick)...).SetTenantID(tid).Exec(ctx)
		case 11:
			return c.User.Update().Where(where).ClearOwned().ClearUploads().SetAge(age).Exec(ctx)
		case 12:
			return c.User.Update().Where(where).ClearSpouse().ClearTenant().Exec(ctx)
		case 13:
			return c.User.Update().Where(where).AddTeamIDs(some(teams(ctx, c), pick>>2)...).AddAge(1).Exec(ctx)
		case 14:
			return c.User.DeleteOneID(id).Exec(ctx)
		default:
			_, err := c.User.Delete().Where(user.Name(name)).Exec(ctx)
			return err
		}
	}}
}

func (r random) cards() action {
	kind, pick, color := r.IntN(7), r.Uint64(), r.word(3)
	return action{fmt.Sprintf("card#%d %s, kind %d", pick, color, kind), func(ctx context.Context, c *ent.Client) error {
		id, owner := one(cards(ctx, c), pick), one(users(ctx, c), pick>>8)
		switch kind {
		case 0:
			return c.Card.Create().SetColor(color).Exec(ctx)
		case 1:
			return c.Card.Create().SetColor(color).SetOwnerID(owner).Exec(ctx)
		case 2:
			return c.Card.UpdateOneID(id).SetOwnerID(owner).Exec(ctx)
		case 3:
			return c.Card.Update().Where(card.Color(color)).ClearOwner().Exec(ctx)
		case 4:
			return c.Card.Create().SetColor(color).SetOwnerID(owner).OnConflictColumns(card.FieldOwnerID).UpdateColor().Exec(ctx)
		case 5:
			_, err := c.Card.Delete().Where(card.Or(card.OwnerID(owner), card.Not(card.HasOwner()))).Exec(ctx)
			return err
		default:
			return c.Card.DeleteOneID(id).Exec(ctx)
		}
	}}
}

func (r random) teams() action {
	kind, pick, name := r.IntN(7), r.Uint64(), r.word(3)
	return action{fmt.Sprintf("team#%d %s, kind %d", pick, name, kind), func(ctx context.Context, c *ent.Client) error {
		id, some := one(teams(ctx, c), pick), some(users(ctx, c), pick)
		switch kind {
		case 0:
			return c.Team.Create().SetName(name).Exec(ctx)
		case 1:
			return c.Team.Create().SetName(name).AddUserIDs(some...).Exec(ctx)
		case 2:
			return c.Team.UpdateOneID(id).AddUserIDs(some...).Exec(ctx)
		case 3:
			return c.Team.UpdateOneID(id).RemoveUserIDs(some...).Exec(ctx)
		case 4:
			return c.Team.Update().Where(team.Name(name)).ClearUsers().Exec(ctx)
		case 5:
			return c.Team.DeleteOneID(id).Exec(ctx)
		default:
			_, err := c.Team.Delete().Where(team.Name(name), team.Not(team.HasUsers())).Exec(ctx)
			return err
		}
	}}
}

func (r random) memberships() action {
	var (
		kind, pick = r.IntN(9), r.Uint64()
		role       = []membership.Role{membership.RoleMember, membership.RoleAdmin}[r.IntN(2)]
		score      = r.small()
	)
	return action{fmt.Sprintf("membership %d %s, kind %d", pick, role, kind), func(ctx context.Context, c *ent.Client) error {
		uid, tid := one(users(ctx, c), pick), one(teams(ctx, c), pick>>8)
		create := func(uid, tid int) *ent.MembershipCreate {
			return c.Membership.Create().SetUserID(uid).SetTeamID(tid).SetRole(role).SetScore(score)
		}
		other := one(users(ctx, c), pick>>16)
		columns := []string{membership.FieldTeamID, membership.FieldUserID}
		switch kind {
		case 0:
			return create(uid, tid).Exec(ctx)
		case 1:
			return c.Membership.CreateBulk(create(uid, tid), create(other, tid)).Exec(ctx)
		case 2:
			return create(uid, tid).OnConflictColumns(columns...).UpdateNewValues().Exec(ctx)
		case 3:
			return c.Membership.CreateBulk(create(uid, tid), create(other, tid)).OnConflictColumns(columns...).
				Update(func(u *ent.MembershipUpsert) { u.AddScore(2).UpdateRole() }).Exec(ctx)
		case 4:
			return c.Membership.CreateBulk(create(uid, tid), create(other, tid)).OnConflictColumns(columns...).Ignore().Exec(ctx)
		case 5:
			return c.Membership.Update().Where(membership.TeamID(tid)).SetRole(role).AddScore(1).Exec(ctx)
		case 6:
			m, err := c.Membership.Query().Where(membership.UserID(uid), membership.TeamID(tid)).Only(ctx)
			if err != nil {
				return err
			}
			return c.Membership.UpdateOne(m).SetScore(score).SetRole(role).Exec(ctx)
		case 7:
			return c.Membership.Update().Where(membership.HasUserWith(user.NameGT("c"))).SetRole(role).Exec(ctx)
		default:
			_, err := c.Membership.Delete().Where(membership.Or(membership.UserID(uid), membership.ScoreGT(25))).Exec(ctx)
			return err
		}
	}}
}

// fillTask sets what a task has: some of it is left to defaults.
func (r random) fillTask() (string, func(ctx context.Context, c *ent.Client, b *ent.TaskCreate)) {
	var (
		project, pick, mask = r.projectID(), r.Uint64(), r.IntN(256)
		state, code, tier   = r.state(), r.word(14), r.word(3)
		size, weight        = int64(r.small()), r.small()
		level               = int8(r.IntN(10))
	)
	return fmt.Sprintf("%.4s %s, code %s, %d, mask %b", project, state, code, size, mask), func(ctx context.Context, c *ent.Client, b *ent.TaskCreate) {
		if all := ids(ctx, c.Project.Query().Order(ent.Asc("id"))); len(all) > 0 && pick%16 > 0 {
			project = oneUUID(all, pick>>5)
		}
		b.SetProjectID(project)
		if mask&1 != 0 {
			b.SetState(state)
		}
		if mask&2 != 0 {
			b.SetSize(size)
		}
		if mask&4 != 0 {
			b.SetWeight(weight)
		}
		if mask&8 != 0 {
			b.SetTier(tier)
		}
		if mask&16 != 0 {
			b.SetLevel(level)
		}
		if mask&32 != 0 {
			b.SetOwnerID(one(users(ctx, c), pick))
		}
		if mask&64 != 0 {
			b.SetReviewerID(one(users(ctx, c), pick>>8)).SetRetries(uint32(size))
		}
		if mask&128 != 0 {
			b.SetCode(code)
		}
	}
}

func (r random) createTasks() action {
	var (
		names []string
		fills []func(context.Context, *ent.Client, *ent.TaskCreate)
		kind  = r.IntN(4)
		pick  = r.Uint64()
	)
	for range 1 + r.IntN(4) {
		name, fill := r.fillTask()
		names, fills = append(names, name), append(fills, fill)
	}
	return action{fmt.Sprintf("create tasks, kind %d: %s", kind, strings.Join(names, "; ")), func(ctx context.Context, c *ent.Client) error {
		switch kind {
		case 0, 1:
			b := c.Task.Create()
			fills[0](ctx, c, b)
			if kind == 1 {
				b.AddAttachmentIDs(some(attachments(ctx, c), pick)...).AddBlockIDs(some(tasks(ctx, c), pick)...)
			}
			return b.Exec(ctx)
		case 2:
			return c.Task.MapCreateBulk(fills, func(b *ent.TaskCreate, i int) { fills[i](ctx, c, b) }).Exec(ctx)
		default:
			builders := make([]*ent.TaskCreate, len(fills))
			for i, fill := range fills {
				builders[i] = c.Task.Create()
				fill(ctx, c, builders[i])
			}
			return c.Task.CreateBulk(builders...).Exec(ctx)
		}
	}}
}

// whereTask makes a predicate.
func (r random) whereTask() (string, func(context.Context, *ent.Client) predicate.Task) {
	type made = func(context.Context, *ent.Client) predicate.Task
	fixed := func(p predicate.Task) made { return func(context.Context, *ent.Client) predicate.Task { return p } }
	var (
		pid, pick, state = r.projectID(), r.Uint64(), r.state()
		n                = r.small()
		tier, tid        = r.word(3), r.tenant()
	)
	switch r.IntN(14) {
	case 0, 1:
		return fmt.Sprintf("%.4s %s", pid, state), fixed(task.And(task.ProjectID(pid), task.StateEQ(state)))
	case 2:
		return "owner pinned", func(ctx context.Context, c *ent.Client) predicate.Task {
			return task.OwnerID(one(users(ctx, c), pick))
		}
	case 3:
		return "reviewer and state pinned", func(ctx context.Context, c *ent.Client) predicate.Task {
			return task.And(task.ReviewerID(one(users(ctx, c), pick)), task.StateEQ(state))
		}
	case 4:
		return "tier pinned " + tier, fixed(task.Tier(tier))
	case 5:
		return "all pinned", func(ctx context.Context, c *ent.Client) predicate.Task {
			return task.And(task.ProjectID(pid), task.StateEQ(state), task.OwnerID(one(users(ctx, c), pick)), task.ReviewerID(one(users(ctx, c), pick>>8)), task.Tier(tier))
		}
	case 6:
		return "no owner, or a heavy one", fixed(task.Or(task.OwnerIDIsNil(), task.WeightGT(n)))
	case 7:
		return "of tenant " + string(tid), fixed(task.HasProjectWith(project.HasTenantWith(tenant.ID(tid))))
	case 8:
		return "with attachments", fixed(task.HasAttachmentsWith(attachment.SizeGT(uint64(n))))
	case 9:
		return "blocked", fixed(task.HasBlockedBy())
	case 10:
		return "not owned by …", fixed(task.Not(task.HasOwnerWith(user.NameLT("c"))))
	case 11:
		return "some ids", func(ctx context.Context, c *ent.Client) predicate.Task {
			return task.IDIn(some(tasks(ctx, c), pick)...)
		}
	case 12:
		return "labelled", fixed(func(s *entsql.Selector) { s.Where(sqljson.ValueContains(task.FieldLabels, "x")) })
	default:
		return "no weight or a code", fixed(task.Or(task.WeightIsNil(), task.CodeNotNil(), task.NoteHasPrefix("n")))
	}
}

// setTask sets some fields of an update.
func (r random) setTask() (string, func(ctx context.Context, c *ent.Client, m *ent.TaskMutation, modify func(func(*entsql.UpdateBuilder)))) {
	type builder = func(*entsql.UpdateBuilder)
	type setter = func(ctx context.Context, c *ent.Client, m *ent.TaskMutation, modify func(builder))
	var (
		state, pid, tier = r.state(), r.projectID(), r.word(3)
		n, pick          = r.small(), r.Uint64()
	)
	all := []struct {
		name string
		set  setter
	}{
		{"state " + string(state), func(_ context.Context, _ *ent.Client, m *ent.TaskMutation, _ func(builder)) { m.SetState(state) }},
		{fmt.Sprintf("project %.4s", pid), func(_ context.Context, _ *ent.Client, m *ent.TaskMutation, _ func(builder)) { m.SetProjectID(pid) }},
		{"owner", func(ctx context.Context, c *ent.Client, m *ent.TaskMutation, _ func(builder)) {
			m.SetOwnerID(one(users(ctx, c), pick))
		}},
		{"no owner", func(_ context.Context, _ *ent.Client, m *ent.TaskMutation, _ func(builder)) { m.ClearOwner() }},
		{"no owner and another", func(ctx context.Context, c *ent.Client, m *ent.TaskMutation, _ func(builder)) {
			m.ClearOwner()
			m.SetOwnerID(one(users(ctx, c), pick))
		}},
		{"reviewer", func(ctx context.Context, c *ent.Client, m *ent.TaskMutation, _ func(builder)) {
			m.SetReviewerID(one(users(ctx, c), pick))
		}},
		{"no reviewer", func(_ context.Context, _ *ent.Client, m *ent.TaskMutation, _ func(builder)) { m.ClearReviewerID() }},
		{fmt.Sprintf("size %d", n), func(_ context.Context, _ *ent.Client, m *ent.TaskMutation, _ func(builder)) { m.SetSize(int64(n)) }},
		{fmt.Sprintf("size +%d", n), func(_ context.Context, _ *ent.Client, m *ent.TaskMutation, _ func(builder)) { m.AddSize(int64(n)) }},
		{fmt.Sprintf("weight %d", n), func(_ context.Context, _ *ent.Client, m *ent.TaskMutation, _ func(builder)) { m.SetWeight(n) }},
		{"no weight", func(_ context.Context, _ *ent.Client, m *ent.TaskMutation, _ func(builder)) { m.ClearWeight() }},
		{"weight +1", func(_ context.Context, _ *ent.Client, m *ent.TaskMutation, _ func(builder)) { m.AddWeight(1) }},
		{"retries -1", func(_ context.Context, _ *ent.Client, m *ent.TaskMutation, _ func(builder)) { m.AddRetries(-1) }},
		{"tier " + tier, func(_ context.Context, _ *ent.Client, m *ent.TaskMutation, _ func(builder)) { m.SetTier(tier) }},
		{"no tier, level 3", func(_ context.Context, _ *ent.Client, m *ent.TaskMutation, _ func(builder)) {
			m.ClearTier()
			m.SetLevel(3)
		}},
		{"note", func(_ context.Context, _ *ent.Client, m *ent.TaskMutation, _ func(builder)) { m.SetNote("note") }},
		{"label", func(_ context.Context, _ *ent.Client, m *ent.TaskMutation, _ func(builder)) {
			m.AppendLabels([]string{"x"})
		}},
		{"code " + tier, func(_ context.Context, _ *ent.Client, m *ent.TaskMutation, _ func(builder)) { m.SetCode(tier) }},
		{"size by an expression", func(_ context.Context, _ *ent.Client, _ *ent.TaskMutation, modify func(builder)) {
			modify(func(u *entsql.UpdateBuilder) {
				u.Set(task.FieldSize, entsql.ExprFunc(func(b *entsql.Builder) { b.Ident(task.FieldWeight).WriteString(" % 7") }))
				u.Set(task.FieldSize, entsql.ExprFunc(func(b *entsql.Builder) { b.WriteString("COALESCE(weight, 1) % 7") }))
			})
		}},
		{"retries by an expression", func(_ context.Context, _ *ent.Client, _ *ent.TaskMutation, modify func(builder)) {
			modify(func(u *entsql.UpdateBuilder) { u.Add(task.FieldRetries, 2) })
		}},
		{"owner to reviewer by an expression", func(_ context.Context, _ *ent.Client, _ *ent.TaskMutation, modify func(builder)) {
			modify(func(u *entsql.UpdateBuilder) {
				u.Set(task.FieldReviewerID, entsql.ExprFunc(func(b *entsql.Builder) { b.Ident(task.FieldOwnerID) })).SetNull(task.FieldOwnerID)
			})
		}},
		{"attachments", func(ctx context.Context, c *ent.Client, m *ent.TaskMutation, _ func(builder)) {
			m.AddAttachmentIDs(some(attachments(ctx, c), pick)...)
		}},
		{"no attachments", func(_ context.Context, _ *ent.Client, m *ent.TaskMutation, _ func(builder)) { m.ClearAttachments() }},
		{"fewer attachments", func(ctx context.Context, c *ent.Client, m *ent.TaskMutation, _ func(builder)) {
			m.RemoveAttachmentIDs(some(attachments(ctx, c), pick)...)
		}},
		{"blocks", func(ctx context.Context, c *ent.Client, m *ent.TaskMutation, _ func(builder)) {
			m.AddBlockIDs(some(tasks(ctx, c), pick)...)
		}},
	}
	var (
		names   []string
		setters []setter
	)
	for range 1 + r.IntN(3) {
		s := all[r.IntN(len(all))]
		names, setters = append(names, s.name), append(setters, s.set)
	}
	return strings.Join(names, ", "), func(ctx context.Context, c *ent.Client, m *ent.TaskMutation, modify func(builder)) {
		for _, s := range setters {
			s(ctx, c, m, modify)
		}
	}
}

func (r random) updateTasks() action {
	where, pred := r.whereTask()
	set, setter := r.setTask()
	return action{fmt.Sprintf("update tasks where %s: %s", where, set), func(ctx context.Context, c *ent.Client) error {
		u := c.Task.Update().Where(pred(ctx, c))
		setter(ctx, c, u.Mutation(), func(f func(*entsql.UpdateBuilder)) { u.Modify(f) })
		return u.Exec(ctx)
	}}
}

func (r random) updateTask() action {
	var (
		pick        = r.Uint64()
		set, setter = r.setTask()
		where, pred = r.whereTask()
		restricted  = r.maybe(3)
	)
	return action{fmt.Sprintf("update task#%d where %s (%v): %s", pick, where, restricted, set), func(ctx context.Context, c *ent.Client) error {
		u := c.Task.UpdateOneID(one(tasks(ctx, c), pick))
		if restricted {
			u.Where(pred(ctx, c))
		}
		setter(ctx, c, u.Mutation(), func(f func(*entsql.UpdateBuilder)) { u.Modify(f) })
		t, err := u.Save(ctx)
		if err != nil {
			return err
		}
		// The result is not bound to a transaction that is over. Its project may not be
		// there: MySQL 9.7 leaves rows behind in a cascade over four tables.
		_, err = t.QueryProject().Exist(ctx)
		return err
	}}
}

func (r random) deleteTasks() action {
	where, pred := r.whereTask()
	pick, single := r.Uint64(), r.maybe(2)
	return action{fmt.Sprintf("delete task#%d (%v) or where %s", pick, single, where), func(ctx context.Context, c *ent.Client) error {
		if single {
			return c.Task.DeleteOneID(one(tasks(ctx, c), pick)).Exec(ctx)
		}
		_, err := c.Task.Delete().Where(pred(ctx, c)).Exec(ctx)
		return err
	}}
}

func (r random) upsertTasks() action {
	var (
		names []string
		fills []func(context.Context, *ent.Client, *ent.TaskCreate)
		how   = r.IntN(6)
		codes []string
	)
	for range 1 + r.IntN(4) {
		name, fill := r.fillTask()
		names, fills, codes = append(names, name), append(fills, fill), append(codes, r.word(14))
	}
	return action{fmt.Sprintf("upsert tasks, how %d: %s", how, strings.Join(names, "; ")), func(ctx context.Context, c *ent.Client) error {
		builders := make([]*ent.TaskCreate, len(fills))
		for i, fill := range fills {
			builders[i] = c.Task.Create()
			fill(ctx, c, builders[i])
			if how < 5 {
				builders[i].SetCode(codes[i])
			}
		}
		if len(builders) == 1 {
			u := builders[0].OnConflictColumns(task.FieldCode)
			switch how {
			case 0:
				return u.UpdateNewValues().Exec(ctx)
			case 1:
				return u.Ignore().Exec(ctx)
			case 2:
				return u.DoNothing().Exec(ctx)
			default:
				return u.Update(func(u *ent.TaskUpsert) { u.AddSize(1).ClearOwnerID().UpdateState() }).Exec(ctx)
			}
		}
		u := c.Task.CreateBulk(builders...).OnConflictColumns(task.FieldCode)
		switch how {
		case 0:
			return u.UpdateNewValues().Exec(ctx)
		case 1:
			return u.Ignore().Exec(ctx)
		case 2:
			return u.DoNothing().Exec(ctx)
		default:
			return u.Update(func(u *ent.TaskUpsert) { u.AddSize(1).ClearOwnerID().UpdateProjectID() }).Exec(ctx)
		}
	}}
}

func (r random) attachments() action {
	var (
		kind, pick = r.IntN(12), r.Uint64()
		order, key = r.IntN(3), r.word(4)
		count      = uint8(r.small())
		size       = uint64(r.small())
	)
	return action{fmt.Sprintf("attachment#%d %d %s, kind %d", pick, order, key, kind), func(ctx context.Context, c *ent.Client) error {
		all := attachments(ctx, c)
		id, tid, uid := oneUUID(all, pick), one(tasks(ctx, c), pick>>4), one(users(ctx, c), pick>>8)
		create := func(key string) *ent.AttachmentCreate {
			return c.Attachment.Create().SetOrder(order).SetKey(key).SetSize(size).SetCount(count)
		}
		columns := []string{attachment.FieldOrder, attachment.FieldKey, attachment.FieldTaskID}
		switch kind {
		case 0:
			return create(key).Exec(ctx)
		case 1:
			return create(key).SetTaskID(tid).SetUploaderID(uid).Exec(ctx)
		case 2:
			return c.Attachment.CreateBulk(create("a").SetTaskID(tid), create("b").SetUploaderID(uid), create("c").SetTaskID(tid).SetUploaderID(uid)).Exec(ctx)
		case 3:
			return create(key).SetTaskID(tid).OnConflictColumns(columns...).
				Update(func(u *ent.AttachmentUpsert) { u.UpdateSize().AddCount(1) }).Exec(ctx)
		case 4:
			return c.Attachment.CreateBulk(create("a").SetTaskID(tid), create("b").SetTaskID(tid), create(key).SetTaskID(tid)).OnConflictColumns(columns...).
				Update(func(u *ent.AttachmentUpsert) { u.UpdateSize().SetOrder(2) }).Exec(ctx)
		case 5:
			return create(key).SetTaskID(tid).SetID(id).OnConflictColumns(attachment.FieldID).Ignore().Exec(ctx)
		case 6:
			return c.Attachment.UpdateOneID(id).SetTaskID(tid).AddSize(1).Exec(ctx)
		case 7:
			return c.Attachment.Update().Where(attachment.Order(order), attachment.Key(key)).SetOrder((order + 1) % 3).Exec(ctx)
		case 8:
			return c.Attachment.Update().Where(attachment.UploaderID(uid)).ClearUploader().AddCount(1).Exec(ctx)
		case 9:
			return c.Attachment.Update().Where(attachment.TaskID(tid), attachment.UploaderID(uid)).SetUploaderID(one(users(ctx, c), pick>>12)).Exec(ctx)
		case 10:
			_, err := c.Attachment.Delete().Where(attachment.HasTaskWith(task.StateIn(types.Open, types.Done)), attachment.Order(order)).Exec(ctx)
			return err
		default:
			return c.Attachment.DeleteOneID(id).Exec(ctx)
		}
	}}
}

func (r random) nodes() action {
	kind, pick, size := r.IntN(14), r.Uint64(), int32(r.small())
	of := []node.Kind{node.KindLeaf, node.KindBranch}[r.IntN(2)]
	return action{fmt.Sprintf("node#%d %s %d, kind %d", pick, of, size, kind), func(ctx context.Context, c *ent.Client) error {
		all := nodes(ctx, c)
		id, parent, some := one(all, pick), one(all, pick>>8), some(all, pick)
		switch kind {
		case 0:
			return c.Node.Create().SetKind(of).SetSize(size).Exec(ctx)
		case 1:
			return c.Node.Create().SetKind(of).SetSize(size).SetParentID(parent).Exec(ctx)
		case 2:
			return c.Node.Create().SetKind(of).AddChildIDs(some...).Exec(ctx)
		case 3:
			return c.Node.UpdateOneID(id).SetParentID(parent).AddSize(1).Exec(ctx)
		case 4:
			return c.Node.UpdateOneID(id).ClearChildren().SetKind(of).Exec(ctx)
		case 5:
			return c.Node.UpdateOneID(id).RemoveChildIDs(some...).AddChildIDs(parent).SetSize(size).Exec(ctx)
		case 6:
			return c.Node.UpdateOneID(id).ClearParent().ClearChildren().AddChildIDs(some...).Exec(ctx)
		case 7:
			return c.Node.Update().Where(node.KindEQ(of)).SetParentID(parent).ClearChildren().Exec(ctx)
		case 8:
			return c.Node.Update().Where(node.ParentID(parent)).SetKind(of).Exec(ctx)
		case 9:
			return c.Node.Update().Where(node.HasParentWith(node.KindEQ(of))).ClearParent().AddSize(3).Exec(ctx)
		case 10:
			return c.Node.DeleteOneID(id).Exec(ctx)
		case 11:
			return c.Node.UpdateOneID(id).SetParentID(id).ClearChildren().Exec(ctx)
		case 12:
			return c.Node.Update().Where(node.KindEQ(of)).SetParentID(parent).RemoveChildIDs(some...).Exec(ctx)
		default:
			_, err := c.Node.Delete().Where(node.KindEQ(of), node.Or(node.HasChildren(), node.SizeLT(size))).Exec(ctx)
			return err
		}
	}}
}

func (r random) folders() action {
	kind, pick, shared, quota := r.IntN(11), r.Uint64(), r.maybe(2), int64(r.small())
	return action{fmt.Sprintf("folder#%d %v, kind %d", pick, shared, kind), func(ctx context.Context, c *ent.Client) error {
		all := folders(ctx, c)
		id, parent, some := one(all, pick), one(all, pick>>8), some(all, pick)
		switch kind {
		case 0:
			return c.Folder.Create().SetShared(shared).Exec(ctx)
		case 1, 2:
			return c.Folder.Create().SetParentID(parent).SetQuota(quota).Exec(ctx)
		case 3:
			return c.Folder.Create().SetShared(shared).AddChildIDs(some...).Exec(ctx)
		case 4:
			return c.Folder.UpdateOneID(id).SetParentID(parent).Exec(ctx)
		case 5:
			return c.Folder.UpdateOneID(id).ClearChildren().AddChildIDs(some...).AddQuota(1).Exec(ctx)
		case 6:
			return c.Folder.Update().Where(folder.Shared(shared)).SetShared(!shared).ClearQuota().Exec(ctx)
		case 7:
			return c.Folder.Update().Where(folder.ParentID(parent), folder.Shared(shared)).SetShared(!shared).Exec(ctx)
		case 8:
			return c.Folder.Update().Where(folder.Not(folder.HasChildren())).ClearParent().Exec(ctx)
		case 9:
			return c.Folder.DeleteOneID(id).Exec(ctx)
		default:
			_, err := c.Folder.Delete().Where(folder.IDIn(some...)).Exec(ctx)
			return err
		}
	}}
}

func (r random) stops() action {
	kind, pick, length, name := r.IntN(10), r.Uint64(), r.small(), r.word(3)
	return action{fmt.Sprintf("stop#%d %s %d, kind %d", pick, name, length, kind), func(ctx context.Context, c *ent.Client) error {
		all := stops(ctx, c)
		id, next, rid := one(all, pick), one(all, pick>>8), one(routes(ctx, c), pick>>4)
		switch kind {
		case 0:
			return c.Route.Create().SetName(name).AddStopIDs(some(all, pick)...).Exec(ctx)
		case 1, 2:
			return c.Stop.Create().SetRouteID(rid).SetLength(length).Exec(ctx)
		case 3:
			return c.Stop.Create().SetNextID(next).AddFeederIDs(some(all, pick)...).Exec(ctx)
		case 4:
			return c.Stop.UpdateOneID(id).SetNextID(next).SetRouteID(rid).Exec(ctx)
		case 5:
			return c.Stop.Update().Where(stop.NextID(next)).SetNextID(id).ClearFeeders().AddLength(1).Exec(ctx)
		case 6:
			return c.Stop.Update().Where(stop.LengthGT(length)).ClearRoute().ClearNext().Exec(ctx)
		case 7:
			return c.Route.DeleteOneID(rid).Exec(ctx)
		case 8:
			_, err := c.Route.Delete().Where(route.Name(name)).Exec(ctx)
			return err
		default:
			_, err := c.Stop.Delete().Where(stop.Or(stop.ID(id), stop.Not(stop.HasFeeders()))).Exec(ctx)
			return err
		}
	}}
}

func (r random) tokens() action {
	type fields struct {
		id     types.TokenID
		scope  string
		name   string
		serial int
		uses   int64
	}
	var all []fields
	for range 1 + r.IntN(3) {
		all = append(all, fields{r.tokenID(), r.word(3), r.word(4), r.IntN(12), int64(r.small())})
	}
	kind, how, by := r.IntN(9), r.IntN(4), r.IntN(4)
	return action{fmt.Sprintf("tokens %v, kind %d, how %d, by %d", all, kind, how, by), func(ctx context.Context, c *ent.Client) error {
		builders := make([]*ent.TokenCreate, len(all))
		for i, f := range all {
			builders[i] = c.Token.Create().SetID(f.id).SetScope(f.scope).SetName(f.name).SetSerial(f.serial).SetUses(f.uses)
		}
		columns := [][]string{{token.FieldID}, {token.FieldScope, token.FieldName}, {token.FieldSerial}, nil}[by]
		update := func(u *ent.TokenUpsert) {
			if how == 1 {
				u.AddUses(1).UpdateScope()
			} else {
				u.UpdateUses().SetScope("c")
			}
		}
		switch kind {
		case 0:
			return builders[0].Exec(ctx)
		case 1:
			return c.Token.CreateBulk(builders...).Exec(ctx)
		case 2, 3:
			if columns == nil {
				return builders[0].OnConflict(entsql.DoNothing()).Exec(ctx)
			}
			u := builders[0].OnConflictColumns(columns...)
			switch how {
			case 0:
				u.UpdateNewValues()
			case 3:
				u.Ignore()
			default:
				u.Update(update)
			}
			return u.Exec(ctx)
		case 4, 5, 6:
			if columns == nil {
				return c.Token.CreateBulk(builders...).OnConflict(entsql.DoNothing()).Exec(ctx)
			}
			u := c.Token.CreateBulk(builders...).OnConflictColumns(columns...)
			switch how {
			case 0:
				u.UpdateNewValues()
			case 3:
				u.Ignore()
			default:
				u.Update(update)
			}
			return u.Exec(ctx)
		case 7:
			return c.Token.UpdateOneID(all[0].id).AddUses(1).SetScope(all[0].scope).Exec(ctx)
		default:
			_, err := c.Token.Delete().Where(token.Or(token.ID(all[0].id), token.Serial(all[0].serial))).Exec(ctx)
			return err
		}
	}}
}

func (r random) devices() action {
	type fields struct {
		id, site uuid.UUID
		serial   string
		load     int
		given    bool
	}
	var all []fields
	for range 1 + r.IntN(3) {
		all = append(all, fields{r.deviceID(), r.site(), r.word(12), r.small(), r.maybe(2)})
	}
	kind, how := r.IntN(8), r.IntN(3)
	return action{fmt.Sprintf("devices %v, kind %d, how %d", all, kind, how), func(ctx context.Context, c *ent.Client) error {
		builders := make([]*ent.DeviceCreate, len(all))
		for i, f := range all {
			builders[i] = c.Device.Create().SetSite(f.site).SetSerial(f.serial).SetLoad(f.load)
			if f.given {
				builders[i].SetID(f.id)
			}
		}
		switch kind {
		case 0:
			return c.Device.CreateBulk(builders...).Exec(ctx)
		case 1, 2:
			u := builders[0].OnConflictColumns(device.FieldSerial)
			switch how {
			case 0: // not the id
				return u.Update(func(u *ent.DeviceUpsert) { u.UpdateSite().AddLoad(1) }).Exec(ctx)
			case 1:
				return u.Ignore().Exec(ctx)
			default:
				return u.DoNothing().Exec(ctx)
			}
		case 3, 4:
			u := c.Device.CreateBulk(builders...).OnConflictColumns(device.FieldSerial)
			switch how {
			case 0:
				return u.Update(func(u *ent.DeviceUpsert) { u.UpdateSite().AddLoad(1) }).Exec(ctx)
			case 1:
				return u.Ignore().Exec(ctx)
			default:
				return u.DoNothing().Exec(ctx)
			}
		case 5:
			return c.Device.Create().SetID(all[0].id).SetSite(all[0].site).SetSerial(all[0].serial).OnConflictColumns(device.FieldID).UpdateNewValues().Exec(ctx)
		case 6:
			return c.Device.Update().Where(device.Site(all[0].site)).SetSite(uuid.NewSHA1(uuid.Nil, []byte{'s', 2})).AddLoad(1).Exec(ctx)
		default:
			_, err := c.Device.Delete().Where(device.Or(device.Serial(all[0].serial), device.ID(all[0].id))).Exec(ctx)
			return err
		}
	}}
}

func (r random) blobs() action {
	id, bucket, size, kind := types.HashOf(r.Uint64N(8)), r.word(3), int64(r.small()), r.IntN(7)
	return action{fmt.Sprintf("blob %x %s %d, kind %d", id, bucket, size, kind), func(ctx context.Context, c *ent.Client) error {
		create := func(id types.Hash) *ent.BlobCreate {
			return c.Blob.Create().SetID(id).SetBucket(bucket).SetSize(size)
		}
		switch kind {
		case 0:
			return create(id).Exec(ctx)
		case 1:
			return create(id).OnConflictColumns(blob.FieldID).UpdateNewValues().Exec(ctx)
		case 2:
			return c.Blob.CreateBulk(create(id), create(types.HashOf(2)), create(types.HashOf(3))).OnConflictColumns(blob.FieldID).
				Update(func(u *ent.BlobUpsert) { u.AddSize(1).UpdateBucket() }).Exec(ctx)
		case 3:
			return c.Blob.UpdateOneID(id).SetBucket(bucket).Exec(ctx)
		case 4:
			return c.Blob.Update().Where(blob.Bucket(bucket)).AddSize(1).Exec(ctx)
		case 5:
			return c.Blob.DeleteOneID(id).Exec(ctx)
		default:
			_, err := c.Blob.Delete().Where(blob.BucketHasPrefix(bucket), blob.SizeGT(size)).Exec(ctx)
			return err
		}
	}}
}

func (r random) memos() action {
	board, size, kind, pick, viewer := r.word(3), int64(r.small()), r.IntN(10), r.Uint64(), r.word(4)
	return action{fmt.Sprintf("memo#%d %s, kind %d, viewer %s", pick, board, kind, viewer), func(ctx context.Context, c *ent.Client) error {
		all := ids(schema.SkipSoftDelete(ctx), c.Memo.Query().Order(ent.Asc("id")))
		id := one(all, pick)
		if viewer != "d" {
			ctx = schema.WithViewer(ctx, viewer)
		}
		hard := schema.SkipSoftDelete(ctx)
		switch kind {
		case 0, 1:
			return c.Memo.Create().SetBoard(board).SetSize(size).Exec(ctx)
		case 2:
			return c.Memo.DeleteOneID(id).Exec(ctx)
		case 3:
			_, err := c.Memo.Delete().Where(memo.Board(board)).Exec(ctx)
			return err
		case 4:
			return c.Memo.DeleteOneID(id).Exec(hard)
		case 5:
			_, err := c.Memo.Delete().Where(memo.SizeLT(size)).Exec(hard)
			return err
		case 6:
			return c.Memo.Update().Where(memo.Deleted(true)).ClearDeleteTime().SetDeleted(false).Exec(ctx)
		case 7:
			return c.Memo.UpdateOneID(id).SetSize(size).Exec(ctx)
		case 8:
			return c.Memo.Update().Where(memo.Board(board), memo.Deleted(false)).AddSize(1).Exec(ctx)
		default:
			return c.Memo.Update().Where(memo.SizeGT(size)).SetBoard(board).Exec(ctx)
		}
	}}
}
