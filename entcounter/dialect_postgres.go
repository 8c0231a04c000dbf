package entcounter

import (
	stdsql "database/sql"

	"entgo.io/ent/dialect"
	"entgo.io/ent/schema/field"
)

// postgresSQL writes SQL for PostgreSQL ≥ 13.
type postgresSQL struct{}

func (postgresSQL) name() string { return dialect.Postgres }

// now is the time of the statement, not that of the start of the transaction.
func (postgresSQL) now() string { return "clock_timestamp()" }

// timeText leaves a timestamptz alone: it is an instant for every driver.
func (postgresSQL) timeText(expr string) string { return expr }

func (postgresSQL) age(expr string) string {
	return "CAST(EXTRACT(EPOCH FROM clock_timestamp() - " + expr + ") * 1000000 AS BIGINT)"
}

// sum brings the numeric that SUM yields back to BIGINT, or fails.
func (postgresSQL) sum(expr string) string { return "CAST(SUM(" + expr + ") AS BIGINT)" }

func (postgresSQL) sumWith(value, column string, part func(int) string) ([]string, string) {
	parts, sum := sumOfSums(value, column, part)
	return parts, "CAST(" + sum + " AS BIGINT)"
}

// anyOf has no MIN for all types.
func (postgresSQL) anyOf(expr string, t field.Type) string {
	switch {
	case t.Integer(), t == field.TypeString, t == field.TypeEnum:
		return "MIN(" + expr + ")"
	case t == field.TypeBool:
		return "BOOL_OR(" + expr + ")"
	}
	return "(ARRAY_AGG(" + expr + "))[1]"
}

func (postgresSQL) later(a, b string) string { return "GREATEST(" + a + ", " + b + ")" }

func (postgresSQL) difference(a, b string) string {
	return "CAST(SUM(" + a + ") - SUM(" + b + ") AS BIGINT)"
}

func (postgresSQL) differ(a, b string) string { return "SUM(" + a + ") <> SUM(" + b + ")" }

func (postgresSQL) outOfRange(expr string) string { return sumOutOfRange(expr) }

func (postgresSQL) integer(expr string) string { return "CAST(ROUND(" + expr + ") AS BIGINT)" }

func (postgresSQL) options(level stdsql.IsolationLevel) *stdsql.TxOptions {
	return &stdsql.TxOptions{Isolation: level}
}

func (postgresSQL) createLocks(w *writer, counter string) {
	insertLocks(w, counter)
	w.sql(" ON CONFLICT DO NOTHING")
}

func (postgresSQL) indexes(w *writer, table string) {
	w.sql("SELECT c.relname, a.attname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid" +
		" JOIN pg_am AS m ON m.oid = c.relam AND m.amname = 'btree'" +
		" CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, n)" +
		" LEFT JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum" +
		" WHERE i.indisvalid AND i.indpred IS NULL AND k.n <= i.indnkeyatts AND i.indrelid = to_regclass(").arg(w.quote(table)).
		sql(") ORDER BY c.relname, k.n")
}

func (postgresSQL) tryLock(w *writer, counter, operation string) {
	selectFreeLock(w, counter, operation)
}

func (s postgresSQL) pause(w *writer, counter string) {
	insertPause(w, s, counter)
	w.sql(" ON CONFLICT DO NOTHING")
}

func (postgresSQL) garbage(w *writer, d *Definition) {
	w.sql("SELECT CAST(COALESCE(SUM(n_dead_tup), 0) AS BIGINT) FROM pg_catalog.pg_stat_all_tables WHERE relid IN (CAST(").
		arg(w.quote(d.Table)).sql(" AS regclass), CAST(").arg(w.quote(d.Journal)).sql(" AS regclass))")
}

func (postgresSQL) draw(w *writer, d *SequenceDefinition, scope []any, n int64) {
	insertOrAdd(w, d, scope, n)
}

// fold deletes what it claims and adds up what it deletes. All parts of the
// statement work on one snapshot, which is taken under the fold lock.
func (s postgresSQL) fold(w *writer, d *Definition, part journalPart) {
	id := w.quote(ColumnJournalID)
	w.sql("WITH ").ident("claimed").sql(" AS (DELETE FROM ").ident(d.Journal).
		sql(" WHERE ", id, " = ANY(ARRAY(SELECT ", id, " FROM ").ident(d.Journal)
	part.oldest(w, d).sql(" FOR UPDATE SKIP LOCKED)) RETURNING *), ").ident("folded").sql(" AS (")
	insertCounters(w, d)
	w.sql("SELECT ").idents(d.keyNames()...)
	for _, m := range d.Measures {
		w.sql(", ")
		if part.only == nil {
			w.sql(s.sum(w.quote(m.Delta)))
			continue
		}
		// A sum that fits together with the counter row, if not by itself, is added below.
		w.sql("CASE WHEN EXISTS (SELECT 1 FROM ").ident(d.Table).sql(" WHERE ").equals(d.keyNames(), part.only).
			sql(") THEN 0 ELSE ", s.sum(w.quote(m.Delta)), " END")
	}
	w.sql(", MAX(").ident(ColumnInsertedAt).sql(") FROM ").ident("claimed").
		sql(" GROUP BY ").idents(d.keyNames()...).sql(" ORDER BY ").idents(d.keyNames()...).
		sql(" ON CONFLICT (").idents(d.keyNames()...).sql(") DO UPDATE SET ")
	for _, m := range d.Measures {
		name := w.quote("c") + "." + w.quote(m.Name)
		w.ident(m.Name).sql(" = ")
		if part.only == nil {
			w.sql(name, " + excluded.").ident(m.Name).sql(", ")
		} else {
			w.sql("CAST(", name, " + (SELECT SUM(").ident(m.Delta).sql(") FROM ").ident("claimed").sql(") AS BIGINT), ")
		}
	}
	w.ident(ColumnUpdatedAt).sql(" = GREATEST(").ident("c").sql(".").ident(ColumnUpdatedAt).
		sql(", excluded.").ident(ColumnUpdatedAt).sql(") RETURNING 1) SELECT (SELECT COUNT(*) FROM ").ident("claimed").
		sql("), (SELECT COUNT(*) FROM ").ident("folded").sql("), (SELECT COALESCE(MAX(").ident("n").sql("), 0) FROM (SELECT COUNT(*) AS ").ident("n").
		sql(" FROM ").ident("claimed").sql(" GROUP BY ").idents(d.keyNames()...).sql(") AS ").ident("d").sql(")")
}

var _ foldsAtOnce = postgresSQL{}
