package sequencetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/sequencetest/ent"
	"github.com/entcounter/entcounter/internal/sequencetest/ent/enttest"
	"github.com/entcounter/entcounter/internal/sequencetest/ent/invoice"
	"github.com/entcounter/entcounter/internal/sequencetest/ent/room"
	"github.com/entcounter/entcounter/internal/sequencetest/ent/task"
	"github.com/entcounter/entcounter/internal/sequencetest/ent/taskcounters"
	"github.com/entcounter/entcounter/internal/sequencetest/schema"
	"github.com/entcounter/entcounter/internal/testdb"
)

func TestCreate(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		p := w.projects(2)
		for i := range 5 {
			w.mustCreate(w.client, p[0], fmt.Sprint(i), i+1)
		}
		w.mustCreate(w.client, p[1], "other", 1)
		tx := w.begin()
		w.mustCreate(tx.Client(), p[0], "in a transaction", 6)
		w.mustCreate(tx.Client(), p[1], "in a transaction", 2)
		w.mustCreate(tx.Client(), p[0], "once more", 7)
		if n := ofProject(tx.Client(), p[0]).CountX(ctx); n != 7 {
			t.Errorf("%d tasks", n)
		}
		w.no(tx.Commit())
		// The number is what is stored, and stays through an update.
		created := w.client.Task.Create().SetProjectID(p[0]).SetTitle("x").SaveX(ctx)
		updated := w.client.Task.UpdateOne(created).SetDone(true).SaveX(ctx)
		if stored := w.client.Task.GetX(ctx, created.ID); created.Number != 8 || stored.Number != 8 || updated.Number != 8 {
			t.Errorf("created with the number %d, updated with %d, stored is %d", created.Number, updated.Number, stored.Number)
		}
		// Numbers of deleted rows do not come again.
		w.client.Task.DeleteOne(created).ExecX(ctx)
		w.mustCreate(w.client, p[0], "y", 9)
		w.counted(taskcounters.Scope{})
	})
}

func TestRollback(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		p := w.projects(1)[0]
		for round := range 3 {
			tx := w.begin()
			w.mustCreate(tx.Client(), p, "a", round+1)
			w.mustCreate(tx.Client(), p, "b", round+2)
			w.no(tx.Rollback())
			w.mustCreate(w.client, p, fmt.Sprint(round), round+1)
		}
		w.consecutive(p)
	})
}

func TestBatch(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		p := w.projects(3)
		w.mustCreate(w.client, p[1], "first", 1)
		next := map[int]int{p[1]: 1}
		for _, rows := range []int{1000, 7, 1} {
			w.tap.Reset()
			tasks := w.client.Task.MapCreateBulk(make([]struct{}, rows), func(c *ent.TaskCreate, i int) {
				c.SetProjectID(p[(i+1)%len(p)]).SetTitle(fmt.Sprint(rows, "-", i))
			}).SaveX(ctx)
			draws := 0
			for _, s := range w.tap.SQL() {
				if strings.Contains(s, "task_number_sequence") {
					draws++
				}
			}
			want := min(rows, len(p))
			if rows == 1000 {
				want += 2 // the first use of two scopes
			}
			if draws != want {
				t.Errorf("%d statements on the sequence, want %d", draws, want)
			}
			// In the order of the batch.
			for _, task := range tasks {
				next[task.ProjectID]++
				if task.Number != next[task.ProjectID] {
					t.Fatalf("task %q has the number %d, want %d", task.Title, task.Number, next[task.ProjectID])
				}
			}
			stored := make(map[int]int)
			for _, task := range w.client.Task.Query().AllX(ctx) {
				stored[task.ID] = task.Number
			}
			for _, task := range tasks {
				if stored[task.ID] != task.Number {
					t.Fatalf("task %q is returned with the number %d, and stored with %d", task.Title, task.Number, stored[task.ID])
				}
			}
		}
		w.consecutive(p...)
	})
}

