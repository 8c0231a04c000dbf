package integration

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	rootfile "github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/integration/ent"
	"github.com/entcounter/entcounter/internal/integration/ent/attachment"
	"github.com/entcounter/entcounter/internal/integration/ent/attachmentcounters"
	"github.com/entcounter/entcounter/internal/integration/ent/blob"
	"github.com/entcounter/entcounter/internal/integration/ent/card"
	"github.com/entcounter/entcounter/internal/integration/ent/cardcolorcounters"
	"github.com/entcounter/entcounter/internal/integration/ent/device"
	"github.com/entcounter/entcounter/internal/integration/ent/devicecounters"
	"github.com/entcounter/entcounter/internal/integration/ent/memo"
	"github.com/entcounter/entcounter/internal/integration/ent/memocounters"
	"github.com/entcounter/entcounter/internal/integration/ent/project"
	"github.com/entcounter/entcounter/internal/integration/ent/task"
	"github.com/entcounter/entcounter/internal/integration/ent/taskcounters"
	"github.com/entcounter/entcounter/internal/integration/ent/token"
	"github.com/entcounter/entcounter/internal/integration/ent/tokennamecounters"
	"github.com/entcounter/entcounter/internal/integration/ent/user"
	"github.com/entcounter/entcounter/internal/integration/schema"
	"github.com/entcounter/entcounter/internal/integration/types"
	"github.com/entcounter/entcounter/internal/testdb"
	"github.com/google/uuid"
)

func transient(err error) bool { return entcounter.Retryable(err) }

// Values that only the database knows: defaults, and expressions.
func TestDatabaseDefaults(t *testing.T) {
	with(t, func(ctx context.Context, w *world) {
		p := must(w.client.Project.Create().SetTitle("p").Save(ctx))(w)
		no(w, w.client.Task.Create().SetProject(p).Exec(ctx))
		w.journalled(ctx, "TaskTier", "free: 1 3")
		no(w, w.client.Task.Create().SetProject(p).SetTier("gold").Exec(ctx))
		w.journalled(ctx, "TaskTier", "gold: 1 3")
		no(w, w.client.Task.Create().SetProject(p).SetTier("gold").SetLevel(-5).Exec(ctx))
		w.journalled(ctx, "TaskTier", "gold: 1 -5")
		no(w, w.client.Task.MapCreateBulk(make([]int, 3), func(b *ent.TaskCreate, _ int) { b.SetProject(p) }).Exec(ctx))
		w.journalled(ctx, "TaskTier", "free: 3 9")
		// A column that one row of a bulk sets is NULL in those that do not.
		no(w, w.client.Task.MapCreateBulk(make([]int, 3), func(b *ent.TaskCreate, i int) {
			if b.SetProject(p); i == 1 {
				b.SetTier("silver")
			}
		}).Exec(ctx))
		w.journalled(ctx, "TaskTier", "silver: 1 3")
		no(w, w.client.Task.Update().ClearTier().Exec(ctx))
		w.exact(ctx)
	})
}

