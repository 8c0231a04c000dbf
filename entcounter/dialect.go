package entcounter

import (
	stdsql "database/sql"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"entgo.io/ent/dialect"
	"entgo.io/ent/schema/field"
)

// This file and the ones named dialect_… hold all SQL that differs between
// databases. MySQL and MariaDB share ent's dialect name, and every statement
// here is one that both accept and that is right on both.

// Operations that counter_locks has a row for.
const (
	lockFold    = "fold"
	lockRebuild = "rebuild"
	// lockRebuilt is no lock: its version is that of the last rebuild, or deletion
	// of a scope, whose commit a snapshot shows.
	lockRebuilt = "rebuilt"
	// lockBuild is no lock either: the row is there while a build is under way, see
	// build.go.
	lockBuild = "build"
	// markPaused is no lock: the row is there while folding is paused.
	markPaused = "paused"
)

// Columns of counter_locks that say what was done last. All but the first are NULL
// where nothing was.
const (
	// columnDeclaration has, in the rebuilt row, the declaration that the counter was
	// built by.
	columnDeclaration = "declaration"
	// columnDoneAt is when a fold last moved rows, the counter was built, or folding was
	// paused.
	columnDoneAt = "done_at"
	// columnTotalRows is how many rows all folds have moved.
	columnTotalRows = "total_rows"
	// columnLastRows is how many rows the last fold has moved, in columnLastMicros
	// microseconds.
	columnLastRows   = "last_rows"
	columnLastMicros = "last_micros"
)

// sqlDialect writes the statements of one dialect.
type sqlDialect interface {
	name() string
	// now is the database's clock, in UTC, in the form that is stored.
	now() string
	// timeText turns an expression for a stored time into text in UTC, where a
	// driver could shift it by its own idea of the session's time zone.
	timeText(expr string) string
	// age is how many microseconds a stored time is ago, by the database's clock.
	age(expr string) string
	// sum adds up integers: exact or an error, never wrapped or rounded. Only the sum
	// has to be in the range of BIGINT.
	sum(expr string) string
	// sumWith is what sum is for a value, which may be NULL, and a column of other rows.
	// It returns sums that these rows are asked for, by which part names them, and the
	// whole.
	sumWith(value, column string, part func(int) string) (parts []string, sum string)
	// anyOf is one of values that are equal.
	anyOf(expr string, t field.Type) string
	// later is the later of two stored times.
	later(a, b string) string
	// difference subtracts the sum of one column from that of another, likewise.
	difference(a, b string) string
	// differ compares the sums of two columns, which may be out of range.
	differ(a, b string) string
	// outOfRange tells whether a sum is out of the range of BIGINT.
	outOfRange(expr string) string
	// integer rounds a number to an integer: exact or an error. It is an operand as it
	// stands.
	integer(expr string) string
	// options of a transaction at an isolation level.
	options(level stdsql.IsolationLevel) *stdsql.TxOptions

	// createLocks inserts the rows of one counter into counter_locks as far as
	// they are missing.
	createLocks(w *writer, counter string)
	// indexes reads the ordered indexes over all rows of a table: for each, in
	// order, its name and its columns.
	indexes(w *writer, table string)
	// tryLock locks the row of an operation and returns 1, or returns nothing if somebody
	// else has locked it. It writes nothing where there are no row locks.
	tryLock(w *writer, counter, operation string)
	// pause inserts the row that pauses a counter, if it is missing.
	pause(w *writer, counter string)
	// garbage reads how many deleted rows, or old versions of rows, the database has yet
	// to remove. It writes nothing where nothing is left of a deleted row.
	garbage(w *writer, d *Definition)

	// draw adds n to the next number of a scope, or inserts the scope's row with 0,
	// and yields what the number then is.
	draw(w *writer, d *SequenceDefinition, scope []any, n int64)
}

// foldsBySteps is a dialect in which a fold is a sequence of statements.
type foldsBySteps interface {
	sqlDialect
	// claim locks the oldest committed rows of a journal and returns their ids. It
	// writes nothing where the transaction has locked everybody out already.
	claim(w *writer, d *Definition, part journalPart)
	// readJournal reads rows of a journal: the claimed ones, or the oldest ones.
	readJournal(w *writer, d *Definition, claimed []int64, part journalPart)
	// upsert adds to rows of the counter table.
	upsert(w *writer, d *Definition, rows []foldedRow)
	// deleteJournal deletes rows of a journal.
	deleteJournal(w *writer, d *Definition, ids []int64)
}

