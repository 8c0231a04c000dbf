package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/internal/integration/ent"
	"github.com/entcounter/entcounter/internal/integration/ent/attachment"
	"github.com/entcounter/entcounter/internal/integration/ent/device"
	"github.com/entcounter/entcounter/internal/integration/ent/node"
	"github.com/entcounter/entcounter/internal/integration/ent/task"
	"github.com/entcounter/entcounter/internal/integration/ent/token"
	"github.com/entcounter/entcounter/internal/integration/ent/vote"
	"github.com/entcounter/entcounter/internal/integration/types"
	"github.com/entcounter/entcounter/internal/testdb"
	"github.com/google/uuid"
)

// statementCase is a mutation and the statements that it issues.
type statementCase struct {
	name string
	run  func(ctx context.Context, c *ent.Client) error
	// own is what it issues in a transaction of its own. What ent alone would not
	// issue is marked by a plus.
	own []string
	// mysql is the same, where MySQL and MariaDB differ.
	mysql []string
	// alone tells that it is one statement in PostgreSQL and MariaDB if it is a
	// transaction of its own, and inOne that in PostgreSQL it is one at any rate.
	alone, inOne bool
	// users is what it issues in a transaction of the user's, if not the same.
	users []string
}

// wanted returns the statements of a case on the world's database.
func (c statementCase) wanted(w *world) []string {
	if w.db.Dialect == dialect.MySQL && c.mysql != nil {
		return w.spelled(c.mysql)
	}
	return w.spelled(c.own)
}

// spelled returns a list of statements as they are on the world's database.
func (w *world) spelled(list []string) []string {
	var want []string
	writer := false
	for _, s := range list {
		s = strings.TrimPrefix(s, "+")
		verb, table, _ := strings.Cut(s, " ")
		if w.db.Dialect == dialect.SQLite && verb == "LOCK" {
			// There are no row locks: the transaction becomes the one writer.
			if !writer {
				want = append(want, "BECOME WRITER "+table)
			}
			s = "SELECT " + table
		}
		writer = writer || verb != "BEGIN" && verb != "SELECT"
		want = append(want, s)
	}
	return want
}

// inTransaction returns what a case issues in a transaction of the user's that is
// rolled back: the deltas wait for the commit.
func inTransaction(own []string) []string {
	in := []string{"BEGIN"}
	for _, s := range own {
		if s != "BEGIN" && s != "COMMIT" && !strings.HasSuffix(s, "_journal") {
			in = append(in, s)
		}
	}
	return append(in, "ROLLBACK")
}