// NULL in a key column is in no group, NULL in a measure adds nothing.
func TestNull(t *testing.T) {
	with(t, func(ctx context.Context, w *world) {
		p, tasks := w.project(ctx, "p", 1)
		u := w.user(ctx, "u")
		w.fold(ctx)
		weight := func(u *ent.TaskUpdateOne, want ...string) {
			w.Helper()
			no(w, u.Exec(ctx))
			w.journalled(ctx, "Task", want...)
		}
		key := fmt.Sprint(p.ID, " open: 0 0 ")
		weight(tasks[0].Update().SetWeight(5), key+"5 0")
		weight(tasks[0].Update().ClearWeight(), key+"-5 0")
		weight(tasks[0].Update().AddWeight(3), key+"3 0")
		weight(tasks[0].Update().ClearWeight(), key+"-3 0")
		weight(tasks[0].Update().ClearWeight())
		no(w, tasks[0].Update().SetOwner(u).Exec(ctx))
		w.journalled(ctx, "Owner", fmt.Sprint(u.ID, ": 1"))
		no(w, tasks[0].Update().ClearOwner().Exec(ctx))
		w.journalled(ctx, "Owner", fmt.Sprint(u.ID, ": -1"))
		no(w, w.client.Task.Update().Where(task.OwnerIDIsNil()).SetOwner(u).Exec(ctx))
		w.journalled(ctx, "Owner", fmt.Sprint(u.ID, ": 1"))
		no(w, w.client.Task.Update().Where(task.OwnerID(u.ID)).ClearOwner().Exec(ctx))
		w.journalled(ctx, "Owner", fmt.Sprint(u.ID, ": -1"))
		// One key column of two.
		no(w, w.client.Attachment.Create().SetOrder(1).SetKey("k").SetSize(1).SetTask(tasks[0]).Exec(ctx))
		w.journalled(ctx, "Upload")
		no(w, w.client.Attachment.Update().SetUploader(u).Exec(ctx))
		w.journalled(ctx, "Upload", fmt.Sprint(tasks[0].ID, " ", u.ID, ": 1"))
		no(w, w.client.Attachment.Update().ClearTask().Exec(ctx))
		w.journalled(ctx, "Upload", fmt.Sprint(tasks[0].ID, " ", u.ID, ": -1"))
		must(w.client.Attachment.Delete().Exec(ctx))(w)
		w.journalled(ctx, "Upload")
	})
}

// AddX, JSON appends, expressions, optimistic locks, updates through an entity.
func TestKindsOfUpdates(t *testing.T) {
	with(t, func(ctx context.Context, w *world) {
		p, tasks := w.project(ctx, "p", 4)
		u := w.user(ctx, "u")
		w.fold(ctx)
		key := fmt.Sprint(p.ID, " open: ")

		no(w, tasks[0].Update().AddSize(5).AddRetries(2).Exec(ctx))
		w.journalled(ctx, "Task", key+"0 5 0 2")
		if w.db.Dialect != dialect.Postgres { // which refuses to set a column twice
			no(w, tasks[0].Update().SetSize(100).AddSize(1).Exec(ctx))
		}
		w.exact(ctx)
		w.fold(ctx)
		no(w, tasks[0].Update().AppendLabels([]string{"x"}).Exec(ctx), tasks[1].Update().AppendLabels([]string{"x"}).SetState(types.Done).Exec(ctx))
		w.journalled(ctx, "Task", key+"-1 -20 0 0", fmt.Sprint(p.ID, " done: 1 20 0 0"))

		// An optimistic lock: the first wins, the second finds nothing.
		locked := func(from, to int64) error {
			return w.client.Task.UpdateOneID(tasks[2].ID).Where(task.Size(from)).SetSize(to).SetState(types.Done).Exec(ctx)
		}
		no(w, locked(30, 31))
		if err := locked(30, 32); !ent.IsNotFound(err) {
			w.Errorf("the second of two optimistic updates: %v", err)
		}
		w.journalled(ctx, "Task", key+"-1 -30 0 0", fmt.Sprint(p.ID, " done: 1 31 0 0"))

		no(w, w.client.Task.Update().Where(task.HasProjectWith(project.Title("p")), task.Not(task.HasOwner())).SetOwner(u).Exec(ctx))
		w.journalled(ctx, "Owner", fmt.Sprint(u.ID, ": 4"))
		no(w, w.client.Task.Update().Where(task.HasOwnerWith(user.Name("u"))).ClearOwner().SetNote("x").Exec(ctx))
		w.journalled(ctx, "Owner", fmt.Sprint(u.ID, ": -4"))
		// The predicate reads what the update changes, in another row.
		no(w, w.client.Task.Update().Where(func(s *entsql.Selector) {
			o := entsql.Table(task.Table).As("o")
			s.Where(entsql.GT(s.C(task.FieldSize), 0)).
				Where(entsql.Exists(entsql.Select(o.C(task.FieldID)).From(o).Where(entsql.ColumnsGT(o.C(task.FieldSize), s.C(task.FieldSize)))))
		}).SetSize(1000).Exec(ctx))
		w.exact(ctx)
		// A predicate that orders and limits does so in a query only.
		no(w, w.client.Task.Update().Where(func(s *entsql.Selector) {
			s.Where(entsql.GT(s.C(task.FieldSize), 0)).OrderBy(s.C(task.FieldID)).Limit(1)
		}).AddSize(1).Exec(ctx))
		w.exact(ctx)
		w.fold(ctx)
		tx := must(w.client.Tx(ctx))(w)
		q := tx.Task.Query().Where(task.StateEQ(types.Done))
		if w.db.Dialect != dialect.SQLite {
			q.ForUpdate()
		}
		for _, locked := range must(q.All(ctx))(w) {
			no(w, locked.Update().SetState(types.Failed).Exec(ctx))
		}
		no(w, tx.Commit())
		w.exact(ctx)
		no(w, w.client.Task.DeleteOne(tasks[3]).Exec(ctx), w.client.Task.DeleteOneID(tasks[0].ID).Where(task.SizeGT(1)).Exec(ctx))
		if err := w.client.Task.DeleteOneID(tasks[1].ID).Where(task.Size(-1)).Exec(ctx); !ent.IsNotFound(err) {
			w.Errorf("a delete of one row that does not match: %v", err)
		}
		w.exact(ctx)
	})
}

