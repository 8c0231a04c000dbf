package language

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/language/ent"
	"github.com/entcounter/entcounter/internal/language/ent/assigneecounters"
	"github.com/entcounter/entcounter/internal/language/ent/contentcounters"
	"github.com/entcounter/entcounter/internal/language/ent/daycounters"
	"github.com/entcounter/entcounter/internal/language/ent/entry"
	"github.com/entcounter/entcounter/internal/language/ent/parcel"
	"github.com/entcounter/entcounter/internal/language/ent/piece"
	"github.com/entcounter/entcounter/internal/language/ent/project"
	"github.com/entcounter/entcounter/internal/language/ent/stagecounters"
	"github.com/entcounter/entcounter/internal/testdb"
)

// TestParentMovesItsRows changes a row that others are counted by.
func TestParentMovesItsRows(t *testing.T) {
	each(t, func(ctx context.Context, w *world) {
		c := w.client
		pr := c.Project.Create().SetName("p").SaveX(ctx)
		p := c.Parcel.Create().SetProject(pr).SetWeight(3).SaveX(ctx)
		q := c.Parcel.Create().SetStatus(parcel.StatusDone).SaveX(ctx)
		for i := range 20 {
			c.Piece.Create().SetParcel(p).SetSize(int64(10 * i)).SetMadeAt(noon).SaveX(ctx)
		}
		w.exact(ctx, "create")
		p.Update().SetStatus(parcel.StatusSent).SaveX(ctx)
		w.exact(ctx, "update the parent")
		pr.Update().SetState(project.StateClosed).SaveX(ctx)
		w.exact(ctx, "update the grandparent")
		c.Parcel.Update().AddWeight(2).SaveX(ctx)
		w.exact(ctx, "change what is summed")
		c.Piece.Update().Where(piece.SizeGT(100)).SetParcel(q).SaveX(ctx)
		w.exact(ctx, "move to another parent")
		c.Parcel.UpdateOne(q).SetProject(pr).SaveX(ctx)
		w.exact(ctx, "move the parent")
		c.Project.UpdateOne(pr).RemoveParcels(p).SaveX(ctx)
		w.exact(ctx, "take the parent away from the other side")
		c.Parcel.UpdateOne(p).SetProject(pr).ClearPieces().SaveX(ctx)
		w.exact(ctx, "clear the rows")
		c.Parcel.DeleteOne(q).ExecX(ctx)
		w.exact(ctx, "delete the parent with its rows")
		c.Project.DeleteOne(pr).ExecX(ctx)
		w.exact(ctx, "delete the grandparent")
	})
}

// TestOneDeltaForManyRows has a parent's change journal one row for each key.
func TestOneDeltaForManyRows(t *testing.T) {
	each(t, func(ctx context.Context, w *world) {
		c := w.client
		p := c.Parcel.Create().SaveX(ctx)
		var builders []*ent.PieceCreate
		for range 2500 {
			builders = append(builders, c.Piece.Create().SetParcel(p).SetSize(2).SetMadeAt(noon))
		}
		for len(builders) > 0 {
			c.Piece.CreateBulk(builders[:500]...).SaveX(ctx)
			builders = builders[500:]
		}
		h := c.Counters()
		for _, h := range h {
			for {
				folded, err := h.Fold(ctx)
				w.no(err)
				if folded.Rows == 0 {
					break
				}
			}
		}
		p.Update().SetStatus(parcel.StatusDone).SaveX(ctx)
		w.exact(ctx, "update")
		b, err := c.StatusCounters.Backlog(ctx)
		w.no(err)
		if b.Rows != 2 {
			t.Errorf("%d journal rows for 2500 rows that change from one key to another, want 2", b.Rows)
		}
	})
}

