package entcounter

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"entgo.io/ent/dialect"
)

// What [Handle.Health] looks at.
const (
	// HealthJournalRows is how many journal rows it counts, the oldest first.
	HealthJournalRows = 100_000
	// HealthKeys is how many counter rows it counts and looks through for negative
	// ones.
	HealthKeys = 1_000_000
)

// Health says how a counter does. No number in it is about a count being right:
// reads are exact at any depth of the journal, and [Handle.Verify] compares them with
// the counted rows. The exception is Negative, which proves that one is wrong.
type Health struct {
	// Counter is the name that the counter was declared with.
	Counter string
	// Columns of its key.
	Columns []string

	// Keys that have a counter row, [HealthKeys] at most.
	Keys int64
	// Journal is how many rows wait to be folded: exact up to [HealthJournalRows], and
	// an estimate by the span of their ids beyond.
	Journal int64
	// Oldest is the age of the first of them by the database's clock; 0 if there is none.
	Oldest time.Duration
	// DeepestKey is the key with most journal rows, among the [HealthJournalRows] oldest; nil
	// if there is none. A read of it has most to add. Deepest is how many they are.
	DeepestKey []any
	Deepest    int64

	// LastFold is when a fold last moved rows, by the database's clock; the zero time
	// if none has. FoldedPerSecond is how fast that one was.
	LastFold        time.Time
	FoldedPerSecond float64
	// Folded is how many rows all folds have moved so far.
	Folded int64
	// LastBuild is when the whole counter was last rebuilt, or a new one was found to be
	// exact; the zero time if never.
	LastBuild time.Time
	// Built is nil, [ErrNotBuilt] or [ErrDeclarationChanged].
	Built error
	// Paused tells that workers leave the counter alone: see [Handle.Pause].
	Paused bool

	// Negative is how many keys have a negative count or sum, of those with a counter row
	// or a journal row; -1 if it is not known because the journal has more than
	// [HealthJournalRows]. A number of rows is never negative, nor is a sum of sizes: a delta was wrong,
	// or something has written past ent. Verify the key's scope and rebuild it. NegativeKey
	// is the first of these keys.
	Negative    int64
	NegativeKey []any

	// HistoryLength is the number of transactions whose old row versions InnoDB has yet to purge, in
	// the whole server. Folded journal rows stay in the way of reads until then, so that a
	// long transaction slows them down although the journal is short. It is -1 on other databases, and
	// without the PROCESS privilege.
	HistoryLength int64
	// DeadRows is the same for PostgreSQL: how many rows of the counter's two tables are
	// deleted and not vacuumed, as its statistics say; -1 on other databases.
	DeadRows int64
}

// Health reads how the counter does, by a handful of plain statements that take no
// locks. They read no more than [HealthJournalRows] rows of the journal and
// [HealthKeys] of the counter table; of an idle counter with few keys they cost next to
// nothing. In a transaction they see what that sees, without deltas that are not
// written yet.
func (c *Handle) Health(ctx context.Context) (Health, error) {
	h := Health{Counter: c.def.Name, Columns: c.def.keyNames(), HistoryLength: -1, DeadRows: -1}
	for _, read := range []func(context.Context, *Health) error{
		c.readMarks, c.readJournal, c.readCounters, c.readGarbage,
	} {
		if err := read(ctx, &h); err != nil {
			return Health{}, c.wrap("reading the health of", err)
		}
	}
	return h, nil
}

