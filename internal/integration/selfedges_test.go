package integration

import (
	"context"
	"testing"

	"entgo.io/ent/dialect"
	"github.com/entcounter/entcounter/internal/integration/ent"
	"github.com/entcounter/entcounter/internal/integration/ent/membership"
	"github.com/entcounter/entcounter/internal/integration/ent/node"
	"github.com/entcounter/entcounter/internal/integration/ent/stop"
)

// An update that makes a node its own parent and clears its children clears the
// parent again, as ent alone does: it is one of the children by then.
func TestNodeMadeItsOwnChild(t *testing.T) {
	with(t, func(ctx context.Context, w *world) {
		create := func() *ent.Node { return must(w.client.Node.Create().SetKind(node.KindLeaf).Save(ctx))(w) }
		n, child, other := create(), create(), create()
		parents := func(want ...int) {
			w.Helper()
			w.exact(ctx)
			for i, id := range []int{n.ID, child.ID, other.ID} {
				got := 0
				if p := must(w.client.Node.Get(ctx, id))(w).ParentID; p != nil {
					got = *p
				}
				if got != want[i] {
					w.Errorf("the parent of node %d is %d, want %d", id, got, want[i])
				}
			}
		}
		no(w, child.Update().SetParent(n).Exec(ctx), other.Update().SetParent(n).Exec(ctx))
		no(w, w.client.Node.UpdateOneID(n.ID).SetParentID(n.ID).ClearChildren().Exec(ctx))
		parents(0, 0, 0)
		no(w, child.Update().SetParent(n).Exec(ctx))
		no(w, w.client.Node.UpdateOneID(n.ID).SetParentID(n.ID).RemoveChildIDs(n.ID).Exec(ctx))
		parents(0, n.ID, 0)
		no(w, w.client.Node.UpdateOneID(n.ID).SetParentID(n.ID).RemoveChildIDs(child.ID).Exec(ctx))
		parents(n.ID, 0, 0)
		no(w, w.client.Node.Update().Where(node.IDIn(n.ID, other.ID)).SetParentID(other.ID).RemoveChildIDs(n.ID).Exec(ctx))
		parents(0, 0, other.ID)
		no(w, w.client.Node.Update().Where(node.IDIn(n.ID, other.ID)).SetParentID(n.ID).ClearChildren().SetSize(3).Exec(ctx))
		parents(0, 0, 0)
	})
}

// More rows than are locked at a time refer to each other by a foreign key without
// a delete action, themselves or those that go with them. They go in one statement,
// where the database checks that at its end.
func TestDeleteOfRowsThatReferToEachOther(t *testing.T) {
	with(t, func(ctx context.Context, w *world) {
		const n = 1100
		ring := func() {
			w.Helper()
			routes := must(w.client.Route.MapCreateBulk(make([]int, n), func(b *ent.RouteCreate, _ int) { b.SetName("r") }).Save(ctx))(w)
			stops := must(w.client.Stop.MapCreateBulk(routes, func(b *ent.StopCreate, i int) { b.SetRoute(routes[i]) }).Save(ctx))(w)
			for i := range []int{0, 1} {
				no(w, stops[i*(n-1)].Update().SetNext(stops[(1-i)*(n-1)]).Exec(ctx))
			}
		}
		gone := func(rows int, err error) {
			w.Helper()
			w.exact(ctx)
			if w.db.Dialect == dialect.MySQL && ent.IsConstraintError(err) {
				// Its servers look at each row by itself, in one statement as well.
				no(w, w.client.Stop.Update().ClearNext().Exec(ctx))
				must(w.client.Route.Delete().Exec(ctx))(w)
				must(w.client.Stop.Delete().Exec(ctx))(w)
				w.exact(ctx)
				return
			}
			if err != nil || rows != n {
				w.Errorf("%d rows were deleted: %v", rows, err)
			}
		}
		ring()
		gone(w.client.Stop.Delete().Where(stop.Length(1)).Exec(ctx))
		must(w.client.Route.Delete().Exec(ctx))(w)
		ring()
		gone(w.client.Route.Delete().Exec(ctx))
		if left := must(w.client.Stop.Query().Count(ctx))(w); left != 0 {
			w.Errorf("%d stops are left", left)
		}
	})
}

// Rows with an id of two columns, more than are locked at a time.
func TestManyCompositeIDs(t *testing.T) {
	with(t, func(ctx context.Context, w *world) {
		const n = 1100
		team := must(w.client.Team.Create().SetName("t").Save(ctx))(w)
		users := must(w.client.User.MapCreateBulk(make([]int, n), func(b *ent.UserCreate, _ int) { b.SetName("u") }).Save(ctx))(w)
		no(w, w.client.Membership.MapCreateBulk(users, func(b *ent.MembershipCreate, i int) { b.SetUser(users[i]).SetTeam(team) }).Exec(ctx))
		w.exact(ctx)
		if got := must(w.client.Membership.Update().Where(membership.ScoreGT(0)).AddScore(1).Save(ctx))(w); got != n {
			w.Errorf("%d memberships were updated", got)
		}
		w.exact(ctx)
		no(w, w.client.Membership.MapCreateBulk(users, func(b *ent.MembershipCreate, i int) { b.SetUser(users[i]).SetTeam(team).SetScore(i) }).
			OnConflictColumns(membership.FieldTeamID, membership.FieldUserID).UpdateNewValues().Exec(ctx))
		w.exact(ctx)
		if got := must(w.client.Membership.Delete().Where(membership.ScoreGTE(0)).Exec(ctx))(w); got != n {
			w.Errorf("%d memberships were deleted", got)
		}
		w.exact(ctx)
	})
}