// TestPairsOfAnEdge counts what entries have by assigning, publishing and deleting
// on either side.
func TestPairsOfAnEdge(t *testing.T) {
	each(t, func(ctx context.Context, w *world) {
		c := w.client
		x, y := c.Term.Create().SetName("x").SaveX(ctx), c.Term.Create().SetName("y").SaveX(ctx)
		e := c.Entry.Create().AddTerms(x, y).SetWords(7).SaveX(ctx)
		f := c.Entry.Create().AddTerms(x).AddFriends(e).SaveX(ctx)
		w.exact(ctx, "create with edges")
		e.Update().SetStatus(entry.StatusPublished).SaveX(ctx)
		w.exact(ctx, "publish")
		x.Update().RemoveEntries(f).SaveX(ctx)
		w.exact(ctx, "unassign from the other side")
		y.Update().AddEntries(f).SaveX(ctx)
		w.exact(ctx, "assign from the other side")
		e.Update().SetDeletedAt(noon).AddFriends(f).SaveX(ctx)
		w.exact(ctx, "delete softly")
		e.Update().ClearDeletedAt().SetWords(9).SaveX(ctx)
		w.exact(ctx, "restore")
		tag := c.Tag.Create().SetName("t").SaveX(ctx)
		c.Tagging.Create().SetEntry(e).SetTag(tag).SetRank(5).SaveX(ctx)
		f.Update().AddTags(tag).SaveX(ctx)
		w.exact(ctx, "edge schema")
		tag.Update().SetName("u").SaveX(ctx)
		w.exact(ctx, "rename what pairs are counted by")
		c.Term.DeleteOne(y).ExecX(ctx)
		w.exact(ctx, "delete a term")
		c.Entry.DeleteOne(e).ExecX(ctx)
		w.exact(ctx, "delete an entry")
		c.Tag.DeleteOne(tag).ExecX(ctx)
		w.exact(ctx, "delete a tag")
	})
}

// TestManyPairs creates and changes more pairs at once than a condition may be deep.
func TestManyPairs(t *testing.T) {
	each(t, func(ctx context.Context, w *world) {
		c := w.client
		var terms []int
		for range 6 {
			terms = append(terms, c.Term.Create().SetName("x").SaveX(ctx).ID)
		}
		builders := make([]*ent.EntryCreate, 250)
		for i := range builders {
			builders[i] = c.Entry.Create().AddTermIDs(terms...)
		}
		c.Entry.CreateBulk(builders...).SaveX(ctx)
		w.exact(ctx, "create")
		c.Entry.Update().SetStatus(entry.StatusPublished).SaveX(ctx)
		w.exact(ctx, "publish")
		c.Entry.Update().RemoveTermIDs(terms[0]).SaveX(ctx)
		w.exact(ctx, "unassign")
		c.Entry.Delete().ExecX(ctx)
		w.exact(ctx, "delete")
	})
}

// TestTree counts nodes by their parents and grandparents, where a mutated row has
// all three places.
func TestTree(t *testing.T) {
	each(t, func(ctx context.Context, w *world) {
		c := w.client
		root := c.Node.Create().SetColor("blue").SaveX(ctx)
		a := c.Node.Create().SetParent(root).SaveX(ctx)
		b := c.Node.Create().SetParent(a).SetColor("green").SaveX(ctx)
		d := c.Node.Create().SetParent(b).SaveX(ctx)
		w.exact(ctx, "create")
		c.Node.Update().SetColor("black").AddSize(1).SaveX(ctx)
		w.exact(ctx, "update all")
		b.Update().SetParent(root).SetColor("white").SaveX(ctx)
		w.exact(ctx, "move a subtree")
		root.Update().SetParent(d).SaveX(ctx)
		w.exact(ctx, "close a circle")
		root.Update().ClearParent().ClearChildren().SaveX(ctx)
		w.exact(ctx, "cut")
		c.Node.DeleteOne(b).ExecX(ctx)
		w.exact(ctx, "delete a node that has children")
	})
}

