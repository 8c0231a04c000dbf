package ent_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/ent/filecounters"
	"github.com/entcounter/entcounter/ent/intercept"
	"github.com/entcounter/entcounter/ent/predicate"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/testdb"
)

var statuses = []file.Status{file.StatusCopied, file.StatusCopying, file.StatusFailed, file.StatusNew}

// group is what one group of files is counted to be.
type group struct {
	DatasetID int         `sql:"dataset_id"`
	Status    file.Status `sql:"status"`
	Count     int64       `sql:"count"`
	Bytes     int64       `sql:"bytes"`
}

// countFiles counts by the files themselves.
func countFiles(t *testing.T, client *ent.Client, where predicate.File, fields ...string) []group {
	t.Helper()
	q := client.File.Query().Where(where)
	count, size := ent.As(ent.Count(), "count"), ent.As(ent.Sum(file.FieldSize), "bytes")
	var groups []group
	var err error
	if len(fields) == 0 {
		err = q.Aggregate(count, ent.As(func(s *sql.Selector) string { return "COALESCE(" + sql.Sum(s.C(file.FieldSize)) + ", 0)" }, "bytes")).Scan(t.Context(), &groups)
	} else {
		err = q.GroupBy(fields[0], fields[1:]...).Aggregate(count, size).Scan(t.Context(), &groups)
	}
	if err != nil {
		t.Fatal(err)
	}
	return groups
}

// countDistinct counts different values of a field by the files themselves.
func countDistinct(t *testing.T, client *ent.Client, where predicate.File, field string) int64 {
	t.Helper()
	n, err := client.File.Query().Where(where).Aggregate(func(s *sql.Selector) string { return sql.Count(sql.Distinct(s.C(field))) }).Int(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return int64(n)
}

// What the counters add up is what SQL says of the files, in a transaction and out
// of it, folded or not.
func TestReadsOfFiles(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		client, recorded := open(t, db)
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 1))
		defer func() {
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		}()
		var datasets []int
		for i := range 5 {
			d := client.Dataset.Create().SetName(fmt.Sprint(i)).SaveX(ctx)
			datasets = append(datasets, d.ID)
		}
		change := func(client *ent.Client) {
			creates := make([]*ent.FileCreate, 40)
			for i := range creates {
				creates[i] = client.File.Create().SetDatasetID(datasets[r.IntN(4)]).SetPath(fmt.Sprint(r.Uint64())).
					SetSize(r.Int64N(1000)).SetStatus(statuses[r.IntN(len(statuses))])
			}
			client.File.CreateBulk(creates...).SaveX(ctx)
			client.File.Update().Where(file.DatasetID(datasets[r.IntN(4)]), file.SizeLT(r.Int64N(1000))).SetStatus(statuses[r.IntN(len(statuses))]).ExecX(ctx)
			client.File.Delete().Where(file.DatasetID(datasets[r.IntN(4)]), file.SizeGT(900)).ExecX(ctx)
		}
		check := func(client *ent.Client) {
			t.Helper()
			for range 6 {
				some, status := datasets[:r.IntN(len(datasets))], statuses[r.IntN(len(statuses))]
				for _, p := range []struct {
					counters predicate.FileCounters
					files    predicate.File
				}{
					{filecounters.And(), file.And()},
					{filecounters.DatasetID(datasets[0]), file.DatasetID(datasets[0])},
					{filecounters.DatasetIDIn(some...), file.DatasetIDIn(some...)},
					{filecounters.StatusIn(status, file.StatusNew), file.StatusIn(status, file.StatusNew)},
					{filecounters.Not(filecounters.StatusEQ(status)), file.StatusNEQ(status)},
					{
						filecounters.Or(filecounters.DatasetIDGT(datasets[2]), filecounters.And(filecounters.StatusEQ(status), filecounters.DatasetIDNotIn(some...))),
						file.Or(file.DatasetIDIn(datasets[3:]...), file.And(file.StatusEQ(status), file.DatasetIDNotIn(some...))),
					},
				} {
					checkReads(t, client, p.counters, p.files, r)
				}
			}
		}
		change(client)
		check(client)
		if _, err := client.FileCounters.Fold(ctx); err != nil {
			t.Fatal(err)
		}
		check(client)
		change(client)
		check(client)
		tx, err := client.Tx(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			change(tx.Client())
			check(tx.Client())
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		check(client)

		recorded.take()
		if _, err := client.FileCounters.Query().Total(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := client.FileCounters.Query().TotalBy(ctx, filecounters.FieldStatus); err != nil {
			t.Fatal(err)
		}
		if _, err := client.FileCounters.Query().Distribution(ctx, filecounters.FieldDatasetID, filecounters.FieldCount, 0.5); err != nil {
			t.Fatal(err)
		}
		if n := len(recorded.take()); n != 3 {
			t.Errorf("three reads are %d queries", n)
		}
	})
}