// A create that fails in a transaction of the user's takes no number, and the
// transaction goes on.
func TestFailedCreate(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		p := w.projects(2)
		w.mustCreate(w.client, p[0], "taken", 1)
		for _, first := range []bool{false, true} { // use of the scope
			project := p[0]
			if first {
				project = p[1]
				// By hand: a create would use the scope.
				w.exec(fmt.Sprintf("INSERT INTO `tasks` (`project_id`, `title`, `done`) VALUES (%d, 'taken', FALSE)", project))
				if _, err := w.client.TaskCounters.Rebuild(ctx, taskcounters.Scope{}); err != nil {
					t.Fatal(err)
				}
			}
			tx := w.begin()
			savepoint := func(query string) {
				t.Helper()
				if w.db.Kind == testdb.Postgres { // where an error aborts the transaction
					if _, err := tx.ExecContext(ctx, query); err != nil {
						t.Fatal(err)
					}
				}
			}
			fails := func(create func() error) {
				t.Helper()
				savepoint("SAVEPOINT s")
				if err := create(); !ent.IsConstraintError(err) {
					t.Fatalf("error %v, want one of a constraint", err)
				}
				savepoint("ROLLBACK TO SAVEPOINT s")
			}
			one := func() error {
				return tx.Task.Create().SetProjectID(project).SetTitle("taken").Exec(ctx)
			}
			many := func() error {
				return tx.Task.MapCreateBulk([]string{"a", "taken", "b"}, func(c *ent.TaskCreate, i int) {
					c.SetProjectID(project).SetTitle([]string{"a", "taken", "b"}[i])
				}).Exec(ctx)
			}
			number := 2
			if first {
				number = 1
			}
			fails(one)
			fails(many)
			w.mustCreate(tx.Client(), project, "b", number)
			fails(many)
			fails(one)
			w.mustCreate(tx.Client(), project, "c", number+1)
			fails(one)
			w.no(tx.Commit())
			w.mustCreate(w.client, project, "d", number+2)
		}
		w.consecutive(p[0])
	})
}

// Outside of a transaction too.
func TestFailedCreateAlone(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		p := w.projects(1)[0]
		w.mustCreate(w.client, p, "a", 1)
		for range 3 {
			if _, err := create(t.Context(), w.client, p, "a"); !ent.IsConstraintError(err) {
				t.Fatalf("error %v, want one of a constraint", err)
			}
		}
		w.mustCreate(w.client, p, "b", 2)
		w.consecutive(p)
	})
}

func TestSavepoint(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		p := w.projects(1)[0]
		tx := w.begin()
		run := func(query string) {
			t.Helper()
			if _, err := tx.ExecContext(t.Context(), query); err != nil {
				t.Fatal(err)
			}
		}
		run("SAVEPOINT a")
		w.mustCreate(tx.Client(), p, "1", 1)
		run("ROLLBACK TO SAVEPOINT a") // the first use of the scope too
		w.mustCreate(tx.Client(), p, "2", 1)
		run("SAVEPOINT b")
		w.mustCreate(tx.Client(), p, "3", 2)
		w.mustCreate(tx.Client(), p, "4", 3)
		run("ROLLBACK TO SAVEPOINT b")
		w.mustCreate(tx.Client(), p, "5", 2)
		run("RELEASE SAVEPOINT b")
		w.no(tx.Commit())
		w.mustCreate(w.client, p, "6", 3)
		w.consecutive(p)
	})
}