// foldsAtOnce is a dialect in which a fold is one statement.
type foldsAtOnce interface {
	sqlDialect
	// fold returns the numbers of rows and keys, and of the rows of the key with most.
	fold(w *writer, d *Definition, part journalPart)
}

// foldedRow is the sum of some journal rows of one key.
type foldedRow struct {
	key      []any
	measures []int64
	// updatedAt is the newest insertion time, in the form of timeText.
	updatedAt string
}

// sumOutOfRange is outOfRange where SUM itself has no limit.
func sumOutOfRange(expr string) string {
	return "SUM(" + expr + ") NOT BETWEEN " + strconv.FormatInt(math.MinInt64, 10) + " AND " + strconv.FormatInt(math.MaxInt64, 10)
}

// sumOfSums is sumWith where the type of SUM itself has no limit.
func sumOfSums(value, column string, part func(int) string) ([]string, string) {
	return []string{"SUM(" + column + ")"}, "COALESCE(" + value + ", 0) + COALESCE(" + part(0) + ", 0)"
}

// sqlFor returns the statements of a dialect by ent's name for it.
func sqlFor(dialectName string) sqlDialect {
	switch dialectName {
	case dialect.MySQL:
		return mysqlSQL{}
	case dialect.Postgres:
		return postgresSQL{}
	case dialect.SQLite:
		return sqliteSQL{}
	}
	panic(fmt.Sprintf("entcounter: unsupported dialect %q", dialectName))
}

// nowExpr returns the expression for the time of the database's clock, as stored
// in inserted_at.
func nowExpr(dialectName string) string { return sqlFor(dialectName).now() }

// writer writes a statement and collects its arguments.
type writer struct {
	strings.Builder
	args     []any
	postgres bool
	sqlite   bool
}

func newWriter(d sqlDialect) *writer {
	return &writer{args: []any{}, postgres: d.name() == dialect.Postgres, sqlite: d.name() == dialect.SQLite}
}

// sql writes SQL as it stands.
func (w *writer) sql(parts ...string) *writer {
	for _, p := range parts {
		w.WriteString(p)
	}
	return w
}

// quote quotes a name.
func (w *writer) quote(name string) string {
	if w.postgres {
		return quoteName('"', name)
	}
	return quoteName('`', name)
}

// ident writes a quoted name.
func (w *writer) ident(name string) *writer { return w.sql(w.quote(name)) }

// idents writes quoted names with commas between them.
func (w *writer) idents(names ...string) *writer {
	for i, name := range names {
		if i > 0 {
			w.sql(", ")
		}
		w.ident(name)
	}
	return w
}

// arg writes a placeholder.
func (w *writer) arg(v any) *writer {
	w.args = append(w.args, v)
	if w.postgres {
		return w.sql("$", strconv.Itoa(len(w.args)))
	}
	return w.sql("?")
}

// ids writes a list of integers in parentheses. They are written out, which
// saves the driver one round trip to prepare thousands of parameters.
func (w *writer) ids(ids []int64) *writer {
	b := append(make([]byte, 0, 8*len(ids)), '(')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, id, 10)
	}
	return w.sql(string(append(b, ')')))
}

// equals writes "column = value AND …".
func (w *writer) equals(columns []string, values []any) *writer {
	for i, v := range values {
		if i > 0 {
			w.sql(" AND ")
		}
		w.ident(columns[i]).sql(" = ").arg(v)
	}
	return w
}

// rows writes the rows of an INSERT.
func (w *writer) rows(rows []foldedRow) *writer {
	for i, r := range rows {
		if i > 0 {
			w.sql(", ")
		}
		w.sql("(")
		for _, v := range r.key {
			w.arg(v).sql(", ")
		}
		for _, m := range r.measures {
			w.arg(m).sql(", ")
		}
		w.arg(r.updatedAt).sql(")")
	}
	return w
}

func columnNames(columns []Column) []string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.Name
	}
	return names
}

func (d *Definition) keyNames() []string { return columnNames(d.Key) }