// checkReads compares what counters and files say.
func checkReads(t *testing.T, client *ent.Client, counters predicate.FileCounters, files predicate.File, r *rand.Rand) {
	t.Helper()
	ctx := t.Context()
	query := func() *ent.FileCountersQuery { return client.FileCounters.Query().Where(counters) }
	total, err := query().Total(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if want := countFiles(t, client, files)[0]; total.Count != want.Count || total.Bytes != want.Bytes {
		t.Errorf("total is %+v, not %+v", total, want)
	}
	for _, fields := range [][]string{{file.FieldStatus}, {file.FieldDatasetID}, {file.FieldStatus, file.FieldDatasetID}} {
		rows, err := query().TotalBy(ctx, fields...)
		if err != nil {
			t.Fatal(err)
		}
		var got []group
		var pending int64
		for _, row := range rows {
			pending += row.Pending
			if row.Count != 0 || row.Bytes != 0 {
				got = append(got, group{row.DatasetID, row.Status, row.Count, row.Bytes})
			}
		}
		want := countFiles(t, client, files, fields...)
		byKey := func(a, b group) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }
		slices.SortFunc(got, byKey)
		slices.SortFunc(want, byKey)
		if !slices.Equal(got, want) || pending != total.Pending {
			t.Errorf("by %v: %v with %d pending, not %v with %d", fields, got, pending, want, total.Pending)
		}
	}
	fractions := []float64{0, r.Float64(), 0.5, 1}
	d, err := query().Distribution(ctx, filecounters.FieldDatasetID, filecounters.FieldCount, fractions...)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := client.File.Query().Where(files).Order(file.ByDatasetID()).Select(file.FieldDatasetID).Ints(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if d.Rows != int64(len(ids)) || d.Distinct != countDistinct(t, client, files, file.FieldDatasetID) || d.Pending != total.Pending {
		t.Errorf("distribution is %+v, of %d files", d, len(ids))
	}
	if len(ids) > 0 && (d.Min.DatasetID != ids[0] || d.Max.DatasetID != ids[len(ids)-1]) {
		t.Errorf("from %d to %d, not from %d to %d", d.Min.DatasetID, d.Max.DatasetID, ids[0], ids[len(ids)-1])
	}
	for i, f := range fractions {
		switch n := 0; {
		case len(ids) == 0:
			if d.Percentiles[i].DatasetID != 0 || d.Continuous != nil {
				t.Errorf("percentiles of nothing are %v, %v", d.Percentiles, d.Continuous)
			}
		default:
			for float64(n+1) < f*float64(len(ids)) {
				n++
			}
			if got := d.Percentiles[i].DatasetID; got != ids[n] {
				t.Errorf("percentile %g of %d files is %d, not %d", f, len(ids), got, ids[n])
			}
		}
	}
	d, err = query().Distribution(ctx, filecounters.FieldStatus, filecounters.FieldCount)
	if err != nil {
		t.Fatal(err)
	}
	if want := countDistinct(t, client, files, file.FieldStatus); d.Distinct != want {
		t.Errorf("%d statuses, not %d", d.Distinct, want)
	}
}

// The first rows by a measure have one order, also where the measure is equal.
func TestTop(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		client, _ := open(t, db)
		for i := range 6 {
			fill(t, client, fmt.Sprint(i), slices.Repeat([]file.Status{file.StatusNew, file.StatusFailed}, 1+i/3)...)
			if i == 2 {
				if _, err := client.FileCounters.Fold(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
		ids := client.Dataset.Query().Order(ent.Asc("name")).IDsX(ctx)
		top := client.FileCounters.Query().Order(filecounters.ByCount(sql.OrderDesc())).Limit(4).AllX(ctx)
		var got []filecounters.Key
		for _, row := range top {
			got = append(got, filecounters.Key{DatasetID: row.DatasetID, Status: row.Status})
		}
		want := []filecounters.Key{
			{DatasetID: ids[3], Status: file.StatusFailed},
			{DatasetID: ids[3], Status: file.StatusNew},
			{DatasetID: ids[4], Status: file.StatusFailed},
			{DatasetID: ids[4], Status: file.StatusNew},
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, not %v", got, want)
		}
		top, err := client.FileCounters.Query().Order(filecounters.ByCount(sql.OrderDesc())).Limit(2).Offset(2).TotalBy(ctx, filecounters.FieldDatasetID)
		if err != nil {
			t.Fatal(err)
		}
		if len(top) != 2 || top[0].DatasetID != ids[5] || top[1].DatasetID != ids[0] || top[0].Count != 4 || top[0].Status != "" {
			t.Errorf("got %v", top)
		}
	})
}

// Pages by key have every key that is there all the time once, with its count of
// the moment, while others come and folds run.
func TestPages(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		client, _ := open(t, db)
		var datasets []*ent.Dataset
		for i := range 8 {
			d := client.Dataset.Create().SetName(fmt.Sprint(i)).SaveX(ctx)
			datasets = append(datasets, d)
			if i%2 == 0 {
				client.File.Create().SetDataset(d).SetPath("a").SetSize(1).SetStatus(file.StatusCopying).SaveX(ctx)
				client.File.Create().SetDataset(d).SetPath("b").SetSize(1).SetStatus(file.StatusNew).SaveX(ctx)
			}
		}
		var last filecounters.Key
		seen := make(map[filecounters.Key]int)
		for page := 0; ; page++ {
			q := client.FileCounters.Query().Where(filecounters.StatusIn(file.StatusCopying, file.StatusNew))
			if page > 0 {
				q.After(last)
			}
			rows := q.Limit(3).AllX(ctx)
			for _, row := range rows {
				last = filecounters.Key{DatasetID: row.DatasetID, Status: row.Status}
				seen[last]++
				files := client.File.Query().Where(file.DatasetID(row.DatasetID), file.StatusEQ(row.Status)).CountX(ctx)
				if row.Count != int64(files) {
					t.Errorf("page %d: %v, not %d", page, row, files)
				}
			}
			if len(rows) < 3 {
				break
			}
			// One key before and one behind the page.
			for _, d := range []*ent.Dataset{datasets[2*min(page, 1)+1], datasets[7]} {
				client.File.Create().SetDataset(d).SetPath(fmt.Sprint(page)).SetSize(1).SetStatus(file.StatusNew).SaveX(ctx)
			}
			if page%2 == 0 {
				if _, err := client.FileCounters.Fold(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := 0; i < len(datasets); i += 2 {
			for _, s := range []file.Status{file.StatusCopying, file.StatusNew} {
				key := filecounters.Key{DatasetID: datasets[i].ID, Status: s}
				if seen[key] != 1 {
					t.Errorf("%v was on %d pages", key, seen[key])
				}
			}
		}
		if n := seen[filecounters.Key{DatasetID: datasets[7].ID, Status: file.StatusNew}]; n != 1 {
			t.Errorf("the key that came behind the first page was on %d pages", n)
		}
		if n := client.FileCounters.Query().Limit(1).CountX(ctx); n < 8 {
			t.Errorf("a limit changes a count: %d", n)
		}
	})
}

// A read that makes no sense is refused before anything is asked.
func TestReadErrors(t *testing.T) {
	ctx := t.Context()
	client, recorded := open(t, testdb.New(t, testdb.SQLite))
	query := client.FileCounters.Query
	distribution := func(q *ent.FileCountersQuery, field, measure string, fractions ...float64) error {
		_, err := q.Distribution(ctx, field, measure, fractions...)
		return err
	}
	totalBy := func(q *ent.FileCountersQuery, fields ...string) error {
		_, err := q.TotalBy(ctx, fields...)
		return err
	}
	total := func(q *ent.FileCountersQuery) error {
		_, err := q.Total(ctx)
		return err
	}
	for want, err := range map[string]error{
		`summing counter File: "size" is no column of the key, which has dataset_id, status`:                        totalBy(query(), file.FieldSize),
		`summing counter File: "count" is no column of the key`:                                                     totalBy(query(), filecounters.FieldCount),
		`keys of different status are added up, and cannot be ordered by it`:                                        totalBy(query().Order(filecounters.ByStatus()), filecounters.FieldDatasetID),
		`the answer is one: Order, Limit and Offset do not apply`:                                                   total(query().Limit(1)),
		`a query with modifiers or locks cannot be summed`:                                                          total(query().ForUpdate()),
		`distribution of counter File: "size" is no column of the key, which has dataset_id, status`:                distribution(query(), "size", "count"),
		`"files" is no measure, it has count, bytes`:                                                                distribution(query(), "status", "files"),
		`measure "bytes" is a sum: rows are counted by a measure that counts them, declared by Count`:               distribution(query(), "status", "bytes"),
		`percentile 95 is not a fraction between 0 and 1: the median is 0.5, the 95th percentile 0.95`:              distribution(query(), "status", "count", 0.5, 95),
		`distribution of counter File: the answer is one: Order, Limit and Offset do not apply to what is added up`: distribution(query().Offset(1), "status", "count"),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "entcounter: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, not %q", err, want)
		}
	}
	if n := len(recorded.take()); n != 0 {
		t.Errorf("%d queries", n)
	}
}

// A total over any keys beyond BIGINT is an error, not a wrong number.
func TestTotalByOverflow(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		client, _ := open(t, db)
		d := client.Dataset.Create().SetName("a").SaveX(ctx)
		for i, s := range []file.Status{file.StatusNew, file.StatusCopied} {
			client.File.Create().SetDataset(d).SetPath(fmt.Sprint(i)).SetSize(1<<63 - 1).SetStatus(s).SaveX(ctx)
		}
		rows, err := client.FileCounters.Query().TotalBy(ctx, filecounters.FieldStatus)
		if err != nil || len(rows) != 2 || rows[0].Bytes != 1<<63-1 {
			t.Errorf("%v, %v", rows, err)
		}
		_, err = client.FileCounters.Query().Where(filecounters.CountGT(0)).TotalBy(ctx, filecounters.FieldDatasetID)
		if !errors.Is(err, entcounter.ErrOverflow) || !strings.HasPrefix(err.Error(), "entcounter: summing counter File") {
			t.Errorf("error %v", err)
		}
	})
}

