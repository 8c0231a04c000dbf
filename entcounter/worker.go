package entcounter

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// WorkerOptions says how a [Worker] folds. The zero value is a good choice.
type WorkerOptions struct {
	// KeyRows is how many journal rows a read of one key shall have to add at most.
	// After each fold the worker knows how many the deepest key had, and makes the next
	// pause shorter or longer accordingly. Default: 100.
	KeyRows int
	// MinInterval and MaxInterval bound the pause between the folds of one counter, which is
	// also given or taken a tenth. Reads are exact whatever it is. Defaults: 100 milliseconds,
	// 5 seconds.
	MinInterval, MaxInterval time.Duration
	// FoldTime is how long the transaction of one fold shall take. One that takes longer
	// is followed by a smaller one. Default: 200 milliseconds.
	FoldTime time.Duration
	// Batch is how many journal rows one fold claims at most. One that claimed as many is
	// followed by the next one at once. Default: [DefaultFoldBatch].
	Batch int
	// Connections is how many counters are folded at the same time, each on one
	// connection of the pool. Others wait in turn, and one with a long backlog goes to the
	// end of the queue after each batch. Default: 4.
	Connections int
	// Drain is how long Run goes on after its context has ended until the journals are
	// empty. Default: not at all.
	Drain time.Duration
	// MaxBackoff bounds the pause after a fold that failed, which doubles with every
	// further failure and is shortened at random by up to a half. Default: one minute.
	MaxBackoff time.Duration
	// OnCycle is called after every turn at a counter. The loops of different counters
	// call it concurrently. Packages counterprom and counterotel have functions for it.
	// Default: nothing.
	OnCycle func(Cycle)
	// Logger gets a warning for every fold that failed, and folds at debug level.
	// Default: slog.Default().
	Logger *slog.Logger
}

// Cycle is one turn of a worker at a counter.
type Cycle struct {
	// Counter is the name of the counter.
	Counter string
	// Folded is what the fold has done. With an Err, it is what was folded all the same, such as
	// all keys but one whose sum is out of range.
	Folded Folded
	// Started and Duration of the fold, without the time that it waited for its turn.
	Started  time.Time
	Duration time.Duration
	// Skipped is nil, [ErrPaused], or [ErrFoldedElsewhere] if another process was folding.
	Skipped error
	// Err is why the fold failed.
	Err error
	// Batch is how many rows it was to claim at most.
	Batch int
	// Pause until the next turn; 0 if that comes at once.
	Pause time.Duration
}

// Worker folds counters until it is told to stop. Any number of workers, in any
// number of processes, may fold the same counters: one that finds another at a counter leaves
// it alone.
type Worker struct {
	counters []*Handle
	options  WorkerOptions
	slots    chan struct{}

	mu     sync.Mutex
	paused bool
}

// NewWorker returns a worker that folds the given counters.
func NewWorker(counters []*Handle, options WorkerOptions) *Worker {
	setDefault(&options.KeyRows, 100)
	setDefault(&options.MinInterval, 100*time.Millisecond)
	setDefault(&options.MaxInterval, 5*time.Second)
	setDefault(&options.FoldTime, 200*time.Millisecond)
	setDefault(&options.Batch, DefaultFoldBatch)
	setDefault(&options.Connections, 4)
	setDefault(&options.MaxBackoff, time.Minute)
	options.MaxInterval = max(options.MaxInterval, options.MinInterval)
	options.MaxBackoff = max(options.MaxBackoff, options.MinInterval)
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	return &Worker{counters: counters, options: options, slots: make(chan struct{}, options.Connections)}
}

func setDefault[T int | int64 | time.Duration](option *T, value T) {
	if *option <= 0 {
		*option = value
	}
}

// Pause makes the worker leave all counters alone until [Worker.Resume]. A fold that is
// under way ends as it would. To pause workers of all processes, use [Handle.Pause].
func (w *Worker) Pause() { w.setPaused(true) }