func (d *Definition) measureNames() []string {
	names := make([]string, len(d.Measures))
	for i, m := range d.Measures {
		names[i] = m.Name
	}
	return names
}

func (d *Definition) deltaNames() []string {
	names := make([]string, len(d.Measures))
	for i, m := range d.Measures {
		names[i] = m.Delta
	}
	return names
}

// counterColumns are the columns of the counter table.
func (d *Definition) counterColumns() []string {
	return slices.Concat(d.keyNames(), d.measureNames(), []string{ColumnUpdatedAt})
}

// writeLock writes to the lock row of an operation. Rows of counter_locks are
// written, not only locked: a waiting transaction then fails rather than goes on
// with a snapshot from before its wait (PostgreSQL), and two nodes of a cluster
// that lock the same row conflict when they commit (Galera).
func writeLock(w *writer, counter, operation string) {
	w.sql("UPDATE ").ident(LockTable).sql(" SET ").ident("version").sql(" = ").ident("version").sql(" + 1 WHERE ").
		equals([]string{"counter_name", "operation"}, []any{counter, operation})
}

// selectFreeLock locks the row of an operation unless it is locked.
func selectFreeLock(w *writer, counter, operation string) {
	w.sql("SELECT 1 FROM ").ident(LockTable).sql(" WHERE ").
		equals([]string{"counter_name", "operation"}, []any{counter, operation}).sql(" FOR UPDATE SKIP LOCKED")
}

// writeFolded notes, in the row that the fold has locked, what it has done.
func writeFolded(w *writer, s sqlDialect, counter string, rows int, elapsed time.Duration) {
	w.sql("UPDATE ").ident(LockTable).sql(" SET ").ident(columnDoneAt).sql(" = ", s.now(), ", ").
		ident(columnTotalRows).sql(" = COALESCE(").ident(columnTotalRows).sql(", 0) + ").arg(rows).sql(", ").
		ident(columnLastRows).sql(" = ").arg(rows).sql(", ").ident(columnLastMicros).sql(" = ").arg(elapsed.Microseconds()).sql(" WHERE ").
		equals([]string{"counter_name", "operation"}, []any{counter, lockFold})
}

// readVersions reads the versions of the rebuild and the rebuilt row, in this
// order.
func readVersions(w *writer, counter string) {
	w.sql("SELECT ").ident("version").sql(" FROM ").ident(LockTable).sql(" WHERE ").
		equals([]string{"counter_name"}, []any{counter}).sql(" AND ").ident("operation").sql(" IN (").
		arg(lockRebuild).sql(", ").arg(lockRebuilt).sql(") ORDER BY ").ident("operation")
}

// writeRebuilt sets the version of the rebuilt row and, after a rebuild of the whole
// counter, the declaration that it was built by.
func writeRebuilt(w *writer, s sqlDialect, counter string, version int64, declaration string) {
	w.sql("UPDATE ").ident(LockTable).sql(" SET ").ident("version").sql(" = ").arg(version)
	if declaration != "" {
		w.sql(", ").ident(columnDeclaration).sql(" = ").arg(declaration).sql(", ").ident(columnDoneAt).sql(" = ", s.now())
	}
	w.sql(" WHERE ").
		equals([]string{"counter_name", "operation"}, []any{counter, lockRebuilt})
}

// insertLocks writes the INSERT that createLocks consists of, but for what it
// does with the rows that are there.
func insertLocks(w *writer, counter string) {
	w.sql("INSERT INTO ").ident(LockTable).sql(" (").idents("counter_name", "operation", "version", columnDeclaration).sql(") VALUES ")
	for i, operation := range []string{lockFold, lockRebuild, lockRebuilt} {
		if i > 0 {
			w.sql(", ")
		}
		w.sql("(").arg(counter).sql(", ").arg(operation).sql(", 0, '')")
	}
}

// insertPause writes the INSERT that pause consists of, but for what it does with a
// row that is there.
func insertPause(w *writer, s sqlDialect, counter string) {
	w.sql("INSERT INTO ").ident(LockTable).sql(" (").idents("counter_name", "operation", "version", columnDeclaration, columnDoneAt).sql(") VALUES (").
		arg(counter).sql(", ").arg(markPaused).sql(", 0, '', ", s.now(), ")")
}

