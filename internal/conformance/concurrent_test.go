package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/dataset"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/ent/filecounters"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/conformance/tap"
	"github.com/entcounter/entcounter/internal/testdb"
)

// victims collects the statements that the server chose as victims of deadlocks.
type victims struct {
	mu         sync.Mutex
	statements map[string]int
}

var lists = regexp.MustCompile(`\?(, \?)+`)

// watchDeadlocks watches for deadlocks from now on.
func (w *world) watchDeadlocks() *victims {
	v := &victims{statements: make(map[string]int)}
	w.tap.Forget()
	w.tap.OnError(func(s tap.Statement) {
		text := s.Err.Error()
		if !strings.Contains(text, "Error 1213") && !strings.Contains(text, "40P01") {
			return
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		v.statements[lists.ReplaceAllString(bare(s.SQL), "?, …")]++
	})
	return v
}

// ofCounters returns the victims that write or read the counter's own tables. A
// statement of these waits for nobody.
func (v *victims) ofCounters() map[string]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	found := make(map[string]int)
	for s, n := range v.statements {
		// The one statement of PostgreSQL or MariaDB waits for the rows that it changes.
		if strings.Contains(s, "counter") && !strings.HasPrefix(s, "WITH entcounter_") && !strings.HasPrefix(s, "BEGIN NOT ATOMIC") {
			found[s] = n
		}
	}
	return found
}

func (v *victims) String() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var b strings.Builder
	for s, n := range v.statements {
		fmt.Fprintf(&b, "\n\t%d × %s", n, s)
	}
	return b.String()
}

// snapshot compares the counters with a recount, as one transaction sees them.
func (w *world) snapshot(ctx context.Context) error {
	opts := &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	if w.db.Dialect == dialect.SQLite {
		opts = &sql.TxOptions{ReadOnly: true}
	}
	tx, err := w.client.BeginTx(ctx, opts)
	if err != nil {
		return err
	}
	err = func() error {
		got, err := read(ctx, tx.FileCounters)
		if err != nil {
			return err
		}
		var rows []struct {
			DatasetID int         `json:"dataset_id"`
			Status    file.Status `json:"status"`
			Count     int64       `json:"count"`
			Bytes     int64       `json:"bytes"`
		}
		err = tx.File.Query().GroupBy(file.FieldDatasetID, file.FieldStatus).
			Aggregate(ent.As(ent.Count(), "count"), ent.As(ent.Sum(file.FieldSize), "bytes")).Scan(ctx, &rows)
		if err != nil {
			return err
		}
		want := make(counts)
		for _, r := range rows {
			want.add(key{r.DatasetID, r.Status}, measures{r.Count, r.Bytes})
		}
		if d := got.diff(want); d != "" {
			return fmt.Errorf("in one snapshot the counters differ from the recount:%s", d)
		}
		return nil
	}()
	return errors.Join(err, tx.Rollback())
}

// transient reports whether another transaction came in between.
func transient(err error) bool {
	return entcounter.Retryable(err)
}