// Resume ends a [Worker.Pause].
func (w *Worker) Resume() { w.setPaused(false) }

func (w *Worker) setPaused(paused bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused = paused
}

func (w *Worker) isPaused() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.paused
}

// Run folds until the context ends, and then returns nil. A fold that is under way is
// rolled back, which loses nothing; with [WorkerOptions.Drain] it is finished, and what is left
// of the journals is folded. A counter whose folds fail keeps none of the others waiting.
// The one error is [ErrInTransaction].
func (w *Worker) Run(ctx context.Context) error {
	for _, c := range w.counters {
		if inTransaction(c.drv) {
			return c.wrap("folding", ErrInTransaction)
		}
	}
	folding, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() {
		if w.options.Drain > 0 {
			_ = sleep(folding, w.options.Drain)
		}
		stop()
	})()
	var loops sync.WaitGroup
	for _, c := range w.counters {
		loops.Go(func() { w.loop(ctx, folding, c) })
	}
	loops.Wait()
	<-ctx.Done()
	return nil
}

// loop folds one counter until the context ends, and then, while folding may go on, until
// its journal is empty.
func (w *Worker) loop(ctx, folding context.Context, c *Handle) {
	p := newPace(w.options)
	// Workers that start together spread out from the first fold on.
	pause := rand.N(p.interval)
	for {
		if ctx.Err() == nil {
			_ = sleep(ctx, pause)
		} else if sleep(folding, pause) != nil {
			return
		}
		draining := ctx.Err() != nil
		if draining && w.options.Drain <= 0 {
			return
		}
		cycle, ok := w.turn(folding, c, p)
		switch {
		case !ok && draining && w.options.Drain > 0:
			w.options.Logger.WarnContext(ctx, "journal not drained in time", "counter", c.Name())
			return
		case !ok, draining && !cycle.Folded.Full && (cycle.Err == nil || cycle.Folded.Rows > 0):
			return
		}
		pause = cycle.Pause
	}
}

// turn waits for a connection that may be used, folds one batch, and tells of it. It
// reports false if the context has ended meanwhile.
func (w *Worker) turn(ctx context.Context, c *Handle, p *pace) (Cycle, bool) {
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return Cycle{}, false
	}
	log := w.options.Logger.With("counter", c.Name())
	if !p.started {
		p.started = true
		if err := c.Check(ctx); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "counter cannot be read", "error", err)
		}
	}
	cycle := w.cycle(ctx, c, p.batch)
	<-w.slots
	if cycle.Err != nil && ctx.Err() != nil {
		return cycle, false
	}
	p.next(&cycle)
	switch {
	case cycle.Err != nil:
		log.WarnContext(ctx, "fold failed", "error", cycle.Err, "retry_in", cycle.Pause)
	case cycle.Folded.Rows > 0:
		log.DebugContext(ctx, "folded", "rows", cycle.Folded.Rows, "keys", cycle.Folded.Keys, "full", cycle.Folded.Full)
	}
	if w.options.OnCycle != nil {
		w.options.OnCycle(cycle)
	}
	return cycle, true
}

// cycle folds one batch.
func (w *Worker) cycle(ctx context.Context, c *Handle, batch int) Cycle {
	cycle := Cycle{Counter: c.Name(), Batch: batch, Started: time.Now()}
	if w.isPaused() {
		cycle.Skipped = ErrPaused
		return cycle
	}
	folded, err := c.Fold(ctx, WithBatch(batch), politely)
	cycle.Duration = time.Since(cycle.Started)
	switch {
	case errors.Is(err, ErrPaused):
		cycle.Skipped = ErrPaused
	case errors.Is(err, ErrFoldedElsewhere):
		cycle.Skipped = ErrFoldedElsewhere
	default:
		cycle.Folded, cycle.Err = folded, err
	}
	return cycle
}
