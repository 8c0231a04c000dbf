package integration

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/internal/conformance/tap"
	"github.com/entcounter/entcounter/internal/integration/ent"
	_ "github.com/entcounter/entcounter/internal/integration/ent/runtime"
	"github.com/entcounter/entcounter/internal/testdb"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "seed of the random tests (default: a new one, which is printed)")
	stepsFlag = flag.Int("steps", 10_000, "steps of a random test on each database")
)

// counter is what the tests know of a counter, independently of what is
// generated for it.
type counter struct {
	name, table, journal string
	key, measures        []string // of the counter's tables
	source               string
	columns              []string // of the source: the key
	sums                 []string // of the source: a column, or nothing for a count
}

// counters of the schema.
var counters = []counter{
	{"Marriage", "marriage_counters", "marriage_counter_journal", []string{"spouse_id"}, []string{"count"}, "users", []string{"spouse_id"}, []string{""}},
	{"TenantUser", "tenant_user_counters", "tenant_user_counter_journal", []string{"tenant_id"}, []string{"users", "age"}, "users", []string{"tenant_id"}, []string{"", "age"}},
	{"Card", "card_counters", "card_counter_journal", []string{"owner_id"}, []string{"count"}, "cards", []string{"owner_id"}, []string{""}},
	{"CardColor", "card_color_counters", "card_color_counter_journal", []string{"color"}, []string{"count", "owners"}, "cards", []string{"color"}, []string{"", "owner_id"}},
	{"Member", "member_counters", "member_counter_journal", []string{"team_id", "role"}, []string{"count", "score"}, "memberships", []string{"team_id", "role"}, []string{"", "score"}},
	{"TaskTier", "task_tier_counters", "task_tier_counter_journal", []string{"tier"}, []string{"count", "levels"}, "tasks", []string{"tier"}, []string{"", "level"}},
	{"Task", "task_counters", "task_counter_journal", []string{"project_id", "state"}, []string{"count", "bytes", "weight", "retries"}, "tasks", []string{"project_id", "state"}, []string{"", "size", "weight", "retries"}},
	{"Owner", "owner_counters", "owner_counter_journal", []string{"owner_id"}, []string{"tasks"}, "tasks", []string{"owner_id"}, []string{""}},
	{"Review", "review_counters", "review_counter_journal", []string{"reviewer_id", "state"}, []string{"tasks"}, "tasks", []string{"reviewer_id", "state"}, []string{""}},
	{"Attachment", "attachment_counters", "attachment_counter_journal", []string{"order", "key"}, []string{"rows", "count", "table"}, "group", []string{"order", "key"}, []string{"", "count", "where"}},
	{"Upload", "upload_counters", "upload_counter_journal", []string{"from", "uploader_id"}, []string{"select"}, "group", []string{"from", "uploader_id"}, []string{""}},
	{"Child", "child_counters", "child_counter_journal", []string{"parent_id"}, []string{"children", "bytes"}, "nodes", []string{"parent_id"}, []string{"", "size"}},
	{"Kind", "kind_counters", "kind_counter_journal", []string{"kind"}, []string{"count"}, "nodes", []string{"kind"}, []string{""}},
	{"Folder", "folder_counters", "folder_counter_journal", []string{"parent_id", "shared"}, []string{"count", "quota"}, "folders", []string{"parent_id", "shared"}, []string{"", "quota"}},
	{"Badge", "badge_counters", "badge_counter_journal", []string{"color"}, []string{"count", "weight"}, "badges", []string{"color"}, []string{"", "weight"}},
	{"Vote", "vote_counters", "vote_counter_journal", []string{"topic"}, []string{"count"}, "votes", []string{"topic"}, []string{""}},
	{"Stop", "stop_counters", "stop_counter_journal", []string{"route_id"}, []string{"count", "length"}, "stops", []string{"route_id"}, []string{"", "length"}},
	{"Token", "token_counters", "token_counter_journal", []string{"scope"}, []string{"count", "uses"}, "tokens", []string{"scope"}, []string{"", "uses"}},
	{"TokenName", "token_name_counters", "token_name_counter_journal", []string{"name"}, []string{"count"}, "tokens", []string{"name"}, []string{""}},
	{"Device", "device_counters", "device_counter_journal", []string{"site"}, []string{"count", "load"}, "devices", []string{"site"}, []string{"", "load"}},
	{"Blob", "blob_counters", "blob_counter_journal", []string{"bucket"}, []string{"count", "bytes"}, "blobs", []string{"bucket"}, []string{"", "size"}},
	{"Memo", "memo_counters", "memo_counter_journal", []string{"board", "deleted"}, []string{"count", "bytes"}, "files", []string{"board", "deleted"}, []string{"", "size"}},
}