// TestTogether runs writers, folds, rebuilds and readers at once. Every read in
// one snapshot equals the recount in it, a rebuild never finds anything to correct,
// and no statement of the counters is a deadlock's victim.
func TestTogether(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		params := map[string]string{}
		if db.Dialect == dialect.SQLite {
			params["_txlock"] = "immediate" // the users' transactions read before they write
		}
		w := newWorld(t, db, params)
		victims := w.watchDeadlocks()
		for i := range 4 {
			w.seed(t.Context(), fmt.Sprintf("dataset%d", i), 40)
		}
		ctx, cancel := context.WithTimeout(t.Context(), *durationFlag)
		defer cancel()
		var (
			all                            sync.WaitGroup
			written, lost, folds, rebuilds atomic.Int64
			reads                          atomic.Int64
		)
		loop := func(n int, what string, f func(i int) error) {
			for i := range n {
				all.Go(func() {
					for ctx.Err() == nil {
						err := f(i)
						switch {
						case err == nil, ctx.Err() != nil:
						case transient(err):
							lost.Add(1)
						default:
							t.Errorf("%s: %v", what, err)
							cancel()
						}
					}
				})
			}
		}
		loop(8, "writing", func(int) error {
			r := random{rand.New(rand.NewPCG(rand.Uint64(), 0))}
			if r.IntN(3) > 0 {
				err := w.write(ctx, r, w.client)
				if err == nil {
					written.Add(1)
				}
				if refused(err) {
					return nil
				}
				return err
			}
			tx, err := w.client.Tx(ctx)
			if err != nil {
				return err
			}
			for range 1 + r.IntN(3) {
				if err := w.write(ctx, r, tx.Client()); err != nil {
					if refused(err) {
						err = nil
					}
					return errors.Join(err, ignoreDone(tx.Rollback()))
				}
			}
			if r.IntN(4) == 0 {
				return tx.Rollback()
			}
			err = tx.Commit()
			if err == nil {
				written.Add(1)
			}
			return err
		})
		loop(2, "folding", func(int) error {
			_, err := w.client.FileCounters.Fold(ctx, entcounter.WithBatch(1+rand.IntN(200)))
			folds.Add(1)
			time.Sleep(time.Millisecond)
			return err
		})
		loop(1, "rebuilding", func(int) error {
			var scope filecounters.Scope
			if rand.IntN(2) == 0 {
				id := 1 + rand.IntN(4)
				scope.DatasetID = &id
			}
			rebuilt, err := w.client.FileCounters.Rebuild(ctx, scope)
			if err == nil && rebuilt.Keys != 0 {
				err = fmt.Errorf("corrected %d keys of a counter that was right", rebuilt.Keys)
			}
			rebuilds.Add(1)
			time.Sleep(5 * time.Millisecond)
			return err
		})
		loop(2, "reading", func(int) error {
			reads.Add(1)
			return w.snapshot(ctx)
		})
		all.Wait()
		ctx = t.Context()
		for drift, err := range w.client.FileCounters.Verify(ctx, filecounters.Scope{}) {
			t.Errorf("drift %+v: %v", drift, err)
		}
		w.exact(ctx)
		if found := victims.ofCounters(); len(found) > 0 {
			t.Errorf("statements of the counters were victims of deadlocks: %v", found)
		}
		t.Logf("%d transactions committed, %d lost to others, %d folds, %d rebuilds, %d reads; deadlock victims:%s",
			written.Load(), lost.Load(), folds.Load(), rebuilds.Load(), reads.Load(), victims)
		if written.Load() == 0 || folds.Load() == 0 || rebuilds.Load() == 0 || reads.Load() == 0 {
			t.Error("not all of them got to run")
		}
	})
}

func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) || err != nil && strings.Contains(err.Error(), "already been committed or rolled back") {
		return nil
	}
	return err
}

// write changes a few files. Its own statements may well meet those of others.
func (w *world) write(ctx context.Context, r random, c *ent.Client) error {
	id, status, path := 1+r.IntN(4), r.status(), fmt.Sprintf("path%d", r.IntN(200))
	switch r.IntN(9) {
	case 0, 1:
		return c.File.Update().Where(file.DatasetID(id), file.StatusEQ(status), file.SizeLT(int64(r.IntN(200)))).SetStatus(r.status()).Exec(ctx)
	case 2:
		return c.File.Update().Where(file.HasDatasetWith(dataset.Name(fmt.Sprintf("dataset%d", id-1))), file.PathHasSuffix(path[len(path)-1:])).AddSize(1).Exec(ctx)
	case 3:
		return c.File.Create().SetDatasetID(id).SetPath(path).SetSize(int64(r.IntN(100))).SetStatus(status).Exec(ctx)
	case 4:
		return c.File.Create().SetDatasetID(id).SetPath(path).SetSize(int64(r.IntN(100))).SetStatus(status).
			OnConflictColumns(file.FieldDatasetID, file.FieldPath).UpdateNewValues().Exec(ctx)
	case 5:
		_, err := c.File.Delete().Where(file.DatasetID(id), file.PathHasSuffix(path[len(path)-2:])).Exec(ctx)
		return err
	case 6:
		return c.File.UpdateOneID(1 + r.IntN(300)).SetDatasetID(id).SetStatus(status).Exec(ctx)
	case 7:
		return c.File.DeleteOneID(1 + r.IntN(300)).Exec(ctx)
	default:
		return c.File.MapCreateBulk(make([]int, 1+r.IntN(5)), func(b *ent.FileCreate, i int) {
			b.SetDatasetID(id).SetPath(fmt.Sprint(path, "/", i, "/", r.Uint64())).SetSize(int64(i))
		}).OnConflictColumns(file.FieldDatasetID, file.FieldPath).Ignore().Exec(ctx)
	}
}

