package entcounter

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// WorkerOptions says how a [Worker] folds. The zero value is a good choice.
type WorkerOptions struct {
	// Interval between the folds of one counter, give or take a tenth of it. A fold
	// that filled its batch is followed by the next one at once. Reads are exact
	// whatever the interval; a longer one makes them sum more journal rows. Default:
	// one second.
	Interval time.Duration
	// Batch is how many journal rows one fold claims at most. Default:
	// [DefaultFoldBatch].
	Batch int
	// MaxBackoff bounds the pause after a fold that failed, which doubles with every
	// further failure, starts at Interval and is shortened at random by up to a half.
	// Default: one minute.
	MaxBackoff time.Duration
	// OnFold is called after every fold that moved journal rows, with the name of the
	// counter. The loops of different counters call it concurrently. Default: nothing.
	OnFold func(counter string, folded Folded)
	// Logger gets a warning for every fold that failed, and folds at debug level.
	// Default: slog.Default().
	Logger *slog.Logger
}

// Worker folds counters until it is told to stop. Any number of workers, in any
// number of processes, may fold the same counters: they take turns.
type Worker struct {
	counters []*Handle
	options  WorkerOptions
}

// NewWorker returns a worker that folds the given counters.
func NewWorker(counters []*Handle, options WorkerOptions) *Worker {
	if options.Interval <= 0 {
		options.Interval = time.Second
	}
	if options.Batch <= 0 {
		options.Batch = DefaultFoldBatch
	}
	if options.MaxBackoff <= 0 {
		options.MaxBackoff = time.Minute
	}
	options.MaxBackoff = max(options.MaxBackoff, options.Interval)
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	return &Worker{counters: counters, options: options}
}

// Run folds until the context ends, and then returns nil: a fold that is under way
// is rolled back, which loses nothing. Every counter has a loop of its own, so that
// one with a long backlog, or whose folds fail, keeps none of the others waiting;
// each uses at most one connection at a time. The one error is
// [ErrInTransaction].
func (w *Worker) Run(ctx context.Context) error {
	for _, c := range w.counters {
		if inTransaction(c.drv) {
			return c.wrap("folding", ErrInTransaction)
		}
	}
	var loops sync.WaitGroup
	for _, c := range w.counters {
		loops.Go(func() { w.loop(ctx, c) })
	}
	loops.Wait()
	<-ctx.Done()
	return nil
}

// loop folds one counter.
func (w *Worker) loop(ctx context.Context, c *Handle) {
	log := w.options.Logger.With("counter", c.Name())
	var backoff time.Duration
	// Workers that start together spread out from the first fold on.
	pause := rand.N(w.options.Interval)
	if err := c.Check(ctx); err != nil && ctx.Err() == nil {
		log.WarnContext(ctx, "counter cannot be read", "error", err)
	}
	for sleep(ctx, pause) == nil {
		folded, err := c.Fold(ctx, WithBatch(w.options.Batch))
		switch {
		case err != nil && ctx.Err() != nil:
			return
		case err != nil:
			backoff = min(max(2*backoff, w.options.Interval), w.options.MaxBackoff)
			pause = backoff - rand.N(backoff/2+1)
			log.WarnContext(ctx, "fold failed", "error", err, "retry_in", pause)
			continue
		case folded.Full:
			pause = 0
		default:
			pause = w.options.Interval*9/10 + rand.N(w.options.Interval/5+1)
		}
		backoff = 0
		if folded.Rows > 0 {
			log.DebugContext(ctx, "folded", "rows", folded.Rows, "keys", folded.Keys, "full", folded.Full)
			if w.options.OnFold != nil {
				w.options.OnFold(c.Name(), folded)
			}
		}
	}
}
