package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/dataset"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/ent/filecounters"
	"github.com/entcounter/entcounter/ent/predicate"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/conformance/replay"
	"github.com/entcounter/entcounter/internal/testdb"
)

// TestModel runs random sequences of everything that the client can do, in and
// out of transactions, and compares the counters with a recount after each step.
// A step depends on the seed and its own number alone, so that a failing run can
// be cut down to the steps that matter.
func TestModel(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	each(t, func(t *testing.T, db *testdb.Database, params map[string]string) {
		steps := *stepsFlag
		if params["clientFoundRows"] == "true" {
			steps /= 2 // the same server again
		}
		replay.Run(t, replay.Command(t, db.Kind, seed, *stepsFlag), steps, func(steps []int, _ bool) (int, error) {
			return runModel(newWorld(t, testdb.New(t, db.Kind), params), seed, steps)
		}, func(i int) string { return stepOf(seed, i).name })
	})
}

// runModel runs the given steps of a seed and tells which one failed.
func runModel(w *world, seed uint64, steps []int) (int, error) {
	ctx := context.Background()
	w.tap.Forget()
	for _, i := range steps {
		before, err := w.journalState(ctx)
		if err != nil {
			return i, err
		}
		s := stepOf(seed, i)
		outcome, err := s.run(ctx, w)
		if err == nil {
			err = w.check(ctx)
		}
		if err == nil {
			err = w.journalled(ctx, before, outcome)
		}
		if err != nil {
			return i, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return 0, nil
}

// step is one step of a run.
type step struct {
	name string
	run  func(context.Context, *world) (outcome, error)
}

// outcome is what is expected of the journal after a step.
type outcome uint8

const (
	anything  outcome = iota
	oncePer           // at most one row for each key
	untouched         // nothing was committed
)

type journalState struct{ last, rows int64 }

func (w *world) journalState(ctx context.Context) (s journalState, err error) {
	err = w.oracle.QueryRowContext(ctx, w.quoted("SELECT COALESCE(MAX(`id`), 0), COUNT(*) FROM `file_counter_journal`")).Scan(&s.last, &s.rows)
	return s, err
}

// journalled checks what a step has added to the journal.
func (w *world) journalled(ctx context.Context, before journalState, o outcome) error {
	switch o {
	case untouched:
		after, err := w.journalState(ctx)
		if err == nil && after != before {
			err = fmt.Errorf("the journal changed from %+v to %+v", before, after)
		}
		return err
	case oncePer:
		var twice, zero int64
		query := fmt.Sprintf("SELECT COUNT(*), COALESCE(SUM(`zero`), 0) FROM (SELECT CASE WHEN COUNT(*) > 1 THEN 1 ELSE 0 END AS `twice`, "+
			"SUM(CASE WHEN `count_delta` = 0 AND `bytes_delta` = 0 THEN 1 ELSE 0 END) AS `zero` FROM `file_counter_journal` WHERE `id` > %d "+
			"GROUP BY `dataset_id`, `status`) `t` WHERE `twice` > 0 OR `zero` > 0", before.last)
		if err := w.oracle.QueryRowContext(ctx, w.quoted(query)).Scan(&twice, &zero); err != nil {
			return err
		}
		if twice > 0 || zero > 0 {
			return fmt.Errorf("%d keys were journalled twice in one transaction or with zero, %d times with zero", twice, zero)
		}
	}
	return nil
}

// stepOf makes step i of a seed.
func stepOf(seed uint64, i int) step {
	r := random{rand.New(rand.NewPCG(seed, uint64(i)))}
	switch n := r.IntN(100); {
	case n < 55:
		m := r.mutation()
		return step{m.name, func(ctx context.Context, w *world) (outcome, error) {
			err := m.run(ctx, w.client)
			switch {
			case err == nil:
				return oncePer, nil
			case expected(err):
				return untouched, nil
			}
			return anything, err
		}}
	case n < 80:
		return r.transaction()
	case n < 88:
		batch := 1 + r.IntN(20)
		return step{fmt.Sprintf("fold %d", batch), func(ctx context.Context, w *world) (outcome, error) {
			_, err := w.client.FileCounters.Fold(ctx, entcounter.WithBatch(batch))
			return anything, err
		}}
	case n < 91:
		scoped, pick := r.IntN(2) == 0, r.Uint64()
		return step{fmt.Sprintf("rebuild, scoped %v", scoped), func(ctx context.Context, w *world) (outcome, error) {
			var scope filecounters.Scope
			if scoped {
				if id, ok := one(datasets(ctx, w.client), pick); ok {
					scope.DatasetID = &id
				}
			}
			rebuilt, err := w.client.FileCounters.Rebuild(ctx, scope)
			if err == nil && rebuilt.Keys != 0 {
				err = fmt.Errorf("rebuild corrected %d keys of a counter that was right", rebuilt.Keys)
			}
			return untouched, err
		}}
	case n < 94:
		return r.repair()
	case n < 96:
		return r.deleteScope()
	default:
		reading := r.reading()
		return step{reading.name, func(ctx context.Context, w *world) (outcome, error) {
			return untouched, reading.run(ctx, w.client)
		}}
	}
}

// expected reports whether an error is one that a mutation may end with here.
func expected(err error) bool {
	if ent.IsConstraintError(err) || ent.IsNotFound(err) || ent.IsValidationError(err) {
		return true
	}
	if errors.Is(err, sql.ErrNoRows) { // DoNothing, as ent documents it
		return true
	}
	return slices.ContainsFunc([]string{
		"NOT NULL constraint failed", "Error 1048", "SQLSTATE 23502", // a file without a dataset
		"SQLSTATE 21000", // one bulk upsert that meets a row twice
		"SQLSTATE 42601", // a column that is set and added to
		"Error 1093",     // ent alone, where MySQL reads what it updates
	}, func(text string) bool { return strings.Contains(err.Error(), text) })
}

// action is a named use of a client, which may be that of a transaction.
type action struct {
	name string
	run  func(context.Context, *ent.Client) error
}

func (r random) transaction() step {
	type part struct {
		action
		reads bool
	}
	var (
		parts  []part
		names  []string
		commit = r.IntN(4) > 0
		nested = r.IntN(4) == 0
		goOn   = r.IntN(2) == 0
	)
	for range 1 + r.IntN(5) {
		p := part{r.mutation(), false}
		if r.IntN(6) == 0 {
			p = part{r.reading(), true}
		}
		parts = append(parts, p)
		names = append(names, p.name)
	}
	name := fmt.Sprintf("transaction (commit %v, nested %v, go on %v):\n\t%s", commit, nested, goOn, strings.Join(names, "\n\t"))
	return step{name, func(ctx context.Context, w *world) (outcome, error) {
		tx, err := w.client.Tx(ctx)
		if err != nil {
			return anything, err
		}
		end := oncePer
		poisoned := false
		for i, p := range parts {
			client := tx.Client()
			if nested && i%2 == 1 {
				client = client.Debug()
			}
			err := p.run(ctx, client)
			if p.reads && err == nil {
				end = anything // what precedes a read is journalled before it
			}
			switch {
			case err == nil:
			case errors.Is(err, entcounter.ErrTransactionFailed):
				if !poisoned {
					return anything, errors.Join(fmt.Errorf("the transaction failed without a reason: %w", err), tx.Rollback())
				}
			case !expected(err):
				return anything, errors.Join(err, tx.Rollback())
			case w.db.Dialect == dialect.Postgres || !goOn:
				return untouched, tx.Rollback()
			default:
				poisoned = true // perhaps: a mutation of several statements failed half-way
			}
		}
		if !commit {
			return untouched, tx.Rollback()
		}
		err = tx.Commit()
		if poisoned && errors.Is(err, entcounter.ErrTransactionFailed) {
			return untouched, nil
		}
		return end, err
	}}
}

// repair breaks a counter behind its back and rebuilds it.
func (r random) repair() step {
	pick, scoped := r.Uint64(), r.IntN(2) == 0
	return step{fmt.Sprintf("repair, scoped %v", scoped), func(ctx context.Context, w *world) (outcome, error) {
		id, ok := one(datasets(ctx, w.client), pick)
		if !ok {
			return anything, nil
		}
		for _, query := range []string{
			fmt.Sprintf("UPDATE `files` SET `size` = `size` + 3 WHERE `dataset_id` = %d", id),
			fmt.Sprintf("DELETE FROM `file_counters` WHERE `dataset_id` = %d AND `status` = 'New'", id),
		} {
			if _, err := w.oracle.ExecContext(ctx, w.quoted(query)); err != nil {
				return anything, err
			}
		}
		want, err := w.recount(ctx, w.oracle)
		if err != nil {
			return anything, err
		}
		var scope filecounters.Scope
		if scoped {
			scope.DatasetID = &id
		}
		found := make(counts)
		for drift, err := range w.client.FileCounters.Verify(ctx, scope) {
			if err != nil {
				return anything, err
			}
			k := key{drift.DatasetID, drift.Status}
			if got := (measures{drift.Actual.Count, drift.Actual.Bytes}); got != want[k] {
				return anything, fmt.Errorf("verify reports %+v for %v, counted %+v", got, k, want[k])
			}
			found[k] = measures{drift.Actual.Count - drift.Stored.Count, drift.Actual.Bytes - drift.Stored.Bytes}
		}
		rebuilt, err := w.client.FileCounters.Rebuild(ctx, scope)
		if err == nil && rebuilt.Keys != len(found) {
			err = fmt.Errorf("rebuild corrected %d keys, verify reported %d", rebuilt.Keys, len(found))
		}
		return oncePer, err
	}}
}

// deleteScope drops a dataset's counts after its rows.
func (r random) deleteScope() step {
	pick := r.Uint64()
	return step{"delete scope", func(ctx context.Context, w *world) (outcome, error) {
		id, ok := one(datasets(ctx, w.client), pick)
		if !ok {
			return anything, nil
		}
		if _, err := w.oracle.ExecContext(ctx, w.quoted(fmt.Sprintf("DELETE FROM `files` WHERE `dataset_id` = %d", id))); err != nil {
			return anything, err
		}
		return anything, w.client.FileCounters.DeleteScope(ctx, filecounters.Scope{DatasetID: &id})
	}}
}

// reading compares what the client reads with what it counts.
func (r random) reading() action {
	var (
		kind      = r.IntN(5)
		pick      = r.Uint64()
		status    = r.status()
		threshold = int64(r.IntN(200))
	)
	return action{fmt.Sprintf("read, kind %d", kind), func(ctx context.Context, c *ent.Client) error {
		var rows []struct {
			DatasetID int         `json:"dataset_id"`
			Status    file.Status `json:"status"`
			Count     int64       `json:"count"`
			Bytes     int64       `json:"bytes"`
		}
		err := c.File.Query().GroupBy(file.FieldDatasetID, file.FieldStatus).
			Aggregate(ent.As(ent.Count(), "count"), ent.As(ent.Sum(file.FieldSize), "bytes")).Scan(ctx, &rows)
		if err != nil {
			return err
		}
		want := make(counts)
		for _, row := range rows {
			want.add(key{row.DatasetID, row.Status}, measures{row.Count, row.Bytes})
		}
		ids := datasets(ctx, c)
		id, ok := one(ids, pick)
		if !ok {
			id = -1
		}
		got := make(counts)
		same := func() error {
			if d := got.diff(want); d != "" {
				return fmt.Errorf("reading:%s", d)
			}
			return nil
		}
		keep := func(match func(key, measures) bool) {
			for k, m := range want {
				if !match(k, m) {
					delete(want, k)
				}
			}
		}
		switch kind {
		case 0:
			row, err := c.FileCounters.Read(ctx, filecounters.Key{DatasetID: id, Status: status})
			if err != nil {
				return err
			}
			keep(func(k key, _ measures) bool { return k == key{id, status} })
			got.add(key{row.DatasetID, row.Status}, measures{row.Count, row.Bytes})
			return same()
		case 1:
			var keys []filecounters.Key
			for _, id := range append(ids, 1<<30) {
				for _, s := range statuses[1:] {
					keys = append(keys, filecounters.Key{DatasetID: id, Status: s})
				}
			}
			rows, err := c.FileCounters.ReadMany(ctx, keys...)
			if err != nil {
				return err
			}
			for i, row := range rows {
				if row.DatasetID != keys[i].DatasetID || row.Status != keys[i].Status {
					return fmt.Errorf("asked for %+v, read %+v", keys[i], row)
				}
				got.add(key{row.DatasetID, row.Status}, measures{row.Count, row.Bytes})
			}
			keep(func(k key, _ measures) bool { return k.Status != statuses[0] })
			return same()
		case 2:
			scope, match := filecounters.Scope{DatasetID: &id}, func(k key) bool { return k.Dataset == id }
			if pick%2 == 0 {
				scope, match = filecounters.Scope{}, func(key) bool { return true }
			}
			total, err := c.FileCounters.Total(ctx, scope)
			if err != nil {
				return err
			}
			var sum measures
			for k, m := range want {
				if match(k) {
					sum.Count, sum.Bytes = sum.Count+m.Count, sum.Bytes+m.Bytes
				}
			}
			if total.Count != sum.Count || total.Bytes != sum.Bytes {
				return fmt.Errorf("total of %+v: %+v, want %+v", scope, total, sum)
			}
			return nil
		case 3:
			rows, err := c.FileCounters.Query().
				Where(filecounters.Or(filecounters.StatusEQ(status), filecounters.DatasetIDGT(id)), filecounters.BytesGT(threshold)).
				All(ctx)
			if err != nil {
				return err
			}
			for _, row := range rows {
				got.add(key{row.DatasetID, row.Status}, measures{row.Count, row.Bytes})
			}
			keep(func(k key, m measures) bool { return (k.Status == status || k.Dataset > id) && m.Bytes > threshold })
			return same()
		default:
			var rows []struct {
				Status file.Status `json:"status"`
				Count  int64       `json:"count"`
			}
			err := c.FileCounters.Query().Where(filecounters.DatasetIDLTE(id)).GroupBy(filecounters.FieldStatus).
				Aggregate(ent.As(ent.Sum(filecounters.FieldCount), "count")).Scan(ctx, &rows)
			if err != nil {
				return err
			}
			for _, row := range rows {
				got.add(key{0, row.Status}, measures{Count: row.Count})
			}
			sums := make(counts)
			for k, m := range want {
				if k.Dataset <= id {
					sums.add(key{0, k.Status}, measures{Count: m.Count})
				}
			}
			want = sums
			return same()
		}
	}}
}

// random makes random parts of steps.
type random struct{ *rand.Rand }

var statuses = []file.Status{file.StatusNew, file.StatusCopying, file.StatusCopied, file.StatusFailed}

func (r random) status() file.Status { return statuses[r.IntN(len(statuses))] }
func (r random) path() string        { return fmt.Sprintf("path%d", r.IntN(25)) }
func (r random) name() string        { return fmt.Sprintf("dataset%d", r.IntN(6)) }

// size is small, rarely large, rarely refused by the validator.
func (r random) size() int64 {
	switch r.IntN(40) {
	case 0:
		return 3 << 30
	case 1:
		return -1
	case 2:
		return 0
	}
	return int64(r.IntN(100))
}

// datasets and files are the ids that there are, in order.
func datasets(ctx context.Context, c *ent.Client) []int {
	ids, _ := c.Dataset.Query().Order(ent.Asc(dataset.FieldID)).IDs(ctx)
	return ids
}

func files(ctx context.Context, c *ent.Client) []int {
	ids, _ := c.File.Query().Order(ent.Asc(file.FieldID)).IDs(ctx)
	return ids
}

// one picks one of some ids.
func one(ids []int, pick uint64) (int, bool) {
	if len(ids) == 0 {
		return 0, false
	}
	return ids[pick%uint64(len(ids))], true
}

// some picks some of some ids.
func some(ids []int, pick uint64) []int {
	var picked []int
	for i, id := range ids {
		if pick>>(i%64)&3 == 0 {
			picked = append(picked, id)
		}
	}
	return picked
}

// where makes a predicate. What it picks from is known when it is used.
func (r random) where() (string, func(context.Context, *ent.Client) predicate.File) {
	type made = func(context.Context, *ent.Client) predicate.File
	fixed := func(p predicate.File) made {
		return func(context.Context, *ent.Client) predicate.File { return p }
	}
	pick := r.Uint64()
	picked := func(f func(id int) predicate.File) made {
		return func(ctx context.Context, c *ent.Client) predicate.File {
			id, _ := one(datasets(ctx, c), pick)
			return f(id)
		}
	}
	status, other, bound, n := r.status(), r.status(), r.size(), r.IntN(5)
	switch r.IntN(17) {
	case 0, 1, 2:
		return fmt.Sprintf("dataset#%d %s", pick, status), picked(func(id int) predicate.File {
			return file.And(file.DatasetID(id), file.StatusEQ(status))
		})
	case 3:
		return fmt.Sprintf("dataset#%d %s some ids", pick, status), func(ctx context.Context, c *ent.Client) predicate.File {
			id, _ := one(datasets(ctx, c), pick)
			return file.And(file.DatasetID(id), file.StatusEQ(status), file.IDIn(some(files(ctx, c), pick)...))
		}
	case 4:
		return fmt.Sprintf("some ids %x", pick), func(ctx context.Context, c *ent.Client) predicate.File {
			return file.IDIn(some(files(ctx, c), pick)...)
		}
	case 5:
		return fmt.Sprintf("%s or size > %d", status, bound), fixed(file.Or(file.StatusEQ(status), file.SizeGT(bound)))
	case 6:
		return fmt.Sprintf("%s or %s", status, other), fixed(file.StatusIn(status, other))
	case 7:
		return fmt.Sprintf("size between %d and %d", bound/2, bound), fixed(file.And(file.SizeGTE(bound/2), file.SizeLT(bound)))
	case 8:
		return fmt.Sprintf("in a dataset named …%d", n), fixed(file.HasDatasetWith(dataset.NameHasSuffix(fmt.Sprint(n))))
	case 9:
		return fmt.Sprintf("in dataset#%d by edge, %s", pick, status), picked(func(id int) predicate.File {
			return file.And(file.HasDatasetWith(dataset.ID(id)), file.StatusEQ(status))
		})
	case 10:
		return fmt.Sprintf("not %s", status), fixed(file.Not(file.StatusEQ(status)))
	case 11:
		return fmt.Sprintf("not dataset#%d and %s", pick, status), picked(func(id int) predicate.File {
			return file.Not(file.And(file.DatasetID(id), file.StatusEQ(status)))
		})
	case 12:
		return "nothing", fixed(file.And(file.StatusEQ(file.StatusNew), file.StatusEQ(file.StatusCopied)))
	case 13:
		return fmt.Sprintf("path like %%%d", n), fixed(file.PathHasSuffix(fmt.Sprint(n)))
	case 14:
		return fmt.Sprintf("id %% 5 = %d by hand", n), fixed(func(s *entsql.Selector) {
			s.Where(entsql.P(func(b *entsql.Builder) { b.Ident(s.C("id")).WriteString(" % 5 = ").Arg(n) }))
		})
	case 15:
		return fmt.Sprintf("dataset has %s by sub-query", status), fixed(func(s *entsql.Selector) {
			t := entsql.Table(file.Table).As("o")
			s.Where(entsql.In(s.C(file.FieldDatasetID), entsql.Select(t.C(file.FieldDatasetID)).From(t).Where(entsql.EQ(t.C(file.FieldPath), "path1"))))
		})
	default:
		return fmt.Sprintf("pinned twice: dataset#%d %s, size >= %d", pick, status, n), picked(func(id int) predicate.File {
			return file.And(file.DatasetID(id), file.And(file.StatusEQ(status), file.SizeGTE(int64(n))), file.DatasetIDIn(id, id+1))
		})
	}
}

// setter sets some fields of an update.
type setter func(ctx context.Context, c *ent.Client, m *ent.FileMutation, modify func(func(*entsql.UpdateBuilder)))

func (r random) set() (string, setter) {
	var (
		names []string
		all   []setter
	)
	for range 1 + r.IntN(2) {
		name, s := r.setOne()
		names, all = append(names, name), append(all, s)
	}
	return strings.Join(names, ", "), func(ctx context.Context, c *ent.Client, m *ent.FileMutation, modify func(func(*entsql.UpdateBuilder))) {
		for _, s := range all {
			s(ctx, c, m, modify)
		}
	}
}

func (r random) setOne() (string, setter) {
	type builder = func(*entsql.UpdateBuilder)
	status, size, path, pick := r.status(), r.size(), r.path(), r.Uint64()
	delta := int64(r.IntN(20) - 5)
	switch r.IntN(12) {
	case 0, 1, 2, 3:
		return "status " + string(status), func(_ context.Context, _ *ent.Client, m *ent.FileMutation, _ func(builder)) { m.SetStatus(status) }
	case 4, 5:
		return fmt.Sprintf("dataset#%d", pick), func(ctx context.Context, c *ent.Client, m *ent.FileMutation, _ func(builder)) {
			if id, ok := one(datasets(ctx, c), pick); ok {
				m.SetDatasetID(id)
			}
		}
	case 6:
		return fmt.Sprintf("size %d", size), func(_ context.Context, _ *ent.Client, m *ent.FileMutation, _ func(builder)) { m.SetSize(size) }
	case 7:
		return fmt.Sprintf("size %+d", delta), func(_ context.Context, _ *ent.Client, m *ent.FileMutation, _ func(builder)) { m.AddSize(delta) }
	case 8:
		return "path " + path, func(_ context.Context, _ *ent.Client, m *ent.FileMutation, _ func(builder)) { m.SetPath(path) }
	case 9:
		return "size doubled by an expression", func(_ context.Context, _ *ent.Client, _ *ent.FileMutation, modify func(builder)) {
			modify(func(u *entsql.UpdateBuilder) {
				u.Set(file.FieldSize, entsql.ExprFunc(func(b *entsql.Builder) { b.Ident(file.FieldSize).WriteString(" % 100 * 2") }))
			})
		}
	case 10:
		return "path by an expression", func(_ context.Context, _ *ent.Client, _ *ent.FileMutation, modify func(builder)) {
			modify(func(u *entsql.UpdateBuilder) {
				u.Set(file.FieldPath, entsql.ExprFunc(func(b *entsql.Builder) { b.Ident(file.FieldPath) }))
			})
		}
	default:
		return "no such dataset", func(_ context.Context, _ *ent.Client, m *ent.FileMutation, _ func(builder)) { m.SetDatasetID(1 << 30) }
	}
}

// fill makes a file.
func (r random) fill() (string, func(ctx context.Context, c *ent.Client, m *ent.FileMutation)) {
	status, path, size, pick, byDefault := r.status(), r.path(), r.size(), r.Uint64(), r.IntN(3) == 0
	return fmt.Sprintf("dataset#%d %s %s %d (status by default: %v)", pick, path, status, size, byDefault),
		func(ctx context.Context, c *ent.Client, m *ent.FileMutation) {
			if id, ok := one(datasets(ctx, c), pick); ok {
				m.SetDatasetID(id)
			}
			m.SetPath(path)
			m.SetSize(size)
			if !byDefault {
				m.SetStatus(status)
			}
		}
}

func (r random) mutation() action {
	switch r.IntN(20) {
	case 0, 1:
		name, fill := r.fill()
		return action{"create " + name, func(ctx context.Context, c *ent.Client) error {
			create := c.File.Create()
			fill(ctx, c, create.Mutation())
			return create.Exec(ctx)
		}}
	case 2, 3, 4:
		return r.bulk()
	case 5, 6, 7, 8:
		where, pred := r.where()
		set, setter := r.set()
		return action{fmt.Sprintf("update where %s: %s", where, set), func(ctx context.Context, c *ent.Client) error {
			p := pred(ctx, c)
			want, err := c.File.Query().Where(p).Count(ctx)
			if err != nil {
				return err
			}
			u := c.File.Update().Where(p)
			setter(ctx, c, u.Mutation(), func(f func(*entsql.UpdateBuilder)) { u.Modify(f) })
			n, err := u.Save(ctx)
			if err == nil && n > want {
				err = fmt.Errorf("%d rows updated, %d matched", n, want)
			}
			return err
		}}
	case 9, 10:
		pick, entity := r.Uint64(), r.IntN(2) == 0
		where, pred := "anything", func(context.Context, *ent.Client) predicate.File { return nil }
		if r.IntN(3) == 0 {
			where, pred = r.where()
		}
		set, setter := r.set()
		return action{fmt.Sprintf("update file#%d where %s: %s", pick, where, set), func(ctx context.Context, c *ent.Client) error {
			id, _ := one(files(ctx, c), pick)
			u := c.File.UpdateOneID(id)
			if entity {
				f, err := c.File.Get(ctx, id)
				if err != nil {
					return err
				}
				u = f.Update()
			}
			if p := pred(ctx, c); p != nil {
				u.Where(p)
			}
			setter(ctx, c, u.Mutation(), func(f func(*entsql.UpdateBuilder)) { u.Modify(f) })
			f, err := u.Save(ctx)
			if err != nil {
				return err
			}
			// The result must not be bound to a transaction that is over.
			_, err = f.QueryDataset().Exist(ctx)
			return err
		}}
	case 11, 12:
		where, pred := r.where()
		return action{"delete where " + where, func(ctx context.Context, c *ent.Client) error {
			p := pred(ctx, c)
			want, err := c.File.Query().Where(p).Count(ctx)
			if err != nil {
				return err
			}
			n, err := c.File.Delete().Where(p).Exec(ctx)
			if err == nil && n != want {
				err = fmt.Errorf("%d rows deleted, %d matched", n, want)
			}
			return err
		}}
	case 13:
		pick, kind := r.Uint64(), r.IntN(3)
		where, pred := r.where()
		return action{fmt.Sprintf("delete file#%d, kind %d, where %s", pick, kind, where), func(ctx context.Context, c *ent.Client) error {
			id, _ := one(files(ctx, c), pick)
			switch kind {
			case 0:
				return c.File.DeleteOneID(id).Exec(ctx)
			case 1:
				return c.File.DeleteOneID(id).Where(pred(ctx, c)).Exec(ctx)
			}
			f, err := c.File.Get(ctx, id)
			if err != nil {
				return err
			}
			return c.File.DeleteOne(f).Exec(ctx)
		}}
	case 14, 15:
		return r.upsert()
	default:
		return r.dataset()
	}
}

func (r random) bulk() action {
	var (
		names  []string
		fills  []func(context.Context, *ent.Client, *ent.FileMutation)
		mapped = r.IntN(2) == 0
	)
	for range r.IntN(8) {
		name, fill := r.fill()
		names, fills = append(names, name), append(fills, fill)
	}
	return action{fmt.Sprintf("create in bulk (mapped %v): %s", mapped, strings.Join(names, "; ")), func(ctx context.Context, c *ent.Client) error {
		if mapped {
			return c.File.MapCreateBulk(fills, func(b *ent.FileCreate, i int) { fills[i](ctx, c, b.Mutation()) }).Exec(ctx)
		}
		builders := make([]*ent.FileCreate, len(fills))
		for i, fill := range fills {
			builders[i] = c.File.Create()
			fill(ctx, c, builders[i].Mutation())
		}
		return c.File.CreateBulk(builders...).Exec(ctx)
	}}
}

func (r random) upsert() action {
	var (
		names   []string
		fills   []func(context.Context, *ent.Client, *ent.FileMutation)
		how     = r.IntN(5)
		size    = int64(r.IntN(50))
		status  = r.status()
		single  = r.IntN(2) == 0
		columns = []string{file.FieldDatasetID, file.FieldPath}
	)
	n := 1
	if !single {
		n = 1 + r.IntN(6)
	}
	for range n {
		name, fill := r.fill()
		names, fills = append(names, name), append(fills, fill)
	}
	update := func(u *ent.FileUpsert) {
		switch how {
		case 0:
			u.AddSize(size)
		case 1:
			u.UpdateSize().SetStatus(status)
		default:
			u.SetPath("path1") // may conflict in turn
		}
	}
	return action{fmt.Sprintf("upsert (single %v, how %d): %s", single, how, strings.Join(names, "; ")), func(ctx context.Context, c *ent.Client) error {
		builders := make([]*ent.FileCreate, len(fills))
		for i, fill := range fills {
			builders[i] = c.File.Create()
			fill(ctx, c, builders[i].Mutation())
		}
		if single {
			u := builders[0].OnConflictColumns(columns...)
			switch how {
			case 3:
				u = u.UpdateNewValues()
			case 4:
				u = u.Ignore()
			case 2:
				if size%2 == 0 {
					u = u.DoNothing()
					break
				}
				fallthrough
			default:
				u = u.Update(update)
			}
			return u.Exec(ctx)
		}
		u := c.File.CreateBulk(builders...).OnConflictColumns(columns...)
		switch how {
		case 2:
			u = u.DoNothing()
		case 3:
			u = u.UpdateNewValues()
		case 4:
			u = u.Ignore()
		default:
			u = u.Update(update)
		}
		return u.Exec(ctx)
	}}
}

func (r random) dataset() action {
	name, pick, kind := r.name(), r.Uint64(), r.IntN(9)
	return action{fmt.Sprintf("dataset#%d, kind %d, %s", pick, kind, name), func(ctx context.Context, c *ent.Client) error {
		id, _ := one(datasets(ctx, c), pick)
		some := some(files(ctx, c), pick)
		switch kind {
		case 0, 1, 2:
			return c.Dataset.Create().SetName(name).Exec(ctx)
		case 3:
			return c.Dataset.Create().SetName(name).AddFileIDs(some...).Exec(ctx)
		case 4:
			return c.Dataset.UpdateOneID(id).SetName(name).Exec(ctx)
		case 5:
			return c.Dataset.UpdateOneID(id).RemoveFileIDs(some...).AddFileIDs(some...).Exec(ctx)
		case 6:
			return c.Dataset.Update().Where(dataset.Name(name)).ClearFiles().Exec(ctx)
		case 7:
			return c.Dataset.DeleteOneID(id).Exec(ctx)
		default:
			_, err := c.Dataset.Delete().Where(dataset.NameHasSuffix(name[len(name)-1:])).Exec(ctx)
			return err
		}
	}}
}
