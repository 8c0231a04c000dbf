package conformance

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/dataset"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/ent/filecounters"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/testdb"
)

// The parent of a row changes by the foreign key field, by the edge, and by both
// at once: −1, +1, once.
func TestMoveToAnotherParent(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		a, ids := w.seed(ctx, "a", 3)
		b, _ := w.seed(ctx, "b", 0)
		for i, m := range []func(u *ent.FileUpdateOne) *ent.FileUpdateOne{
			func(u *ent.FileUpdateOne) *ent.FileUpdateOne { return u.SetDatasetID(b.ID) },
			func(u *ent.FileUpdateOne) *ent.FileUpdateOne { return u.SetDataset(b) },
			func(u *ent.FileUpdateOne) *ent.FileUpdateOne { return u.SetDataset(b).SetDatasetID(b.ID) },
		} {
			no(t, m(w.client.File.UpdateOneID(ids[i])).Exec(ctx))
			size := 10 * (i + 1)
			want := []string{fmt.Sprintf("%d New -1 -%d", a.ID, size), fmt.Sprintf("%d New +1 +%d", b.ID, size)}
			got := w.journal(ctx)
			if got = got[len(got)-2:]; !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
				t.Errorf("way %d journalled %q", i, got)
			}
			w.exact(ctx)
		}
		if got := must(w.client.FileCounters.Read(ctx, filecounters.Key{DatasetID: a.ID, Status: file.StatusNew}))(t); got.Count != 0 || got.Bytes != 0 {
			t.Errorf("the parent without children reads %+v", got)
		}
	})
}

// One update finds rows of several old keys, of none, and rows that have the new
// value already.
func TestUpdateOfMixedRows(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.Database, params map[string]string) {
		ctx := t.Context()
		w := newWorld(t, db, params)
		d, ids := w.seed(ctx, "d", 8)
		for i, id := range ids {
			no(t, w.client.File.UpdateOneID(id).SetStatus(statuses[i%4]).Exec(ctx))
		}
		no(t, w.client.File.Update().Where(file.DatasetID(d.ID)).SetStatus(file.StatusCopied).Exec(ctx))
		w.exact(ctx)
		before := len(w.journal(ctx))
		no(t,
			w.client.File.Update().Where(file.DatasetID(d.ID), file.StatusEQ(file.StatusCopied)).SetStatus(file.StatusCopied).Exec(ctx),
			w.client.File.Update().Where(file.DatasetID(d.ID)).SetDatasetID(d.ID).SetStatus(file.StatusCopied).Exec(ctx),
			w.client.File.Update().Where(file.DatasetID(d.ID+1)).SetStatus(file.StatusNew).Exec(ctx),
			w.client.File.Update().Where(file.IDIn()).SetStatus(file.StatusNew).Exec(ctx))
		if _, err := w.client.File.Delete().Where(file.StatusEQ(file.StatusFailed)).Exec(ctx); err != nil {
			t.Error(err)
		}
		if n := len(w.journal(ctx)) - before; n != 0 {
			t.Errorf("%d rows were journalled for updates that changed nothing", n)
		}
		w.exact(ctx)
	})
}

// 1,000 rows over 10 keys are 10 journal rows.
func TestBulkCreateJournalsOnceForEachKey(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		var parents []*ent.Dataset
		for i := range 5 {
			d, _ := w.seed(ctx, fmt.Sprint(i), 0)
			parents = append(parents, d)
		}
		set := func(b *ent.FileCreate, round, i int) {
			b.SetDataset(parents[i%5]).SetStatus(statuses[i/5%2]).SetPath(fmt.Sprint(round, " ", i)).SetSize(int64(i))
		}
		no(t, w.client.File.MapCreateBulk(make([]int, 1000), func(b *ent.FileCreate, i int) { set(b, 1, i) }).Exec(ctx))
		if n := len(w.journal(ctx)); n != 10 {
			t.Errorf("MapCreateBulk journalled %d rows", n)
		}
		builders := make([]*ent.FileCreate, 1000)
		for i := range builders {
			builders[i] = w.client.File.Create()
			set(builders[i], 2, i)
		}
		no(t, w.client.File.CreateBulk(builders...).Exec(ctx))
		if n := len(w.journal(ctx)); n != 20 {
			t.Errorf("CreateBulk journalled %d rows", n-10)
		}
		w.exact(ctx)
	})
}