// UUIDs, renamed keys and the names that SQL has taken.
func TestOddNames(t *testing.T) {
	with(t, func(ctx context.Context, w *world) {
		_, tasks := w.project(ctx, "p", 2)
		u := w.user(ctx, "u")
		var all []*ent.Attachment
		for i := range 4 {
			all = append(all, must(w.client.Attachment.Create().SetOrder(i%2).SetKey("k").SetCount(uint8(200+i)).SetSize(math.MaxUint32).
				SetTask(tasks[i/2]).SetUploader(u).Save(ctx))(w))
		}
		got := must(w.client.AttachmentCounters.Read(ctx, attachmentcounters.Key{Order: 1, Key: "k"}))(w)
		if got.Rows != 2 || got.Count != 404 || got.Table != 2*math.MaxUint32 {
			w.Errorf("read %+v", got)
		}
		w.fold(ctx)
		no(w, all[0].Update().SetOrder(5).AddCount(1).SetSize(7).Exec(ctx))
		w.journalled(ctx, "Attachment", fmt.Sprintf("0 k: -1 -200 -%d", uint32(math.MaxUint32)), "5 k: 1 201 7")
		no(w, w.client.Attachment.Update().Where(attachment.Order(1), attachment.Key("k")).SetKey("q").Exec(ctx))
		w.exact(ctx)
		many := must(w.client.AttachmentCounters.ReadMany(ctx, attachmentcounters.Key{Order: 1, Key: "q"}, attachmentcounters.Key{Order: 5, Key: "k"}, attachmentcounters.Key{Order: 1, Key: "k"}))(w)
		if many[0].Rows != 2 || many[1].Rows != 1 || many[2].Rows != 0 {
			w.Errorf("read %+v", many)
		}
		total := must(w.client.AttachmentCounters.Total(ctx, attachmentcounters.Scope{Order: ptr(1)}))(w)
		if total.Rows != 2 || total.Count != 404 {
			w.Errorf("the total is %+v", total)
		}
		rows := must(w.client.AttachmentCounters.Query().Where(attachmentcounters.OrderEQ(1), attachmentcounters.RowsGT(0)).
			Order(attachmentcounters.ByKey(), attachmentcounters.ByCount()).All(ctx))(w)
		if len(rows) != 1 || rows[0].Key != "q" {
			w.Errorf("queried %v", rows)
		}
		no(w, w.client.Attachment.DeleteOneID(all[1].ID).Exec(ctx), w.client.Task.DeleteOne(tasks[1]).Exec(ctx))
		w.exact(ctx)
		if n := must(w.client.Attachment.Query().Count(ctx))(w); n != 1 {
			w.Errorf("%d attachments are left", n)
		}
	})
}