// readMarks reads what folds, rebuilds and operators have noted.
func (c *Handle) readMarks(ctx context.Context, h *Health) error {
	w := newWriter(c.sql)
	w.sql("SELECT ").idents("operation", columnDeclaration).sql(", ", c.sql.timeText(w.quote(columnDoneAt)), ", ").
		idents(columnTotalRows, columnLastRows, columnLastMicros).sql(" FROM ").ident(LockTable).sql(" WHERE ").
		equals([]string{"counter_name"}, []any{c.def.Name})
	declaration := ""
	err := query(ctx, c.drv, w, func(scan func(...any) error) error {
		var (
			operation, declared  string
			done                 Time
			total, last, elapsed stdsql.NullInt64
		)
		if err := scan(&operation, &declared, &done, &total, &last, &elapsed); err != nil {
			return err
		}
		switch operation {
		case lockFold:
			h.LastFold, h.Folded = utc(done), total.Int64
			h.FoldedPerSecond = float64(last.Int64) / max(time.Duration(elapsed.Int64)*time.Microsecond, time.Microsecond).Seconds()
		case lockRebuilt:
			h.LastBuild, declaration = utc(done), declared
		case markPaused:
			h.Paused = true
		}
		return nil
	})
	if err != nil || c.def.assumeBuilt {
		return err
	}
	switch declared := c.def.declaration(); declaration {
	case declared:
	case "":
		few, err := c.fewRows(ctx)
		if err != nil {
			return err
		}
		if !few { // else the next read sees to it
			h.Built = c.wrap("reading", ErrNotBuilt)
		}
	default:
		h.Built = c.wrap("reading", fmt.Errorf("%w: there %q, here %q", ErrDeclarationChanged, declaration, declared))
	}
	return nil
}

// utc returns the time that was scanned, which is zero for NULL.
func utc(t Time) time.Time {
	if time.Time(t).IsZero() {
		return time.Time{}
	}
	return time.Time(t).UTC()
}

// readJournal reads depth and age of the journal.
func (c *Handle) readJournal(ctx context.Context, h *Health) error {
	d := c.def
	w := newWriter(c.sql)
	deepest(w, c.sql, d, HealthJournalRows)
	key, err := c.queryKey(ctx, w, &h.Deepest, &h.Journal)
	if err != nil || key == nil {
		return err
	}
	h.DeepestKey = key
	w = newWriter(c.sql)
	id := w.quote(ColumnJournalID)
	w.sql("SELECT (SELECT MAX(", id, ") FROM ").ident(d.Journal).sql(") - ", id, " + 1, ", c.sql.age(w.quote(ColumnInsertedAt)),
		" FROM ").ident(d.Journal).sql(" ORDER BY ", id, " LIMIT 1")
	var span, micros int64
	if err := queryRow(ctx, c.drv, w, &span, &micros); err != nil {
		if errors.Is(err, stdsql.ErrNoRows) { // folded meanwhile
			h.Journal, h.Deepest, h.DeepestKey = 0, 0, nil
			return nil
		}
		return err
	}
	h.Oldest = max(time.Duration(micros)*time.Microsecond, 0)
	if h.Journal >= HealthJournalRows {
		h.Journal = max(h.Journal, span)
	}
	return nil
}

// deepest writes the statement that finds, in the oldest rows of a journal, the key
// that most of them have, how many it has, and how many rows there are.
func deepest(w *writer, s sqlDialect, d *Definition, limit int) {
	w.sql("SELECT ").idents(d.keyNames()...).sql(", COUNT(*) AS ").ident("n").
		sql(", CAST(SUM(COUNT(*)) OVER () AS ", s.integer(), ") FROM (SELECT ").idents(d.keyNames()...).sql(" FROM ").ident(d.Journal).
		sql(" ORDER BY ").ident(ColumnJournalID).sql(" LIMIT ", strconv.Itoa(limit), ") AS ").ident("t").
		sql(" GROUP BY ").idents(d.keyNames()...).sql(" ORDER BY ").ident("n").sql(" DESC, ").idents(d.keyNames()...).sql(" LIMIT 1")
}

