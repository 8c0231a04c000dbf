package upgrade

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/testdb"
	v1 "github.com/entcounter/entcounter/internal/upgrade/v1/ent"
	v2 "github.com/entcounter/entcounter/internal/upgrade/v2/ent"
	"github.com/entcounter/entcounter/internal/upgrade/v2/ent/filecounters"
	v2migrate "github.com/entcounter/entcounter/internal/upgrade/v2/ent/migrate"
	v3 "github.com/entcounter/entcounter/internal/upgrade/v3/ent"
	v3filecounters "github.com/entcounter/entcounter/internal/upgrade/v3/ent/filecounters"
	v3filekindcounters "github.com/entcounter/entcounter/internal/upgrade/v3/ent/filekindcounters"
	v3migrate "github.com/entcounter/entcounter/internal/upgrade/v3/ent/migrate"
	v4 "github.com/entcounter/entcounter/internal/upgrade/v4/ent"
	v4filecounters "github.com/entcounter/entcounter/internal/upgrade/v4/ent/filecounters"
	v4migrate "github.com/entcounter/entcounter/internal/upgrade/v4/ent/migrate"
)

// built returns a database at v2 with some files and its counter built.
func built(t *testing.T, db *testdb.Database) (*world, *v2.Client) {
	w := newWorld(t, db, "v2", v2migrate.Tables)
	w.fill(2000)
	client := v2.NewClient(v2.Driver(w.driver()))
	_, err := client.FileCounters.Build(w.ctx, entcounter.BuildOptions{})
	no(t, err)
	return w, client
}

// equal compares what a counter says with a query, which has one column of text for the key and one for the measures.
func (w *world) equal(what string, got map[string]string, query string) {
	w.Helper()
	want := w.counts(query)
	if !maps.Equal(got, want) {
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if got[key] != want[key] {
				w.Errorf("%s, %s: %q, want %q", what, key, got[key], want[key])
			}
		}
		w.Errorf("%s: %d keys, want %d", what, len(got), len(want))
	}
}

// text writes columns as one text, with spaces between them.
func (w *world) text(columns ...string) string {
	for i, c := range columns {
		columns[i] = "CAST(" + c + " AS CHAR(20))"
	}
	if w.db.Dialect == dialect.MySQL {
		return "CONCAT_WS(' ', " + strings.Join(columns, ", ") + ")"
	}
	for i, c := range columns {
		columns[i] = "TRIM(" + c + ")"
	}
	return strings.Join(columns, " || ' ' || ")
}

// TestAnotherForm gives a counter another measure, one less, another key column, and one less: a counter of that form
// is built beside the old one, which can be read all the time by instances of either version, and exactly. At the end
// all are compared with SQL.
func TestAnotherForm(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		w, old := built(t, db)
		before := w.start("v2", 3, 2000, writesV2(old))
		forms := []string{"FileLarge", "FileCount", "FileKind", "FileDataset"}
		w.diff("add_forms", v3migrate.Tables)
		for _, name := range forms {
			w.edit("", unbuilt(name))
		}
		w.apply()
		client := v3.NewClient(v3.Driver(w.driver()))
		after := w.start("v3", 3, 2000, writesV3(client))
		w.work(client.Counters())
		readable := func() {
			t.Helper()
			_, err := old.FileCounters.Total(w.ctx, filecounters.Scope{})
			no(t, err)
			_, err = client.FileCounters.Total(w.ctx, v3filecounters.Scope{})
			no(t, err)
			if keys := w.drift(old.Counters()[0]); keys != 0 {
				t.Errorf("%d keys of the old counter differ from a recount", keys)
			}
		}
		for range 3 {
			readable()
			if _, err := client.FileKindCounters.Total(w.ctx, v3filekindcounters.Scope{}); !errors.Is(err, entcounter.ErrNotBuilt) {
				t.Errorf("read of a counter that is not built: %v", err)
			}
			no(t, pause(w.ctx, 20*time.Millisecond))
		}
		before.end()
		handles := make(map[string]*entcounter.Handle)
		for _, h := range client.Counters() {
			handles[h.Name()] = h
		}
		for _, name := range forms {
			_, err := handles[name].Build(w.ctx, entcounter.BuildOptions{ScopeRows: 300})
			no(t, err)
			readable()
		}
		no(t, client.CheckCounters(w.ctx))
		for name, h := range handles {
			if keys := w.drift(h); keys != 0 {
				t.Errorf("%s: %d keys differ from a recount", name, keys)
			}
		}

		after.end()
		got := make(map[string]string)
		for _, c := range old.FileCounters.Query().AllX(w.ctx) {
			if c.Count > 0 {
				got[fmt.Sprint(c.DatasetID, " ", c.Status)] = fmt.Sprint(c.Count, " ", c.Bytes)
			}
		}
		stored := "SELECT " + w.text("dataset_id", "status") + ", " + w.text("COUNT(*)", "SUM(size)") + " FROM files GROUP BY dataset_id, status"
		w.equal("v2", got, stored)

		clear(got)
		for _, c := range client.FileLargeCounters.Query().AllX(w.ctx) {
			if c.Count > 0 {
				got[fmt.Sprint(c.DatasetID, " ", c.Status)] = fmt.Sprint(c.Count, " ", c.Bytes, " ", c.Large)
			}
		}
		w.equal("a measure more", got, "SELECT "+w.text("dataset_id", "status")+", "+
			w.text("COUNT(*)", "SUM(size)", "SUM(CASE WHEN size >= 500 THEN 1 ELSE 0 END)")+" FROM files GROUP BY dataset_id, status")

		clear(got)
		for _, c := range client.FileCountCounters.Query().AllX(w.ctx) {
			if c.Count > 0 {
				got[fmt.Sprint(c.DatasetID, " ", c.Status)] = fmt.Sprint(c.Count)
			}
		}
		w.equal("a measure less", got, "SELECT "+w.text("dataset_id", "status")+", "+w.text("COUNT(*)")+" FROM files GROUP BY dataset_id, status")

		clear(got)
		for _, c := range client.FileKindCounters.Query().AllX(w.ctx) {
			if c.Count > 0 {
				got[fmt.Sprint(c.DatasetID, " ", c.Status, " ", c.Kind)] = fmt.Sprint(c.Count, " ", c.Bytes)
			}
		}
		w.equal("a key column more", got, "SELECT "+w.text("dataset_id", "status", "kind")+", "+
			w.text("COUNT(*)", "SUM(size)")+" FROM files GROUP BY dataset_id, status, kind")

		clear(got)
		for _, c := range client.FileDatasetCounters.Query().AllX(w.ctx) {
			if c.Count > 0 {
				got[fmt.Sprint(c.DatasetID)] = fmt.Sprint(c.Count, " ", c.Bytes)
			}
		}
		w.equal("a key column less", got, "SELECT "+w.text("dataset_id")+", "+w.text("COUNT(*)", "SUM(size)")+" FROM files GROUP BY dataset_id")
	})
}

