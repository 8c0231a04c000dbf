package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/entcounter"
)

// inTx runs fn in a transaction.
func inTx(ctx context.Context, client *ent.Client, fn func(*ent.Tx) error) error {
	tx, err := client.Tx(ctx)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// attempts at one transaction.
const attempts = 12

// retry runs a transaction again as a whole while others get in its way, be it by a lock or by a row that
// they have added.
func retry(ctx context.Context, transaction func() error) error {
	delay := 2 * time.Millisecond
	for n := 1; ; n++ {
		err := transaction()
		if err == nil || n == attempts || ctx.Err() != nil || !entcounter.Retryable(err) && !ent.IsConstraintError(err) {
			return err
		}
		select {
		case <-time.After(rand.N(delay)):
		case <-ctx.Done():
			return ctx.Err()
		}
		delay *= 2
	}
}
