package main

import (
	"context"
	"fmt"
	"strings"

	"entgo.io/ent/dialect"

	"github.com/entcounter/entcounter/bench/files"
	"github.com/entcounter/entcounter/bench/plain"
)

// triggers update counter rows in the database.
type triggers struct{ counterTable }

func (triggers) alone() bool { return true }

func (triggers) connect(drv dialect.Driver) files.Client {
	return plain.NewClient(plain.Driver(drv)).Files()
}

func (w triggers) create(ctx context.Context, s files.Session) error {
	if err := w.counterTable.create(ctx, s); err != nil {
		return err
	}
	statements := w.forRows()
	if w.dialect == dialect.Postgres {
		statements = w.forStatements()
	}
	for _, statement := range statements {
		if _, err := s.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// forRows writes triggers that run once for each row: MySQL, MariaDB and SQLite have no others.
func (w triggers) forRows() []string {
	add := func(image, sign string) string {
		set := fmt.Sprintf("n = n %s 1", sign)
		if w.sums {
			set += fmt.Sprintf(", bytes = bytes %s %s.size", sign, image)
		}
		return fmt.Sprintf("UPDATE file_counts SET %s WHERE dataset_id = %[2]s.dataset_id AND status = %[2]s.status AND slot = 0;", set, image)
	}
	changed := "NOT (OLD.dataset_id = NEW.dataset_id AND OLD.status = NEW.status"
	if w.sums {
		changed += " AND OLD.size = NEW.size"
	}
	changed += ")"
	update := fmt.Sprintf(" BEGIN IF %s THEN %s %s END IF; END", changed, add("OLD", "-"), add("NEW", "+"))
	if w.dialect == dialect.SQLite {
		update = fmt.Sprintf(" WHEN %s BEGIN %s %s END", changed, add("OLD", "-"), add("NEW", "+"))
	}
	return []string{
		"CREATE TRIGGER files_inserted AFTER INSERT ON files FOR EACH ROW BEGIN " + add("NEW", "+") + " END",
		"CREATE TRIGGER files_deleted AFTER DELETE ON files FOR EACH ROW BEGIN " + add("OLD", "-") + " END",
		"CREATE TRIGGER files_updated AFTER UPDATE ON files FOR EACH ROW" + update,
	}
}

// forStatements writes triggers of PostgreSQL that run once for each statement, on the rows that it has changed.
func (w triggers) forStatements() []string {
	var statements []string
	for _, t := range []struct{ event, referencing, sources string }{
		{"INSERT", "NEW TABLE AS after", "+after"},
		{"DELETE", "OLD TABLE AS before", "-before"},
		{"UPDATE", "OLD TABLE AS before NEW TABLE AS after", "-before +after"},
	} {
		var images []string
		for _, source := range strings.Fields(t.sources) {
			images = append(images, fmt.Sprintf("SELECT dataset_id, status, %[1]s1 AS n, %[2]s AS bytes FROM %[3]s",
				source[:1], w.bytes(source[:1]+"size"), source[1:]))
		}
		name := "count_" + strings.ToLower(t.event)
		statements = append(statements,
			"CREATE FUNCTION "+name+"() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"+
				" INSERT INTO file_counts AS c (dataset_id, status, slot, n, bytes)"+
				" SELECT dataset_id, status, 0, SUM(n), SUM(bytes) FROM ("+strings.Join(images, " UNION ALL ")+") d"+
				" GROUP BY dataset_id, status HAVING SUM(n) <> 0 OR SUM(bytes) <> 0 ORDER BY dataset_id, status"+
				" ON CONFLICT (dataset_id, status, slot) DO UPDATE SET n = c.n + EXCLUDED.n, bytes = c.bytes + EXCLUDED.bytes;"+
				" RETURN NULL; END $$",
			"CREATE TRIGGER "+name+" AFTER "+t.event+" ON files REFERENCING "+t.referencing+
				" FOR EACH STATEMENT EXECUTE FUNCTION "+name+"()")
	}
	return statements
}
