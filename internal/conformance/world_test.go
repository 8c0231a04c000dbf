package conformance

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/internal/conformance/tap"
	"github.com/entcounter/entcounter/internal/testdb"
)

var (
	seedFlag     = flag.Uint64("seed", 0, "seed of the random tests (default: a new one, which is printed)")
	stepsFlag    = flag.Int("steps", 1500, "steps of a random test on each database")
	durationFlag = flag.Duration("duration", 6*time.Second, "how long a concurrency test runs on each database")
)

// world is a database with the schema in it and a watched client.
type world struct {
	testing.TB
	db     *testdb.Database
	pool   *sql.DB
	tap    *tap.Tap
	client *ent.Client
	oracle *sql.DB // connections that nothing watches or breaks
}

// newWorld opens a client on a fresh database, whose counters are built.
func newWorld(tb testing.TB, db *testdb.Database, params map[string]string) *world {
	tb.Helper()
	w := newTables(tb, db, params)
	if err := w.client.CheckCounters(context.Background()); err != nil {
		tb.Fatal(err)
	}
	w.tap.Reset()
	return w
}

// newTables opens a client on a fresh database, whose counters nobody has read.
func newTables(tb testing.TB, db *testdb.Database, params map[string]string) *world {
	tb.Helper()
	w := &world{TB: tb, db: db, oracle: db.DB(tb)}
	w.pool, w.tap = tap.Open(tb, db, params)
	w.client = ent.NewClient(ent.Driver(entDriver(db.Dialect, w.pool)), ent.Log(func(...any) {}))
	if err := w.client.Schema.Create(context.Background()); err != nil {
		tb.Fatal(err)
	}
	w.tap.Reset()
	return w
}

func entDriver(dialectName string, pool *sql.DB) *entsql.Driver {
	return entsql.OpenDB(dialectName, pool)
}

// each runs fn on every database and, where the driver can report matched rather
// than changed rows, in both ways.
func each(t *testing.T, fn func(t *testing.T, db *testdb.Database, params map[string]string)) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		if db.Dialect != dialect.MySQL {
			fn(t, db, nil)
			return
		}
		for _, found := range []string{"false", "true"} {
			t.Run("clientFoundRows="+found, func(t *testing.T) {
				fn(t, testdb.New(t, db.Kind), map[string]string{"clientFoundRows": found})
			})
		}
	})
}

// key and measures of the File counter.
type (
	key struct {
		Dataset int
		Status  file.Status
	}
	measures struct{ Count, Bytes int64 }
	counts   map[key]measures
)

func (c counts) add(k key, m measures) {
	sum := measures{c[k].Count + m.Count, c[k].Bytes + m.Bytes}
	if sum == (measures{}) {
		delete(c, k)
		return
	}
	c[k] = sum
}

func (c counts) String() string {
	var b strings.Builder
	for _, k := range slices.SortedFunc(maps.Keys(c), compareKeys) {
		fmt.Fprintf(&b, " (%d %s: %d rows, %d bytes)", k.Dataset, k.Status, c[k].Count, c[k].Bytes)
	}
	return "[" + strings.TrimSpace(b.String()) + "]"
}

func compareKeys(a, b key) int {
	if a.Dataset != b.Dataset {
		return a.Dataset - b.Dataset
	}
	return strings.Compare(string(a.Status), string(b.Status))
}

// diff tells in which keys two counts differ.
func (c counts) diff(want counts) string {
	all := maps.Clone(c)
	maps.Copy(all, want)
	var b strings.Builder
	for _, k := range slices.SortedFunc(maps.Keys(all), compareKeys) {
		if c[k] != want[k] {
			fmt.Fprintf(&b, "\n\tdataset %d %s: %+v, want %+v", k.Dataset, k.Status, c[k], want[k])
		}
	}
	return b.String()
}

// querier is a connection pool or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// quoted replaces the backquotes of a statement by the dialect's quotes.
func (w *world) quoted(query string) string {
	if w.db.Dialect == dialect.Postgres {
		return strings.ReplaceAll(query, "`", `"`)
	}
	return query
}

func (w *world) counts(ctx context.Context, q querier, query string) (counts, error) {
	rows, err := q.QueryContext(ctx, w.quoted(query))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	c := make(counts)
	for rows.Next() {
		var (
			k key
			m measures
		)
		if err := rows.Scan(&k.Dataset, &k.Status, &m.Count, &m.Bytes); err != nil {
			return nil, err
		}
		c.add(k, m)
	}
	return c, rows.Err()
}

const (
	recountSQL = "SELECT `dataset_id`, `status`, COUNT(*), SUM(`size`) FROM `files` GROUP BY `dataset_id`, `status`"
	storedSQL  = "SELECT `dataset_id`, `status`, SUM(`count`), SUM(`bytes`) FROM (" +
		"SELECT `dataset_id`, `status`, `count`, `bytes` FROM `file_counters` UNION ALL " +
		"SELECT `dataset_id`, `status`, `count_delta`, `bytes_delta` FROM `file_counter_journal`) `t` GROUP BY `dataset_id`, `status`"
	journalSQL = "SELECT `dataset_id`, `status`, `count_delta`, `bytes_delta` FROM `file_counter_journal` ORDER BY `id`"
)

// recount counts the files.
func (w *world) recount(ctx context.Context, q querier) (counts, error) {
	return w.counts(ctx, q, recountSQL)
}

// stored is what the counter's tables say.
func (w *world) stored(ctx context.Context, q querier) (counts, error) {
	return w.counts(ctx, q, storedSQL)
}

// read is what the client says.
func read(ctx context.Context, c *ent.FileCountersClient) (counts, error) {
	rows, err := c.Query().All(ctx)
	if err != nil {
		return nil, err
	}
	all := make(counts)
	for _, r := range rows {
		all.add(key{r.DatasetID, r.Status}, measures{r.Count, r.Bytes})
	}
	return all, nil
}

// check compares the counters, as the client reads them and as they are stored,
// with a recount.
func (w *world) check(ctx context.Context) error {
	want, err := w.recount(ctx, w.oracle)
	if err != nil {
		return err
	}
	got, err := w.stored(ctx, w.oracle)
	if err != nil {
		return err
	}
	if d := got.diff(want); d != "" {
		return fmt.Errorf("the counter's tables differ from a recount:%s", d)
	}
	if got, err = read(ctx, w.client.FileCounters); err != nil {
		return err
	}
	if d := got.diff(want); d != "" {
		return fmt.Errorf("the client's counts differ from a recount:%s", d)
	}
	return nil
}

// exact fails the test unless the counters are right.
func (w *world) exact(ctx context.Context) {
	w.Helper()
	if err := w.check(ctx); err != nil {
		w.Fatal(err)
	}
}

// journal returns the rows of the journal in order, each as text.
func (w *world) journal(ctx context.Context) []string {
	w.Helper()
	rows, err := w.oracle.QueryContext(ctx, w.quoted(journalSQL))
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	journal := []string{}
	for rows.Next() {
		var (
			dataset     int
			status      string
			count, size int64
		)
		if err := rows.Scan(&dataset, &status, &count, &size); err != nil {
			w.Fatal(err)
		}
		journal = append(journal, fmt.Sprintf("%d %s %+d %+d", dataset, status, count, size))
	}
	if err := rows.Err(); err != nil {
		w.Fatal(err)
	}
	return journal
}

// scan reads one row through the oracle.
func (w *world) scan(query string, dest ...any) {
	w.Helper()
	if err := w.oracle.QueryRow(w.quoted(query)).Scan(dest...); err != nil {
		w.Fatal(err)
	}
}

// must fails the test on an error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}
