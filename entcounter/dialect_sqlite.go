package entcounter

import (
	stdsql "database/sql"

	"entgo.io/ent/dialect"
	"entgo.io/ent/schema/field"
)

// sqliteSQL writes SQL for SQLite ≥ 3.35. It has one writer at a time: a
// transaction that has written a lock row has locked everybody else out.
type sqliteSQL struct{}

func (sqliteSQL) name() string { return dialect.SQLite }

// now is text, like every time in SQLite, of a fixed width: it sorts.
func (sqliteSQL) now() string { return "strftime('%Y-%m-%d %H:%M:%f', 'now')" }

// timeText takes away the declared type, for which drivers parse text.
func (sqliteSQL) timeText(expr string) string { return "CAST(" + expr + " AS TEXT)" }

func (sqliteSQL) age(expr string) string {
	return "CAST((julianday('now') - julianday(" + expr + ")) * 86400000000 AS INTEGER)"
}

// halves are a sum in two parts, high × 2³² + low: where SUM leaves the range of a
// 64-bit integer on the way it fails, and these do not.
type halves struct{ high, low string }

func sumOf(expr string) halves {
	return halvesOf("SUM("+expr+" >> 32)", "SUM("+expr+" & 4294967295)")
}

// halvesOf carries what a low part has beyond 32 bits.
func halvesOf(high, low string) halves {
	return halves{"(" + high + " + (" + low + " >> 32))", "(" + low + " & 4294967295)"}
}

// value is an integer, or a float where that is out of range, which no destination
// for integers takes.
func (h halves) value() string { return h.high + " * 4294967296 + " + h.low }

func (sqliteSQL) sum(expr string) string { return sumOf(expr).value() }

func (sqliteSQL) sumWith(value, column string, part func(int) string) ([]string, string) {
	high := "COALESCE(" + value + " >> 32, 0) + COALESCE(" + part(0) + ", 0)"
	low := "(COALESCE(" + value + " & 4294967295, 0) + COALESCE(" + part(1) + ", 0))"
	return []string{"SUM(" + column + " >> 32)", "SUM(" + column + " & 4294967295)"}, halvesOf(high, low).value()
}

func (sqliteSQL) anyOf(expr string, _ field.Type) string { return "MIN(" + expr + ")" }

func (sqliteSQL) later(a, b string) string { return "MAX(" + a + ", " + b + ")" }

func (sqliteSQL) difference(a, b string) string {
	x, y := sumOf(a), sumOf(b)
	return "(" + x.high + " - " + y.high + ") * 4294967296 + (" + x.low + " - " + y.low + ")"
}

func (sqliteSQL) differ(a, b string) string {
	x, y := sumOf(a), sumOf(b)
	return "(" + x.high + " <> " + y.high + " OR " + x.low + " <> " + y.low + ")"
}

func (sqliteSQL) outOfRange(expr string) string {
	return sumOf(expr).high + " NOT BETWEEN -2147483648 AND 2147483647"
}

// integer fails, by an abs that does so, where a CAST alone would yield the end of the
// range.
func (sqliteSQL) integer(expr string) string {
	return "(CASE WHEN abs(ROUND(" + expr + ")) >= 9223372036854775808.0 THEN abs(-9223372036854775807 - (" + expr + " <> 0)) ELSE CAST(ROUND(" + expr + ") AS INTEGER) END)"
}

// options ask for no level: every transaction is serializable, and drivers
// differ in whether they can be told so.
func (sqliteSQL) options(stdsql.IsolationLevel) *stdsql.TxOptions { return nil }

func (sqliteSQL) createLocks(w *writer, counter string) {
	insertLocks(w, counter)
	w.sql(" ON CONFLICT DO NOTHING")
}

func (sqliteSQL) indexes(w *writer, table string) {
	w.sql("SELECT l.name, i.name FROM pragma_index_list(").arg(table).
		sql(") AS l JOIN pragma_index_info(l.name) AS i WHERE l.partial = 0 ORDER BY l.name, i.seqno")
}

func (sqliteSQL) tryLock(*writer, string, string) {}

func (s sqliteSQL) pause(w *writer, counter string) {
	insertPause(w, s, counter)
	w.sql(" ON CONFLICT DO NOTHING")
}

func (sqliteSQL) garbage(*writer, *Definition) {}

func (sqliteSQL) draw(w *writer, d *SequenceDefinition, scope []any, n int64) {
	insertOrAdd(w, d, scope, n)
}

func (sqliteSQL) claim(*writer, *Definition, journalPart) {}

func (s sqliteSQL) readJournal(w *writer, d *Definition, _ []int64, part journalPart) {
	selectJournal(w, s, d)
	part.oldest(w, d)
}

// upsert adds by SUM: where + would turn an integer that overflows into a float
// and store it, SUM fails.
func (sqliteSQL) upsert(w *writer, d *Definition, rows []foldedRow) {
	insertCounters(w, d)
	w.sql("VALUES ").rows(rows).sql(" ON CONFLICT (").idents(d.keyNames()...).sql(") DO UPDATE SET ")
	for _, m := range d.Measures {
		name := w.quote(m.Name)
		w.sql(name, " = (SELECT SUM(`v`) FROM (SELECT `c`.", name, " AS `v` UNION ALL SELECT excluded.", name, ")), ")
	}
	w.ident(ColumnUpdatedAt).sql(" = MAX(").ident("c").sql(".").ident(ColumnUpdatedAt).
		sql(", excluded.").ident(ColumnUpdatedAt).sql(")")
}

func (sqliteSQL) deleteJournal(w *writer, d *Definition, ids []int64) {
	w.sql("DELETE FROM ").ident(d.Journal).sql(" WHERE ").ident(ColumnJournalID).sql(" IN ").ids(ids)
}

var _ foldsBySteps = sqliteSQL{}