// refused reports whether a write met a row that is in the way, or none.
func refused(err error) bool { return ent.IsConstraintError(err) || ent.IsNotFound(err) }

// TestOppositeOrders has writers move rows of their own between the same two
// keys, in one transaction each and in opposite orders, at the database's own
// isolation level. With counters updated in place they would deadlock at once.
func TestOppositeOrders(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		const writers, rounds = 8, 25
		ctx := t.Context()
		w := newWorld(t, db, nil)
		victims := w.watchDeadlocks()
		_, a := w.seed(ctx, "a", writers)
		_, b := w.seed(ctx, "b", writers)
		var all sync.WaitGroup
		for i := range writers {
			all.Go(func() {
				for round := range rounds {
					err := w.retry(func() error {
						tx, err := w.client.Tx(ctx)
						if err != nil {
							return err
						}
						pair := [2]int{a[i], b[i]}
						if i%2 == 1 {
							pair[0], pair[1] = pair[1], pair[0]
						}
						for _, id := range pair {
							if err := tx.File.UpdateOneID(id).SetStatus(statuses[round%2]).SetSize(int64(round)).Exec(ctx); err != nil {
								return errors.Join(err, tx.Rollback())
							}
						}
						return tx.Commit()
					})
					if err != nil {
						t.Errorf("writer %d: %v", i, err)
						return
					}
				}
			})
		}
		all.Go(func() {
			for range rounds {
				if _, err := w.client.FileCounters.Fold(ctx); err != nil {
					t.Error(err)
				}
			}
		})
		all.Wait()
		w.exact(ctx)
		if s := victims.String(); s != "" {
			t.Errorf("writers of different rows deadlocked:%s", s)
		}
	})
}

// TestSameRows has writers change, move and delete the same few rows, each mutation a
// transaction of its own: every one of them meets rows that have changed since it
// began.
func TestSameRows(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		const writers, rounds = 8, 60
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d, ids := w.seed(ctx, "a", 3)
		other, _ := w.seed(ctx, "b", 0)
		var (
			all     sync.WaitGroup
			added   atomic.Int64
			written atomic.Int64
		)
		for i := range writers {
			all.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 7))
				for range rounds {
					id := ids[random.IntN(len(ids))]
					from, to := statuses[random.IntN(len(statuses))], statuses[random.IntN(len(statuses))]
					err := w.retry(func() error {
						switch random.IntN(6) {
						case 0, 1:
							err := w.client.File.UpdateOneID(id).AddSize(1).Exec(ctx)
							if err == nil {
								added.Add(1)
							}
							return err
						case 2:
							n, err := w.client.File.Update().Where(file.StatusEQ(from)).AddSize(1).Save(ctx)
							added.Add(int64(n))
							return err
						case 3:
							return w.client.File.Update().Where(file.DatasetID(d.ID), file.StatusEQ(from)).SetStatus(to).Exec(ctx)
						case 4:
							return w.client.File.Update().Where(file.ID(id), file.StatusEQ(from)).SetDatasetID(other.ID).SetStatus(to).Exec(ctx)
						default:
							return w.client.File.UpdateOneID(id).SetStatus(to).SetDataset(d).Exec(ctx)
						}
					})
					if err == nil {
						written.Add(1)
					} else if !transient(err) {
						t.Errorf("writer %d: %v", i, err)
						return
					}
				}
			})
		}
		all.Wait()
		if written.Load() < writers*rounds/2 {
			t.Errorf("only %d of %d mutations got through", written.Load(), writers*rounds)
		}
		w.exact(ctx)
		total := must(w.client.FileCounters.Total(ctx, filecounters.Scope{}))(t)
		if want := added.Load() + 10 + 20 + 30; total.Bytes != want || total.Count != 3 {
			t.Errorf("%d files of %d bytes, want 3 of %d", total.Count, total.Bytes, want)
		}
		no(t, retryTransient(func() error { _, err := w.client.File.Delete().Exec(ctx); return err }))
		w.exact(ctx)
	})
}