// world is a database with the schema in it and a watched client.
type world struct {
	testing.TB
	db     *testdb.Database
	pool   *sql.DB
	tap    *tap.Tap
	client *ent.Client
	oracle *sql.DB // connections that nothing watches or breaks

	driftSQL, twiceSQL, journalSQL string
}

// migrating is held while the schema is created: ent prepares the package's tables
// for it.
var migrating sync.Mutex

func newWorld(tb testing.TB, db *testdb.Database, params map[string]string) *world {
	tb.Helper()
	w := &world{TB: tb, db: db, oracle: db.DB(tb)}
	w.pool, w.tap = tap.Open(tb, db, params)
	w.client = ent.NewClient(ent.Driver(entsql.OpenDB(db.Dialect, w.pool)), ent.Log(func(...any) {}))
	migrating.Lock()
	defer migrating.Unlock()
	if err := w.client.Schema.Create(context.Background()); err != nil {
		tb.Fatal(err)
	}
	if err := w.client.CheckCounters(context.Background()); err != nil {
		tb.Fatal(err)
	}
	w.driftSQL, w.twiceSQL, w.journalSQL = w.statements()
	w.tap.Reset()
	return w
}

// each runs fn on every database and, where the driver can report matched rather
// than changed rows, in both ways.
func each(t *testing.T, fn func(t *testing.T, db *testdb.Database, params map[string]string)) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) { bothWays(t, db, fn) })
}

// bothWays runs fn once, or twice where the driver can report affected rows in two
// ways.
func bothWays(t *testing.T, db *testdb.Database, fn func(t *testing.T, db *testdb.Database, params map[string]string)) {
	if db.Dialect != dialect.MySQL {
		fn(t, db, nil)
		return
	}
	for _, found := range []string{"false", "true"} {
		t.Run("clientFoundRows="+found, func(t *testing.T) {
			fn(t, testdb.New(t, db.Kind), map[string]string{"clientFoundRows": found})
		})
	}
}

// with runs fn in a new database of each kind.
func with(t *testing.T, fn func(ctx context.Context, w *world)) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) { fn(t.Context(), newWorld(t, db, nil)) })
}

func (w *world) quote(names ...string) string {
	q := "`"
	if w.db.Dialect == dialect.Postgres {
		q = `"`
	}
	return q + strings.Join(names, q+", "+q) + q
}

// placeholder is that of the nth argument.
func (w *world) placeholder(n int) string {
	if w.db.Dialect == dialect.Postgres {
		return fmt.Sprint("$", n)
	}
	return "?"
}

// text is an expression for the columns as text.
func (w *world) text(columns []string) string {
	var parts []string
	for _, c := range columns {
		typ := "TEXT"
		if w.db.Dialect == dialect.MySQL {
			typ = "CHAR"
		}
		parts = append(parts, fmt.Sprintf("CAST(%s AS %s)", w.quote(c), typ))
	}
	if w.db.Dialect == dialect.MySQL {
		return "CONCAT_WS(' ', " + strings.Join(parts, ", ") + ")"
	}
	return strings.Join(parts, " || ' ' || ")
}

// statements makes one statement over all counters each, of the keys for which
// tables and recount differ, of those that are journalled more than once or with
// nothing, and of the whole journal.
func (w *world) statements() (drift, twice, journal string) {
	var drifts, twices, journals []string
	for _, c := range counters {
		var source, zero, sums, deltas, differ []string
		for i, column := range c.sums {
			if column == "" {
				source = append(source, "COUNT(*) AS "+w.quote(c.measures[i]))
			} else {
				source = append(source, fmt.Sprintf("COALESCE(SUM(%s), 0) AS %s", w.quote(column), w.quote(c.measures[i])))
			}
			m := w.quote(c.measures[i])
			zero = append(zero, w.quote(c.measures[i]+"_delta")+" = 0")
			deltas = append(deltas, "-"+w.quote(c.measures[i]+"_delta"))
			sums = append(sums, "SUM("+m+")")
			differ = append(differ, "SUM("+m+") <> 0")
		}
		var key, notNull []string
		for i, column := range c.columns {
			key = append(key, w.quote(column)+" AS "+w.quote(c.key[i]))
			notNull = append(notNull, w.quote(column)+" IS NOT NULL")
		}
		minus := make([]string, len(c.measures))
		for i, m := range c.measures {
			minus[i] = "-" + w.quote(m)
		}
		padded := append(slices.Clone(sums), slices.Repeat([]string{"0"}, 4-len(sums))...)
		drifts = append(drifts, fmt.Sprintf("SELECT '%s' AS c, %s AS k, %s FROM (SELECT %s, %s FROM %s WHERE %s GROUP BY %s UNION ALL SELECT %s, %s FROM %s UNION ALL SELECT %s, %s FROM %s) t GROUP BY %s HAVING %s",
			c.name, w.text(c.key), strings.Join(padded, ", "),
			strings.Join(key, ", "), strings.Join(source, ", "), w.quote(c.source), strings.Join(notNull, " AND "), w.quote(c.columns...),
			w.quote(c.key...), strings.Join(minus, ", "), w.quote(c.table),
			w.quote(c.key...), strings.Join(deltas, ", "), w.quote(c.journal),
			w.quote(c.key...), strings.Join(differ, " OR ")))
		all := strings.Join(zero, " AND ")
		twices = append(twices, fmt.Sprintf("SELECT '%s' AS c, %s AS k FROM %s WHERE id > %s GROUP BY %s HAVING COUNT(*) > 1 OR SUM(CASE WHEN %s THEN 1 ELSE 0 END) > 0",
			c.name, w.text(c.key), w.quote(c.journal), w.placeholder(len(twices)+1), w.quote(c.key...), all))
		journals = append(journals, fmt.Sprintf("SELECT '%s' AS c, COALESCE(MAX(id), 0) AS last, COUNT(*) AS n FROM %s", c.name, w.quote(c.journal)))
	}
	return strings.Join(drifts, " UNION ALL "), strings.Join(twices, " UNION ALL "), strings.Join(journals, " UNION ALL ")
}