// Sets of rows larger than what is locked at a time.
func TestLargeSets(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		params := map[string]string{}
		if db.Dialect == dialect.MySQL {
			params["clientFoundRows"] = "true" // or it tells how many rows are not what they were
		}
		w := newWorld(t, db, params)
		a, _ := w.seed(ctx, "a", 0)
		b, _ := w.seed(ctx, "b", 0)
		const n = 2300
		for start := 0; start < n; start += 1150 {
			no(t, w.client.File.MapCreateBulk(make([]int, 1150), func(c *ent.FileCreate, i int) {
				c.SetDataset(a).SetPath(fmt.Sprint(start + i)).SetSize(int64(i)).SetStatus(statuses[i%4])
			}).Exec(ctx))
		}
		changes := func(got int, err error) func(want int) {
			return func(want int) {
				t.Helper()
				if err != nil || got != want {
					t.Errorf("%d rows changed, want %d: %v", got, want, err)
				}
				w.exact(ctx)
			}
		}
		changes(w.client.File.Update().Where(file.DatasetID(a.ID)).AddSize(1).Save(ctx))(n)
		changes(w.client.File.Update().Where(file.SizeGT(1)).SetStatus(file.StatusCopied).Save(ctx))(n - 2)
		changes(w.client.File.Update().Where(file.HasDatasetWith(dataset.Name("a"))).SetDataset(b).Save(ctx))(n)
		changes(w.client.File.Update().Where(file.DatasetID(b.ID)).Modify(func(u *entsql.UpdateBuilder) {
			u.Set(file.FieldSize, entsql.Expr("size % 7"))
		}).Save(ctx))(n)
		// The predicate reads what the update changes.
		changes(w.client.File.Update().Where(func(s *entsql.Selector) {
			t := entsql.Table(file.Table).As("other")
			s.Where(entsql.In(s.C(file.FieldStatus), entsql.Select(t.C(file.FieldStatus)).From(t).Where(entsql.EQ(t.C(file.FieldStatus), file.StatusCopied))))
		}).SetStatus(file.StatusFailed).Save(ctx))(n - 2)
		half := must(w.client.File.Query().Where(file.SizeLT(3)).Count(ctx))(t)
		changes(w.client.File.Delete().Where(file.SizeLT(3)).Exec(ctx))(half)
		changes(w.client.Dataset.Delete().Where(dataset.ID(b.ID)).Exec(ctx))(1)
		if left := must(w.client.File.Query().Count(ctx))(t); left != 0 {
			t.Errorf("%d files are left", left)
		}
	})
}

// An SQL expression of the user's sets the key, the measure, or both.
func TestModify(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d, ids := w.seed(ctx, "d", 6)
		e, _ := w.seed(ctx, "e", 1)
		flip := entsql.Expr("CASE WHEN size > 30 THEN 'Copied' ELSE 'Failed' END")
		status := func(u *entsql.UpdateBuilder) { u.Set(file.FieldStatus, flip) }
		if db.Dialect == dialect.MySQL {
			// MySQL updates from left to right: what is set first is seen later.
			no(t, w.client.File.Update().Modify(func(u *entsql.UpdateBuilder) {
				u.Set(file.FieldSize, entsql.Expr("size + 5")).Set(file.FieldStatus, flip)
			}).Exec(ctx))
			w.exact(ctx)
		}
		no(t, w.client.File.Update().Where(file.DatasetID(d.ID)).Modify(status).Exec(ctx))
		w.exact(ctx)
		no(t, w.client.File.Update().Where(file.DatasetID(d.ID), file.StatusEQ(file.StatusCopied)).SetSize(1).Modify(func(u *entsql.UpdateBuilder) {
			u.Set(file.FieldDatasetID, entsql.Expr(fmt.Sprint(e.ID))).Set(file.FieldPath, entsql.ExprFunc(func(b *entsql.Builder) {
				if b.Dialect() == dialect.MySQL {
					b.WriteString("CONCAT('moved', path)")
				} else {
					b.WriteString("'moved' || path")
				}
			}))
		}).Exec(ctx))
		w.exact(ctx)
		f := must(w.client.File.UpdateOneID(ids[0]).Modify(status, func(u *entsql.UpdateBuilder) { u.Add(file.FieldSize, 100) }).Save(ctx))(t)
		w.exact(ctx)
		no(t, f.Update().SetStatus(file.StatusNew).Exec(ctx))
		w.exact(ctx)
		// A modifier that restricts the update says itself what it changes.
		no(t, w.client.File.Update().SetStatus(file.StatusCopying).Modify(func(u *entsql.UpdateBuilder) {
			u.Where(entsql.LT(file.FieldSize, 20))
		}).Exec(ctx))
		w.exact(ctx)
		tx := w.begin(ctx)
		no(t, tx.File.Update().Modify(status).Exec(ctx), tx.Commit())
		w.exact(ctx)
	})
}

