package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/entcounter/entcounter/examples/cms/ent"
	"github.com/entcounter/entcounter/examples/cms/ent/entry"
	"github.com/entcounter/entcounter/examples/cms/ent/media"
	"github.com/entcounter/entcounter/examples/cms/ent/term"
	"github.com/entcounter/entcounter/examples/cms/ent/user"
	"github.com/entcounter/entcounter/examples/internal/database"
)

// operation is what an editor can do.
type operation int

// The operations. Those on an entry come first.
const (
	publish operation = iota
	unpublish
	schedule
	unschedule
	softDelete
	restore
	purge
	assign
	unassign
	create
	addTerm
	dropTerm
	upload
	dropMedia
	invite
	dropUser
	operations
)

var operationNames = [operations]string{
	publish: "published", unpublish: "unpublished", schedule: "scheduled", unschedule: "unscheduled",
	softDelete: "deleted", restore: "restored", purge: "purged", assign: "assigned", unassign: "unassigned",
	create: "created", addTerm: "terms added", dropTerm: "terms dropped", upload: "uploaded",
	dropMedia: "media dropped", invite: "invited", dropUser: "users dropped",
}

func (o operation) String() string { return operationNames[o] }

// sweepInterval is how often entries are looked for whose time has come.
const sweepInterval = 250 * time.Millisecond

