package main

import (
	"context"
	"fmt"
	"strings"

	"entgo.io/ent/dialect"

	"github.com/entcounter/entcounter/bench/files"
)

// counterTable is a table with a row for each key, or several, that are updated in place.
type counterTable struct {
	dialect string
	sums    bool
	slots   int // rows of each key
}

func (t counterTable) create(ctx context.Context, s files.Session) error {
	options := ""
	if t.dialect == dialect.MySQL {
		options = " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" // as ent's tables
	}
	_, err := s.ExecContext(ctx, "CREATE TABLE file_counts (dataset_id BIGINT NOT NULL, status VARCHAR(10) NOT NULL, slot INT NOT NULL,"+
		" n BIGINT NOT NULL, bytes BIGINT NOT NULL, PRIMARY KEY (dataset_id, status, slot))"+options)
	return err
}

// recount makes a row for each slot of each key that the datasets can have, since an UPDATE does not.
func (t counterTable) recount(ctx context.Context, c files.Client) error {
	slots := make([]string, t.slots)
	for i := range slots {
		slots[i] = fmt.Sprintf("SELECT %d AS slot", i)
	}
	statuses := make([]string, len(files.Statuses))
	for i, status := range files.Statuses {
		statuses[i] = fmt.Sprintf("SELECT '%s' AS status", status)
	}
	for _, query := range []string{
		"DELETE FROM file_counts",
		"INSERT INTO file_counts (dataset_id, status, slot, n, bytes)" +
			" SELECT d.id, s.status, l.slot, COALESCE(f.n, 0), COALESCE(f.bytes, 0) FROM datasets d" +
			" CROSS JOIN (" + strings.Join(statuses, " UNION ALL ") + ") s" +
			" CROSS JOIN (" + strings.Join(slots, " UNION ALL ") + ") l" +
			" LEFT JOIN (SELECT dataset_id, status, COUNT(*) AS n, " + t.bytes("SUM(size)") + " AS bytes FROM files GROUP BY dataset_id, status) f" +
			" ON f.dataset_id = d.id AND f.status = s.status AND l.slot = 0",
	} {
		if _, err := c.ExecContext(ctx, query); err != nil {
			return err
		}
	}
	return nil
}

// bytes is the expression where sizes are summed, and zero elsewhere.
func (t counterTable) bytes(expression string) string {
	if t.sums {
		return expression
	}
	return "0"
}

func (t counterTable) read(ctx context.Context, s files.Session, f row) (files.Count, error) {
	columns := "n, " + t.bytes("bytes")
	if t.slots > 1 {
		columns = "COALESCE(SUM(n), 0), " + t.bytes("COALESCE(SUM(bytes), 0)")
	}
	return countOf(ctx, s, rebind(t.dialect, "SELECT "+columns+" FROM file_counts WHERE dataset_id = ? AND status = ?"),
		f.key.Dataset, f.key.Status)
}

func (t counterTable) readAll(ctx context.Context, c files.Client) (map[files.Key]files.Count, error) {
	return countsBy(ctx, c, "SELECT dataset_id, status, SUM(n), "+t.bytes("SUM(bytes)")+" FROM file_counts GROUP BY dataset_id, status")
}
