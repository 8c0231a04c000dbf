package entcounter

import (
	stdsql "database/sql"
	"strconv"

	"entgo.io/ent/dialect"
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

func (postgresSQL) integer() string { return "BIGINT" }

// sum brings the numeric that SUM yields back to BIGINT, or fails.
func (postgresSQL) sum(expr string) string { return "CAST(SUM(" + expr + ") AS BIGINT)" }

func (postgresSQL) options(level stdsql.IsolationLevel) *stdsql.TxOptions {
	return &stdsql.TxOptions{Isolation: level}
}

func (postgresSQL) createLocks(w *writer, counter string) {
	insertLocks(w, counter)
	w.sql(" ON CONFLICT DO NOTHING")
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
func (s postgresSQL) fold(w *writer, d *Definition, batch int) {
	id := w.quote(ColumnJournalID)
	w.sql("WITH ").ident("claimed").sql(" AS (DELETE FROM ").ident(d.Journal).
		sql(" WHERE ", id, " = ANY(ARRAY(SELECT ", id, " FROM ").ident(d.Journal).
		sql(" ORDER BY ", id, " LIMIT ", strconv.Itoa(batch), " FOR UPDATE SKIP LOCKED)) RETURNING *), ").ident("folded").sql(" AS (")
	insertCounters(w, d)
	w.sql("SELECT ").idents(d.keyNames()...)
	for _, m := range d.Measures {
		w.sql(", ", s.sum(w.quote(m.Delta)))
	}
	w.sql(", MAX(").ident(ColumnInsertedAt).sql(") FROM ").ident("claimed").
		sql(" GROUP BY ").idents(d.keyNames()...).sql(" ORDER BY ").idents(d.keyNames()...).
		sql(" ON CONFLICT (").idents(d.keyNames()...).sql(") DO UPDATE SET ")
	for _, m := range d.Measures {
		w.ident(m.Name).sql(" = ").ident("c").sql(".").ident(m.Name).sql(" + excluded.").ident(m.Name).sql(", ")
	}
	w.ident(ColumnUpdatedAt).sql(" = GREATEST(").ident("c").sql(".").ident(ColumnUpdatedAt).
		sql(", excluded.").ident(ColumnUpdatedAt).sql(") RETURNING 1) SELECT (SELECT COUNT(*) FROM ").ident("claimed").
		sql("), (SELECT COUNT(*) FROM ").ident("folded").sql(")")
}

var _ foldsAtOnce = postgresSQL{}
