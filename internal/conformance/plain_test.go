package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	entsql "entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/dataset"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/internal/conformance/plain"
	plaindataset "github.com/entcounter/entcounter/internal/conformance/plain/dataset"
	plainfile "github.com/entcounter/entcounter/internal/conformance/plain/file"
	"github.com/entcounter/entcounter/internal/testdb"
)

// uncounted are mutations that change no counter, as they are written for the two
// clients.
var uncounted = []struct {
	name    string
	counted func(context.Context, *ent.Client) error
	plain   func(context.Context, *plain.Client) error
}{
	{
		"create of a parent",
		func(ctx context.Context, c *ent.Client) error { return c.Dataset.Create().SetName("new").Exec(ctx) },
		func(ctx context.Context, c *plain.Client) error { return c.Dataset.Create().SetName("new").Exec(ctx) },
	},
	{
		"bulk create of parents",
		func(ctx context.Context, c *ent.Client) error {
			return c.Dataset.CreateBulk(c.Dataset.Create().SetName("x"), c.Dataset.Create().SetName("y")).OnConflictColumns("name").Ignore().Exec(ctx)
		},
		func(ctx context.Context, c *plain.Client) error {
			return c.Dataset.CreateBulk(c.Dataset.Create().SetName("x"), c.Dataset.Create().SetName("y")).OnConflictColumns("name").Ignore().Exec(ctx)
		},
	},
	{
		"upsert of a parent",
		func(ctx context.Context, c *ent.Client) error {
			return c.Dataset.Create().SetName("x").OnConflictColumns("name").UpdateNewValues().Exec(ctx)
		},
		func(ctx context.Context, c *plain.Client) error {
			return c.Dataset.Create().SetName("x").OnConflictColumns("name").UpdateNewValues().Exec(ctx)
		},
	},
	{
		"update of a parent",
		func(ctx context.Context, c *ent.Client) error {
			return c.Dataset.Update().Where(dataset.Name("x")).SetName("z").Exec(ctx)
		},
		func(ctx context.Context, c *plain.Client) error {
			return c.Dataset.Update().Where(plaindataset.Name("x")).SetName("z").Exec(ctx)
		},
	},
	{
		"update of one parent",
		func(ctx context.Context, c *ent.Client) error {
			return c.Dataset.UpdateOneID(1).SetName("one").Exec(ctx)
		},
		func(ctx context.Context, c *plain.Client) error {
			return c.Dataset.UpdateOneID(1).SetName("one").Exec(ctx)
		},
	},
	{
		"update of a field that nothing counts",
		func(ctx context.Context, c *ent.Client) error {
			return c.File.Update().Where(file.StatusEQ(file.StatusNew), file.Path("a")).SetPath("b").Exec(ctx)
		},
		func(ctx context.Context, c *plain.Client) error {
			return c.File.Update().Where(plainfile.StatusEQ(plainfile.StatusNew), plainfile.Path("a")).SetPath("b").Exec(ctx)
		},
	},
	{
		"update of one row's field that nothing counts",
		func(ctx context.Context, c *ent.Client) error { return c.File.UpdateOneID(1).SetPath("b").Exec(ctx) },
		func(ctx context.Context, c *plain.Client) error {
			return c.File.UpdateOneID(1).SetPath("b").Exec(ctx)
		},
	},
	{
		"modifier that sets a column that nothing counts",
		func(ctx context.Context, c *ent.Client) error {
			return c.File.Update().Modify(func(u *entsql.UpdateBuilder) { u.Set("path", entsql.Expr("path")) }).Exec(ctx)
		},
		func(ctx context.Context, c *plain.Client) error {
			return c.File.Update().Modify(func(u *entsql.UpdateBuilder) { u.Set("path", entsql.Expr("path")) }).Exec(ctx)
		},
	},
	{
		"update that sets nothing",
		func(ctx context.Context, c *ent.Client) error { return ignoreNotFound(c.File.UpdateOneID(1).Exec(ctx)) },
		func(ctx context.Context, c *plain.Client) error {
			return ignoreNotFound(c.File.UpdateOneID(1).Exec(ctx))
		},
	},
	{
		"query",
		func(ctx context.Context, c *ent.Client) error {
			_, err := c.File.Query().Where(file.HasDatasetWith(dataset.Name("x"))).WithDataset().All(ctx)
			return err
		},
		func(ctx context.Context, c *plain.Client) error {
			_, err := c.File.Query().Where(plainfile.HasDatasetWith(plaindataset.Name("x"))).WithDataset().All(ctx)
			return err
		},
	},
}

func ignoreNotFound(err error) error {
	if ent.IsNotFound(err) || plain.IsNotFound(err) {
		return nil
	}
	return err
}

// TestUncountedMutationIsEntsOwn holds mutations that cannot change a counter
// against a client that was generated without the extension, on a database of its
// own: the statements are the same, one for one, and so are their arguments.
func TestUncountedMutationIsEntsOwn(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w, other := newWorld(t, db, nil), newWorld(t, testdb.New(t, db.Kind), nil)
		for _, w := range []*world{w, other} {
			d := w.client.Dataset.Create().SetName("first").SaveX(ctx)
			w.client.File.Create().SetDataset(d).SetPath("a").SetSize(1).ExecX(ctx)
		}
		alone := plain.NewClient(plain.Driver(entsql.OpenDB(db.Dialect, other.pool)))
		for _, m := range uncounted {
			for _, inTx := range []bool{true, false} { // in one that is rolled back first
				w.tap.Reset()
				other.tap.Reset()
				var err, otherErr error
				if inTx {
					tx, otherTx := must(w.client.Tx(ctx))(t), must(alone.Tx(ctx))(t)
					err = errors.Join(m.counted(ctx, tx.Client()), tx.Rollback())
					otherErr = errors.Join(m.plain(ctx, otherTx.Client()), otherTx.Rollback())
				} else {
					err, otherErr = m.counted(ctx, w.client), m.plain(ctx, alone)
				}
				if err != nil || otherErr != nil {
					t.Errorf("%s: %v, and with ent alone: %v", m.name, err, otherErr)
				}
				got, want := w.tap.Texts(), other.tap.Texts()
				if !slices.Equal(got, want) || len(got) == 0 {
					t.Errorf("%s (in a transaction: %v) issued\n\t%s\nand with ent alone\n\t%s", m.name, inTx, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
				}
			}
		}
		w.exact(ctx)
	})
}