// Ids that the application makes: UUIDs, bytes, and a Go type that is written in
// another form.
func TestIDs(t *testing.T) {
	with(t, func(ctx context.Context, w *world) {
		site, other := uuid.New(), uuid.New()
		var ids []uuid.UUID
		for i := range 3 {
			ids = append(ids, must(w.client.Device.Create().SetSite(site).SetLoad(i).SetSerial(fmt.Sprint(i)).Save(ctx))(w).ID)
		}
		no(w, w.client.Device.UpdateOneID(ids[0]).SetSite(other).AddLoad(7).Exec(ctx),
			w.client.Device.Update().Where(device.Site(site), device.IDIn(ids[1:]...)).SetLoad(1).Exec(ctx),
			w.client.Device.DeleteOneID(ids[2]).Exec(ctx))
		w.exact(ctx)
		if got := must(w.client.DeviceCounters.Read(ctx, devicecounters.Key{Site: other}))(w); got.Count != 1 || got.Load != 7 {
			w.Errorf("the other site reads %+v", got)
		}
		for i := range 3 {
			no(w, w.client.Token.Create().SetID(types.TokenID(i)).SetScope("s").SetName(fmt.Sprint(i)).SetSerial(i).SetUses(1).Exec(ctx),
				w.client.Blob.Create().SetID(types.HashOf(uint64(i))).SetBucket("b").SetSize(10).Exec(ctx))
		}
		no(w, w.client.Token.UpdateOneID(1).SetScope("t").Exec(ctx),
			w.client.Token.Update().Where(token.IDIn(0, 1)).AddUses(1).Exec(ctx),
			w.client.Token.DeleteOneID(2).Exec(ctx),
			w.client.Blob.UpdateOneID(types.HashOf(1)).SetBucket("c").Exec(ctx),
			w.client.Blob.Update().Where(blob.IDIn(types.HashOf(0), types.HashOf(1))).AddSize(1).Exec(ctx),
			w.client.Blob.DeleteOneID(types.HashOf(2)).Exec(ctx))
		w.exact(ctx)
	})
}

// Keys that differ in case, accent or trailing spaces are one or two groups, as
// the database has it. The counter gives the same answer as counting does.
func TestTextKeys(t *testing.T) {
	with(t, func(ctx context.Context, w *world) {
		words := []string{"a", "A", "e", "é", "É", "e ", "ß", "ss", "", " "}
		count := func() {
			w.Helper()
			w.exact(ctx)
			var keys []cardcolorcounters.Key
			for _, word := range words {
				want := must(w.client.Card.Query().Where(card.Color(word)).Count(ctx))(w)
				if got := must(w.client.CardColorCounters.Read(ctx, cardcolorcounters.Key{Color: word}))(w); got.Count != int64(want) {
					w.Errorf("%q reads %d, counted %d", word, got.Count, want)
				}
				keys = append(keys, cardcolorcounters.Key{Color: word})
				if n := must(w.client.TokenNameCounters.Read(ctx, tokennamecounters.Key{Name: word}))(w).Count; n != int64(must(w.client.Token.Query().Where(token.Name(word)).Count(ctx))(w)) {
					w.Errorf("token %q reads %d", word, n)
				}
			}
			many := must(w.client.CardColorCounters.ReadMany(ctx, keys...))(w)
			for i, word := range words {
				if want := must(w.client.Card.Query().Where(card.Color(word)).Count(ctx))(w); many[i].Count != int64(want) {
					w.Errorf("%q reads %d among others, counted %d", word, many[i].Count, want)
				}
			}
		}
		for i, word := range words {
			for range i%3 + 1 {
				no(w, w.client.Card.Create().SetColor(word).Exec(ctx))
			}
			no(w, w.client.Token.Create().SetID(types.TokenID(i)).SetScope(fmt.Sprint(i)).SetName(word).SetSerial(i).Exec(ctx))
		}
		count()
		// Pinned by another spelling than is stored.
		no(w, w.client.Token.Update().Where(token.Name("A")).SetName("moved").Exec(ctx))
		must(w.client.Token.Delete().Where(token.Name("e")).Exec(ctx))(w)
		no(w, w.client.Card.Update().Where(card.Color("A")).SetColor("é").Exec(ctx))
		count()
		w.fold(ctx)
		count()
		no(w, w.client.Token.Update().Where(token.Name("moved")).SetName("É").Exec(ctx))
		must(w.client.Card.Delete().Where(card.Color("e")).Exec(ctx))(w)
		count()
	})
}

