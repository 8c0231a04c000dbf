package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/entcounter/entcounter/examples/cms/ent"
	"github.com/entcounter/entcounter/examples/cms/ent/collection"
	"github.com/entcounter/entcounter/examples/cms/ent/entry"
	"github.com/entcounter/entcounter/examples/cms/ent/entrycounters"
	"github.com/entcounter/entcounter/examples/cms/ent/sitecounters"
	"github.com/entcounter/entcounter/examples/cms/ent/taxonomy"
	"github.com/entcounter/entcounter/examples/cms/ent/term"
	"github.com/entcounter/entcounter/examples/internal/database"
)

// The site that is filled. At 26,224 entries a taxonomy has as many assignments as it says here.
var (
	collections = []string{"posts", "pages", "products", "events"}
	taxonomies  = []struct {
		name               string
		terms, assignments int
	}{
		{"categories", 40, 47_381},
		{"regions", 80, 51_481},
		{"tags", 300, 63_854},
	}
)

// sized is the number of entries that the assignments are for.
const sized = 26_224

// fillBatch is how many rows one transaction creates. An entry has about six terms.
const fillBatch = 250

// site is what entries belong to.
type site struct {
	collections []*ent.Collection
	taxonomies  []*ent.Taxonomy // in the order above
	terms       [][]int         // ids by taxonomy
}

// fill creates what is missing. The counters tell how much that is.
func (a *app) fill(ctx context.Context) error {
	if err := a.openSite(ctx); err != nil {
		return err
	}
	entries, err := a.client.EntryCounters.Total(ctx, entrycounters.Scope{})
	if err != nil {
		return err
	}
	site, err := a.client.SiteCounters.ReadMany(ctx,
		sitecounters.Key{Entity: sitecounters.EntityMedia}, sitecounters.Key{Entity: sitecounters.EntityUser})
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(a.workers)
	batches := func(from int64, to int, create func(context.Context, []int) error) {
		for i := int(from); i < to && gctx.Err() == nil; i += fillBatch {
			numbers := make([]int, min(fillBatch, to-i))
			for j := range numbers {
				numbers[j] = i + j
			}
			g.Go(func() error {
				return database.Retry(gctx, func() error { return create(gctx, numbers) })
			})
		}
	}
	batches(entries.Total, a.entries, a.createEntries)
	batches(site[0].Total, a.media, a.createMedia)
	batches(site[1].Total, a.users, a.createUsers)
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// openSite finds or creates collections, taxonomies and terms. Another process may do the same.
func (a *app) openSite(ctx context.Context) error {
	findOr := func(create func() error, find func() error) error {
		err := find()
		if !ent.IsNotFound(err) {
			return err
		}
		if err := database.Retry(ctx, create); err != nil && !ent.IsConstraintError(err) {
			return err
		}
		return find()
	}
	a.site = site{terms: make([][]int, len(taxonomies))}
	for _, slug := range collections {
		err := findOr(
			func() error { return a.client.Collection.Create().SetSlug(slug).Exec(ctx) },
			func() error {
				c, err := a.client.Collection.Query().Where(collection.Slug(slug)).Only(ctx)
				if err == nil {
					a.site.collections = append(a.site.collections, c)
				}
				return err
			})
		if err != nil {
			return err
		}
	}
	for i, t := range taxonomies {
		err := findOr(
			func() error { return a.client.Taxonomy.Create().SetName(t.name).Exec(ctx) },
			func() error {
				found, err := a.client.Taxonomy.Query().Where(taxonomy.Name(t.name)).Only(ctx)
				if err == nil {
					a.site.taxonomies = append(a.site.taxonomies, found)
				}
				return err
			})
		if err != nil {
			return err
		}
		id := a.site.taxonomies[i].ID
		for n := range t.terms {
			name := fmt.Sprintf("%s %d", t.name, n+1)
			err := findOr(
				func() error { return a.client.Term.Create().SetTaxonomyID(id).SetName(name).Exec(ctx) },
				func() error {
					found, err := a.client.Term.Query().Where(term.TaxonomyID(id), term.Name(name)).OnlyID(ctx)
					if err == nil {
						a.site.terms[i] = append(a.site.terms[i], found)
					}
					return err
				})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// newEntry is an entry in one of the states that entries are in.
func (a *app) newEntry(create *ent.EntryCreate, c *ent.Collection) *ent.EntryCreate {
	create.SetCollectionID(c.ID).SetTitle(fmt.Sprintf("%s %x", c.Slug, rand.Uint64()))
	switch n := rand.IntN(100); {
	case n < 70:
		create.SetStatus(entry.StatusPublished)
	case n < 80:
		create.SetScheduledAt(soon())
	}
	return create
}

// soon is a time to publish at: in some minutes, or at once.
func soon() time.Time {
	return now().Add(time.Duration(rand.IntN(600)-120) * time.Second)
}

// now is the time as every database keeps it.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }

func (a *app) createEntries(ctx context.Context, numbers []int) error {
	assignments := 0
	create := make([]*ent.EntryCreate, len(numbers))
	for i, n := range numbers {
		create[i] = a.newEntry(a.client.Entry.Create(), a.site.collections[n%len(a.site.collections)])
		for j, t := range taxonomies {
			// As many terms as bring all entries up to this one to their share.
			count := (n+1)*t.assignments/sized - n*t.assignments/sized
			assignments += count
			create[i].AddTermIDs(some(a.site.terms[j], count)...)
		}
	}
	err := a.client.Entry.CreateBulk(create...).Exec(ctx)
	if err == nil {
		a.filled.entries.Add(int64(len(numbers)))
		a.filled.assignments.Add(int64(assignments))
	}
	return err
}

// some returns n of the ids, the first ones more often.
func some(ids []int, n int) []int {
	chosen := make(map[int]bool, n)
	for len(chosen) < min(n, len(ids)) {
		chosen[ids[min(rand.IntN(len(ids)), rand.IntN(len(ids)))]] = true
	}
	list := make([]int, 0, n)
	for id := range chosen {
		list = append(list, id)
	}
	return list
}

func (a *app) createMedia(ctx context.Context, numbers []int) error {
	create := make([]*ent.MediaCreate, len(numbers))
	for i := range create {
		create[i] = a.client.Media.Create().SetName(fmt.Sprintf("%x.jpeg", rand.Uint64()))
	}
	err := a.client.Media.CreateBulk(create...).Exec(ctx)
	if err == nil {
		a.filled.media.Add(int64(len(numbers)))
	}
	return err
}

func (a *app) createUsers(ctx context.Context, numbers []int) error {
	create := make([]*ent.UserCreate, len(numbers))
	for i := range create {
		create[i] = a.newUser()
	}
	err := a.client.User.CreateBulk(create...).Exec(ctx)
	if err == nil {
		a.filled.users.Add(int64(len(numbers)))
	}
	return err
}

func (a *app) newUser() *ent.UserCreate {
	return a.client.User.Create().SetEmail(fmt.Sprintf("%x%x@example.com", rand.Uint64(), rand.Uint64()))
}