// selectJournal writes the part of readJournal that all dialects share: id, key,
// deltas and time of insertion.
func selectJournal(w *writer, s sqlDialect, d *Definition) {
	w.sql("SELECT ").idents(slices.Concat([]string{ColumnJournalID}, d.keyNames(), d.deltaNames())...).
		sql(", ", s.timeText(w.quote(ColumnInsertedAt)), " FROM ").ident(d.Journal)
}

// insertCounters writes the INSERT of an upsert into the counter table, up to
// the values.
func insertCounters(w *writer, d *Definition) {
	w.sql("INSERT INTO ").ident(d.Table).sql(" AS ").ident("c").sql(" (").idents(d.counterColumns()...).sql(") ")
}

// deleteByScope deletes the rows of a scope from the counter table or the
// journal.
func deleteByScope(w *writer, table string, d *Definition, scope []any) {
	w.sql("DELETE FROM ").ident(table).sql(" WHERE ").equals(d.keyNames(), scope)
}

// numbered returns names of inner columns, which no name of the user's can be
// mistaken for.
func numbered(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = prefix + strconv.Itoa(i)
	}
	return names
}

// driftKind is what is selected of keys that differ.
type driftKind int

const (
	// bothSides of each measure: what the counter says, then what the recount says.
	bothSides driftKind = iota
	// difference of each measure alone: the delta that mends the key.
	difference
	// differenceAt is the difference, and then the versions of the rebuilt and the build
	// row, which tell later whether it still is one.
	differenceAt
)

// drift writes the statement that compares the counted tables with the counters
// within a region: for each key, what the counter table and the journal hold and
// what a recount says, each measure by itself, for keys where any differs. It is
// one statement, so all of it is read in one snapshot; the region is in each part,
// where an index serves it. A limit of 0 is none.
func drift(w *writer, s sqlDialect, d *Definition, r region, kind driftKind, limit int) {
	var (
		key     = numbered("k", len(d.Key))
		counter = numbered("c", len(d.Measures))
		recount = numbered("r", len(d.Measures))
	)
	w.sql("SELECT ").idents(key...)
	for i := range d.Measures {
		if kind != bothSides {
			w.sql(", ", s.difference(w.quote(recount[i]), w.quote(counter[i])))
		} else {
			w.sql(", ", s.sum(w.quote(counter[i])))
		}
	}
	switch kind {
	case bothSides:
		for _, name := range recount {
			w.sql(", ", s.sum(w.quote(name)))
		}
	case differenceAt:
		for _, operation := range []string{lockRebuilt, lockBuild} {
			w.sql(", (SELECT ").ident("version").sql(" FROM ").ident(LockTable).sql(" WHERE ").
				equals([]string{"counter_name", "operation"}, []any{d.Name, operation}).sql(")")
		}
	}
	nothing := ""
	for _, name := range counter {
		nothing += ", 0 AS " + w.quote(name)
	}
	w.sql(" FROM (")
	for _, src := range d.Sources {
		if src.inRegion(r) {
			w.counts(s, src, key, recount, nothing, w.within(s, src, r)...)
			w.sql(" UNION ALL ")
		}
	}
	for i, half := range []struct {
		table    string
		measures []string
	}{{d.Table, d.measureNames()}, {d.Journal, d.deltaNames()}} {
		if i > 0 {
			w.sql(" UNION ALL ")
		}
		// The first part of the union names its columns.
		w.sql("SELECT ")
		for j, name := range d.keyNames() {
			w.ident(name).sql(" AS ").ident(key[j]).sql(", ")
		}
		for j := range d.Measures {
			w.sql("0 AS ").ident(recount[j]).sql(", ")
		}
		for j, name := range half.measures {
			if j > 0 {
				w.sql(", ")
			}
			w.ident(name).sql(" AS ").ident(counter[j])
		}
		w.sql(" FROM ").ident(half.table)
		w.inRegion(d, r)
	}
	w.sql(") AS ").ident("t").sql(" GROUP BY ").idents(key...).sql(" HAVING ")
	for i := range d.Measures {
		if i > 0 {
			w.sql(" OR ")
		}
		w.sql(s.differ(w.quote(counter[i]), w.quote(recount[i])))
	}
	if limit > 0 {
		w.sql(" LIMIT ", strconv.Itoa(limit))
	}
}