// A soft delete is an update, by a hook that no counter needs to know.
func TestSoftDelete(t *testing.T) {
	with(t, func(ctx context.Context, w *world) {
		var all []*ent.Memo
		for i := range 4 {
			all = append(all, must(w.client.Memo.Create().SetBoard("b").SetSize(int64(10*(i+1))).Save(ctx))(w))
		}
		w.fold(ctx)
		hard := schema.SkipSoftDelete(ctx)
		reads := func(deleted bool, count, bytes int64) {
			w.Helper()
			got := must(w.client.MemoCounters.Read(ctx, memocounters.Key{Board: "b", Deleted: deleted}))(w)
			if got.Count != count || got.Bytes != bytes {
				w.Errorf("deleted %v reads %+v, want %d of %d bytes", deleted, got, count, bytes)
			}
			w.exact(ctx)
		}
		no(w, w.client.Memo.DeleteOne(all[0]).Exec(ctx))
		w.journalled(ctx, "Memo", "b "+bools(w, false)+": -1 -10", "b "+bools(w, true)+": 1 10")
		reads(false, 3, 90)
		if err := w.client.Memo.DeleteOne(all[0]).Exec(ctx); err != nil && !ent.IsNotFound(err) {
			w.Error(err)
		}
		reads(false, 3, 90)
		// Soft, then hard: once.
		no(w, w.client.Memo.DeleteOne(all[0]).Exec(hard))
		reads(false, 3, 90)
		reads(true, 0, 0)
		// Soft, bigger, restored: the new size.
		n := must(w.client.Memo.Delete().Where(memo.SizeLT(40)).Exec(ctx))(w)
		if n != 2 {
			w.Errorf("%d memos were deleted softly", n)
		}
		reads(false, 1, 40)
		reads(true, 2, 50)
		no(w, w.client.Memo.Update().Where(memo.ID(all[1].ID)).SetSize(1000).Exec(hard))
		reads(true, 2, 1030)
		no(w, w.client.Memo.Update().Where(memo.Deleted(true)).SetDeleted(false).ClearDeleteTime().Exec(hard))
		reads(false, 3, 1070)
		reads(true, 0, 0)
		// In one transaction: soft, restored, nothing.
		w.fold(ctx)
		tx := must(w.client.Tx(ctx))(w)
		must(tx.Memo.Delete().Where(memo.Board("b")).Exec(ctx))(w)
		no(w, tx.Memo.Update().Where(memo.Deleted(true)).SetDeleted(false).ClearDeleteTime().Exec(hard), tx.Commit())
		w.journalled(ctx, "Memo")
		if got := must(w.client.Memo.Query().Count(ctx))(w); got != 3 {
			w.Errorf("%d memos are left", got)
		}
	})
}

// bools is a bool as the database's text.
func bools(w *world, b bool) string {
	switch {
	case w.db.Dialect == dialect.Postgres:
		return fmt.Sprint(b)
	case b:
		return "1"
	}
	return "0"
}

// A privacy rule that adds a predicate to mutations is part of what is counted.
func TestPrivacyFilter(t *testing.T) {
	with(t, func(ctx context.Context, w *world) {
		for _, board := range []string{"a", "a", "b"} {
			no(w, w.client.Memo.Create().SetBoard(board).SetSize(1).Exec(ctx))
		}
		viewer := schema.WithViewer(ctx, "a")
		no(w, w.client.Memo.Update().SetSize(5).Exec(viewer))
		w.exact(ctx)
		if n := must(w.client.Memo.Delete().Exec(viewer))(w); n != 2 {
			w.Errorf("%d memos were deleted", n)
		}
		w.exact(ctx)
		if n := must(w.client.Memo.Delete().Exec(schema.SkipSoftDelete(viewer)))(w); n != 2 {
			w.Errorf("%d memos were deleted for good", n)
		}
		w.exact(ctx)
		got := must(w.client.MemoCounters.Query().Where(memocounters.CountGT(0)).All(ctx))(w)
		if len(got) != 1 || got[0].Board != "b" || got[0].Bytes != 1 {
			w.Errorf("left are %v", got)
		}
	})
}