// check compares what all counters' tables hold with a recount.
func (w *world) check(ctx context.Context) error {
	rows, err := w.oracle.QueryContext(ctx, w.driftSQL)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var b strings.Builder
	for rows.Next() {
		var (
			name, key string
			m         [4]int64
		)
		if err := rows.Scan(&name, &key, &m[0], &m[1], &m[2], &m[3]); err != nil {
			return err
		}
		fmt.Fprintf(&b, "\n\t%s %s: missing %+v", name, key, m)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if b.Len() > 0 {
		return fmt.Errorf("counters differ from the recount:%s", b.String())
	}
	return nil
}

// verify asks the client itself for drift.
func verify(ctx context.Context, c *ent.Client) error {
	for _, h := range c.Counters() {
		n := 0
		err := h.Verify(ctx, nil, func(func(...any) error) error { n++; return nil })
		if err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("verify reports %d keys of counter %s", n, h.Name())
		}
	}
	return nil
}

// exact fails the test unless the counters are right.
func (w *world) exact(ctx context.Context) {
	w.Helper()
	no(w, w.check(ctx), verify(ctx, w.client))
}

// journal tells for each counter the last id and the number of rows of its
// journal.
func (w *world) journal(ctx context.Context) (map[string][2]int64, error) {
	rows, err := w.oracle.QueryContext(ctx, w.journalSQL)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	state := make(map[string][2]int64)
	for rows.Next() {
		var (
			name string
			s    [2]int64
		)
		if err := rows.Scan(&name, &s[0], &s[1]); err != nil {
			return nil, err
		}
		state[name] = s
	}
	return state, rows.Err()
}

// deltas returns the rows of a counter's journal after the first n, as text and
// in order.
func (w *world) deltas(ctx context.Context, name string, n int) []string {
	w.Helper()
	i := slices.IndexFunc(counters, func(c counter) bool { return c.name == name })
	c := counters[i]
	var columns []string
	for _, m := range c.measures {
		columns = append(columns, m+"_delta")
	}
	rows, err := w.oracle.QueryContext(ctx, fmt.Sprintf("SELECT %s, %s FROM %s ORDER BY id", w.text(c.key), w.text(columns), w.quote(c.journal)))
	no(w, err)
	defer func() { _ = rows.Close() }()
	var all []string
	for rows.Next() {
		var key, deltas string
		no(w, rows.Scan(&key, &deltas))
		all = append(all, key+": "+deltas)
	}
	no(w, rows.Err())
	all = all[min(n, len(all)):]
	slices.Sort(all)
	return all
}

// journalled compares the deltas of a counter with those wanted, in any order,
// and the counters with a recount. Then it folds them away.
func (w *world) journalled(ctx context.Context, name string, want ...string) {
	w.Helper()
	got := w.deltas(ctx, name, 0)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.Errorf("counter %s journalled %q, want %q", name, got, want)
	}
	w.exact(ctx)
	for _, h := range w.client.Counters() {
		if h.Name() == name {
			_, err := h.Fold(ctx)
			no(w, err)
		}
	}
}

// fold empties all journals.
func (w *world) fold(ctx context.Context) {
	w.Helper()
	for _, h := range w.client.Counters() {
		_, err := h.Fold(ctx)
		no(w, err)
	}
}

// no fails the test on an error.
func no(tb testing.TB, errs ...error) {
	tb.Helper()
	if err := errors.Join(errs...); err != nil {
		tb.Fatal(err)
	}
}

// must returns a value and fails the test on an error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

func seed() uint64 {
	if *seedFlag != 0 {
		return *seedFlag
	}
	return uint64(time.Now().UnixNano())
}

func ptr[T any](v T) *T { return &v }
