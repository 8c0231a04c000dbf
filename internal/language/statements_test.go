package language

import (
	"context"
	"slices"
	"strings"
	"testing"

	entsql "entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/internal/conformance/tap"
	"github.com/entcounter/entcounter/internal/language/ent"
	"github.com/entcounter/entcounter/internal/language/ent/entry"
	"github.com/entcounter/entcounter/internal/language/ent/parcel"
	"github.com/entcounter/entcounter/internal/language/ent/project"
	"github.com/entcounter/entcounter/internal/testdb"
)

// all is the same on every database.
func all(issued string) map[testdb.Kind]string {
	want := make(map[testdb.Kind]string)
	for _, kind := range testdb.Kinds {
		want[kind] = issued
	}
	return want
}

// TestStatements is the table of the documentation for counters over edges and of
// pairs: which statements each kind of mutation issues. In PostgreSQL a SELECT of nothing
// asks for the isolation level, once for each transaction.
func TestStatements(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		w := newWorld(t, db)
		pool, watch := tap.Open(t, db, nil)
		c := ent.NewClient(ent.Driver(entsql.OpenDB(db.Dialect, pool)))
		pr := c.Project.Create().SetName("p").SaveX(ctx)
		p := c.Parcel.Create().SetProject(pr).SetWeight(3).SaveX(ctx)
		c.Piece.Create().SetParcel(p).SetSize(10).SetMadeAt(noon).SaveX(ctx)
		x := c.Term.Create().SetName("x").SaveX(ctx)
		e := c.Entry.Create().AddTerms(x).SetWords(7).SaveX(ctx)
		y := c.Term.Create().SetName("y").SaveX(ctx)
		for _, tt := range []struct {
			name string
			run  func(ctx context.Context) error
			want map[testdb.Kind]string
		}{
			{"a term's name, by which nothing is counted", func(ctx context.Context) error { return c.Term.Update().SetName("z").Exec(ctx) }, all("UPDATE terms")},
			{"an entry that is counted by its terms", func(ctx context.Context) error {
				return c.Entry.Update().Where(entry.ID(e.ID)).SetStatus(entry.StatusPublished).Exec(ctx)
			}, map[testdb.Kind]string{
				testdb.SQLite:   "BEGIN, BECOME WRITER entries, SELECT entries, SELECT entry_terms, SELECT entry_friends, SELECT entry_friends, SELECT taggings, SELECT taggings, UPDATE entries, SELECT entry_terms, SELECT entry_friends, SELECT entry_friends, SELECT taggings, SELECT taggings, INSERT term_counter_journal, COMMIT",
				testdb.MariaDB:  "BEGIN, LOCK entries, LOCK entry_terms, LOCK entry_friends, LOCK entry_friends, LOCK taggings, LOCK taggings, UPDATE entries, LOCK entry_terms, LOCK entry_friends, LOCK entry_friends, LOCK taggings, LOCK taggings, INSERT term_counter_journal, COMMIT",
				testdb.MySQL:    "BEGIN, LOCK entries, LOCK entry_terms, LOCK entry_friends, LOCK entry_friends, LOCK taggings, LOCK taggings, UPDATE entries, LOCK entry_terms, LOCK entry_friends, LOCK entry_friends, LOCK taggings, LOCK taggings, INSERT term_counter_journal, COMMIT",
				testdb.Postgres: "BEGIN, LOCK entries, SELECT, SELECT entry_terms, LOCK entries, SELECT entry_friends, LOCK entries, SELECT entry_friends, LOCK tags, SELECT taggings, SELECT taggings, UPDATE entries, SELECT entry_terms, LOCK entries, SELECT entry_friends, LOCK entries, SELECT entry_friends, LOCK tags, SELECT taggings, SELECT taggings, INSERT term_counter_journal, COMMIT",
			}},
			{"a term more", func(ctx context.Context) error { return c.Entry.UpdateOneID(e.ID).AddTerms(y).Exec(ctx) }, map[testdb.Kind]string{
				testdb.SQLite:   "BEGIN, BECOME WRITER entries, SELECT entries, SELECT entry_terms, INSERT entry_terms, SELECT entries, SELECT entry_terms, SELECT entry_terms, INSERT term_counter_journal, COMMIT",
				testdb.MariaDB:  "BEGIN, LOCK entries, LOCK entry_terms, INSERT entry_terms, SELECT entries, LOCK entry_terms, LOCK entry_terms, INSERT term_counter_journal, COMMIT",
				testdb.MySQL:    "BEGIN, LOCK entries, LOCK entry_terms, INSERT entry_terms, SELECT entries, LOCK entry_terms, LOCK entry_terms, INSERT term_counter_journal, COMMIT",
				testdb.Postgres: "BEGIN, LOCK entries, LOCK entry_terms, INSERT entry_terms, SELECT entries, LOCK entry_terms, SELECT, LOCK entries, SELECT entry_terms, INSERT term_counter_journal, COMMIT",
			}},
			{"a parcel whose pieces are counted by it", func(ctx context.Context) error {
				return c.Parcel.Update().Where(parcel.ID(p.ID)).SetStatus(parcel.StatusSent).Exec(ctx)
			}, map[testdb.Kind]string{
				testdb.SQLite:   "BEGIN, BECOME WRITER parcels, SELECT parcels, SELECT pieces, SELECT pieces, UPDATE parcels, SELECT pieces, SELECT pieces, INSERT status_counter_journal, COMMIT",
				testdb.MariaDB:  "BEGIN, LOCK parcels, LOCK pieces, LOCK pieces, UPDATE parcels, LOCK pieces, LOCK pieces, INSERT status_counter_journal, COMMIT",
				testdb.MySQL:    "BEGIN, LOCK parcels, LOCK pieces, LOCK pieces, UPDATE parcels, LOCK pieces, LOCK pieces, INSERT status_counter_journal, COMMIT",
				testdb.Postgres: "BEGIN, LOCK parcels, SELECT, SELECT pieces, LOCK projects, SELECT pieces, UPDATE parcels, SELECT pieces, LOCK projects, SELECT pieces, INSERT status_counter_journal, COMMIT",
			}},
			{"a project whose parcels' pieces are counted by it", func(ctx context.Context) error {
				return c.Project.Update().Where(project.ID(pr.ID)).SetState(project.StateClosed).Exec(ctx)
			}, map[testdb.Kind]string{
				testdb.SQLite:   "BEGIN, BECOME WRITER projects, SELECT projects, SELECT pieces, UPDATE projects, SELECT pieces, INSERT project_counter_journal, COMMIT",
				testdb.MariaDB:  "BEGIN, LOCK projects, LOCK pieces, UPDATE projects, LOCK pieces, INSERT project_counter_journal, COMMIT",
				testdb.MySQL:    "BEGIN, LOCK projects, LOCK pieces, UPDATE projects, LOCK pieces, INSERT project_counter_journal, COMMIT",
				testdb.Postgres: "BEGIN, LOCK projects, SELECT, LOCK parcels, SELECT pieces, UPDATE projects, LOCK parcels, SELECT pieces, INSERT project_counter_journal, COMMIT",
			}},
			{"a piece", func(ctx context.Context) error { return c.Piece.Create().SetParcel(p).SetMadeAt(noon).Exec(ctx) }, map[testdb.Kind]string{
				testdb.SQLite:   "BEGIN, INSERT pieces, SELECT pieces, SELECT pieces, SELECT pieces, SELECT pieces, SELECT pieces, SELECT pieces, SELECT pieces, INSERT assignee_counter_journal, INSERT content_counter_journal, INSERT day_counter_journal, INSERT period_counter_journal, INSERT project_counter_journal, INSERT stage_counter_journal, INSERT status_counter_journal, COMMIT",
				testdb.MariaDB:  "BEGIN, INSERT pieces, LOCK pieces, LOCK pieces, LOCK pieces, LOCK pieces, LOCK pieces, LOCK pieces, LOCK pieces, INSERT assignee_counter_journal, INSERT content_counter_journal, INSERT day_counter_journal, INSERT period_counter_journal, INSERT project_counter_journal, INSERT stage_counter_journal, INSERT status_counter_journal, COMMIT",
				testdb.MySQL:    "BEGIN, INSERT pieces, LOCK pieces, LOCK pieces, LOCK pieces, LOCK pieces, LOCK pieces, LOCK pieces, LOCK pieces, INSERT assignee_counter_journal, INSERT content_counter_journal, INSERT day_counter_journal, INSERT period_counter_journal, INSERT project_counter_journal, INSERT stage_counter_journal, INSERT status_counter_journal, COMMIT",
				testdb.Postgres: "BEGIN, INSERT pieces, SELECT, LOCK parcels, SELECT pieces, LOCK parcels, SELECT pieces, LOCK parcels, LOCK projects, SELECT pieces, LOCK users, LOCK countries, LOCK users, LOCK countries, SELECT pieces, SELECT pieces, SELECT pieces, SELECT pieces, INSERT assignee_counter_journal, INSERT content_counter_journal, INSERT day_counter_journal, INSERT period_counter_journal, INSERT project_counter_journal, INSERT stage_counter_journal, INSERT status_counter_journal, COMMIT",
			}},
		} {
			watch.Reset()
			w.no(tt.run(ctx))
			if got := watch.Issued(); !slices.Equal(got, strings.Split(tt.want[db.Kind], ", ")) {
				t.Errorf("%s issued\n\t%s\nwant\n\t%s", tt.name, strings.Join(got, ", "), tt.want[db.Kind])
			}
			w.exact(ctx, tt.name)
		}
	})
}
