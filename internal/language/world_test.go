package language

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	entsql "entgo.io/ent/dialect/sql"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/language/ent"
	"github.com/entcounter/entcounter/internal/testdb"
)

func TestMain(m *testing.M) { os.Exit(testdb.Main(m)) }

// world is a database with the schema in it.
type world struct {
	testing.TB
	db     *testdb.Database
	client *ent.Client
}

func newWorld(tb testing.TB, db *testdb.Database) *world {
	tb.Helper()
	w := &world{TB: tb, db: db, client: ent.NewClient(ent.Driver(entsql.OpenDB(db.Dialect, db.DB(tb))))}
	if err := w.client.Schema.Create(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return w
}

// each runs fn in a new database of each kind.
func each(t *testing.T, fn func(ctx context.Context, w *world)) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) { fn(t.Context(), newWorld(t, db)) })
}

// no fails the test if there is an error.
func (w *world) no(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// counts are the measures of a counter's keys. Keys of which nothing is counted are
// left out.
type counts map[string][]int64

func (c counts) add(measures []int64, key ...any) {
	name := fmt.Sprint(key...)
	if c[name] == nil {
		c[name] = make([]int64, len(measures))
	}
	for i, m := range measures {
		c[name][i] += m
	}
}

func (c counts) equal(o counts) bool {
	zero := func(c counts) counts {
		c = maps.Clone(c)
		maps.DeleteFunc(c, func(_ string, m []int64) bool {
			return !slices.ContainsFunc(m, func(n int64) bool { return n != 0 })
		})
		return c
	}
	return maps.EqualFunc(zero(c), zero(o), slices.Equal)
}

func (c counts) String() string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&b, "\n\t%s: %v", key, c[key])
	}
	return b.String()
}

// one is 1 if all conditions hold.
func one(conditions ...bool) int64 { return times(1, conditions...) }

// times is n if all conditions hold.
func times(n int64, conditions ...bool) int64 {
	if slices.Contains(conditions, false) {
		return 0
	}
	return n
}

func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// truth counts the rows in Go.
func truth(ctx context.Context, c *ent.Client) map[string]counts {
	all := make(map[string]counts)
	for _, h := range c.Counters() {
		all[h.Name()] = make(counts)
	}
	country := func(u *ent.User) (string, bool) {
		if u == nil || u.Edges.Country == nil {
			return "", false
		}
		return u.Edges.Country.Code, true
	}
	for _, p := range must(c.Parcel.Query().All(ctx)) {
		if p.ProjectID != 0 {
			all["Stage"].add([]int64{1, p.Weight}, "Parcel", p.ProjectID, p.Stage)
		}
	}
	pieces := must(c.Piece.Query().
		WithParcel(func(q *ent.ParcelQuery) { q.WithProject() }).
		WithOwner(func(q *ent.UserQuery) { q.WithCountry() }).
		WithReviewer(func(q *ent.UserQuery) { q.WithCountry() }).All(ctx))
	for _, p := range pieces {
		var (
			size    = or(p.Size, 0)
			parcel  = p.Edges.Parcel
			alive   = p.DeletedAt == nil
			kind    = or(p.Kind, "")
			hasKind = kind == "a" || kind == "b"
		)
		if parcel != nil {
			all["Status"].add([]int64{1, size, parcel.Weight}, parcel.Status)
			if parcel.ProjectID != 0 {
				all["Stage"].add([]int64{1, size}, "Piece", parcel.ProjectID, p.Stage)
			}
			if project := parcel.Edges.Project; project != nil && alive {
				all["Project"].add([]int64{1, one(size >= 50), one(p.Published, parcel.Status != "new"), times(size, hasKind)},
					project.ID, project.State, or(p.Kind, "none"))
			}
		}
		if owner, ok := country(p.Edges.Owner); ok {
			reviewer, ok := country(p.Edges.Reviewer)
			if !ok {
				reviewer = "-"
			}
			var level int64
			if p.Edges.Reviewer != nil {
				level = int64(p.Edges.Reviewer.Level)
			}
			all["Owner"].add([]int64{1, level}, owner, reviewer)
		}
		all["Day"].add([]int64{1, size}, entcounter.Day.Of(p.MadeAt), p.Published)
		hour := "never"
		if p.LocalAt != nil {
			hour = entcounter.Hour.Of(*p.LocalAt)
		}
		all["Period"].add([]int64{1}, entcounter.Month.Of(p.MadeAt), entcounter.Week.Of(p.MadeAt), hour)
		if alive {
			middling := size == 10 || size == 20 || size > 30 && size <= 60
			all["Content"].add([]int64{1, one(p.Published), one(p.ScheduledAt != nil, !p.Published), times(size, middling)}, p.Stage)
		}
		all["Assignee"].add([]int64{1, times(size, p.Stage != "raw")}, or(p.OwnerPiece, 0))
		var cents int64
		if p.Price != nil {
			cents = int64(*p.Price*100 + 0.5)
		}
		all["Price"].add([]int64{cents, one(p.Price != nil)}, p.Stage)
	}
	for _, e := range must(c.Entry.Query().WithTerms().WithFriends().WithTaggings(func(q *ent.TaggingQuery) { q.WithTag() }).All(ctx)) {
		for _, t := range e.Edges.Terms {
			if e.DeletedAt == nil {
				all["Term"].add([]int64{1, int64(e.Words)}, t.ID, e.Status)
			}
		}
		for _, f := range e.Edges.Friends {
			all["Friend"].add([]int64{1}, e.Status, f.Status)
		}
		for _, t := range e.Edges.Taggings {
			all["Tagging"].add([]int64{1, int64(t.Rank)}, t.TagID, e.Status)
			all["TagEntries"].add([]int64{1}, t.Edges.Tag.Name, e.Status)
		}
	}
	for _, n := range must(c.Node.Query().WithParent(func(q *ent.NodeQuery) { q.WithParent() }).All(ctx)) {
		if p := n.Edges.Parent; p != nil {
			grand := "root"
			if p.Edges.Parent != nil {
				grand = p.Edges.Parent.Color
			}
			all["Tree"].add([]int64{1, times(int64(p.Size), n.Color != "red")}, grand, p.Color, n.Color)
		}
	}
	return all
}

