package ent_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/ent/filecounters"
	"github.com/entcounter/entcounter/ent/intercept"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/testdb"
)

// open returns a client of a database with all tables, and what it executes.
func open(t *testing.T, db *testdb.Database) (*ent.Client, *recorder) {
	t.Helper()
	drv := &recorder{Driver: sql.OpenDB(db.Dialect, db.DB(t))}
	client := ent.NewClient(ent.Driver(drv), ent.Log(func(...any) {}))
	if err := client.Schema.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := client.CheckCounters(t.Context()); err != nil {
		t.Fatal(err)
	}
	drv.take()
	return client, drv
}

// recorder is a driver that remembers the queries it is given.
type recorder struct {
	*sql.Driver
	mu      sync.Mutex
	queries []statement
}

type statement struct {
	query string
	args  []any
}

func (r *recorder) Query(ctx context.Context, query string, args, v any) error {
	r.mu.Lock()
	r.queries = append(r.queries, statement{query, args.([]any)})
	r.mu.Unlock()
	return r.Driver.Query(ctx, query, args, v)
}

// take returns the queries since it was last called.
func (r *recorder) take() []statement {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.queries
	r.queries = nil
	return taken
}

// fill makes a dataset with files of 10, 20, 30… bytes, by status.
func fill(t *testing.T, client *ent.Client, name string, statuses ...file.Status) *ent.Dataset {
	t.Helper()
	d := client.Dataset.Create().SetName(name).SaveX(t.Context())
	for i, s := range statuses {
		client.File.Create().SetDataset(d).SetPath(fmt.Sprint(i)).SetSize(int64(10 * (i + 1))).SetStatus(s).SaveX(t.Context())
	}
	return d
}

func TestRead(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		client, recorded := open(t, db)
		a := fill(t, client, "a", file.StatusNew, file.StatusCopied, file.StatusCopied)
		b := fill(t, client, "b", file.StatusNew)
		for _, folded := range []bool{false, true} {
			recorded.take()
			row, err := client.FileCounters.Read(ctx, filecounters.Key{DatasetID: a.ID, Status: file.StatusCopied})
			if err != nil {
				t.Fatal(err)
			}
			if row.DatasetID != a.ID || row.Status != file.StatusCopied || row.Count != 2 || row.Bytes != 50 || (row.Pending == 0) != folded {
				t.Errorf("folded %t: read %v", folded, row)
			}
			if age := time.Since(row.UpdatedAt).Abs(); age > time.Minute {
				t.Errorf("folded %t: updated %s ago", folded, age)
			}
			row, err = client.FileCounters.Read(ctx, filecounters.Key{DatasetID: -1, Status: file.StatusFailed})
			if err != nil {
				t.Fatal(err)
			}
			if row.DatasetID != -1 || row.Status != file.StatusFailed || row.Count != 0 || row.Bytes != 0 || !row.UpdatedAt.IsZero() || row.Pending != 0 {
				t.Errorf("folded %t: read %v", folded, row)
			}
			keys := []filecounters.Key{
				{DatasetID: b.ID, Status: file.StatusNew},
				{DatasetID: a.ID, Status: file.StatusFailed},
				{DatasetID: a.ID, Status: file.StatusNew},
				{DatasetID: b.ID, Status: file.StatusNew},
			}
			rows, err := client.FileCounters.ReadMany(ctx, keys...)
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range []int64{1, 0, 1, 1} {
				if rows[i].DatasetID != keys[i].DatasetID || rows[i].Status != keys[i].Status || rows[i].Count != want {
					t.Errorf("folded %t: key %v reads %v", folded, keys[i], rows[i])
				}
			}
			if n := len(recorded.take()); n != 3 {
				t.Errorf("folded %t: three reads are %d queries", folded, n)
			}
			rows, err = client.FileCounters.ReadMany(ctx)
			if err != nil || len(rows) != 0 || len(recorded.take()) != 0 {
				t.Errorf("folded %t: reading no keys returns %v, error %v", folded, rows, err)
			}

			for scope, want := range map[filecounters.Scope]filecounters.Measures{
				{}:                 {Count: 4, Bytes: 70},
				{DatasetID: &a.ID}: {Count: 3, Bytes: 60},
				{DatasetID: &a.ID, Status: ptr(file.StatusCopied)}: {Count: 2, Bytes: 50},
				{DatasetID: ptr(-1)}: {},
			} {
				total, err := client.FileCounters.Total(ctx, scope)
				if err != nil {
					t.Fatal(err)
				}
				if total.Measures != want || total.UpdatedAt.IsZero() != (want.Count == 0) || (total.Pending == 0) != (folded || want.Count == 0) {
					t.Errorf("folded %t: total is %+v, not %v", folded, total, want)
				}
			}
			if n := len(recorded.take()); n != 4 {
				t.Errorf("folded %t: four totals are %d queries", folded, n)
			}

			all, err := client.FileCounters.Query().
				Where(filecounters.DatasetIDIn(a.ID, b.ID), filecounters.CountGT(0), filecounters.StatusNEQ(file.StatusCopied)).
				Order(filecounters.ByDatasetID(), filecounters.ByBytes()).
				All(ctx)
			if err != nil || len(all) != 2 || all[0].DatasetID != a.ID || all[1].DatasetID != b.ID {
				t.Errorf("folded %t: query returns %v, error %v", folded, all, err)
			}
			var groups []struct {
				Status file.Status `json:"status"`
				Sum    int64       `json:"sum"`
			}
			err = client.FileCounters.Query().
				Where(filecounters.DatasetID(a.ID)).
				Order(filecounters.ByStatus()).
				GroupBy(filecounters.FieldStatus).
				Aggregate(ent.Sum(filecounters.FieldBytes)).
				Scan(ctx, &groups)
			if err != nil || len(groups) != 2 {
				t.Errorf("folded %t: groups are %v, error %v", folded, groups, err)
			}
			if folds, err := client.FileCounters.Fold(ctx); err != nil {
				t.Fatal(folds, err)
			}
		}
	})
}

