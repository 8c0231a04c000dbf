package database

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/entcounter/entcounter/entcounter"
)

// attempts at one transaction.
const attempts = 12

// Retry runs a transaction again as a whole while others get in its way.
func Retry(ctx context.Context, transaction func() error) error {
	delay := 2 * time.Millisecond
	for n := 1; ; n++ {
		err := transaction()
		if err == nil || n == attempts || ctx.Err() != nil || !entcounter.Retryable(err) {
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