// edit has editors work at once, beside a sweep.
func (a *app) edit(ctx context.Context) error {
	sweepCtx, stop := context.WithCancel(ctx)
	defer stop()
	var left, working atomic.Int64
	left.Store(int64(a.operations))
	working.Store(int64(a.workers))
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.sweepUntil(sweepCtx) })
	for range a.workers {
		g.Go(func() error {
			defer func() {
				if working.Add(-1) == 0 {
					stop()
				}
			}()
			e := &editor{app: a}
			for left.Add(-1) >= 0 {
				if err := e.random(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// sweepUntil publishes entries whose time has come, again and again until the context ends.
func (a *app) sweepUntil(ctx context.Context) error {
	for {
		err := a.sweep(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("sweeping: %w", err)
		}
		select {
		case <-time.After(sweepInterval):
		case <-ctx.Done():
			return nil
		}
	}
}

// sweep publishes all entries whose time has come. It moves them from one count to another by one update.
func (a *app) sweep(ctx context.Context) error {
	return database.Retry(ctx, func() error {
		n, err := a.client.Entry.Update().
			Where(entry.ScheduledAtLTE(now()), entry.StatusEQ(entry.StatusDraft), entry.DeletedAtIsNil()).
			SetStatus(entry.StatusPublished).
			ClearScheduledAt().
			Save(ctx)
		a.swept.Add(int64(n))
		return err
	})
}

// editor works with entries and remembers what it has thrown away or may throw away.
type editor struct {
	*app
	trash, terms []int
}

// errNothing says that there is nothing to do an operation on.
var errNothing = errors.New("nothing to do")

// random does one operation, and others in its place where there is nothing to do.
func (e *editor) random(ctx context.Context) error {
	for {
		op := operation(rand.IntN(int(operations)))
		var n int
		err := database.Retry(ctx, func() (err error) {
			n, err = e.do(ctx, op)
			return err
		})
		switch {
		case errors.Is(err, errNothing), err == nil && n == 0:
			// Somebody else was faster, or there was nothing.
		case err != nil:
			return fmt.Errorf("%s: %w", op, err)
		default:
			e.done[op].Add(int64(n))
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// do does one operation on something random and returns how often it was done.
func (e *editor) do(ctx context.Context, op operation) (int, error) {
	switch op {
	case restore, purge:
		return e.empty(ctx, op)
	case create:
		c := e.site.collections[rand.IntN(len(e.site.collections))]
		return 1, e.newEntry(e.client.Entry.Create(), c).AddTermIDs(some(e.site.terms[0], 2)...).Exec(ctx)
	case addTerm, dropTerm:
		return e.term(ctx, op)
	case upload:
		return 1, e.client.Media.Create().SetName(fmt.Sprintf("%x.png", rand.Uint64())).Exec(ctx)
	case invite:
		return 1, e.newUser().Exec(ctx)
	case dropMedia:
		id, err := e.client.Media.Query().Order(ent.Desc(media.FieldID)).Offset(rand.IntN(50)).FirstID(ctx)
		if err != nil {
			return 0, nothing(err)
		}
		return e.client.Media.Delete().Where(media.ID(id)).Exec(ctx)
	case dropUser:
		id, err := e.client.User.Query().Order(ent.Desc(user.FieldID)).Offset(rand.IntN(50)).FirstID(ctx)
		if err != nil {
			return 0, nothing(err)
		}
		return e.client.User.Delete().Where(user.ID(id)).Exec(ctx)
	}
	id, err := e.entry(ctx)
	if err != nil {
		return 0, err
	}
	if op == assign || op == unassign {
		return e.assign(ctx, op, id)
	}
	// The predicate names the state before: what somebody else has changed meanwhile stays.
	update := e.client.Entry.Update().Where(entry.ID(id), entry.DeletedAtIsNil())
	switch op {
	case publish:
		update.Where(entry.StatusEQ(entry.StatusDraft)).SetStatus(entry.StatusPublished).ClearScheduledAt()
	case unpublish:
		update.Where(entry.StatusEQ(entry.StatusPublished)).SetStatus(entry.StatusDraft)
	case schedule:
		update.Where(entry.StatusEQ(entry.StatusDraft), entry.ScheduledAtIsNil()).SetScheduledAt(soon())
	case unschedule:
		update.Where(entry.ScheduledAtNotNil()).ClearScheduledAt()
	case softDelete:
		update.SetDeletedAt(now())
	}
	n, err := update.Save(ctx)
	if err == nil && n > 0 && op == softDelete {
		e.trash = append(e.trash, id)
	}
	return n, err
}

// entry returns the id of some entry that is not deleted.
func (e *editor) entry(ctx context.Context) (int, error) {
	last, err := e.client.Entry.Query().Order(ent.Desc(entry.FieldID)).FirstID(ctx)
	if err != nil {
		return 0, nothing(err)
	}
	id, err := e.client.Entry.Query().
		Where(entry.IDGTE(1+rand.IntN(last)), entry.DeletedAtIsNil()).
		Order(entry.ByID()).
		FirstID(ctx)
	return id, nothing(err)
}

// empty takes an entry out of the editor's trash, to where it was or for good.
func (e *editor) empty(ctx context.Context, op operation) (n int, err error) {
	if len(e.trash) == 0 {
		return 0, errNothing
	}
	id := e.trash[len(e.trash)-1]
	if op == purge {
		n, err = e.client.Entry.Delete().Where(entry.ID(id), entry.DeletedAtNotNil()).Exec(ctx)
	} else {
		n, err = e.client.Entry.Update().Where(entry.ID(id), entry.DeletedAtNotNil()).ClearDeletedAt().Save(ctx)
	}
	if err == nil {
		e.trash = e.trash[:len(e.trash)-1]
	}
	return n, err
}

// assign gives an entry a term or takes one away, from either side.
func (e *editor) assign(ctx context.Context, op operation, id int) (int, error) {
	if op == unassign {
		t, err := e.client.Term.Query().Where(term.HasEntriesWith(entry.ID(id))).FirstID(ctx)
		if err != nil {
			return 0, nothing(err)
		}
		if rand.IntN(2) == 0 {
			return 1, nothing(e.client.Term.UpdateOneID(t).RemoveEntryIDs(id).Exec(ctx))
		}
		return 1, nothing(e.client.Entry.UpdateOneID(id).RemoveTermIDs(t).Exec(ctx))
	}
	taxonomy := rand.IntN(len(e.site.terms))
	t := some(e.site.terms[taxonomy], 1)[0]
	var err error
	if rand.IntN(2) == 0 {
		err = e.client.Term.UpdateOneID(t).AddEntryIDs(id).Exec(ctx)
	} else {
		err = e.client.Entry.UpdateOneID(id).AddTermIDs(t).Exec(ctx)
	}
	if ent.IsConstraintError(err) { // it has the term
		return 0, errNothing
	}
	return 1, nothing(err)
}

// term adds a term to a taxonomy and assigns it, or drops one that the editor has added.
func (e *editor) term(ctx context.Context, op operation) (int, error) {
	if op == dropTerm {
		if len(e.terms) == 0 {
			return 0, errNothing
		}
		err := e.client.Term.DeleteOneID(e.terms[len(e.terms)-1]).Exec(ctx)
		if err == nil {
			e.terms = e.terms[:len(e.terms)-1]
		}
		return 1, err
	}
	id, err := e.entry(ctx)
	if err != nil {
		return 0, err
	}
	t, err := e.client.Term.Create().
		SetTaxonomyID(e.site.taxonomies[rand.IntN(len(e.site.taxonomies))].ID).
		SetName(fmt.Sprintf("new %x", rand.Uint64())).
		AddEntryIDs(id).
		Save(ctx)
	switch {
	case ent.IsConstraintError(err): // the entry was purged
		return 0, errNothing
	case err != nil:
		return 0, err
	}
	e.terms = append(e.terms, t.ID)
	return 1, nil
}

// nothing turns the error that there is no row into errNothing.
func nothing(err error) error {
	if ent.IsNotFound(err) {
		return errNothing
	}
	return err
}