// readCounters reads how many keys there are, and which of them are negative.
func (c *Handle) readCounters(ctx context.Context, h *Health) error {
	w := newWriter(c.sql)
	w.sql("SELECT COUNT(*) FROM (SELECT 1 FROM ").ident(c.def.Table).sql(" LIMIT ", strconv.Itoa(HealthKeys), ") AS ").ident("t")
	if err := queryRow(ctx, c.drv, w, &h.Keys); err != nil {
		return err
	}
	if h.Journal >= HealthJournalRows {
		h.Negative = -1
		return nil
	}
	w = newWriter(c.sql)
	negative(w, c.def, HealthKeys)
	key, err := c.queryKey(ctx, w, &h.Negative)
	if overflows(err) { // SQLite, which has no wider integers; a read says which key it is
		h.Negative, err = -1, nil
	}
	h.NegativeKey = key
	return err
}

// negative writes the statement that finds the first key with a negative measure,
// and how many there are. A key's sum is negative only if its counter row is, or if it has
// journal rows. So it sums the rows of these keys alone, each whole.
func negative(w *writer, d *Definition, limit int) {
	var (
		keys     = quoteAll(w, d.keyNames())
		measures = quoteAll(w, d.measureNames())
		columns  = strings.Join(slices.Concat(keys, measures), ", ")
		below    = func(expr func(string) string) string {
			tests := make([]string, len(measures))
			for i, m := range measures {
				tests[i] = expr(m) + " < 0"
			}
			return strings.Join(tests, " OR ")
		}
		qualified = func(table string, names []string) []string {
			q := make([]string, len(names))
			for i, name := range names {
				q[i] = table + "." + name
			}
			return q
		}
		c, j = w.quote("c"), w.quote("j")
		same = make([]string, len(keys))
	)
	for i, k := range keys {
		same[i] = c + "." + k + " = " + j + "." + k
	}
	key := strings.Join(keys, ", ")
	w.sql("SELECT ", key, ", COUNT(*) OVER () FROM (SELECT ", key, " FROM (SELECT ", columns, " FROM (SELECT ", columns, " FROM ").ident(d.Table).
		sql(" LIMIT ", strconv.Itoa(limit), ") AS ", c, " WHERE ", below(func(m string) string { return m })).
		// A row of both is here once.
		sql(" UNION SELECT ", strings.Join(slices.Concat(qualified(c, keys), qualified(c, measures)), ", "),
			" FROM (SELECT DISTINCT ", key, " FROM ").ident(d.Journal).sql(") AS ", j, " JOIN ").ident(d.Table).sql(" AS ", c, " ON ", strings.Join(same, " AND "),
		" UNION ALL SELECT ", strings.Join(slices.Concat(keys, quoteAll(w, d.deltaNames())), ", "), " FROM ").ident(d.Journal).
		sql(") AS ").ident("u").sql(" GROUP BY ", key, " HAVING ", below(func(m string) string { return "SUM(" + m + ")" }), ") AS ").ident("n").
		sql(" ORDER BY ", key, " LIMIT 1")
}

// queryKey reads the only row of a result, which begins with a key, or returns nil if there is
// none.
func (c *Handle) queryKey(ctx context.Context, w *writer, dest ...any) (key []any, err error) {
	targets := make([]any, len(c.def.Key))
	for i, col := range c.def.Key {
		targets[i] = scanTarget(col)
	}
	err = query(ctx, c.drv, w, func(scan func(...any) error) (err error) {
		if err = scan(slices.Concat(targets, dest)...); err == nil {
			key, err = c.def.scannedKey(targets)
		}
		return err
	})
	return key, err
}

// readGarbage reads how much deleted rows are in the way of reads.
func (c *Handle) readGarbage(ctx context.Context, h *Health) error {
	w := newWriter(c.sql)
	c.sql.garbage(w, c.def)
	if w.Len() == 0 {
		return nil
	}
	var n int64
	err := queryRow(ctx, c.drv, w, &n)
	switch {
	case serverErrorOf(err).mysql == mysqlAccessDenied, errors.Is(err, stdsql.ErrNoRows):
		return nil
	case err != nil:
		return err
	case c.sql.name() == dialect.MySQL:
		h.HistoryLength = n
	default:
		h.DeadRows = n
	}
	return nil
}
