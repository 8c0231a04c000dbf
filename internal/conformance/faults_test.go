package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	entsql "entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/dataset"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/conformance/tap"
	"github.com/entcounter/entcounter/internal/testdb"
)

// mutations that a test breaks at each of their statements. They work on a
// dataset of its own with three files.
var mutations = []struct {
	name string
	run  func(ctx context.Context, c *ent.Client, dataset int, files []int) error
}{
	{"create", func(ctx context.Context, c *ent.Client, dataset int, _ []int) error {
		return c.File.Create().SetDatasetID(dataset).SetPath("new").SetSize(5).Exec(ctx)
	}},
	{"bulk create", func(ctx context.Context, c *ent.Client, dataset int, _ []int) error {
		return c.File.MapCreateBulk(make([]struct{}, 3), func(b *ent.FileCreate, i int) {
			b.SetDatasetID(dataset).SetPath(fmt.Sprint("new", i)).SetSize(5)
		}).Exec(ctx)
	}},
	{"update", func(ctx context.Context, c *ent.Client, dataset int, _ []int) error {
		return c.File.Update().Where(file.DatasetID(dataset), file.SizeLT(30)).SetStatus(file.StatusCopied).Exec(ctx)
	}},
	{"update by expression", func(ctx context.Context, c *ent.Client, dataset int, _ []int) error {
		return c.File.Update().Where(file.DatasetID(dataset)).Modify(func(u *entsql.UpdateBuilder) {
			u.Set("size", entsql.Expr("size * 2"))
		}).Exec(ctx)
	}},
	{"update of one", func(ctx context.Context, c *ent.Client, _ int, files []int) error {
		return c.File.UpdateOneID(files[0]).SetStatus(file.StatusCopied).AddSize(1).Exec(ctx)
	}},
	{"delete", func(ctx context.Context, c *ent.Client, dataset int, _ []int) error {
		_, err := c.File.Delete().Where(file.DatasetID(dataset), file.SizeGT(10)).Exec(ctx)
		return err
	}},
	{"delete of one", func(ctx context.Context, c *ent.Client, _ int, files []int) error {
		return c.File.DeleteOneID(files[0]).Exec(ctx)
	}},
	{"delete of a parent", func(ctx context.Context, c *ent.Client, id int, _ []int) error {
		_, err := c.Dataset.Delete().Where(dataset.ID(id)).Exec(ctx)
		return err
	}},
	{"upsert", func(ctx context.Context, c *ent.Client, dataset int, _ []int) error {
		return c.File.CreateBulk(
			c.File.Create().SetDatasetID(dataset).SetPath("0").SetSize(7).SetStatus(file.StatusFailed),
			c.File.Create().SetDatasetID(dataset).SetPath("new").SetSize(8),
			c.File.Create().SetDatasetID(dataset).SetPath("newer").SetSize(9),
		).OnConflictColumns("dataset_id", "path").UpdateNewValues().Exec(ctx)
	}},
	{"several", func(ctx context.Context, c *ent.Client, dataset int, files []int) error {
		if err := c.File.UpdateOneID(files[1]).SetStatus(file.StatusFailed).Exec(ctx); err != nil {
			return err
		}
		return c.File.Update().Where(file.DatasetID(dataset), file.StatusEQ(file.StatusFailed)).SetStatus(file.StatusCopied).Exec(ctx)
	}},
}

var errFault = errors.New("injected fault")

// faults are the ways in which a statement is broken.
func faults(cancel context.CancelFunc) map[string]tap.Fault {
	return map[string]tap.Fault{
		"refused":          tap.Refuse(errFault),
		"lost before":      tap.CutBefore,
		"lost after":       tap.CutAfter,
		"context is over":  tap.Call(cancel),
		"commit uncertain": tap.Run(errFault),
	}
}

// TestFaults breaks each statement of each mutation in each way, in a transaction
// of the mutation's own and in one of the user's, who then commits whatever has
// happened. The counters are exact afterwards, an error means that nothing was
// changed, and none that all was; save where it is the commit that breaks, and
// nobody can know. In PostgreSQL and MariaDB that may be the one statement of a
// mutation.
func TestFaults(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		w := newWorld(t, db, nil)
		for _, m := range mutations {
			for _, inTx := range []bool{false, true} {
				if m.name == "several" && !inTx {
					continue
				}
				name := m.name
				if inTx {
					name += " in a transaction"
				}
				t.Run(name, func(t *testing.T) {
					for at := 0; ; at++ {
						reached := false
						for kind := range faults(nil) {
							f := fault{w: w, kind: kind, at: at, inTx: inTx, mutation: m.run}
							reached = f.run(t) || reached
						}
						if !reached {
							if at < 3 && (inTx || db.Kind != testdb.Postgres && db.Kind != testdb.MariaDB) {
								t.Errorf("only %d statements", at)
							}
							return
						}
					}
				})
			}
		}
	})
}

// fault is one run of a mutation, broken at one of its statements.
type fault struct {
	w        *world
	kind     string
	at       int
	inTx     bool
	mutation func(ctx context.Context, c *ent.Client, dataset int, files []int) error
}

// run reports whether there was a statement to break.
func (f fault) run(t *testing.T) bool {
	w := f.w
	ctx := context.Background()
	d, ids := w.seed(ctx, fmt.Sprint(time.Now().UnixNano()), 3)
	before := must(w.recount(ctx, w.oracle))(t)

	mctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		broken  = ""
		commits bool // by itself
	)
	w.tap.Inject(func(s tap.Statement) tap.Fault {
		if s.Index != f.at {
			return tap.Pass
		}
		broken = s.String()
		commits = s.Kind == tap.Commit || !f.inTx && (s.Is("WITH") || s.Is("BEGIN NOT ATOMIC"))
		if f.kind == "commit uncertain" && !commits {
			return tap.Pass
		}
		return faults(cancel)[f.kind]
	})
	var err, mutationErr error
	if f.inTx {
		err = func() error {
			tx, err := w.client.Tx(ctx)
			if err != nil {
				return err
			}
			mutationErr = f.mutation(mctx, tx.Client(), d.ID, ids)
			return tx.Commit()
		}()
	} else {
		err = f.mutation(mctx, w.client, d.ID, ids)
	}
	w.tap.Inject(nil)
	issued := strings.Join(w.tap.Texts(), "\n\t")
	if broken == "" {
		no(t, err, mutationErr)
		return false
	}
	what := fmt.Sprintf("%s: %s\n\t%s\nerror: %v, of the mutation in it: %v", f.kind, broken, issued, err, mutationErr)
	// The server may take a moment to notice that a connection is gone.
	var after counts
	w.eventually(func() (err error) {
		if after, err = w.recount(ctx, w.oracle); err != nil {
			return err
		}
		if err := w.check(ctx); err != nil {
			return fmt.Errorf("%w\n%s", err, what)
		}
		return nil
	})
	changed := after.diff(before) != ""
	switch {
	case commits:
	case err != nil && changed:
		t.Errorf("changed something in spite of an error\n%s", what)
	case err == nil && mutationErr == nil && !changed:
		t.Errorf("changed nothing without an error\n%s", what)
	}
	if f.inTx && mutationErr != nil && err != nil && !commits && !strings.HasPrefix(broken, "BEGIN") {
		// The user who commits all the same is told that it went wrong.
		if !errors.Is(err, entcounter.ErrTransactionFailed) && f.kind == "refused" {
			t.Errorf("the commit does not say that the transaction had failed\n%s", what)
		}
	}
	return true
}