// TestTypesToldApart counts rows of two types in one counter.
func TestTypesToldApart(t *testing.T) {
	each(t, func(ctx context.Context, w *world) {
		c := w.client
		pr := c.Project.Create().SetName("p").SaveX(ctx)
		p := c.Parcel.Create().SetProject(pr).SetWeight(4).SaveX(ctx)
		c.Piece.Create().SetParcel(p).SetSize(6).SetMadeAt(noon).SaveX(ctx)
		for entity, total := range map[stagecounters.Entity]int64{stagecounters.EntityParcel: 4, stagecounters.EntityPiece: 6} {
			n, err := c.StageCounters.Read(ctx, stagecounters.Key{Entity: entity, ProjectID: pr.ID, Stage: stagecounters.StageRaw})
			w.no(err)
			if n.Count != 1 || n.Total != total {
				t.Errorf("%s: %d of %d, want 1 of %d", entity, n.Count, n.Total, total)
			}
		}
		scope := stagecounters.EntityPiece
		_, err := c.StageCounters.Rebuild(ctx, stagecounters.Scope{Entity: &scope})
		w.no(err)
		w.exact(ctx, "rebuild of one type")
	})
}

// TestPeriodsAreThoseOfUTC writes times at the edges of periods from several zones.
func TestPeriodsAreThoseOfUTC(t *testing.T) {
	each(t, func(ctx context.Context, w *world) {
		c := w.client
		kiritimati := time.FixedZone("LINT", 14*3600)
		newfoundland := time.FixedZone("NST", -(3*3600 + 1800))
		for _, at := range []time.Time{
			time.Date(2026, 11, 30, 23, 59, 59, 0, time.UTC),
			time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC),
			time.Date(2026, 12, 1, 0, 0, 0, 0, kiritimati),
			time.Date(2026, 12, 31, 21, 0, 0, 0, newfoundland),
			time.Date(2027, 1, 3, 23, 59, 59, 0, time.UTC), // the last Sunday of ISO year 2026
			time.Date(2027, 1, 4, 0, 0, 0, 0, time.UTC),
			time.Date(2028, 2, 29, 12, 30, 0, 0, kiritimati),
		} {
			c.Piece.Create().SetMadeAt(at).SetLocalAt(at.UTC()).SaveX(ctx)
			w.exact(ctx, at.String())
		}
		c.Piece.Update().SetMadeAt(noon).SaveX(ctx)
		w.exact(ctx, "update")
	})
}

// TestPeriodsInAnotherZone has the server's session and the client in a zone of their
// own, and counts in microseconds at the end of a day.
func TestPeriodsInAnotherZone(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		there := *db
		switch db.Dialect {
		case dialect.MySQL:
			there.DSN = db.WithParams(map[string]string{"loc": "Asia/Karachi", "time_zone": "'+05:00'", "parseTime": "true"})
		case dialect.Postgres:
			there.DSN = db.WithParams(map[string]string{"timezone": "Asia/Karachi"})
		}
		ctx, w, other := t.Context(), newWorld(t, db), newWorld(t, &there)
		karachi := time.FixedZone("PKT", 5*3600)
		for _, at := range []time.Time{
			time.Date(2026, 11, 30, 23, 59, 59, 999_999_000, time.UTC),
			time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC),
			time.Date(2026, 12, 1, 4, 59, 59, 0, karachi), // still November in UTC
			time.Date(2026, 12, 1, 5, 0, 0, 0, karachi),
		} {
			for _, w := range []*world{w, other} {
				w.client.Piece.Create().SetMadeAt(at).ExecX(ctx)
				w.client.Piece.Update().Where(piece.SizeIsNil()).SetSize(1).ExecX(ctx)
			}
			w.exact(ctx, at.String())
			other.exact(ctx, at.String()+", as seen from there")
		}
		_, err := other.client.DayCounters.Rebuild(ctx, daycounters.Scope{})
		w.no(err)
		w.exact(ctx, "a rebuild from there")
	})
}

