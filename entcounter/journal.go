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
	columns := make([]string, 0, len(d.Key)+len(d.Measures)+1)
	for _, c := range d.Key {
		columns = append(columns, c.Name)
	}
	for _, m := range d.Measures {
		columns = append(columns, m.Delta)
	}
	columns = append(columns, ColumnInsertedAt)
	now := sql.Raw(nowExpr(dialectName))
	for chunk := range slices.Chunk(deltas, maxParameters/len(columns)) {
		insert := sql.Dialect(dialectName).Insert(d.Journal).Columns(columns...)
		for _, delta := range chunk {
			values := make([]any, 0, len(columns))
			values = append(values, delta.Key...)
			for _, m := range delta.Measures {
				values = append(values, m)
			}
			insert.Values(append(values, now)...)
		}
		query, args := insert.Query()
		if err := ex.Exec(ctx, query, args, nil); err != nil {
			return fmt.Errorf("entcounter: journalling counter %s: %w", d.Name, err)
		}
	}
	return nil
}