// retry runs a transaction again as long as others come in between, which only
// SQLite lets happen here: its transactions begin without the write lock.
func (w *world) retry(f func() error) error {
	for {
		err := f()
		if err == nil || w.db.Dialect != dialect.SQLite || !transient(err) {
			return err
		}
		time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
	}
}

// Each of several deletes of the same rows counts what it deleted itself.
func TestConcurrentDeletesOfTheSameRows(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		d, ids := w.seed(ctx, "d", 20)
		var (
			all     sync.WaitGroup
			deleted atomic.Int64
		)
		for i := range 16 {
			all.Go(func() {
				for {
					var (
						n   int
						err error
					)
					if i%2 == 0 {
						n, err = w.client.File.Delete().Where(file.DatasetID(d.ID), file.StatusEQ(file.StatusNew)).Exec(ctx)
					} else if err = w.client.File.DeleteOneID(ids[0]).Exec(ctx); err == nil {
						n = 1
					} else if ent.IsNotFound(err) {
						err = nil
					}
					if err != nil && transient(err) {
						continue
					}
					if err != nil {
						t.Error(err)
					}
					deleted.Add(int64(n))
					return
				}
			})
		}
		all.Wait()
		if deleted.Load() != 20 {
			t.Errorf("%d rows were deleted", deleted.Load())
		}
		w.exact(ctx)
		if got := must(w.client.FileCounters.Read(ctx, filecounters.Key{DatasetID: d.ID, Status: file.StatusNew}))(t); got.Count != 0 || got.Bytes != 0 {
			t.Errorf("after the deletes New reads %+v", got)
		}
	})
}

// Many upserts of one new row at once add one, and an update for each of the
// others: at either isolation level, whatever the affected rows mean.
func TestConcurrentUpsertsOfOneNewRow(t *testing.T) {
	each(t, func(t *testing.T, db *testdb.Database, params map[string]string) {
		ctx := t.Context()
		w := newWorld(t, db, params)
		levels := []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead}
		for round := range 12 {
			level, bulk, ignore := levels[round%2], round/2%2 == 1, round/4%2 == 1
			d, _ := w.seed(ctx, fmt.Sprint("d", round), 1)
			var all sync.WaitGroup
			for i := range 16 {
				all.Go(func() {
					create := func(c *ent.Client, path string) *ent.FileCreate {
						return c.File.Create().SetDatasetID(d.ID).SetPath(path).SetSize(int64(i + 1)).SetStatus(statuses[i%4])
					}
					for {
						tx, err := w.client.BeginTx(ctx, &sql.TxOptions{Isolation: level})
						if err != nil {
							if transient(err) {
								continue
							}
							t.Error(err)
							return
						}
						c := tx.Client()
						switch columns := []string{file.FieldDatasetID, file.FieldPath}; {
						case bulk && ignore:
							err = c.File.CreateBulk(create(c, "x"), create(c, "y"), create(c, "0")).OnConflictColumns(columns...).Ignore().Exec(ctx)
						case bulk:
							err = c.File.CreateBulk(create(c, "x"), create(c, "y"), create(c, "0")).OnConflictColumns(columns...).UpdateNewValues().Exec(ctx)
						case ignore:
							err = c.File.Create().SetDatasetID(d.ID).SetPath("x").SetSize(int64(i + 1)).OnConflictColumns(columns...).DoNothing().Exec(ctx)
							if errors.Is(err, sql.ErrNoRows) {
								err = nil
							}
						default:
							err = create(c, "x").OnConflictColumns(columns...).Update(func(u *ent.FileUpsert) { u.AddSize(1).UpdateStatus() }).Exec(ctx)
						}
						if err != nil {
							err = errors.Join(err, ignoreDone(tx.Rollback()))
						} else {
							err = tx.Commit()
						}
						if err == nil {
							return
						}
						if !transient(err) {
							t.Errorf("at %v, bulk %v, ignore %v: %v", level, bulk, ignore, err)
							return
						}
					}
				})
			}
			all.Wait()
			w.exact(ctx)
			want := int64(2)
			if bulk {
				want = 3
			}
			if got := must(w.client.FileCounters.Total(ctx, filecounters.Scope{DatasetID: &d.ID}))(t); got.Count != want {
				t.Errorf("at %v, bulk %v, ignore %v: %+v", level, bulk, ignore, got)
			}
		}
	})
}