// stored reads all counters.
func stored(ctx context.Context, c *ent.Client) map[string]counts {
	all := make(map[string]counts)
	for _, h := range c.Counters() {
		all[h.Name()] = make(counts)
	}
	for _, n := range must(c.StageCounters.Query().All(ctx)) {
		all["Stage"].add([]int64{n.Count, n.Total}, string(n.Entity), n.ProjectID, n.Stage)
	}
	for _, n := range must(c.StatusCounters.Query().All(ctx)) {
		all["Status"].add([]int64{n.Count, n.Bytes, n.Weight}, n.ParcelStatus)
	}
	for _, n := range must(c.ProjectCounters.Query().All(ctx)) {
		all["Project"].add([]int64{n.Total, n.Large, n.Shown, n.Bytes}, n.ProjectID, n.ParcelProjectState, n.Kind)
	}
	for _, n := range must(c.OwnerCounters.Query().All(ctx)) {
		all["Owner"].add([]int64{n.Count, n.Levels}, n.OwnerCountry, n.ReviewerCountry)
	}
	for _, n := range must(c.DayCounters.Query().All(ctx)) {
		all["Day"].add([]int64{n.Count, n.Bytes}, n.Day, n.Published)
	}
	for _, n := range must(c.PeriodCounters.Query().All(ctx)) {
		all["Period"].add([]int64{n.Count}, n.Month, n.Week, n.Hour)
	}
	for _, n := range must(c.ContentCounters.Query().All(ctx)) {
		all["Content"].add([]int64{n.Total, n.Published, n.Scheduled, n.Middling}, n.Stage)
	}
	for _, n := range must(c.AssigneeCounters.Query().All(ctx)) {
		all["Assignee"].add([]int64{n.Count, n.Bytes}, n.OwnerPiece)
	}
	for _, n := range must(c.PriceCounters.Query().All(ctx)) {
		all["Price"].add([]int64{n.Cents, n.Priced}, n.Stage)
	}
	for _, n := range must(c.TermCounters.Query().All(ctx)) {
		all["Term"].add([]int64{n.Count, n.Words}, n.TermID, n.Status)
	}
	for _, n := range must(c.FriendCounters.Query().All(ctx)) {
		all["Friend"].add([]int64{n.Count}, n.Status, n.FriendsStatus)
	}
	for _, n := range must(c.TaggingCounters.Query().All(ctx)) {
		all["Tagging"].add([]int64{n.Count, n.Ranks}, n.TagID, n.EntryStatus)
	}
	for _, n := range must(c.TagEntriesCounters.Query().All(ctx)) {
		all["TagEntries"].add([]int64{n.Count}, n.Name, n.EntriesStatus)
	}
	for _, n := range must(c.TreeCounters.Query().All(ctx)) {
		all["Tree"].add([]int64{n.Count, n.Sizes}, n.GrandColor, n.ParentColor, n.Color)
	}
	return all
}

// differences returns which counters are not what Go counts, or what a recount in the
// database says.
func differences(ctx context.Context, c *ent.Client) string {
	var b strings.Builder
	want, got := truth(ctx, c), stored(ctx, c)
	for _, h := range c.Counters() {
		name := h.Name()
		if !want[name].equal(got[name]) {
			fmt.Fprintf(&b, "counter %s\n got %v\nwant %v\n", name, got[name], want[name])
		}
		err := h.Verify(ctx, nil, func(func(...any) error) error { return fmt.Errorf("recount differs") })
		if err != nil {
			fmt.Fprintf(&b, "counter %s: %v\n", name, err)
		}
	}
	return b.String()
}

// exact fails the test if a counter is wrong.
func (w *world) exact(ctx context.Context, what string) {
	w.Helper()
	if d := differences(ctx, w.client); d != "" {
		w.Fatalf("%s: %s", what, d)
	}
}

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
