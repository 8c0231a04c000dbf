package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
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

	created   int
	latencies []time.Duration // of recorded operations
	deadlocks int
	retries   int // of other kinds
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

// run works until the end, and records what begins after the start: one operation at least.
func (c *client) run(ctx context.Context, start, end time.Time) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		begun := time.Now()
		if !begun.Before(end) && len(c.latencies) > 0 {
			return nil
		}
		if err := c.operation(ctx); errors.Is(err, errNoneLeft) {
			return nil
		} else if err != nil {
			return err
		}
		if !begun.Before(start) {
			c.latencies = append(c.latencies, time.Since(begun))
		}
	}
}

// operation makes one operation, as often as it takes.
func (c *client) operation(ctx context.Context) error {
	if !c.load.readsOnly {
		for attempt := 0; ; attempt++ {
			err := c.change(ctx)
			if err == nil {
				break
			}
			switch {
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
