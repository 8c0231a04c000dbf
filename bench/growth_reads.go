package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	entsql "entgo.io/ent/dialect/sql"

	"github.com/entcounter/entcounter/bench/shapes"
	"github.com/entcounter/entcounter/bench/shapes/entrycounters"
	"github.com/entcounter/entcounter/internal/accounting"
)

// What is read. The first is what the others are compared with.
const (
	readBare  = "row by primary key"
	readQuiet = "key without journal rows"
	readDeep  = "key with all of them"
	readKey   = "key"
	readPage  = "page of 100 keys"
	readScope = "total of a scope"
	readAll   = "total of all keys"
)

// pageKeys is how many keys a page has.
const pageKeys = 100

// reading is one way to read, which checks what it has read.
type reading struct {
	subject string
	read    func(ctx context.Context, c *shapes.Client) error
}

// bareRead reads one of the rows by its primary key.
func bareRead(rng *rand.Rand, rows int64) reading {
	return reading{readBare, func(ctx context.Context, c *shapes.Client) error {
		_, err := c.Entry.Get(ctx, int(rng.Int64N(rows))+1)
		return err
	}}
}

// asCounted returns an error if a count or a number of journal rows is not what it must be.
func asCounted(what any, count, wantCount, pending, wantPending int64) error {
	if count != wantCount || pending != wantPending {
		return fmt.Errorf("wrong count: %+v has %d with %d journal rows, want %d with %d", what, count, pending, wantCount, wantPending)
	}
	return nil
}

// keyRead reads a key that has one row.
func keyRead(subject string, pending int64, key func() entrycounters.Key) reading {
	return reading{subject, func(ctx context.Context, c *shapes.Client) error {
		k := key()
		n, err := c.EntryCounters.Read(ctx, k)
		if err != nil {
			return err
		}
		return asCounted(k, n.Count, 1, n.Pending, pending)
	}}
}

// depths measures reads by the depth of the journal.
func (g *growing) depths(ctx context.Context) (err error) {
	s, err := openStore(ctx, g.srv, entryTables, 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	keys := min(10_000, g.Rows/10)
	if err := s.addFolded(ctx, 0, keys); err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(1, 0))
	before := int64(0)
	for _, depth := range append([]int64{0}, fractions(g.Rows/100, 1000, 100, 10, 1)...) {
		depth -= depth % 2 // so that it adds up to nothing
		if err := s.addJournal(ctx, depth-before, 1); err != nil {
			return err
		}
		before = depth
		if err := s.settle(ctx); err != nil {
			return err
		}
		g.tell("%d journal rows", depth)
		err := g.read(ctx, s, depth,
			bareRead(rng, keys),
			keyRead(readQuiet, 0, func() entrycounters.Key { return keyOf(1 + rng.Int64N(keys-1)) }),
			keyRead(readDeep, depth, func() entrycounters.Key { return keyOf(0) }),
		)
		if err != nil {
			return err
		}
	}
	if err := check(ctx, s.entries()); err != nil {
		return err
	}
	if _, err := foldAll(ctx, s.entries()); err != nil {
		return err
	}
	return check(ctx, s.entries())
}

// keys measures reads by the number of keys.
func (g *growing) keys(ctx context.Context) (err error) {
	s, err := openStore(ctx, g.srv, entryTables, 2)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	rng := rand.New(rand.NewPCG(2, 0))
	before := int64(0)
	for _, keys := range fractions(g.Rows/10, 1000, 10, 1) {
		if err := s.addFolded(ctx, before, keys); err != nil {
			return err
		}
		before = keys
		g.tell("%d keys", keys)
		some := func() entrycounters.Key { return keyOf(rng.Int64N(keys)) }
		if err := g.read(ctx, s, keys, bareRead(rng, keys), keyRead(readKey, 0, some), pageRead(rng, keys), scopeRead(some, keys), allRead(keys)); err != nil {
			return err
		}
	}
	return nil
}

// pageRead reads the page after a key. Each key has one row.
func pageRead(rng *rand.Rand, keys int64) reading {
	return reading{readPage, func(ctx context.Context, c *shapes.Client) error {
		k := rng.Int64N(max(keys-pageKeys, 1))
		page, err := c.EntryCounters.Query().After(keyOf(k)).Limit(pageKeys).All(ctx)
		if err != nil {
			return err
		}
		if want := min(pageKeys, keys-k-1); int64(len(page)) != want {
			return fmt.Errorf("a page has %d keys, want %d", len(page), want)
		}
		for i, n := range page {
			k := keyOf(k + 1 + int64(i))
			if got := (entrycounters.Key{Tenant: n.Tenant, Folder: n.Folder, Status: n.Status}); got != k {
				return fmt.Errorf("a page has %+v where %+v belongs", got, k)
			}
			if err := asCounted(k, n.Count, 1, n.Pending, 0); err != nil {
				return err
			}
		}
		return nil
	}}
}

// scopeRead adds up the keys of a tenant. Each has one row.
func scopeRead(some func() entrycounters.Key, keys int64) reading {
	return reading{readScope, func(ctx context.Context, c *shapes.Client) error {
		tenant := some().Tenant
		total, err := c.EntryCounters.Total(ctx, entrycounters.ScopeOf(tenant))
		if err != nil {
			return err
		}
		return asCounted(fmt.Sprint("tenant ", tenant), total.Count, min(tenantKeys, keys-int64(tenant-1)*tenantKeys), total.Pending, 0)
	}}
}

// allRead adds up all keys. Each has one row.
func allRead(keys int64) reading {
	return reading{readAll, func(ctx context.Context, c *shapes.Client) error {
		total, err := c.EntryCounters.Total(ctx, entrycounters.Scope{})
		if err != nil {
			return err
		}
		return asCounted("all", total.Count, keys, total.Pending, 0)
	}}
}

// read measures readings by one client: in each round all of them, one after the other.
func (g *growing) read(ctx context.Context, s *store, size int64, readings ...reading) error {
	for round := range g.Rounds {
		for i := range readings {
			r := readings[(i+round)%len(readings)] // none is always the first
			latencies, elapsed, err := together(ctx, g.Duration, []func(context.Context) error{
				func(ctx context.Context) error { return r.read(ctx, s.client) },
			})
			if err != nil {
				return fmt.Errorf("%s: %w", r.subject, err)
			}
			g.add(Point{Place: g.place(r.subject, size), Round: round + 1, Seconds: elapsed.Seconds()}, latencies)
		}
	}
	for _, r := range readings {
		if err := g.rowsRead(ctx, s, size, r); err != nil {
			return fmt.Errorf("%s: %w", r.subject, err)
		}
	}
	return nil
}

// rowsRead asks how many rows the database reads for one reading.
func (g *growing) rowsRead(ctx context.Context, s *store, size int64, r reading) (err error) {
	account, err := accounting.Open(ctx, s.source)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, account.DB.Close()) }()
	c := shapes.NewClient(shapes.Driver(entsql.OpenDB(s.source.Dialect, account.DB)))
	if err := r.read(ctx, c); err != nil { // some things happen once
		return err
	}
	tx, err := c.Tx(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	usage, err := account.Of(ctx, tx.Client(), func() error { return r.read(ctx, tx.Client()) })
	g.Reads = append(g.Reads, PointReads{g.place(r.subject, size), usage.Rows, usage.Steps, account.Unit()})
	return err
}
