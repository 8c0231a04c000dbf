package entcounter

import (
	stdsql "database/sql"
	"strconv"

	"entgo.io/ent/dialect"
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

func (sqliteSQL) integer() string { return "INTEGER" }

// sum fails when integers overflow.
func (sqliteSQL) sum(expr string) string { return "SUM(" + expr + ")" }

// options ask for no level: every transaction is serializable, and drivers
// differ in whether they can be told so.
func (sqliteSQL) options(stdsql.IsolationLevel) *stdsql.TxOptions { return nil }

func (sqliteSQL) createLocks(w *writer, counter string) {
	insertLocks(w, counter)
	w.sql(" ON CONFLICT DO NOTHING")
}

func (s sqliteSQL) pause(w *writer, counter string) {
	insertPause(w, s, counter)
	w.sql(" ON CONFLICT DO NOTHING")
}

func (sqliteSQL) garbage(*writer, *Definition) {}

func (sqliteSQL) draw(w *writer, d *SequenceDefinition, scope []any, n int64) {
	insertOrAdd(w, d, scope, n)
}

func (sqliteSQL) claim(*writer, *Definition, int) {}

func (s sqliteSQL) readJournal(w *writer, d *Definition, _ []int64, batch int) {
	selectJournal(w, s, d)
	w.sql(" ORDER BY ").ident(ColumnJournalID).sql(" LIMIT ", strconv.Itoa(batch))
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