func TestUpsert(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		p := w.projects(2)
		titles := func(projects ...int) (all []string) {
			for _, project := range projects {
				for _, row := range ofProject(w.client, project).AllX(ctx) {
					all = append(all, fmt.Sprint(row.Number, row.Title, row.Done))
				}
			}
			return all
		}
		want := func(projects []int, want ...string) {
			t.Helper()
			if got := titles(projects...); !slices.Equal(got, want) {
				t.Fatalf("%q, want %q", got, want)
			}
			w.consecutive(projects...)
		}
		one := func(c *ent.Client, title string, done bool) {
			t.Helper()
			w.no(c.Task.Create().SetProjectID(p[0]).SetTitle(title).SetDone(done).
				OnConflictColumns(task.FieldProjectID, task.FieldTitle).UpdateNewValues().Exec(ctx))
		}
		one(w.client, "a", false)
		one(w.client, "a", true)
		one(w.client, "a", true)
		one(w.client, "b", false)
		want(p[:1], "1atrue", "2bfalse")
		tx := w.begin()
		one(tx.Client(), "b", true)
		one(tx.Client(), "c", false)
		one(tx.Client(), "c", true)
		one(tx.Client(), "d", true)
		w.no(tx.Commit())
		want(p[:1], "1atrue", "2btrue", "3ctrue", "4dtrue")

		batch := func(c *ent.Client, project int, titles ...string) {
			t.Helper()
			w.no(c.Task.MapCreateBulk(titles, func(c *ent.TaskCreate, i int) {
				c.SetProjectID(project).SetTitle(titles[i])
			}).OnConflictColumns(task.FieldProjectID, task.FieldTitle).UpdateNewValues().Exec(ctx))
		}
		batch(w.client, p[0], "e", "a", "f", "b")
		want(p[:1], "1afalse", "2bfalse", "3ctrue", "4dtrue", "5efalse", "6ffalse")
		batch(w.client, p[0], "c", "d")
		batch(w.client, p[1], "x", "y", "z")
		want(p, "1afalse", "2bfalse", "3cfalse", "4dfalse", "5efalse", "6ffalse", "1xfalse", "2yfalse", "3zfalse")
		tx = w.begin()
		batch(tx.Client(), p[1], "v", "x", "w")
		batch(tx.Client(), p[1], "x", "y")
		w.mustCreate(tx.Client(), p[1], "u", 6)
		w.no(tx.Commit())
		want(p[1:], "1xfalse", "2yfalse", "3zfalse", "4vfalse", "5wfalse", "6ufalse")

		if w.db.Dialect != dialect.MySQL {
			// Nothing is inserted, and nothing updated.
			err := w.client.Task.Create().SetProjectID(p[1]).SetTitle("x").SetDone(true).
				OnConflictColumns(task.FieldProjectID, task.FieldTitle).DoNothing().Exec(ctx)
			if !errors.Is(err, sql.ErrNoRows) {
				t.Errorf("error %v", err)
			}
			w.mustCreate(w.client, p[1], "t", 7)
			w.consecutive(p...)
		}
		w.no(w.client.Task.Create().SetProjectID(p[1]).SetTitle("x").SetDone(true).
			OnConflictColumns(task.FieldProjectID, task.FieldTitle).Ignore().Exec(ctx))
		w.consecutive(p...)
	})
}

// What a sequence cannot keep is refused, before anything is done.
func TestRefused(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		p := w.projects(2)
		w.mustCreate(w.client, p[0], "a", 1)
		a := ofProject(w.client, p[0]).OnlyX(ctx)
		upsert := func() *ent.TaskCreate { return w.client.Task.Create().SetProjectID(p[0]).SetTitle("a") }
		for _, test := range []struct {
			name string
			do   func(c *ent.Client) error
			want string
		}{
			{"a given number", func(c *ent.Client) error {
				return c.Task.Create().SetProjectID(p[0]).SetTitle("b").SetNumber(7).Exec(ctx)
			}, "sets the number to 7"},
			{"a given number in a batch", func(c *ent.Client) error {
				return c.Task.CreateBulk(
					c.Task.Create().SetProjectID(p[0]).SetTitle("b"),
					c.Task.Create().SetProjectID(p[0]).SetTitle("c").SetNumber(2),
				).Exec(ctx)
			}, "sets the number to 2"},
			{"another number", func(c *ent.Client) error {
				return c.Task.Update().Modify(func(u *entsql.UpdateBuilder) { u.Set(task.FieldNumber, 9) }).Exec(ctx)
			}, `update of column "number"`},
			{"another scope", func(c *ent.Client) error {
				return c.Task.UpdateOne(a).Modify(func(u *entsql.UpdateBuilder) { u.Set(task.FieldProjectID, p[1]) }).Exec(ctx)
			}, `update of column "project_id"`},
			{"another scope from the other side", func(c *ent.Client) error {
				return c.Project.UpdateOneID(p[1]).AddTasks(a).Exec(ctx)
			}, "another scope"},
			{"another scope of a new one", func(c *ent.Client) error {
				return c.Project.Create().SetName("x").AddTasks(a).Exec(ctx)
			}, "another scope"},
			{"another number by upsert", func(*ent.Client) error {
				return upsert().OnConflictColumns(task.FieldProjectID, task.FieldTitle).
					Update(func(u *ent.TaskUpsert) { u.Set(task.FieldNumber, 5) }).Exec(ctx)
			}, `the upsert sets column "number"`},
			{"another scope by upsert", func(*ent.Client) error {
				return upsert().OnConflictColumns(task.FieldProjectID, task.FieldTitle).
					Update(func(u *ent.TaskUpsert) { u.Set(task.FieldProjectID, p[1]) }).Exec(ctx)
			}, `the upsert sets column "project_id"`},
		} {
			w.tap.Reset()
			err := test.do(w.client)
			if err == nil || !strings.Contains(err.Error(), test.want) || !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("%s: error %v, want %q", test.name, err, test.want)
			}
			for _, s := range w.tap.SQL() {
				if !strings.HasPrefix(s, "BEGIN") && s != "ROLLBACK" {
					t.Errorf("%s: a statement was sent: %s", test.name, s)
				}
			}
		}
		w.mustCreate(w.client, p[0], "b", 2)
		w.consecutive(p...)
	})
}

