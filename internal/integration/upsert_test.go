package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/internal/integration/ent"
	"github.com/entcounter/entcounter/internal/integration/ent/badge"
	"github.com/entcounter/entcounter/internal/integration/ent/device"
	"github.com/entcounter/entcounter/internal/integration/ent/devicecounters"
	"github.com/entcounter/entcounter/internal/integration/ent/membership"
	"github.com/entcounter/entcounter/internal/integration/ent/task"
	"github.com/entcounter/entcounter/internal/integration/ent/token"
	"github.com/entcounter/entcounter/internal/integration/ent/tokencounters"
	"github.com/entcounter/entcounter/internal/integration/types"
	"github.com/entcounter/entcounter/internal/testdb"
	"github.com/google/uuid"
)

// An upsert that inserts adds one; one that conflicts moves the row that is there,
// or leaves it; and one whose update changes nothing adds nothing.
func TestUpsertOfOne(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.Database, params map[string]string) {
		ctx := t.Context()
		w := newWorld(t, db, params)
		p, _ := w.project(ctx, "p", 0)
		q, _ := w.project(ctx, "q", 0)
		create := func(in *ent.Project, size int64) *ent.TaskCreate {
			return w.client.Task.Create().SetProject(in).SetCode("c").SetSize(size).SetTier("t").SetLevel(1)
		}
		key := func(in *ent.Project, delta string) string { return fmt.Sprint(in.ID, " open: ", delta) }
		id := must(create(p, 5).OnConflictColumns(task.FieldCode).UpdateNewValues().ID(ctx))(t)
		w.journalled(ctx, "Task", key(p, "1 5 0 0"))
		again := must(create(q, 7).OnConflictColumns(task.FieldCode).UpdateNewValues().ID(ctx))(t)
		if again != id {
			t.Errorf("the upserted row has the id %d, then %d", id, again)
		}
		w.journalled(ctx, "Task", key(p, "-1 -5 0 0"), key(q, "1 7 0 0"))
		w.journalled(ctx, "TaskTier", "t: 1 1")
		for name, upsert := range map[string]func() error{
			"ignore":     func() error { return create(p, 9).OnConflictColumns(task.FieldCode).Ignore().Exec(ctx) },
			"do nothing": func() error { return create(p, 9).OnConflictColumns(task.FieldCode).DoNothing().Exec(ctx) },
			"do nothing, no target": func() error {
				return create(p, 9).OnConflict(entsql.DoNothing()).Exec(ctx)
			},
			"update of nothing counted": func() error {
				return create(p, 9).OnConflictColumns(task.FieldCode).Update(func(u *ent.TaskUpsert) { u.SetNote("n") }).Exec(ctx)
			},
			"the same again": func() error { return create(q, 7).OnConflictColumns(task.FieldCode).UpdateNewValues().Exec(ctx) },
		} {
			if err := upsert(); err != nil && !errors.Is(err, sql.ErrNoRows) {
				t.Errorf("%s: %v", name, err)
			}
			w.journalled(ctx, "Task")
		}
		no(t, create(p, 9).OnConflictColumns(task.FieldCode).Update(func(u *ent.TaskUpsert) { u.AddSize(3).SetProjectID(p.ID) }).Exec(ctx))
		w.journalled(ctx, "Task", key(q, "-1 -7 0 0"), key(p, "1 10 0 0"))
		// Without a value for the unique column nothing conflicts.
		no(t, w.client.Task.Create().SetProject(p).SetSize(1).OnConflictColumns(task.FieldCode).UpdateNewValues().Exec(ctx))
		w.journalled(ctx, "Task", key(p, "1 1 0 0"))
		if w.db.Dialect != dialect.MySQL { // where any unique index is meant
			err := w.client.Task.Create().SetProject(p).SetCode("c").OnConflictColumns(task.FieldID).UpdateNewValues().Exec(ctx)
			if !ent.IsConstraintError(err) {
				t.Errorf("a conflict with another index than was named: %v", err)
			}
		}
		w.exact(ctx)
		// In a transaction, then rolled back and committed.
		for _, commit := range []bool{false, true} {
			tx := must(w.client.Tx(ctx))(t)
			no(t, tx.Task.Create().SetProject(p).SetCode("d").SetSize(2).OnConflictColumns(task.FieldCode).UpdateNewValues().Exec(ctx),
				tx.Task.Create().SetProject(q).SetCode("d").SetSize(3).OnConflictColumns(task.FieldCode).UpdateNewValues().Exec(ctx),
				tx.Task.Create().SetProject(q).SetCode("d").SetSize(4).OnConflictColumns(task.FieldCode).Ignore().Exec(ctx))
			if commit {
				no(t, tx.Commit())
				w.journalled(ctx, "Task", key(q, "1 3 0 0"))
			} else {
				no(t, tx.Rollback())
				w.journalled(ctx, "Task")
			}
		}
	})
}