// What counting does runs through no hook and no interceptor of the user's.
func TestInternalStatementsMeetNoHooks(t *testing.T) {
	with(t, func(ctx context.Context, w *world) {
		p, tasks := w.project(ctx, "p", 3)
		u := must(w.client.User.Create().SetName("u").AddOwned(tasks...).Save(ctx))(w)
		var hooks, interceptors int
		w.client.Use(func(next ent.Mutator) ent.Mutator {
			return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) { hooks++; return next.Mutate(ctx, m) })
		})
		w.client.Intercept(ent.InterceptFunc(func(next ent.Querier) ent.Querier {
			return ent.QuerierFunc(func(ctx context.Context, q ent.Query) (ent.Value, error) {
				interceptors++
				return next.Query(ctx, q)
			})
		}))
		mutations := []func() error{
			func() error { return w.client.Task.Update().AddSize(1).Exec(ctx) },
			func() error { return w.client.Task.Update().Where(task.HasOwner()).SetState(types.Done).Exec(ctx) },
			func() error { return u.Update().ClearOwned().Exec(ctx) },
			func() error { return w.client.Task.Create().SetProject(p).SetCode("c").Exec(ctx) },
			func() error {
				return w.client.Task.Create().SetProject(p).SetCode("c").OnConflictColumns(task.FieldCode).UpdateNewValues().Exec(ctx)
			},
			func() error { return w.client.Project.DeleteOne(p).Exec(ctx) },
		}
		for _, m := range mutations {
			no(w, m())
		}
		if hooks != len(mutations) || interceptors != 0 {
			w.Errorf("%d mutations ran through %d hooks and %d interceptors", len(mutations), hooks, interceptors)
		}
		w.exact(ctx)
		// A read of a counter is a query like any other.
		must(w.client.TaskCounters.Query().All(ctx))(w)
		if interceptors != 1 {
			w.Errorf("a query of a counter ran through %d interceptors", interceptors)
		}
	})
}

// A hook that answers a mutation with another one, and one that refuses.
func TestHooks(t *testing.T) {
	with(t, func(ctx context.Context, w *world) {
		p, tasks := w.project(ctx, "p", 3)
		refused := errors.New("refused")
		w.client.Task.Use(func(next ent.Mutator) ent.Mutator {
			return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
				tm := m.(*ent.TaskMutation)
				if note, ok := tm.Note(); ok && note == "no" {
					if _, err := next.Mutate(ctx, m); err != nil {
						return nil, err
					}
					return nil, refused // after it was done
				}
				if tm.Op().Is(ent.OpDeleteOne) {
					id, _ := tm.ID()
					return tm.Client().Mutate(ctx, tm.Client().Task.UpdateOneID(id).SetState(types.Failed).SetNote("deleted").Mutation())
				}
				if size, ok := tm.Size(); ok && size > 50 {
					tm.SetSize(50)
				}
				return next.Mutate(ctx, m)
			})
		})
		w.fold(ctx)
		no(w, tasks[0].Update().SetSize(1000).Exec(ctx))
		w.journalled(ctx, "Task", fmt.Sprint(p.ID, " open: 0 40 0 0"))
		_ = w.client.Task.DeleteOneID(tasks[1].ID).Exec(ctx)
		w.journalled(ctx, "Task", fmt.Sprint(p.ID, " open: -1 -20 0 0"), fmt.Sprint(p.ID, " failed: 1 20 0 0"))
		tx := must(w.client.Tx(ctx))(w)
		if err := tx.Task.UpdateOneID(tasks[2].ID).SetNote("no").SetState(types.Done).Exec(ctx); !errors.Is(err, refused) {
			w.Error(err)
		}
		no(w, tx.Rollback())
		w.journalled(ctx, "Task")
	})
}