// TestSoftDelete deletes rows softly and brings them back.
func TestSoftDelete(t *testing.T) {
	each(t, func(ctx context.Context, w *world) {
		c := w.client
		total := func() (n int64) {
			for _, r := range must(c.ContentCounters.Query().All(ctx)) {
				n += r.Total
			}
			return n
		}
		want := func(n int64, what string) {
			w.Helper()
			if got := total(); got != n {
				t.Errorf("%s: %d rows, want %d", what, got, n)
			}
			w.exact(ctx, what)
		}
		p := c.Piece.Create().SetMadeAt(noon).SetSize(10).SaveX(ctx)
		q := c.Piece.Create().SetMadeAt(noon).SetSize(20).SaveX(ctx)
		want(2, "create")
		p.Update().SetDeletedAt(noon).ExecX(ctx)
		want(1, "only the condition's column changes")
		p.Update().SetSize(50).ExecX(ctx)
		want(1, "the size changes meanwhile")
		p.Update().ClearDeletedAt().ExecX(ctx)
		want(2, "restore")
		if n := must(c.ContentCounters.Query().Only(ctx)); n.Middling != 70 {
			t.Errorf("sizes of %d, want 70: the new size of the one that is back", n.Middling)
		}
		p.Update().SetDeletedAt(noon).ExecX(ctx)
		c.Piece.DeleteOne(p).ExecX(ctx)
		want(1, "delete softly, then for good")
		c.Piece.Update().SetDeletedAt(noon).ExecX(ctx)
		c.Piece.Update().ClearDeletedAt().ExecX(ctx)
		want(1, "delete softly and restore by predicate")
		c.Piece.DeleteOne(q).ExecX(ctx)
		want(0, "delete")
	})
}

// TestConditionOfOneMeasure has rows that some measures count and others do not.
func TestConditionOfOneMeasure(t *testing.T) {
	each(t, func(ctx context.Context, w *world) {
		c := w.client
		p := c.Piece.Create().SetMadeAt(noon).SetScheduledAt(noon).SetSize(10).SaveX(ctx)
		read := func() [4]int64 {
			n := must(c.ContentCounters.Read(ctx, contentcounters.Key{Stage: piece.StageRaw}))
			return [4]int64{n.Total, n.Published, n.Scheduled, n.Middling}
		}
		for _, step := range []struct {
			update *ent.PieceUpdateOne
			want   [4]int64
		}{
			{p.Update(), [4]int64{1, 0, 1, 10}},
			{p.Update().SetPublished(true), [4]int64{1, 1, 0, 10}},
			{p.Update().ClearScheduledAt(), [4]int64{1, 1, 0, 10}},
			{p.Update().SetPublished(false), [4]int64{1, 0, 0, 10}},
			{p.Update().SetSize(30), [4]int64{1, 0, 0, 0}},
			{p.Update().AddSize(1), [4]int64{1, 0, 0, 31}},
			{p.Update().ClearSize(), [4]int64{1, 0, 0, 0}},
		} {
			step.update.ExecX(ctx)
			if got := read(); got != step.want {
				t.Errorf("total, published, scheduled and middling are %v, want %v", got, step.want)
			}
			w.exact(ctx, "update")
		}
	})
}

// TestNullCountsUnderItsValue counts rows without a value in the key.
func TestNullCountsUnderItsValue(t *testing.T) {
	each(t, func(ctx context.Context, w *world) {
		c := w.client
		u := c.User.Create().SetName("u").SaveX(ctx)
		p := c.Piece.Create().SetMadeAt(noon).SaveX(ctx)
		for _, step := range []struct {
			update *ent.PieceUpdateOne
			owner  int
		}{{p.Update(), 0}, {p.Update().SetOwner(u), u.ID}, {p.Update().ClearOwner(), 0}, {p.Update().SetOwner(u), u.ID}} {
			step.update.ExecX(ctx)
			n := must(c.AssigneeCounters.Read(ctx, assigneecounters.Key{OwnerPiece: step.owner}))
			if n.Count != 1 {
				t.Errorf("%d rows of owner %d, want 1", n.Count, step.owner)
			}
			w.exact(ctx, "update")
		}
		c.User.DeleteOne(u).ExecX(ctx) // sets NULL
		if n := must(c.AssigneeCounters.Read(ctx, assigneecounters.Key{})); n.Count != 1 {
			t.Errorf("%d rows of nobody, want 1", n.Count)
		}
		w.exact(ctx, "delete the owner")
	})
}