// Interceptors see totals and distributions, and can restrict or answer them.
func TestInterceptReads(t *testing.T) {
	ctx := t.Context()
	client, _ := open(t, testdb.New(t, testdb.SQLite))
	fill(t, client, "a", file.StatusNew, file.StatusCopied)
	client.FileCounters.Intercept(
		intercept.TraverseFileCounters(func(_ context.Context, q *ent.FileCountersQuery) error {
			q.Where(filecounters.StatusNEQ(file.StatusNew))
			return nil
		}),
		ent.InterceptFunc(func(next ent.Querier) ent.Querier {
			return ent.QuerierFunc(func(ctx context.Context, q ent.Query) (ent.Value, error) {
				v, err := next.Query(ctx, q)
				if d, ok := v.(entcounter.Distribution[*ent.FileCounters]); ok {
					d.Pending = 100
					v = d
				}
				return v, err
			})
		}),
	)
	total, err := client.FileCounters.Query().Total(ctx)
	if err != nil || total.Count != 1 || total.Bytes != 20 {
		t.Errorf("total %+v, error %v", total, err)
	}
	d, err := client.FileCounters.Query().Distribution(ctx, filecounters.FieldStatus, filecounters.FieldCount)
	if err != nil || d.Rows != 1 || d.Min.Status != file.StatusCopied || d.Pending != 100 {
		t.Errorf("distribution %+v, error %v", d, err)
	}
}