// A bulk upsert mixes rows that are new, there, there and unchanged, and twice in
// the bulk.
func TestBulkUpsert(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.Database, params map[string]string) {
		ctx := t.Context()
		w := newWorld(t, db, params)
		a, b := uuid.New(), uuid.New()
		make := func(site uuid.UUID, serials ...string) *ent.DeviceCreateBulk {
			var builders []*ent.DeviceCreate
			for i, s := range serials {
				builders = append(builders, w.client.Device.Create().SetSite(site).SetSerial(s).SetLoad(i+1))
			}
			return w.client.Device.CreateBulk(builders...)
		}
		reads := func(site uuid.UUID, count, load int64) {
			t.Helper()
			w.exact(ctx)
			got := must(w.client.DeviceCounters.Read(ctx, devicecounters.Key{Site: site}))(t)
			if got.Count != count || got.Load != load {
				t.Errorf("%d devices with a load of %d, want %d and %d", got.Count, got.Load, count, load)
			}
		}
		update := func(u *ent.DeviceUpsert) { u.UpdateSite().UpdateLoad() }
		no(t, make(a, "1", "2", "3").OnConflictColumns(device.FieldSerial).Ignore().Exec(ctx))
		reads(a, 3, 6)
		no(t, make(b, "2", "4", "3", "5").OnConflictColumns(device.FieldSerial).Update(update).Exec(ctx))
		reads(a, 1, 1)
		reads(b, 4, 10)
		no(t, make(a, "4", "6", "5", "7").OnConflictColumns(device.FieldSerial).DoNothing().Exec(ctx))
		reads(a, 3, 1+2+4)
		reads(b, 4, 10)
		no(t, make(b, "2", "4", "3", "5").OnConflictColumns(device.FieldSerial).Update(update).Exec(ctx))
		reads(b, 4, 10)
		no(t, make(b, "8", "9", "8").OnConflictColumns(device.FieldSerial).Ignore().Exec(ctx))
		reads(b, 6, 13)
		if err := make(a, "8", "8", "new").OnConflictColumns(device.FieldSerial).Update(update).Exec(ctx); err != nil && db.Dialect != dialect.Postgres {
			t.Error(err) // PostgreSQL updates no row twice in one statement
		}
		w.exact(ctx)
		// One that fails as a whole.
		err := w.client.Device.CreateBulk(
			w.client.Device.Create().SetSite(a).SetSerial("x"),
			w.client.Device.Create().SetSite(a).SetSerial("y").SetID(w.client.Device.Query().FirstIDX(ctx)),
		).OnConflictColumns(device.FieldSerial).Update(update).Exec(ctx)
		if err == nil && db.Dialect != dialect.MySQL {
			t.Error("a conflict with another index than was named passed")
		}
		w.exact(ctx)
	})
}