// TestDecimals sums prices in cents.
func TestDecimals(t *testing.T) {
	each(t, func(ctx context.Context, w *world) {
		c := w.client
		var want int64
		for i := range 200 {
			c.Piece.Create().SetMadeAt(noon).SetPrice(float64(i*37%1000) / 100).ExecX(ctx)
			want += int64(i * 37 % 1000)
		}
		if n := must(c.PriceCounters.Query().Only(ctx)); n.Cents != want {
			t.Errorf("%d cents, want %d", n.Cents, want)
		}
		c.Piece.Update().ClearPrice().ExecX(ctx)
		w.exact(ctx, "clear")
	})
}

// TestBeyondRange adds what a counter cannot hold, and what it could not take back.
func TestBeyondRange(t *testing.T) {
	each(t, func(ctx context.Context, w *world) {
		c := w.client
		create := func(size int64, price float64) error {
			return c.Piece.Create().SetMadeAt(noon).SetSize(size).SetPrice(price).Exec(ctx)
		}
		// Whole prices: the column of SQLite is a float.
		for price, fits := range map[float64]bool{1e16: true, 92233720368547744: true, 92233720368547760: false, 1e17: false, 1e30: false} {
			for _, p := range []float64{price, -price} {
				if err := create(0, p); fits != (err == nil) || err != nil && !errors.Is(err, entcounter.ErrOverflow) {
					t.Errorf("a price of %g: %v", p, err)
				}
				c.Piece.Delete().ExecX(ctx)
			}
		}
		if err := create(math.MinInt64, 0); !errors.Is(err, entcounter.ErrOverflow) {
			t.Errorf("the least integer was added: %v", err)
		}
		for _, size := range []int64{-math.MaxInt64, math.MaxInt64, -5} {
			if err := create(size, 1); err != nil {
				t.Errorf("%d: %v", size, err)
			}
			w.exact(ctx, fmt.Sprint("add ", size))
		}
		if err := c.Piece.Update().Where(piece.SizeLT(-5)).SetSize(1).Exec(ctx); !errors.Is(err, entcounter.ErrOverflow) {
			t.Errorf("a change of 2⁶³: %v", err)
		}
		w.exact(ctx, "too far")
		c.Piece.Update().Where(piece.SizeLT(-5)).SetSize(0).ExecX(ctx)
		w.exact(ctx, "from one end")
		c.Piece.Delete().ExecX(ctx)
		w.exact(ctx, "delete")
	})
}

// TestPeriodText holds the texts of periods against their starts.
func TestPeriodText(t *testing.T) {
	at := time.Date(2026, 12, 3, 15, 4, 5, 0, time.FixedZone("", -9*3600)) // the 4th in UTC, a Friday
	for period, want := range map[entcounter.Period]string{
		entcounter.Hour: "2026-12-04T00", entcounter.Day: "2026-12-04", entcounter.Week: "2026-11-30", entcounter.Month: "2026-12",
	} {
		if got := period.Of(at); got != want {
			t.Errorf("%s: %q, want %q", period, got, want)
		}
		start, err := period.Start(want)
		if err != nil || period.Of(start) != want || period.Of(start.Add(-time.Microsecond)) == want {
			t.Errorf("%s starts at %s (%v)", want, start, err)
		}
	}
	if _, err := entcounter.Week.Start("2026-12-01"); err == nil {
		t.Error("a week starts on a Tuesday")
	}
}
