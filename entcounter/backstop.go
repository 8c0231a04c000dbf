package entcounter

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"entgo.io/ent/dialect"
)

// BackstopOptions says when a [Backstop] folds. The zero value is a good choice.
type BackstopOptions struct {
	// Rows is how many journal rows a read has to add for it to ask for a fold. Default:
	// 1,000.
	Rows int64
	// Fold says how: Batch, FoldTime, Connections (by default 1), OnCycle and Logger are as
	// of a [Worker], and MinInterval (by default one second) is the least time between two
	// folds that reads have asked for. The others are not used.
	Fold WorkerOptions
}

// Backstop folds counters when reads have to add many journal rows, so that they stay
// fast where no worker runs, or where it has stopped. A read that sees as many asks for a fold
// and returns: the fold is done in the background, on another connection than the read's
// and never in the caller's transaction, and one at a time for each counter. Reads of
// aggregates that ent's GroupBy and Aggregate make do not ask.
type Backstop struct {
	worker *Worker
	rows   int64
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	folds  sync.WaitGroup
	keys   map[builtKey]*backstopped
}

// backstopped is a counter on a database that has a backstop.
type backstopped struct {
	owner   *Backstop
	counter *Handle
	pace    *pace
	folding atomic.Bool
	next    atomic.Int64 // when it may be folded again, in nanoseconds since the epoch
}

// backstops has the *backstopped of each builtKey.
var backstops sync.Map

// NewBackstop makes all reads of the given counters, on the database that these are on, ask
// for folds, until [Backstop.Close]. Of two backstops for a counter, the later one counts. The
// one error is [ErrInTransaction].
func NewBackstop(counters []*Handle, options BackstopOptions) (*Backstop, error) {
	for _, c := range counters {
		if inTransaction(c.drv) {
			return nil, c.wrap("folding", ErrInTransaction)
		}
	}
	setDefault(&options.Rows, 1000)
	setDefault(&options.Fold.Connections, 1)
	setDefault(&options.Fold.MinInterval, time.Second)
	b := &Backstop{worker: NewWorker(counters, options.Fold), rows: options.Rows, keys: make(map[builtKey]*backstopped)}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	for _, c := range counters {
		key := builtKeyOf(c.drv, c.def)
		b.keys[key] = &backstopped{owner: b, counter: c, pace: newPace(b.worker.options)}
		backstops.Store(key, b.keys[key])
	}
	return b, nil
}

// Close makes reads ask no longer, and returns when no fold is under way any more. One
// that is gets rolled back, which loses nothing.
func (b *Backstop) Close() {
	for key, c := range b.keys {
		backstops.CompareAndDelete(key, c)
	}
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.folds.Wait()
}

// askBackstop tells a counter's backstop, if it has one, how many journal rows a read
// had to add.
func askBackstop(drv dialect.Driver, d *Definition, pending int64) {
	if pending == 0 {
		return
	}
	found, ok := backstops.Load(builtKeyOf(drv, d))
	if !ok {
		return
	}
	c := found.(*backstopped)
	if pending < c.owner.rows || time.Now().UnixNano() < c.next.Load() || !c.folding.CompareAndSwap(false, true) {
		return
	}
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	if c.owner.closed {
		c.folding.Store(false)
		return
	}
	c.owner.folds.Go(c.fold)
}

// fold folds until the journal is empty.
func (c *backstopped) fold() {
	defer c.folding.Store(false)
	for {
		cycle, ok := c.owner.worker.turn(c.owner.ctx, c.counter, c.pace)
		if !ok {
			return
		}
		if !cycle.Folded.Full {
			wait := c.owner.worker.options.MinInterval
			if cycle.Err != nil {
				wait = max(wait, cycle.Pause)
			}
			c.next.Store(time.Now().Add(wait).UnixNano())
			return
		}
	}
}