// Rows with several unique indexes: a conflict with any is one on MySQL, and one
// with another than was named is an error elsewhere.
func TestUpsertWithSeveralUniqueIndexes(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.Database, params map[string]string) {
		ctx := t.Context()
		w := newWorld(t, db, params)
		create := func(id types.TokenID, scope, name string, serial int) *ent.TokenCreate {
			return w.client.Token.Create().SetID(id).SetScope(scope).SetName(name).SetSerial(serial).SetUses(10)
		}
		for i := range 3 {
			no(t, create(types.TokenID(i), "s", fmt.Sprint(i), i).Exec(ctx))
		}
		w.exact(ctx)
		for _, columns := range [][]string{{token.FieldID}, {token.FieldSerial}, {token.FieldScope, token.FieldName}} {
			for _, c := range []*ent.TokenCreate{
				create(0, "t", "0", 0), create(9, "s", "1", 9), create(8, "x", "8", 2), create(7, "s", "0", 1), create(6, "s", "6", 6),
			} {
				bulk := w.client.Token.CreateBulk(c, create(5, "u", "5", 5)).OnConflictColumns(columns...)
				err := bulk.Update(func(u *ent.TokenUpsert) { u.AddUses(1).UpdateScope() }).Exec(ctx)
				if err != nil && !ent.IsConstraintError(err) {
					t.Errorf("by %v: %v", columns, err)
				}
				w.exact(ctx)
				if err := c.OnConflictColumns(columns...).Ignore().Exec(ctx); err != nil && !ent.IsConstraintError(err) {
					t.Errorf("by %v: %v", columns, err)
				}
				w.exact(ctx)
			}
		}
		// An upsert may change the column that it conflicts by.
		err := create(2, "s", "2", 2).OnConflictColumns(token.FieldID).Update(func(u *ent.TokenUpsert) { u.SetSerial(77).SetScope("moved") }).Exec(ctx)
		if err != nil && !ent.IsConstraintError(err) {
			t.Error(err)
		}
		w.exact(ctx)
	})
}

// Sixteen upserts of one new key at once, with ids of every kind, at both
// isolation levels.
func TestConcurrentUpserts(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.Database, params map[string]string) {
		ctx := t.Context()
		if db.Dialect == dialect.SQLite {
			params = map[string]string{"_txlock": "immediate"}
		}
		w := newWorld(t, db, params)
		site := uuid.New()
		team := must(w.client.Team.Create().SetName("t").Save(ctx))(t)
		u, v := w.user(ctx, "u"), w.user(ctx, "v")
		p, _ := w.project(ctx, "p", 0)
		kinds := map[string]func(c *ent.Client, round, i int) error{
			"number": func(c *ent.Client, round, i int) error {
				return c.Task.Create().SetProject(p).SetCode(fmt.Sprint(round)).SetSize(int64(i)).SetState(states[i%4]).
					OnConflictColumns(task.FieldCode).UpdateNewValues().Exec(ctx)
			},
			"uuid": func(c *ent.Client, round, i int) error {
				return c.Device.Create().SetSite(site).SetSerial(fmt.Sprint(round)).SetLoad(i).
					OnConflictColumns(device.FieldSerial).Update(func(u *ent.DeviceUpsert) { u.AddLoad(1) }).Exec(ctx)
			},
			"bulk": func(c *ent.Client, round, i int) error {
				return c.Device.MapCreateBulk(make([]int, 3), func(b *ent.DeviceCreate, n int) {
					b.SetSite(site).SetSerial(fmt.Sprint("bulk", round, (n+i)%4)).SetLoad(i) // in different orders
				}).OnConflictColumns(device.FieldSerial).Update(func(u *ent.DeviceUpsert) { u.AddLoad(1) }).Exec(ctx)
			},
			"string": func(c *ent.Client, round, i int) error {
				return c.Token.Create().SetID(types.TokenID(round)).SetScope(fmt.Sprint(i % 2)).SetName(fmt.Sprint(round)).SetSerial(round).SetUses(int64(i)).
					OnConflictColumns(token.FieldID).UpdateNewValues().Exec(ctx)
			},
			"composite": func(c *ent.Client, round, i int) error {
				return c.Membership.CreateBulk(
					c.Membership.Create().SetTeam(team).SetUser([]*ent.User{u, v}[i%2]).SetScore(i),
					c.Membership.Create().SetTeam(team).SetUser([]*ent.User{v, u}[i%2]).SetScore(i),
				).OnConflictColumns(membership.FieldTeamID, membership.FieldUserID).UpdateNewValues().Exec(ctx)
			},
		}
		for name, upsert := range kinds {
			for round, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
				var all sync.WaitGroup
				for i := range 16 {
					all.Go(func() {
						for {
							tx, err := w.client.BeginTx(ctx, &sql.TxOptions{Isolation: level})
							if err == nil {
								if err = upsert(tx.Client(), round, i); err != nil {
									_ = tx.Rollback()
								} else {
									err = tx.Commit()
								}
							}
							if err == nil {
								return
							}
							if !transient(err) && !(db.Dialect != dialect.MySQL && ent.IsConstraintError(err)) {
								t.Errorf("%s at %v: %v", name, level, err)
								return
							}
						}
					})
				}
				all.Wait()
				w.exact(ctx)
			}
		}
		if got := must(w.client.TokenCounters.Total(ctx, tokencounters.Scope{}))(t); got.Count != 2 {
			t.Errorf("there are %d tokens", got.Count)
		}
		if got := must(w.client.DeviceCounters.Read(ctx, devicecounters.Key{Site: site}))(t); got.Count != 2+2*4 {
			t.Errorf("there are %d devices", got.Count)
		}
	})
}