func ptr[T any](v T) *T { return &v }

// In a transaction, its own client reads its own changes.
func TestTx(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		client, _ := open(t, db)
		d := fill(t, client, "a", file.StatusNew)
		key := filecounters.Key{DatasetID: d.ID, Status: file.StatusNew}
		count := func(c *ent.FileCountersClient) int64 {
			t.Helper()
			row, err := c.Read(ctx, key)
			if err != nil {
				t.Fatal(err)
			}
			return row.Count
		}
		tx, err := client.Tx(ctx)
		if err != nil {
			t.Fatal(err)
		}
		tx.File.Create().SetDatasetID(d.ID).SetPath("x").SetSize(1).SaveX(ctx)
		if n := count(tx.FileCounters); n != 2 {
			t.Errorf("the transaction reads %d", n)
		}
		if n := count(tx.Client().FileCounters); n != 2 {
			t.Errorf("the transaction's client reads %d", n)
		}
		if n := len(tx.Counters()); n != 1 {
			t.Errorf("the transaction has %d counters", n)
		}
		// Rows changed by hand are journalled by hand.
		err = tx.FileCounters.Journal(ctx,
			filecounters.Delta{Key: key, Measures: filecounters.Measures{Count: 5, Bytes: 50}},
			filecounters.Delta{Key: key, Measures: filecounters.Measures{Count: -1}},
		)
		if err != nil {
			t.Fatal(err)
		}
		if n := count(tx.FileCounters); n != 6 {
			t.Errorf("the transaction reads %d", n)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if n := count(client.FileCounters); n != 1 {
			t.Errorf("after a rollback, %d are read", n)
		}
		if n := count(client.Debug().FileCounters); n != 1 {
			t.Errorf("the debug client reads %d", n)
		}

		var drifts []filecounters.Drift
		tx, err = client.Tx(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range []file.Status{file.StatusNew, file.StatusCopied, file.StatusFailed} {
			delta := filecounters.Delta{Key: filecounters.Key{DatasetID: d.ID, Status: s}, Measures: filecounters.Measures{Count: int64(i) + 1}}
			if err := tx.FileCounters.Journal(ctx, delta); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		for drift, err := range client.FileCounters.Verify(ctx, filecounters.Scope{DatasetID: &d.ID}) {
			if err != nil {
				t.Fatal(err)
			}
			drifts = append(drifts, drift)
		}
		slices.SortFunc(drifts, func(a, b filecounters.Drift) int { return int(a.Stored.Count - b.Stored.Count) })
		if len(drifts) != 3 || drifts[0].Status != file.StatusNew && drifts[1].Status != file.StatusNew {
			t.Errorf("drift is %+v", drifts)
		}
		for _, drift := range drifts {
			if drift.DatasetID != d.ID || drift.Stored.Count <= drift.Actual.Count {
				t.Errorf("drift is %+v", drift)
			}
		}
		seen := 0
		for range client.FileCounters.Verify(ctx, filecounters.Scope{}) {
			seen++
			break
		}
		if seen != 1 {
			t.Errorf("a loop that breaks sees %d drifts", seen)
		}
		if _, err := client.FileCounters.Rebuild(ctx, filecounters.Scope{DatasetID: &d.ID}); err != nil {
			t.Fatal(err)
		}
		for drift, err := range client.FileCounters.Verify(ctx, filecounters.Scope{}) {
			t.Errorf("after a rebuild, drift %+v, error %v", drift, err)
		}
		if backlog, err := client.FileCounters.Backlog(ctx); err != nil || backlog.Rows == 0 {
			t.Errorf("backlog %+v, error %v", backlog, err)
		}
		if err := client.FileCounters.DeleteScope(ctx, filecounters.Scope{DatasetID: &d.ID}); err != nil {
			t.Fatal(err)
		}
		if n := count(client.FileCounters); n != 0 {
			t.Errorf("after its scope is deleted, a key reads %d", n)
		}
	})
}

// A scope that is no prefix of the key is refused wherever one is taken.
func TestScopeWithGap(t *testing.T) {
	ctx := t.Context()
	client, recorded := open(t, testdb.New(t, testdb.SQLite))
	gap := filecounters.Scope{Status: ptr(file.StatusNew)}
	calls := map[string]func() error{
		"Total":       func() error { _, err := client.FileCounters.Total(ctx, gap); return err },
		"Rebuild":     func() error { _, err := client.FileCounters.Rebuild(ctx, gap); return err },
		"DeleteScope": func() error { return client.FileCounters.DeleteScope(ctx, gap) },
		"Verify": func() error {
			for _, err := range client.FileCounters.Verify(ctx, gap) {
				return err
			}
			return nil
		},
	}
	for name, call := range calls {
		err := call()
		if err == nil || !strings.HasPrefix(err.Error(), `entcounter: counter "File": the scope sets Status`) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if n := len(recorded.take()); n != 0 {
		t.Errorf("%d queries", n)
	}
}

// A total beyond BIGINT is an error, not a wrong number.
func TestTotalOverflow(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		client, _ := open(t, db)
		d := client.Dataset.Create().SetName("a").SaveX(ctx)
		for i, s := range []file.Status{file.StatusNew, file.StatusCopied} {
			client.File.Create().SetDataset(d).SetPath(fmt.Sprint(i)).SetSize(1<<63 - 1).SetStatus(s).SaveX(ctx)
		}
		_, err := client.FileCounters.Total(ctx, filecounters.Scope{})
		if !errors.Is(err, entcounter.ErrOverflow) || !strings.Contains(err.Error(), "counter File") {
			t.Errorf("error %v", err)
		}
		total, err := client.FileCounters.Total(ctx, filecounters.Scope{DatasetID: &d.ID, Status: ptr(file.StatusNew)})
		if err != nil || total.Bytes != 1<<63-1 {
			t.Errorf("total %v, error %v", total, err)
		}
	})
}

