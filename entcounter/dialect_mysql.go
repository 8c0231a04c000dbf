package entcounter

import (
	stdsql "database/sql"
	"database/sql/driver"
	"strconv"
	"strings"

	"entgo.io/ent/dialect"
	"entgo.io/ent/schema/field"
)

// mysqlSQL writes SQL for MySQL ≥ 8.0 and MariaDB ≥ 10.6.
type mysqlSQL struct{}

func (mysqlSQL) name() string { return dialect.MySQL }

func (mysqlSQL) now() string { return "UTC_TIMESTAMP(6)" }

// timeText avoids the driver's parseTime and loc.
func (mysqlSQL) timeText(expr string) string { return "CAST(" + expr + " AS CHAR)" }

func (mysqlSQL) age(expr string) string {
	return "TIMESTAMPDIFF(MICROSECOND, " + expr + ", UTC_TIMESTAMP(6))"
}

// sum is a DECIMAL, which has room for any sum of BIGINTs.
func (mysqlSQL) sum(expr string) string { return "SUM(" + expr + ")" }

func (mysqlSQL) sumWith(value, column string, part func(int) string) ([]string, string) {
	return sumOfSums(value, column, part)
}

func (mysqlSQL) anyOf(expr string, _ field.Type) string { return "MIN(" + expr + ")" }

func (mysqlSQL) later(a, b string) string { return "GREATEST(" + a + ", " + b + ")" }

func (mysqlSQL) difference(a, b string) string { return "SUM(" + a + ") - SUM(" + b + ")" }

func (mysqlSQL) differ(a, b string) string { return "SUM(" + a + ") <> SUM(" + b + ")" }

func (mysqlSQL) outOfRange(expr string) string { return sumOutOfRange(expr) }

// integer is a DECIMAL, for a CAST to an integer type that is out of range yields the
// end of the range.
func (mysqlSQL) integer(expr string) string { return "CAST(ROUND(" + expr + ") AS DECIMAL(65, 0))" }

func (mysqlSQL) options(level stdsql.IsolationLevel) *stdsql.TxOptions {
	return &stdsql.TxOptions{Isolation: level}
}

func (mysqlSQL) createLocks(w *writer, counter string) {
	insertLocks(w, counter)
	// Not INSERT IGNORE, which would hide every other error too.
	w.sql(" ON DUPLICATE KEY UPDATE ").ident("version").sql(" = ").ident(LockTable).sql(".").ident("version")
}

func (mysqlSQL) indexes(w *writer, table string) {
	w.sql("SELECT INDEX_NAME, COLUMN_NAME FROM information_schema.STATISTICS" +
		" WHERE TABLE_SCHEMA = DATABASE() AND INDEX_TYPE = 'BTREE' AND TABLE_NAME = ").arg(table).
		sql(" ORDER BY INDEX_NAME, SEQ_IN_INDEX")
}

func (mysqlSQL) tryLock(w *writer, counter, operation string) {
	selectFreeLock(w, counter, operation)
}

func (s mysqlSQL) pause(w *writer, counter string) {
	insertPause(w, s, counter)
	w.sql(" ON DUPLICATE KEY UPDATE ").ident("version").sql(" = ").ident(LockTable).sql(".").ident("version")
}

// garbage is the length of InnoDB's history list, of the whole server.
func (mysqlSQL) garbage(w *writer, _ *Definition) {
	w.sql("SELECT ").ident("COUNT").sql(" FROM information_schema.INNODB_METRICS WHERE NAME = 'trx_rseg_history_len'")
}

// draw yields the number as the statement's insert id, which is 0 where it inserts:
// neither server has RETURNING for both ways. One statement for both, because an
// UPDATE that finds no row locks the gap, and others' inserts out of it.
func (mysqlSQL) draw(w *writer, d *SequenceDefinition, scope []any, n int64) {
	next := w.quote(ColumnNextNumber)
	w.sql("INSERT INTO ").ident(d.Table)
	insertSequence(w, d, scope)
	w.sql(" ON DUPLICATE KEY UPDATE ", next, " = LAST_INSERT_ID(IF(", next, " = 0, 0, ", next, " + ").arg(n).sql("))")
}