// A scope without rows begins with the start, one with rows after the greatest of
// their numbers.
func TestFirstUse(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		p := w.projects(3)
		insert := func(project int, number any) {
			t.Helper()
			w.exec(fmt.Sprintf("INSERT INTO `tasks` (`project_id`, `number`, `title`, `done`) VALUES (%d, %v, 'by hand %[2]v', FALSE)", project, number))
		}
		insert(p[0], 3)
		insert(p[0], 41)
		insert(p[0], "NULL")
		insert(p[1], 100)
		insert(p[2], "NULL")
		w.mustCreate(w.client, p[0], "a", 42)
		w.mustCreate(w.client, p[0], "b", 43)
		w.mustCreate(w.client, p[2], "a", 1)
		tasks := w.client.Task.MapCreateBulk(make([]struct{}, 3), func(c *ent.TaskCreate, i int) {
			c.SetProjectID(p[1]).SetTitle(fmt.Sprint(i))
		}).SaveX(ctx)
		if tasks[0].Number != 101 || tasks[2].Number != 103 {
			t.Errorf("numbers %d to %d", tasks[0].Number, tasks[2].Number)
		}
		// Deleting the row of a scope makes the next create look again.
		insert(p[1], 500)
		w.exec(fmt.Sprintf("DELETE FROM `task_number_sequence` WHERE `project_id` = %d", p[1]))
		w.mustCreate(w.client, p[1], "x", 501)

		if n := *w.client.Invoice.Create().SaveX(ctx).Serial; n != 1000 {
			t.Errorf("the first serial is %d", n)
		}
		if n := *w.client.Invoice.Create().SaveX(ctx).Serial; n != 1001 {
			t.Errorf("the second serial is %d", n)
		}
	})
}