// A column that some rows of a batch set is NULL in those that do not, in one
// statement as in several.
func TestBulkUpsertSetsTheSameColumnsInAllRows(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.Database, params map[string]string) {
		ctx := t.Context()
		w := newWorld(t, db, params)
		p, _ := w.project(ctx, "p", 0)
		upsert := func(rows ...func(*ent.TaskCreate)) {
			t.Helper()
			no(t, w.client.Task.MapCreateBulk(rows, func(b *ent.TaskCreate, i int) { rows[i](b.SetProject(p)) }).
				OnConflictColumns(task.FieldCode).UpdateNewValues().Exec(ctx))
			w.exact(ctx)
		}
		row := func(code string) func(*ent.TaskCreate) { return func(b *ent.TaskCreate) { b.SetCode(code) } }
		tier := func(code, tier string) func(*ent.TaskCreate) {
			return func(b *ent.TaskCreate) { b.SetCode(code).SetTier(tier) }
		}
		tiers := func(want map[string]string) {
			t.Helper()
			got := make(map[string]string)
			for _, x := range must(w.client.Task.Query().All(ctx))(t) {
				got[*x.Code] = x.Tier
			}
			if !maps.Equal(got, want) {
				t.Errorf("the tiers are %v, want %v", got, want)
			}
		}
		upsert(tier("a", "gold"), tier("b", "gold"))
		upsert(row("a"), tier("c", "silver"), row("d")) // one that is there, and two that are not
		tiers(map[string]string{"a": "", "b": "gold", "c": "silver", "d": ""})
		upsert(tier("a", "gold"), row("c"), row("c"), row("e")) // one of them twice
		tiers(map[string]string{"a": "gold", "b": "gold", "c": "", "d": "", "e": ""})
		upsert(row("f"), row("g")) // no row sets it
		tiers(map[string]string{"a": "gold", "b": "gold", "c": "", "d": "", "e": "", "f": "free", "g": "free"})
	})
}

