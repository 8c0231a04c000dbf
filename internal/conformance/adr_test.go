package conformance

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/ent/filecounters"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/testdb"
)

var placeholder = regexp.MustCompile(`\$\d+`)

// bare rids a statement of what only the dialect's spelling makes different.
func bare(query string) string {
	return placeholder.ReplaceAllString(strings.NewReplacer("`", "", `"`, "").Replace(query), "?")
}

// issued are the statements since the last reset, spelled plainly.
func (w *world) issued() []string {
	var all []string
	for _, q := range w.tap.SQL() {
		all = append(all, bare(q))
	}
	w.tap.Reset()
	return all
}

// statements compares the statements since the last reset with those wanted.
func (w *world) statements(what string, want ...string) {
	w.Helper()
	got := w.issued()
	if !slices.Equal(got, want) {
		w.Errorf("%s issued\n\t%s\nwant\n\t%s", what, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// spelled is what statements look like on a kind of database.
type spelled map[testdb.Kind][]string

// imagesInOne is the transition in PostgreSQL, where one statement locks and changes
// rows and returns the difference.
const imagesInOne = "WITH entcounter_before AS (SELECT files.id, files.dataset_id, files.status, files.size FROM files" +
	" WHERE (files.dataset_id = ? AND files.status = ?) AND files.id IN (?, ?) FOR NO KEY UPDATE)," +
	" entcounter_after AS (UPDATE files SET status = ? WHERE (files.id) IN (SELECT id FROM entcounter_before) RETURNING dataset_id, status, size)" +
	" SELECT * FROM (SELECT COUNT(*) FROM entcounter_after) AS n LEFT JOIN" +
	" (SELECT k0, k1, CAST(SUM(m0) AS BIGINT), CAST(SUM(m1) AS BIGINT) FROM (" +
	"SELECT t0.dataset_id AS k0, t0.status AS k1, COUNT(*) AS m0, COALESCE(CAST(SUM(t0.size) AS BIGINT), 0) AS m1 FROM entcounter_after AS t0" +
	" WHERE t0.dataset_id IS NOT NULL AND t0.status IS NOT NULL GROUP BY 1, 2 UNION ALL SELECT k0, k1, -m0 AS m0, -m1 AS m1 FROM (" +
	"SELECT t0.dataset_id AS k0, t0.status AS k1, COUNT(*) AS m0, COALESCE(CAST(SUM(t0.size) AS BIGINT), 0) AS m1 FROM entcounter_before AS t0" +
	" WHERE t0.dataset_id IS NOT NULL AND t0.status IS NOT NULL GROUP BY 1, 2) AS b) AS t" +
	" GROUP BY k0, k1 HAVING SUM(m0) <> 0 OR SUM(m1) <> 0) AS d0 ON TRUE"

// TestWorkedExample is the example of the ADR: dataset 7 has three files of 10,
// 20 and 30 bytes in New, all folded; two of them move to Copied. The numbers are
// the same before and after the next fold, and the statements are as few as the
// ADR says: sums take a locking read of the rows that change.
func TestWorkedExample(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db, nil)
		for _, name := range strings.Fields("1 2 3 4 5 6 7") {
			w.client.Dataset.Create().SetName(name).ExecX(ctx)
		}
		const dataset = 7
		var ids []int
		for _, f := range []struct {
			path string
			size int64
		}{{"a", 10}, {"b", 20}, {"c", 30}} {
			ids = append(ids, w.client.File.Create().SetDatasetID(dataset).SetPath(f.path).SetSize(f.size).SaveX(ctx).ID)
		}
		if _, err := w.client.FileCounters.Fold(ctx); err != nil {
			t.Fatal(err)
		}
		if got := w.journal(ctx); len(got) != 0 {
			t.Fatalf("the journal is not empty after the fold: %v", got)
		}

		w.tap.Reset()
		tx := w.begin(ctx)
		n, err := tx.File.Update().
			Where(file.DatasetID(dataset), file.StatusEQ(file.StatusNew), file.IDIn(ids[:2]...)).
			SetStatus(file.StatusCopied).
			Save(ctx)
		no(t, tx.Commit())
		if err != nil || n != 2 {
			t.Fatalf("moved %d files: %v", n, err)
		}
		where := "WHERE (files.dataset_id = ? AND files.status = ?) AND files.id IN (?, ?)"
		locking := "SELECT files.id, files.dataset_id, files.status, files.size FROM files " + where + " LIMIT 1000"
		update := "UPDATE files SET status = ? WHERE files.id IN (?, ?)"
		journal := func(now string) string {
			return "INSERT INTO file_counter_journal (dataset_id, status, count_delta, bytes_delta, inserted_at) VALUES (?, ?, ?, ?, " +
				now + "), (?, ?, ?, ?, " + now + ")"
		}
		const filled = "INSERT INTO file_counter_journal (dataset_id, status, count_delta, bytes_delta, inserted_at) VALUES (7, 'New', -2, -30, UTC_TIMESTAMP(6)), (7, 'Copied', 2, 30, UTC_TIMESTAMP(6))"
		w.statements("the transition", spelled{
			testdb.SQLite: {
				"BEGIN",
				"UPDATE files SET id = id WHERE FALSE", // becomes the one writer
				locking, update,
				journal("strftime('%Y-%m-%d %H:%M:%f', 'now')"),
				"COMMIT",
			},
			testdb.MariaDB:  {"BEGIN", locking + " FOR UPDATE", update, filled, "COMMIT"},
			testdb.MySQL:    {"BEGIN", locking + " FOR UPDATE", update, filled, "COMMIT"},
			testdb.Postgres: {"BEGIN", imagesInOne, journal("clock_timestamp()"), "COMMIT"},
		}[db.Kind]...)
		if got, want := w.journal(ctx), []string{"7 New -2 -30", "7 Copied +2 +30"}; !slices.Equal(got, want) {
			t.Errorf("journalled %q, want %q", got, want)
		}

		numbers := func(pending int64) {
			t.Helper()
			for status, want := range map[file.Status][3]int64{
				file.StatusNew: {1, 30, pending}, file.StatusCopied: {2, 30, pending}, file.StatusFailed: {},
			} {
				w.tap.Reset()
				got, err := w.client.FileCounters.Read(ctx, filecounters.Key{DatasetID: dataset, Status: status})
				if err != nil {
					t.Fatal(err)
				}
				if [3]int64{got.Count, got.Bytes, got.Pending} != want {
					t.Errorf("%s reads as %+v, want count, bytes, pending %v", status, got, want)
				}
				if got.UpdatedAt.IsZero() != (want == [3]int64{}) {
					t.Errorf("%s was updated at %v", status, got.UpdatedAt)
				}
				if issued := w.issued(); len(issued) != 1 {
					t.Errorf("a read took several statements: %q", issued)
				}
			}
			w.exact(ctx)
		}
		numbers(1)

		w.tap.Reset()
		folded, err := w.client.FileCounters.Fold(ctx)
		if err != nil || folded != (entcounter.Folded{Rows: 2, Keys: 2, Deepest: 1, Lag: folded.Lag}) {
			t.Fatalf("folded %+v: %v", folded, err)
		}
		lag := "SELECT (SELECT" // how old the oldest row is, if there is any
		var verbs []string
		for _, s := range w.issued() {
			words := strings.Fields(s)
			if words = words[:min(3, len(words))]; strings.Join(words[:min(2, len(words))], " ") == lag {
				words = words[:2]
			}
			verbs = append(verbs, strings.Join(words, " "))
		}
		lock, upsert, remove := "UPDATE counter_locks SET", "INSERT INTO file_counters", "DELETE FROM file_counter_journal"
		want := spelled{
			testdb.SQLite:   {lag, "BEGIN", lock, "SELECT id, dataset_id,", upsert, remove, lock, "COMMIT"},
			testdb.MariaDB:  {lag, "BEGIN READ COMMITTED", lock, "SELECT id FROM", "SELECT id, dataset_id,", upsert, "DELETE j FROM", lock, "COMMIT"},
			testdb.MySQL:    {lag, "BEGIN READ COMMITTED", lock, "SELECT id FROM", "SELECT id, dataset_id,", upsert, "DELETE j FROM", lock, "COMMIT"},
			testdb.Postgres: {lag, "BEGIN READ COMMITTED", lock, "WITH claimed AS", lock, "COMMIT"},
		}[db.Kind]
		if !slices.Equal(verbs, want) {
			t.Errorf("the fold issued %q, want %q", verbs, want)
		}
		numbers(0)
		var count, bytes int64
		w.scan("SELECT `count`, `bytes` FROM `file_counters` WHERE `dataset_id` = 7 AND `status` = 'New'", &count, &bytes)
		if count != 1 || bytes != 30 {
			t.Errorf("the folded row of New holds %d, %d", count, bytes)
		}
	})
}