// renames are the statements that give the counted table and a key column their names of v4, by hand: what diff
// plans is to drop them.
var renames = []string{
	"ALTER TABLE files RENAME TO documents",
	"ALTER TABLE documents RENAME COLUMN dataset_id TO collection_id",
	"ALTER TABLE file_counters RENAME COLUMN dataset_id TO collection_id",
	"ALTER TABLE file_counter_journal RENAME COLUMN dataset_id TO collection_id",
}

// renamed makes the declaration that the counter was built by the new program's, which counts the same.
const renamed = "UPDATE counter_locks SET declaration = REPLACE(REPLACE(declaration, 'dataset_id', 'collection_id'), 'FROM files ', 'FROM documents ')" +
	" WHERE counter_name = 'File' AND operation = 'rebuilt'"

// TestRename renames the counted table and a key column while no program runs. The counts stay, with what is not
// folded, and can be read at once.
func TestRename(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		w, old := built(t, db)
		before := w.start("v2", 3, 2000, writesV2(old))
		for before.made.Load() < 100 {
			no(t, pause(w.ctx, time.Millisecond))
		}
		before.end()
		want := make(map[string]string)
		for _, c := range old.FileCounters.Query().AllX(w.ctx) {
			want[fmt.Sprint(c.DatasetID, " ", c.Status)] = fmt.Sprint(c.Count, " ", c.Bytes)
		}
		w.edit("rename", append(renames, renamed)...)
		w.apply()
		if text := w.diff("rest", v4migrate.Tables); strings.Contains(text, "DROP TABLE") || strings.Contains(text, "DROP COLUMN") {
			t.Errorf("diff goes on with\n%s", text)
		}
		w.apply()
		client := v4.NewClient(v4.Driver(w.driver()))
		no(t, client.CheckCounters(w.ctx))
		got := make(map[string]string)
		for _, c := range client.FileCounters.Query().AllX(w.ctx) {
			got[fmt.Sprint(c.CollectionID, " ", c.Status)] = fmt.Sprint(c.Count, " ", c.Bytes)
		}
		if !maps.Equal(got, want) {
			t.Errorf("counts after the renaming: %v, before: %v", got, want)
		}
		w.start("v4", 3, 2000, writesV4(client))
		w.work(client.Counters())
		for range 3 {
			if keys := w.drift(client.Counters()[0]); keys != 0 {
				t.Errorf("%d keys differ from a recount", keys)
			}
			no(t, pause(w.ctx, 50*time.Millisecond))
		}

		// Had nobody said that the declaration means the same, reads would be refused until the counter is built, which
		// finds nothing to correct.
		_, err := w.pool.ExecContext(w.ctx, "UPDATE counter_locks SET declaration = REPLACE(declaration, 'FROM documents ', 'FROM files ') WHERE operation = 'rebuilt'")
		no(t, err)
		client = v4.NewClient(v4.Driver(w.driver()))
		for range 3 {
			if _, err := client.FileCounters.Total(w.ctx, v4filecounters.Scope{}); !errors.Is(err, entcounter.ErrDeclarationChanged) {
				t.Errorf("read before the build: %v", err)
			}
		}
		p, err := client.FileCounters.Build(w.ctx, entcounter.BuildOptions{ScopeRows: 300})
		no(t, err)
		if p.Keys != 0 {
			t.Errorf("built: %+v", p)
		}
		no(t, client.CheckCounters(w.ctx))
	})
}

// TestRetire takes a counter away. Its tables go when the last instance that knows it has stopped; until then its
// writes succeed. Nothing of it is left to a counter of the same name.
func TestRetire(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		w, old := built(t, db)
		before := w.start("v2", 2, 2000, writesV2(old))
		w.start("v1", 2, 2000, writesV1(v1.NewClient(v1.Driver(w.driver()))))
		no(t, pause(w.ctx, 100*time.Millisecond))
		before.end()
		w.edit("retire_file", "DROP TABLE file_counter_journal", "DROP TABLE file_counters", "DELETE FROM counter_locks WHERE counter_name = 'File'")
		w.apply()
		no(t, pause(w.ctx, 100*time.Millisecond))

		w.diff("add_file_again", v2migrate.Tables)
		w.edit("", unbuilt("File"))
		w.apply()
		client := v2.NewClient(v2.Driver(w.driver()))
		if _, err := client.FileCounters.Total(w.ctx, filecounters.Scope{}); !errors.Is(err, entcounter.ErrNotBuilt) {
			t.Errorf("read of the counter of that name: %v", err)
		}
	})
}