// A bulk upsert that fails has changed nothing, however many statements it took.
// The transaction goes on, is committed, and is exact.
func TestBulkUpsertThatFailsHalfWay(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.Database, params map[string]string) {
		ctx := t.Context()
		w := newWorld(t, db, params)
		p, tasks := w.project(ctx, "p", 3)
		for i, x := range tasks {
			no(t, x.Update().SetCode(fmt.Sprint("c", i)).Exec(ctx))
		}
		w.fold(ctx)
		row := func(c *ent.Client, code string) *ent.TaskCreate {
			return c.Task.Create().SetProject(p).SetCode(code).SetSize(1)
		}
		update := func(u *ent.TaskUpsert) { u.UpdateSize().UpdateOwnerID() }
		attempts := map[string]func(c *ent.Client) error{
			"the update of a row that is there, after an insert": func(c *ent.Client) error {
				return c.Task.CreateBulk(row(c, "new"), row(c, "c0")).OnConflictColumns(task.FieldCode).
					Update(func(u *ent.TaskUpsert) { u.UpdateSize().SetOwnerID(1 << 30) }).Exec(ctx)
			},
			"the second of two inserts": func(c *ent.Client) error {
				return c.Task.CreateBulk(row(c, "new"), row(c, "newer").SetOwnerID(1<<30)).OnConflictColumns(task.FieldCode).Update(update).Exec(ctx)
			},
			"one of rows that meet each other": func(c *ent.Client) error {
				return c.Task.CreateBulk(row(c, "new"), row(c, "c1"), row(c, "new"), row(c, "newer").SetOwnerID(1<<30)).
					OnConflictColumns(task.FieldCode).Update(update).Exec(ctx)
			},
			"one row": func(c *ent.Client) error {
				return row(c, "c2").OnConflictColumns(task.FieldCode).Update(func(u *ent.TaskUpsert) { u.SetOwnerID(1 << 30) }).Exec(ctx)
			},
		}
		for name, attempt := range attempts {
			before := must(w.client.Task.Query().Count(ctx))(t)
			if err := attempt(w.client); !ent.IsConstraintError(err) {
				t.Errorf("%s: %v", name, err)
			}
			w.exact(ctx)
			tx := must(w.client.Tx(ctx))(t)
			no(t, tx.Task.Create().SetProject(p).SetSize(7).Exec(ctx))
			if db.Dialect == dialect.Postgres { // which takes nothing after an error
				must(tx.ExecContext(ctx, "SAVEPOINT mine"))(t)
			}
			if err := attempt(tx.Client()); !ent.IsConstraintError(err) {
				t.Errorf("%s, in a transaction: %v", name, err)
			}
			if db.Dialect == dialect.Postgres {
				must(tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT mine"))(t)
			}
			if err := errors.Join(tx.Task.UpdateOneID(tasks[0].ID).AddSize(1).Exec(ctx), tx.Commit()); err != nil {
				t.Errorf("%s: the transaction does not go on: %v", name, err)
			}
			if after := must(w.client.Task.Query().Count(ctx))(t); after != before+1 {
				t.Errorf("%s left %d rows", name, after-before-1)
			}
			w.exact(ctx)
		}
	})
}

// Ids that are given for all rows of a bulk, beside a column whose value the
// database computes: the rows are read back by the ids given.
func TestBulkCreateWithGivenIDs(t *testing.T) {
	with(t, func(ctx context.Context, w *world) {
		ids := []int{7000, 5, 123_456}
		create := func(b *ent.BadgeCreate, i int) { b.SetID(ids[i]).SetName(fmt.Sprint(i)) }
		no(w, w.client.Badge.MapCreateBulk(ids, create).Exec(ctx))
		w.journalled(ctx, "Badge", "plain: 3 9")
		ids = []int{8000, 6, 5, 123_457} // one that is there
		no(w, w.client.Badge.MapCreateBulk(ids, create).OnConflictColumns(badge.FieldID).Ignore().Exec(ctx))
		w.journalled(ctx, "Badge", "plain: 3 9")
		no(w, w.client.Badge.Create().SetID(9).SetName("n").Exec(ctx), w.client.Badge.Create().SetName("n").Exec(ctx))
		w.exact(ctx)
	})
}