// Sizes of 3 GiB, sums above 2^32 and up to the end of BIGINT.
func TestLargeValues(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d, _ := w.seed(ctx, "d", 0)
		create := func(c *ent.Client, path string, size int64) error {
			return c.File.Create().SetDataset(d).SetPath(path).SetSize(size).Exec(ctx)
		}
		total := func() int64 {
			t.Helper()
			return must(w.client.FileCounters.Read(ctx, filecounters.Key{DatasetID: d.ID, Status: file.StatusNew}))(t).Bytes
		}
		no(t, create(w.client, "a", 3<<30), create(w.client, "b", 3<<30))
		if got := total(); got != 6<<30 {
			t.Errorf("two files of 3 GiB are %d bytes", got)
		}
		no(t, create(w.client, "c", math.MaxInt64-6<<30))
		if got := total(); got != math.MaxInt64 {
			t.Errorf("the sum is %d", got)
		}
		must(w.client.FileCounters.Fold(ctx))(t)
		w.exact(ctx)

		// One transaction whose delta would not fit changes nothing.
		tx := w.begin(ctx)
		no(t, create(tx.Client(), "d", math.MaxInt64))
		err := create(tx.Client(), "e", math.MaxInt64)
		if !errors.Is(err, entcounter.ErrOverflow) {
			t.Errorf("an overflow in a transaction: %v", err)
		}
		if err := tx.Commit(); !errors.Is(err, entcounter.ErrTransactionFailed) {
			t.Errorf("committed: %v", err)
		}
		w.exact(ctx)
		if err := w.client.File.MapCreateBulk(make([]int, 2), func(b *ent.FileCreate, i int) {
			b.SetDataset(d).SetPath(fmt.Sprint("bulk", i)).SetSize(math.MaxInt64)
		}).Exec(ctx); !errors.Is(err, entcounter.ErrOverflow) {
			t.Errorf("an overflow in a bulk: %v", err)
		}
		w.exact(ctx)

		// Two that fit each, and not together: reading and folding fail, and lose
		// nothing.
		no(t, create(w.client, "f", 1))
		if _, err := w.client.FileCounters.Read(ctx, filecounters.Key{DatasetID: d.ID, Status: file.StatusNew}); !errors.Is(err, entcounter.ErrOverflow) {
			t.Errorf("a sum that does not fit was read: %v", err)
		}
		if _, err := w.client.FileCounters.Query().All(ctx); !errors.Is(err, entcounter.ErrOverflow) {
			t.Errorf("a sum that does not fit was read: %v", err)
		}
		if _, err := w.client.FileCounters.Fold(ctx); !errors.Is(err, entcounter.ErrOverflow) {
			t.Errorf("a sum that does not fit was folded: %v", err)
		}
		if n := len(w.journal(ctx)); n != 1 {
			t.Errorf("%d rows are left in the journal", n)
		}
		if _, err := w.client.File.Delete().Where(file.Path("f")).Exec(ctx); err != nil {
			t.Error(err)
		}
		must(w.client.FileCounters.Fold(ctx))(t)
		w.exact(ctx)
	})
}

// A negative count shows that rows were changed behind the counter's back. Writing
// goes on, verifying names the key, and rebuilding mends it.
func TestNegativeCount(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d, ids := w.seed(ctx, "d", 2)
		if _, err := w.oracle.Exec(w.quoted("UPDATE `file_counters` SET `count` = 0, `bytes` = 0")); err != nil {
			t.Fatal(err)
		}
		no(t, w.client.File.UpdateOneID(ids[0]).SetStatus(file.StatusCopied).Exec(ctx))
		newKey := filecounters.Key{DatasetID: d.ID, Status: file.StatusNew}
		if got := must(w.client.FileCounters.Read(ctx, newKey))(t); got.Count != -1 {
			t.Errorf("New reads %+v", got)
		}
		must(w.client.FileCounters.Fold(ctx))(t)
		var drifts []filecounters.Drift
		for drift, err := range w.client.FileCounters.Verify(ctx, filecounters.Scope{DatasetID: &d.ID}) {
			no(t, err)
			drifts = append(drifts, drift)
		}
		want := []filecounters.Drift{{Key: newKey, Stored: filecounters.Measures{Count: -1, Bytes: -10}, Actual: filecounters.Measures{Count: 1, Bytes: 20}}}
		if !slices.Equal(drifts, want) {
			t.Errorf("verify reports %+v, want %+v", drifts, want)
		}
		rebuilt := must(w.client.FileCounters.Rebuild(ctx, filecounters.Scope{DatasetID: &d.ID}))(t)
		if rebuilt.Keys != 1 {
			t.Errorf("rebuilt %+v", rebuilt)
		}
		w.exact(ctx)
	})
}