// claim takes record locks only, given READ COMMITTED. The primary key is
// forced: a scan in another order would lock what it sorts.
func (mysqlSQL) claim(w *writer, d *Definition, part journalPart) {
	w.sql("SELECT ").ident(ColumnJournalID).sql(" FROM ").ident(d.Journal).sql(" FORCE INDEX (PRIMARY)")
	part.oldest(w, d).sql(" FOR UPDATE SKIP LOCKED")
}

// readJournal is a plain read: it sees a row only once every snapshot does.
func (s mysqlSQL) readJournal(w *writer, d *Definition, ids []int64, _ journalPart) {
	selectJournal(w, s, d)
	w.sql(" FORCE INDEX (PRIMARY) WHERE ").ident(ColumnJournalID).sql(" IN ").ids(ids)
}

// upsert names the new values by VALUES(), which is deprecated in MySQL: MariaDB
// has no other way.
func (mysqlSQL) upsert(w *writer, d *Definition, rows []foldedRow) {
	w.sql("INSERT INTO ").ident(d.Table).sql(" (").idents(d.counterColumns()...).sql(") VALUES ").rows(rows).
		sql(" ON DUPLICATE KEY UPDATE ")
	for _, m := range d.Measures {
		w.ident(m.Name).sql(" = ").ident(m.Name).sql(" + VALUES(").ident(m.Name).sql("), ")
	}
	w.ident(ColumnUpdatedAt).sql(" = GREATEST(").ident(ColumnUpdatedAt).sql(", VALUES(").ident(ColumnUpdatedAt).sql("))")
}

// deleteJournal looks every id up in the primary key. By a list of ids, or a
// range, the optimisers of both servers read the whole table where it is small,
// whatever the index hint, and then wait for every writer that has not committed.
func (mysqlSQL) deleteJournal(w *writer, d *Definition, ids []int64) {
	list := newWriter(mysqlSQL{}).ids(ids).String()
	w.sql("DELETE ").ident("j").sql(" FROM JSON_TABLE('[", list[1:len(list)-1], "]', '$[*]' COLUMNS (").ident("id").
		sql(" BIGINT PATH '$')) AS ").ident("c").sql(" STRAIGHT_JOIN ").ident(d.Journal).sql(" AS ").ident("j").
		sql(" FORCE INDEX (PRIMARY) ON ").ident("j").sql(".").ident(ColumnJournalID).sql(" = ").ident("c").sql(".").ident("id")
}

var _ foldsBySteps = mysqlSQL{}

// inlined writes the arguments of an INSERT of the product's own into it, if all of
// them are numbers and plain words: the driver would prepare it first, which takes one
// more round trip. Whatever a mode or a character set could read otherwise stays an
// argument, and all others with it.
func inlined(query string, args []any) (string, []any) {
	var b strings.Builder
	n := 0
	for rest := query; ; n++ {
		before, after, found := strings.Cut(rest, "?")
		b.WriteString(before)
		if !found {
			break
		}
		if n == len(args) {
			return query, args // a name has a question mark
		}
		v, err := driver.DefaultParameterConverter.ConvertValue(args[n])
		if err != nil {
			return query, args // the driver may know better
		}
		switch v := v.(type) {
		case nil:
			b.WriteString("NULL")
		case int64:
			b.WriteString(strconv.FormatInt(v, 10))
		case bool:
			if v {
				b.WriteByte('1')
			} else {
				b.WriteByte('0')
			}
		case string:
			if !isPlainWord(v) {
				return query, args
			}
			b.WriteString("'" + v + "'")
		default:
			return query, args
		}
		rest = after
	}
	if n != len(args) {
		return query, args
	}
	return b.String(), []any{}
}

// isPlainWord reports whether a text is the same in every character set and in quotes
// of every mode.
func isPlainWord(s string) bool {
	const longest = 64 // as names and ids are
	return s != "" && len(s) <= longest && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune("-_.:/@ ", r)
	})
}