// Two generated packages with equally named tables, in one process.
func TestTwoGeneratedPackages(t *testing.T) {
	with(t, func(ctx context.Context, w *world) {
		other := newRootClient(w)
		d := other.Dataset.Create().SetName("d").SaveX(ctx)
		for i := range 3 {
			no(w, other.File.Create().SetDataset(d).SetPath(fmt.Sprint(i)).SetSize(5).Exec(ctx),
				w.client.Memo.Create().SetBoard("b").SetSize(7).Exec(ctx)) // its table is files, too
		}
		no(w, other.File.Update().Where(rootfile.Path("0")).SetStatus(rootfile.StatusCopied).Exec(ctx))
		must(w.client.Memo.Delete().Where(memo.SizeGT(100)).Exec(ctx))(w)
		w.exact(ctx)
		rows := must(other.FileCounters.Query().All(ctx))(w)
		var n, bytes int64
		for _, r := range rows {
			n, bytes = n+r.Count, bytes+r.Bytes
		}
		if n != 3 || bytes != 15 {
			w.Errorf("the other client reads %d files of %d bytes", n, bytes)
		}
		// Two clients of one database.
		second := ent.NewClient(ent.Driver(entsql.OpenDB(w.db.Dialect, w.oracle)))
		no(w, second.Memo.Update().SetSize(9).Exec(ctx))
		w.exact(ctx)
	})
}

// Two clients of one package, each on a database of its own, keep their counts apart:
// also in transactions that go on at the same time.
func TestTwoClientsOnTwoDatabases(t *testing.T) {
	with(t, func(ctx context.Context, w *world) {
		other := newWorld(w, testdb.New(w, w.db.Kind), nil)
		lite := newWorld(w, testdb.New(w, testdb.SQLite), nil) // perhaps of another dialect
		worlds := []*world{w, other, lite}
		var txs []*ent.Tx
		for i, x := range worlds {
			p, _ := x.project(ctx, "p", i+1)
			tx := must(x.client.Tx(ctx))(w)
			txs = append(txs, tx)
			no(w, tx.Task.Create().SetProject(p).SetSize(7).Exec(ctx))
		}
		for i, tx := range txs {
			must(tx.Task.Update().Where(task.SizeGT(10)).SetState(types.Done).Save(ctx))(w)
			if i == 1 {
				no(w, tx.Rollback())
				continue
			}
			no(w, tx.Commit())
		}
		for i, x := range worlds {
			x.exact(ctx)
			total := must(x.client.TaskCounters.Total(ctx, taskcounters.Scope{}))(w)
			if want := int64([]int{2, 2, 4}[i]); total.Count != want {
				w.Errorf("client %d reads %d tasks, want %d", i, total.Count, want)
			}
		}
	})
}

// Statements of the user's own, through ent's sql/execquery, are not counted.
func TestOwnStatements(t *testing.T) {
	with(t, func(ctx context.Context, w *world) {
		p, _ := w.project(ctx, "p", 2)
		w.fold(ctx)
		must(w.client.ExecContext(ctx, "UPDATE "+w.quote("tasks")+" SET "+w.quote("size")+" = 7"))(w)
		if err := w.check(ctx); err == nil {
			w.Error("there is no drift to mend")
		}
		rebuilt := must(w.client.TaskCounters.Rebuild(ctx, taskcounters.Scope{ProjectID: &p.ID}))(w)
		if rebuilt.Keys != 1 {
			w.Errorf("rebuilt %+v", rebuilt)
		}
		w.exact(ctx)
	})
}

// A sum of unsigned values beyond BIGINT is an error, and nothing is written.
func TestUnsignedOverflow(t *testing.T) {
	with(t, func(ctx context.Context, w *world) {
		create := func(size uint64) error {
			return w.client.Attachment.Create().SetOrder(1).SetKey("k").SetSize(size).Exec(ctx)
		}
		no(w, create(math.MaxInt64))
		if err := create(math.MaxUint64); err == nil {
			w.Error("a value beyond BIGINT was counted")
		} else if w.db.Dialect == dialect.MySQL && !errors.Is(err, entcounter.ErrOverflow) {
			w.Error(err)
		}
		if n := must(w.client.Attachment.Query().Count(ctx))(w); n != 1 {
			w.Errorf("there are %d attachments", n)
		}
		w.exact(ctx)
	})
}
