package entcounter

import (
	"context"
	"fmt"
	"slices"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
)

// maxParameters is how many arguments one generated statement has at most. It
// stays below every engine's limit (SQLite: 32,766).
const maxParameters = 16_384

// insertJournal appends deltas to the journal of a counter by INSERT … VALUES
// and nothing else: with its row count known in advance, an InnoDB insert holds
// no table-wide AUTO-INC lock (ADR, Writing). It takes no locks but those of
// the new rows, so it runs at any isolation level. The database's own UTC clock
// sets the time of insertion.
func insertJournal(ctx context.Context, ex dialect.ExecQuerier, dialectName string, d *Definition, deltas []Delta) error {
	for chunk := range slices.Chunk(deltas, maxParameters/len(d.journalColumns())) {
		query, args := journalInsert(dialectName, d, chunk).Query()
		if dialectName == dialect.MySQL {
			query, args = inlined(query, args)
		}
		if err := ex.Exec(ctx, query, args, nil); err != nil {
			return fmt.Errorf("entcounter: journalling counter %s: %w", d.Name, err)
		}
	}
	return nil
}

// journalColumns are the columns of the journal that an insert sets.
func (d *Definition) journalColumns() []string {
	return slices.Concat(d.keyNames(), d.deltaNames(), []string{ColumnInsertedAt})
}

// journalInsert is the statement that insertJournal runs.
func journalInsert(dialectName string, d *Definition, deltas []Delta) *sql.InsertBuilder {
	columns := d.journalColumns()
	insert := sql.Dialect(dialectName).Insert(d.Journal).Columns(columns...)
	now := sql.Raw(nowExpr(dialectName))
	for _, delta := range deltas {
		values := make([]any, 0, len(columns))
		values = append(values, delta.Key...)
		for _, m := range delta.Measures {
			values = append(values, m)
		}
		insert.Values(append(values, now)...)
	}
	return insert
}