// TestStatements is the table of the documentation: which statements each kind of
// mutation issues. Lines that begin with a plus are added by counting.
func TestStatements(t *testing.T) {
	with(t, func(ctx context.Context, w *world) {
		p, tasks := w.project(ctx, "p", 6)
		q := must(w.client.Project.Create().SetTitle("q").Save(ctx))(w)
		u, v := w.user(ctx, "u"), w.user(ctx, "v")
		no(w, w.client.Task.Update().SetOwner(u).Exec(ctx))
		no(w, w.client.Vote.MapCreateBulk(make([]int, 1100), func(b *ent.VoteCreate, i int) { b.SetTopic(fmt.Sprint("many", i%3)) }).Exec(ctx),
			w.client.Vote.Create().SetTopic("few").Exec(ctx))
		site := uuid.New()
		known := types.TokenID(1)
		no(w, w.client.Token.Create().SetID(known).SetScope("s").SetName("n").SetSerial(1).Exec(ctx),
			w.client.Device.Create().SetSite(site).SetSerial("known").Exec(ctx))
		leaf := must(w.client.Node.Create().SetKind(node.KindLeaf).Save(ctx))(w)
		no(w, w.client.Attachment.Create().SetOrder(1).SetKey("k").SetSize(1).SetTask(tasks[0]).Exec(ctx))
		w.fold(ctx)

		cases := []statementCase{
			{
				name: "update of a field that nothing counts",
				run: func(ctx context.Context, c *ent.Client) error {
					return c.Task.Update().Where(task.StateEQ(types.Open)).SetNote("x").Exec(ctx)
				},
				own: []string{"UPDATE tasks"},
			},
			{
				name:  "update, key pinned, rows only counted",
				alone: true,
				run: func(ctx context.Context, c *ent.Client) error {
					return c.Task.Update().Where(task.OwnerID(u.ID)).SetOwnerID(v.ID).Exec(ctx)
				},
				own: []string{"+BEGIN", "UPDATE tasks", "+INSERT owner_counter_journal", "+COMMIT"},
			},
			{
				name:  "update, key pinned, with sums",
				inOne: true,
				run: func(ctx context.Context, c *ent.Client) error {
					return c.Task.Update().Where(task.ProjectID(p.ID), task.StateEQ(types.Open), task.Size(10)).SetState(types.Doing).Exec(ctx)
				},
				own: []string{"+BEGIN", "+LOCK tasks", "UPDATE tasks", "+INSERT task_counter_journal", "+COMMIT"},
			},
			{
				name:  "update that finds nothing",
				inOne: true,
				run: func(ctx context.Context, c *ent.Client) error {
					return c.Task.Update().Where(task.Size(-1)).SetState(types.Doing).Exec(ctx)
				},
				own: []string{"+BEGIN", "+LOCK tasks", "+COMMIT"},
			},
			{
				name:  "update to what is there",
				inOne: true,
				run: func(ctx context.Context, c *ent.Client) error {
					return c.Task.Update().Where(task.StateEQ(types.Doing)).SetState(types.Doing).Exec(ctx)
				},
				own: []string{"+BEGIN", "+LOCK tasks", "UPDATE tasks", "+COMMIT"},
			},
			{
				name:  "update of one",
				inOne: true,
				run: func(ctx context.Context, c *ent.Client) error {
					return c.Task.UpdateOneID(tasks[1].ID).SetState(types.Done).Exec(ctx)
				},
				own: []string{"BEGIN", "+LOCK tasks", "UPDATE tasks", "SELECT tasks", "+INSERT task_counter_journal", "COMMIT"},
			},
			{
				name: "update by an expression",
				run: func(ctx context.Context, c *ent.Client) error {
					return c.Task.Update().Where(task.StateEQ(types.Done)).Modify(func(u *entsql.UpdateBuilder) { u.Set("size", entsql.Expr("size + 1")) }).Exec(ctx)
				},
				own: []string{"+BEGIN", "+LOCK tasks", "UPDATE tasks", "+LOCK tasks", "+INSERT task_counter_journal", "+COMMIT"},
			},
			{
				name:  "create, all values known",
				alone: true,
				run: func(ctx context.Context, c *ent.Client) error {
					return c.Node.Create().SetKind(node.KindLeaf).SetParentID(leaf.ID).SetSize(1).Exec(ctx)
				},
				own: []string{"+BEGIN", "INSERT nodes", "+INSERT child_counter_journal", "+INSERT kind_counter_journal", "+COMMIT"},
			},
			{
				name:  "bulk create, all values known",
				alone: true,
				run: func(ctx context.Context, c *ent.Client) error {
					return c.Node.MapCreateBulk(make([]int, 3), func(b *ent.NodeCreate, i int) {
						b.SetKind(node.KindLeaf).SetParentID(leaf.ID).SetSize(int32(i + 1))
					}).Exec(ctx)
				},
				own: []string{"+BEGIN", "INSERT nodes", "+INSERT child_counter_journal", "+INSERT kind_counter_journal", "+COMMIT"},
			},
			{
				name: "create with values from the database",
				run: func(ctx context.Context, c *ent.Client) error {
					return c.Task.Create().SetProject(p).SetCode("made").Exec(ctx)
				},
				own: []string{"+BEGIN", "INSERT tasks", "+LOCK tasks", "+INSERT task_counter_journal", "+INSERT task_tier_counter_journal", "+COMMIT"},
			},
			{
				name:  "update of more rows than are locked at a time",
				inOne: true,
				run: func(ctx context.Context, c *ent.Client) error {
					return c.Vote.Update().Where(vote.TopicHasPrefix("many")).SetTopic("many more").Exec(ctx)
				},
				own: []string{"+BEGIN", "+LOCK votes", "+LOCK votes", "UPDATE votes", "+LOCK votes", "+UPDATE votes", "+INSERT vote_counter_journal", "+COMMIT"},
			},
			{
				name:  "delete, key pinned, rows only counted",
				alone: true,
				run: func(ctx context.Context, c *ent.Client) error {
					_, err := c.Vote.Delete().Where(vote.Topic("few")).Exec(ctx)
					return err
				},
				own: []string{"+BEGIN", "DELETE votes", "+INSERT vote_counter_journal", "+COMMIT"},
			},
			{
				name:  "delete, nothing refers to the rows",
				inOne: true,
				run: func(ctx context.Context, c *ent.Client) error {
					_, err := c.Attachment.Delete().Where(attachment.Order(1)).Exec(ctx)
					return err
				},
				own: []string{"+BEGIN", "+LOCK group", "DELETE group", "+INSERT attachment_counter_journal", "+COMMIT"},
			},
			{
				name: "delete, counted rows refer to the rows",
				run: func(ctx context.Context, c *ent.Client) error {
					return c.Task.DeleteOneID(tasks[0].ID).Exec(ctx)
				},
				own: []string{"+BEGIN", "+LOCK tasks", "+LOCK group", "DELETE tasks", "+LOCK tasks", "+LOCK group", "+INSERT owner_counter_journal", "+INSERT task_counter_journal", "+INSERT task_tier_counter_journal", "+COMMIT"},
			},
			{
				name: "delete of a parent, two levels above",
				run: func(ctx context.Context, c *ent.Client) error {
					return c.Project.DeleteOneID(q.ID).Exec(ctx)
				},
				own: []string{"+BEGIN", "+LOCK projects", "+LOCK tasks", "DELETE projects", "+COMMIT"},
			},
			{
				name: "edge from the other side",
				run: func(ctx context.Context, c *ent.Client) error {
					return c.User.UpdateOneID(u.ID).AddReviewedIDs(tasks[2].ID).Exec(ctx)
				},
				own: []string{"BEGIN", "+LOCK tasks", "UPDATE tasks", "SELECT users", "+LOCK tasks", "+INSERT review_counter_journal", "COMMIT"},
			},
			{
				name: "edges cleared from the other side",
				run: func(ctx context.Context, c *ent.Client) error {
					return c.User.UpdateOneID(u.ID).ClearReviewed().Exec(ctx)
				},
				own: []string{"BEGIN", "+LOCK users", "+LOCK tasks", "UPDATE tasks", "SELECT users", "+LOCK users", "+LOCK tasks", "+INSERT review_counter_journal", "COMMIT"},
			},
			{
				name: "upsert of a new row",
				run: func(ctx context.Context, c *ent.Client) error {
					return c.Device.Create().SetSite(site).SetSerial("new").OnConflictColumns(device.FieldSerial).Ignore().Exec(ctx)
				},
				own:   []string{"+BEGIN", "+LOCK devices", "INSERT devices", "+INSERT device_counter_journal", "+COMMIT"},
				mysql: []string{"+BEGIN", "INSERT devices", "+INSERT device_counter_journal", "+COMMIT"},
			},
			{
				name: "upsert of a row that is there",
				run: func(ctx context.Context, c *ent.Client) error {
					return c.Device.Create().SetSite(site).SetSerial("known").SetLoad(3).OnConflictColumns(device.FieldSerial).
						Update(func(u *ent.DeviceUpsert) { u.UpdateLoad() }).Exec(ctx)
				},
				own:   []string{"+BEGIN", "+LOCK devices", "INSERT devices", "+LOCK devices", "+INSERT device_counter_journal", "+COMMIT"},
				mysql: []string{"+BEGIN", "+INSERT devices", "+LOCK devices", "INSERT devices", "+LOCK devices", "+LOCK devices", "+INSERT device_counter_journal", "+COMMIT"},
			},
			{
				name: "upsert of new rows",
				run: func(ctx context.Context, c *ent.Client) error {
					return c.Device.MapCreateBulk(make([]int, 3), func(b *ent.DeviceCreate, i int) {
						b.SetSite(site).SetSerial(fmt.Sprint("bulk", i))
					}).OnConflictColumns(device.FieldSerial).Ignore().Exec(ctx)
				},
				own: []string{"+BEGIN", "+LOCK devices", "+SAVEPOINT", "INSERT devices", "+RELEASE", "+INSERT device_counter_journal", "+COMMIT"},
			},
			{
				name: "upsert of rows that are there",
				run: func(ctx context.Context, c *ent.Client) error {
					return c.Device.MapCreateBulk(make([]int, 3), func(b *ent.DeviceCreate, i int) {
						b.SetSite(site).SetSerial(fmt.Sprint("bulk", i)).SetLoad(2)
					}).OnConflictColumns(device.FieldSerial).Update(func(u *ent.DeviceUpsert) { u.UpdateLoad() }).Exec(ctx)
				},
				own: []string{"+BEGIN", "+LOCK devices", "+SAVEPOINT", "INSERT devices", "+LOCK devices", "+RELEASE", "+LOCK devices", "+INSERT device_counter_journal", "+COMMIT"},
			},
			{
				name: "upsert of rows of which some are there",
				run: func(ctx context.Context, c *ent.Client) error {
					return c.Device.MapCreateBulk(make([]int, 4), func(b *ent.DeviceCreate, i int) {
						b.SetSite(site).SetSerial(fmt.Sprint("bulk", i+1)).SetLoad(3)
					}).OnConflictColumns(device.FieldSerial).Update(func(u *ent.DeviceUpsert) { u.UpdateLoad() }).Exec(ctx)
				},
				own: []string{"+BEGIN", "+LOCK devices", "+SAVEPOINT", "INSERT devices", "+RELEASE", "+LOCK devices",
					"+SAVEPOINT", "+INSERT devices", "+LOCK devices", "+RELEASE", "+LOCK devices", "+INSERT device_counter_journal", "+COMMIT"},
				users: []string{"+LOCK devices", "+SAVEPOINT", "+SAVEPOINT", "INSERT devices", "+RELEASE", "+LOCK devices",
					"+SAVEPOINT", "+INSERT devices", "+LOCK devices", "+RELEASE", "+RELEASE", "+LOCK devices"},
			},
			{
				name: "upsert of a row that is there, several unique indexes",
				run: func(ctx context.Context, c *ent.Client) error {
					return c.Token.Create().SetID(known).SetScope("s").SetName("n").SetSerial(1).SetUses(4).
						OnConflictColumns(token.FieldID).UpdateNewValues().Exec(ctx)
				},
				own:   []string{"+BEGIN", "+LOCK tokens", "INSERT tokens", "+LOCK tokens", "+INSERT token_counter_journal", "+COMMIT"},
				mysql: []string{"+BEGIN", "+INSERT tokens", "+LOCK tokens", "INSERT tokens", "+LOCK tokens", "+LOCK tokens", "+INSERT token_counter_journal", "+COMMIT"},
			},
		}
		for _, c := range cases {
			want := c.wanted(w)
			compare := func(how string, want []string) {
				w.Helper()
				if got := w.tap.Issued(); !slices.Equal(got, want) {
					w.Errorf("%s%s issued\n\t%s\nwant\n\t%s", c.name, how, strings.Join(got, ", "), strings.Join(want, ", "))
				}
			}
			w.tap.Reset()
			tx := must(w.client.Tx(ctx))(w)
			no(w, c.run(ctx, tx.Client()), tx.Rollback())
			inUsers := want
			if c.users != nil {
				inUsers = w.spelled(c.users)
			}
			if c.inOne && w.db.Dialect == dialect.Postgres {
				inUsers = []string{"ONE"}
			}
			compare(" in a transaction", inTransaction(inUsers))
			no(w, c.run(ctx, w.client))
			if c.alone && w.db.Kind == testdb.MariaDB || (c.alone || c.inOne) && w.db.Dialect == dialect.Postgres {
				want = []string{"ONE"}
			}
			compare("", want)
			w.exact(ctx)
		}
	})
}