// A row that comes to match between the lock and the update of another
// transaction is changed and counted once, by whoever changes it.
func TestRowTurnsMatchingBetweenLockAndUpdate(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		if db.Kind == testdb.SQLite {
			return // one writer: nothing comes in between
		}
		ctx := t.Context()
		w := newWorld(t, db, nil)
		for i, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
			d, ids := w.seed(ctx, fmt.Sprint(i), 4)
			no(t, w.client.File.UpdateOneID(ids[3]).SetStatus(file.StatusFailed).Exec(ctx))
			other := newPool(t, w)
			for _, m := range []struct {
				name string
				run  func(c *ent.Client) error
			}{
				{"update", func(c *ent.Client) error {
					return c.File.Update().Where(file.DatasetID(d.ID), file.StatusEQ(file.StatusNew)).SetStatus(file.StatusCopied).Exec(ctx)
				}},
				{"delete", func(c *ent.Client) error {
					_, err := c.File.Delete().Where(file.DatasetID(d.ID), file.StatusEQ(file.StatusCopied)).Exec(ctx)
					return err
				}},
			} {
				var came sync.WaitGroup
				once := false
				w.tap.Inject(func(s tap.Statement) tap.Fault {
					if once || !s.Is("UPDATE") && !s.Is("DELETE") && !s.Is("WITH") {
						return tap.Pass
					}
					once = true
					arrived := make(chan struct{})
					came.Go(func() {
						defer close(arrived)
						from, to := file.StatusFailed, file.StatusNew
						if m.name == "delete" {
							to = file.StatusCopied
						}
						err := other.File.Update().Where(file.ID(ids[3])).SetStatus(to).Exec(ctx)
						if err != nil && !transient(err) {
							t.Errorf("%s -> %s: %v", from, to, err)
						}
						no(t, retryTransient(func() error {
							return other.File.Create().SetDatasetID(d.ID).SetPath(m.name).SetSize(1).SetStatus(to).Exec(ctx)
						}))
					})
					select {
					case <-arrived:
					case <-time.After(200 * time.Millisecond): // it waits for a gap lock
					}
					return tap.Pass
				})
				tx, err := w.client.BeginTx(ctx, &sql.TxOptions{Isolation: level})
				no(t, err)
				err = m.run(tx.Client())
				w.tap.Inject(nil)
				if err != nil {
					err = errors.Join(err, tx.Rollback())
				} else {
					err = tx.Commit()
				}
				came.Wait()
				if err != nil && !transient(err) {
					t.Errorf("%s at %v: %v", m.name, level, err)
				}
				if !once {
					t.Errorf("%s at %v: nothing came in between", m.name, level)
				}
				w.exact(ctx)
			}
		}
	})
}

func retryTransient(f func() error) error {
	for {
		if err := f(); err == nil || !transient(err) {
			return err
		}
	}
}

// newPool opens another client on the database of a world.
func newPool(tb testing.TB, w *world) *ent.Client {
	tb.Helper()
	return ent.NewClient(ent.Driver(entDriver(w.db.Dialect, w.oracle)))
}