// Without a scope, and with several sequences on one type, odd names and Go types.
func TestOddSequences(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		rooms := func(c *ent.Client, pairs ...string) []*ent.Room {
			t.Helper()
			return c.Room.MapCreateBulk(pairs, func(c *ent.RoomCreate, i int) {
				wing, floor, _ := strings.Cut(pairs[i], " ")
				c.SetWing(room.Wing(wing)).SetFloor(floor)
			}).SaveX(ctx)
		}
		check := func(rooms []*ent.Room, want ...string) {
			t.Helper()
			for i, r := range rooms {
				stored := w.client.Room.GetX(ctx, r.ID)
				if got := fmt.Sprint(r.Wing, " ", r.Floor, " ", r.Door, r.Key); got != want[i] || r.Door != stored.Door || r.Key != stored.Key {
					t.Errorf("room %d is %s with the door %d, want %s; stored is %s", i, got, r.Door, want[i], stored)
				}
			}
		}
		check(rooms(w.client, "north 1", "north 1", "south 1", "north 2", "south 1"),
			"north 1 1 1", "north 1 2 2", "south 1 1 1", "north 2 1 3", "south 1 2 2")
		check(rooms(w.client, "north 2", "north 1"), "north 2 2 4", "north 1 3 5")
		if d := w.client.Room.Query().Where(room.WingEQ(room.WingNorth), room.Floor("1")).Order(ent.Desc(room.FieldDoor)).FirstX(ctx).Door; d != schema.Door(3) {
			t.Errorf("door %d", d)
		}

		// A number that the field cannot hold.
		full := make([]string, 126)
		for i := range full {
			full[i] = "south 9"
		}
		rooms(w.client, full...)
		tx := w.begin()
		if d := rooms(tx.Client(), "south 9")[0].Door; d != 127 {
			t.Fatalf("door %d", d)
		}
		err := tx.Room.Create().SetWing(room.WingSouth).SetFloor("9").Exec(ctx)
		if !errors.Is(err, entcounter.ErrOverflow) || !strings.Contains(err.Error(), `Room.door, group="south" order="9"`) {
			t.Errorf("error %v", err)
		}
		w.no(tx.Commit()) // nothing was lost of it
		check(rooms(w.client, "south 8"), "south 8 1 130")
	})
}

// A sequence over all rows, in upserts by its own unique column.
func TestUnscoped(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		for range 3 {
			w.no(w.client.Invoice.Create().SetCustomer("a").OnConflictColumns(invoice.FieldCustomer).UpdateNewValues().Exec(ctx))
			w.no(w.client.Invoice.Create().SetCustomer("b").OnConflictColumns(invoice.FieldCustomer).UpdateNewValues().Exec(ctx))
			w.no(w.client.Invoice.Create().Exec(ctx))
		}
		if got := w.ints("SELECT `serial` FROM `invoices` ORDER BY `serial`"); !slices.Equal(got, []int{1000, 1001, 1002, 1003, 1004}) {
			t.Errorf("serials %v", got)
		}
	})
}

// A numbered edge schema, whose id is two columns.
func TestEdgeSchema(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		p := w.projects(1)[0]
		var tasks []*ent.Task
		for i := range 2 {
			tasks = append(tasks, w.client.Task.Create().SetProjectID(p).SetTitle(fmt.Sprint(i)).SaveX(ctx))
		}
		tags := w.client.Tag.MapCreateBulk(make([]struct{}, 3), func(c *ent.TagCreate, i int) { c.SetName(fmt.Sprint(i)) }).SaveX(ctx)
		for i, tag := range tags {
			for j, task := range tasks {
				if i > j {
					if tg := w.client.Tagging.Create().SetTask(task).SetTag(tag).SaveX(ctx); tg.Place != i-j {
						t.Errorf("tag %d of task %d has the place %d", i, j, tg.Place)
					}
				}
			}
		}
		w.no(tasks[0].Update().RemoveTags(tags[1]).Exec(ctx))
		if tg := w.client.Tagging.Create().SetTask(tasks[0]).SetTag(tags[1]).SaveX(ctx); tg.Place != 3 {
			t.Errorf("the tag that comes again has the place %d", tg.Place)
		}
		for name, add := range map[string]func() error{
			"update": func() error { return tasks[1].Update().AddTags(tags[0]).Exec(ctx) },
			"create": func() error {
				return w.client.Task.Create().SetProjectID(p).SetTitle("x").AddTags(tags...).Exec(ctx)
			},
			"other side": func() error { return w.client.Tag.Create().SetName("x").AddTasks(tasks...).Exec(ctx) },
		} {
			if err := add(); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "rows that adding an edge makes get no number") {
				t.Errorf("%s: error %v", name, err)
			}
		}
		w.consecutive(p)
	})
}