// Interceptors see reads of counters as they see those of every type.
func TestIntercept(t *testing.T) {
	ctx := t.Context()
	client, _ := open(t, testdb.New(t, testdb.SQLite))
	d := fill(t, client, "a", file.StatusNew)
	client.FileCounters.Intercept(intercept.TraverseFileCounters(func(_ context.Context, q *ent.FileCountersQuery) error {
		q.Where(filecounters.StatusNEQ(file.StatusNew))
		return nil
	}))
	row, err := client.FileCounters.Read(ctx, filecounters.Key{DatasetID: d.ID, Status: file.StatusNew})
	if err != nil || row.Count != 0 {
		t.Errorf("read %v, error %v", row, err)
	}
	total, err := client.FileCounters.Total(ctx, filecounters.Scope{})
	if err != nil || total.Count != 0 {
		t.Errorf("total %v, error %v", total, err)
	}
}

// Reading 500 keys takes one statement, which finds them by index among the
// folded rows and in the journal.
func TestReadManyPlan(t *testing.T) {
	const datasets, journalled, read = 5000, 50000, 500
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		client, recorded := open(t, db)
		conn := db.DB(t)
		var folded, journal []string
		for i := range datasets {
			for _, s := range []file.Status{file.StatusNew, file.StatusCopying, file.StatusCopied, file.StatusFailed} {
				folded = append(folded, fmt.Sprintf("(%d, '%s', 1, 1, '2026-01-01 00:00:00')", i, s))
			}
		}
		for i := range journalled {
			journal = append(journal, fmt.Sprintf("(%d, 'New', 1, 1, '2026-01-01 00:00:00')", i%10000))
		}
		quote := map[string]string{dialect.MySQL: "`", dialect.Postgres: `"`, dialect.SQLite: "`"}[db.Dialect]
		exec := func(query string) {
			t.Helper()
			if _, err := conn.ExecContext(ctx, strings.ReplaceAll(query, "`", quote)); err != nil {
				t.Fatal(err)
			}
		}
		for rows := range slices.Chunk(folded, 1000) {
			exec("INSERT INTO `file_counters` (`dataset_id`, `status`, `count`, `bytes`, `updated_at`) VALUES " + strings.Join(rows, ", "))
		}
		for rows := range slices.Chunk(journal, 1000) {
			exec("INSERT INTO `file_counter_journal` (`dataset_id`, `status`, `count_delta`, `bytes_delta`, `inserted_at`) VALUES " + strings.Join(rows, ", "))
		}
		if db.Dialect == dialect.MySQL {
			exec("ANALYZE TABLE `file_counters`, `file_counter_journal`")
		} else {
			exec("ANALYZE")
		}
		keys := make([]filecounters.Key, read)
		for i := range keys {
			keys[i] = filecounters.Key{DatasetID: 3 * i, Status: file.StatusNew}
		}
		recorded.take()
		rows, err := client.FileCounters.ReadMany(ctx, keys...)
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range rows {
			if row.DatasetID != keys[i].DatasetID || row.Count != 1+5 {
				t.Fatalf("key %v reads %v", keys[i], row)
			}
		}
		queries := recorded.take()
		if len(queries) != 1 {
			t.Fatalf("%d queries", len(queries))
		}
		steps := plan(t, client, db, queries[0])
		// What each engine says of a table that it reads by index; other steps are
		// on what these yield.
		byIndex := map[string][]*regexp.Regexp{
			dialect.MySQL: {
				regexp.MustCompile(`\|range\|.*PRIMARY`),
				regexp.MustCompile(`\|range\|.*file_counter_journal_by_key`),
			},
			dialect.Postgres: {
				regexp.MustCompile(`Index.* file_counters_pkey`),
				regexp.MustCompile(`Index.* file_counter_journal_by_key`),
			},
			dialect.SQLite: {
				regexp.MustCompile(`SEARCH .*sqlite_autoindex_file_counters_1`),
				regexp.MustCompile(`SEARCH .*file_counter_journal_by_key`),
			},
		}[db.Dialect]
		for _, step := range byIndex {
			if !slices.ContainsFunc(steps, step.MatchString) {
				t.Errorf("no step of the plan matches %s:\n%s", step, strings.Join(steps, "\n"))
			}
		}
	})
}

// plan returns how the database executes a query, one step a line.
func plan(t *testing.T, client *ent.Client, db *testdb.Database, s statement) []string {
	t.Helper()
	explain := map[string]string{
		dialect.MySQL:    "EXPLAIN FORMAT=TRADITIONAL ",
		dialect.Postgres: "EXPLAIN ",
		dialect.SQLite:   "EXPLAIN QUERY PLAN ",
	}[db.Dialect]
	rows, err := client.QueryContext(t.Context(), explain+s.query, s.args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for rows.Next() {
		cells := make([]any, len(columns))
		for i := range cells {
			cells[i] = new(sql.NullString)
		}
		if err := rows.Scan(cells...); err != nil {
			t.Fatal(err)
		}
		line := "|"
		for _, c := range cells {
			line += c.(*sql.NullString).String + "|"
		}
		lines = append(lines, line[:min(len(line), 300)])
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}
