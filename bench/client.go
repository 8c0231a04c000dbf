package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/entcounter/entcounter/entcounter"
)

// client is one of those that make a load.
type client struct {
	site *site
	load load
	name string // no other client of the database has had it
	rng  *rand.Rand
	rows []row // whose files nobody else changes
	last row   // that was changed

	created int
	conflicts
}

// otherStatus returns a status to change to.
func (c *client) otherStatus(status string) string {
	statuses := c.site.layout.statuses
	if len(statuses) <= len(pair) {
		statuses = pair
	}
	i := slices.Index(statuses, status)
	return statuses[(i+1+c.rng.IntN(len(statuses)-1))%len(statuses)]
}

// repeat works until the end, and records what begins after the start: one operation at least.
func repeat(ctx context.Context, start, end time.Time, operation func(context.Context) error) (latencies []time.Duration, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return latencies, err
		}
		begun := time.Now()
		if !begun.Before(end) && len(latencies) > 0 {
			return latencies, nil
		}
		if err := operation(ctx); errors.Is(err, errNoneLeft) {
			return latencies, nil
		} else if err != nil {
			return latencies, err
		}
		if !begun.Before(start) {
			latencies = append(latencies, time.Since(begun))
		}
	}
}

// together lets clients repeat their operations at the same time, for a duration after a tenth of it that is not recorded.
// It returns all latencies, and how long the recorded part took. What has not ended some seconds after the end is given up.
func together(ctx context.Context, duration time.Duration, operations []func(context.Context) error) ([]time.Duration, time.Duration, error) {
	start := time.Now().Add(duration / 10)
	end := start.Add(duration)
	ctx, cancel := context.WithDeadline(ctx, end.Add(stragglers))
	defer cancel()
	var wg sync.WaitGroup
	latencies := make([][]time.Duration, len(operations))
	errs := make([]error, len(operations))
	for i, operation := range operations {
		wg.Go(func() {
			if latencies[i], errs[i] = repeat(ctx, start, end, operation); errs[i] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		time.Sleep(stragglers / 5) // until the server has noticed
		return slices.Concat(latencies...), elapsed, nil
	}
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return nil, 0, err
		}
	}
	return slices.Concat(latencies...), elapsed, ctx.Err()
}

// stragglers is how long operations that have begun have after the end. Clients that take locks in different orders can
// stop each other again and again.
const stragglers = 5 * time.Second

// conflicts counts transactions that lost against others and were run again.
type conflicts struct {
	deadlocks int
	retries   int // of other kinds
}

// insist makes a change, as often as it takes.
func (c *conflicts) insist(change func() error) error {
	for attempt := 0; ; attempt++ {
		err := change()
		switch {
		case err == nil:
			return nil
		case isDeadlock(err):
			c.deadlocks++
		case entcounter.Retryable(err):
			c.retries++
		default:
			return err
		}
		time.Sleep(rand.N(time.Millisecond << min(attempt, 5)))
	}
}

// operation makes one operation.
func (c *client) operation(ctx context.Context) error {
	if !c.load.readsOnly {
		if err := c.insist(func() error { return c.change(ctx) }); err != nil {
			return err
		}
	}
	if !c.load.reads {
		return nil
	}
	f := c.last
	if c.load.readsOnly {
		f = c.rows[c.rng.IntN(len(c.rows))]
	}
	_, err := c.site.way.read(ctx, c.site.client, f)
	return err
}

// change makes the changes of one operation, in a transaction where the load or the variant needs one.
func (c *client) change(ctx context.Context) error {
	if !c.load.inTx && c.site.way.alone() {
		committed, err := c.load.do(ctx, c, c.site.client)
		if err == nil {
			committed()
		}
		return err
	}
	tx, err := c.site.client.Begin(ctx)
	if err != nil {
		return err
	}
	committed, err := c.load.do(ctx, c, tx)
	if err != nil {
		// The server may have rolled back already, which is no error of its own.
		_ = tx.Rollback()
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	committed()
	return nil
}

// isDeadlock reports whether the server ended a transaction because of a deadlock.
func isDeadlock(err error) bool {
	var (
		my *mysql.MySQLError
		pg *pgconn.PgError
	)
	return errors.As(err, &my) && my.Number == 1213 || errors.As(err, &pg) && pg.Code == "40P01"
}

// sizeOf is the size in bytes of a file.
func sizeOf(n int) int64 { return int64(n%1000) + 1 }

// deal gives each of the clients its share of the files.
func deal(rows []row, l layout, clients []*client) {
	for _, c := range clients {
		c.rows = nil
	}
	for i, f := range rows {
		c := clients[i%len(clients)]
		if l.ownDataset {
			if f.key.Dataset > len(clients) {
				continue
			}
			c = clients[f.key.Dataset-1]
		}
		c.rows = append(c.rows, f)
	}
}