// Hooks of the user's see the number on the node that is returned.
func TestHooks(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		p := w.projects(1)[0]
		var seen []int
		w.client.Task.Use(func(next ent.Mutator) ent.Mutator {
			return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
				v, err := next.Mutate(ctx, m)
				if task, ok := v.(*ent.Task); ok {
					seen = append(seen, task.Number)
				}
				return v, err
			})
		})
		for i := range 3 {
			w.mustCreate(w.client, p, fmt.Sprint(i), i+1)
		}
		if !slices.Equal(seen, []int{1, 2, 3}) {
			t.Errorf("hooks saw %v", seen)
		}
	})
}

// A snapshot from before another transaction's draw.
func TestIsolation(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		if w.db.Kind == testdb.SQLite {
			return // has one level, and one writer
		}
		ctx := t.Context()
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			for _, first := range []bool{false, true} {
				p := w.projects(1)[0]
				number := 1
				if !first {
					w.mustCreate(w.client, p, "before", number)
					number++
				}
				tx, err := w.client.BeginTx(ctx, &sql.TxOptions{Isolation: level})
				w.no(err)
				// Takes the snapshot, and no lock on what the other one writes.
				_, err = tx.Invoice.Query().Where(invoice.ID(-1)).Exist(ctx)
				w.no(err)
				w.mustCreate(w.client, p, "other", number)
				got, err := create(ctx, tx.Client(), p, "own")
				if w.db.Kind == testdb.Postgres && level != sql.LevelReadCommitted {
					if !entcounter.Retryable(err) {
						t.Errorf("%v: error %v is not retryable", level, err)
					}
					w.no(tx.Rollback())
					w.mustCreate(w.client, p, "own", number+1)
				} else {
					if err != nil || got != number+1 {
						t.Errorf("%v: number %d, error %v", level, got, err)
					}
					w.no(tx.Commit())
				}
				w.consecutive(p)
			}
		}
	})
}

// A scope whose rows a transaction cannot see, used by it for the first time: the
// index refuses the number, and the next create looks again.
func TestFirstUseInOldSnapshot(t *testing.T) {
	onEach(t, func(t *testing.T, w *world) {
		if w.db.Dialect != dialect.MySQL {
			return // others see the rows, or fail as a whole
		}
		ctx := t.Context()
		p := w.projects(1)[0]
		tx := w.begin()
		if _, err := tx.Task.Query().Exist(ctx); err != nil {
			t.Fatal(err)
		}
		w.exec(fmt.Sprintf("INSERT INTO `tasks` (`project_id`, `number`, `title`, `done`) VALUES (%d, 1, 'by hand', FALSE)", p))
		if _, err := create(ctx, tx.Client(), p, "a"); !ent.IsConstraintError(err) {
			t.Errorf("error %v", err)
		}
		w.no(tx.Commit())
		w.mustCreate(w.client, p, "a", 2)
	})
}

// MariaDB's snapshot isolation, which is the default of its newer versions.
func TestSnapshotIsolation(t *testing.T) {
	w := newWorld(t, testdb.New(t, testdb.MariaDB), map[string]string{"innodb_snapshot_isolation": "ON"})
	ctx := t.Context()
	p := w.projects(1)[0]
	w.mustCreate(w.client, p, "before", 1)
	tx := w.begin()
	if _, err := tx.Invoice.Query().Exist(ctx); err != nil {
		t.Fatal(err)
	}
	w.mustCreate(w.client, p, "other", 2)
	if _, err := create(ctx, tx.Client(), p, "own"); !entcounter.Retryable(err) {
		t.Errorf("error %v is not retryable", err)
	}
	if err := tx.Commit(); !errors.Is(err, entcounter.ErrTransactionFailed) {
		t.Errorf("commit: error %v", err)
	}
	w.mustCreate(w.client, p, "own", 3)
	w.consecutive(p)
}

// The client of ent's own test package has sequences too.
func TestEnttest(t *testing.T) {
	db := testdb.New(t, testdb.SQLite)
	client := enttest.NewClient(t, enttest.WithOptions(ent.Driver(entsql.OpenDB(db.Dialect, db.DB(t)))))
	p := client.Project.Create().SetName("p").SaveX(t.Context())
	if n := client.Task.Create().SetProject(p).SetTitle("t").SaveX(t.Context()).Number; n != 1 {
		t.Errorf("number %d", n)
	}
}
