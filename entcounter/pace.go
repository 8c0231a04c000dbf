package entcounter

import (
	"math/rand/v2"
	"time"
)

// minBatch is the smallest batch that a worker makes of one that took too long.
const minBatch = 50

// pace says when a counter is folded next, and how much of it at once.
type pace struct {
	options WorkerOptions
	// interval is the pause after which its deepest key has about as many journal rows as
	// it shall have.
	interval time.Duration
	// waited tells that the last fold came after a pause, so that what it found has
	// gathered in that time.
	waited  bool
	batch   int
	backoff time.Duration
	started bool
}

func newPace(options WorkerOptions) *pace {
	return &pace{options: options, interval: min(max(time.Second, options.MinInterval), options.MaxInterval), waited: true, batch: options.Batch}
}

// next learns from a cycle and sets its pause.
func (p *pace) next(c *Cycle) {
	switch {
	case c.Err != nil && c.Folded.Rows == 0:
		p.backoff = min(max(2*p.backoff, p.options.MinInterval), p.options.MaxBackoff)
		c.Pause = p.backoff - rand.N(p.backoff/2+1)
		p.batch = max(p.batch/2, min(minBatch, p.options.Batch)) // it may have been too much
		p.waited = false
		return
	case c.Skipped == nil:
		p.learn(c)
	}
	p.backoff = 0
	if p.waited = !c.Folded.Full; p.waited {
		c.Pause = p.interval*9/10 + rand.N(p.interval/5+1)
	}
}

func (p *pace) learn(c *Cycle) {
	f := c.Folded
	if p.waited {
		// A read of the deepest key had to add so many of the rows that it may, or a read of
		// all keys so many of a batch.
		depth := max(float64(f.Deepest)/float64(p.options.KeyRows), float64(f.Rows)/float64(p.options.Batch))
		if f.Full {
			depth = 8 // and more is there
		}
		factor := 2.0 // nothing to do: twice the pause at most, and an eighth at least
		if depth > 0 {
			factor = min(max(1/depth, 0.125), 2)
		}
		p.interval = min(max(time.Duration(factor*float64(p.interval)), p.options.MinInterval), p.options.MaxInterval)
	}
	fits := p.options.Batch
	if f.Rows > 0 {
		fits = int(float64(f.Rows) * float64(p.options.FoldTime) / float64(max(c.Duration, time.Microsecond)))
	}
	// A short fold says nothing about a longer one: it is mostly round trips.
	if c.Duration > p.options.FoldTime {
		p.batch = max(min(p.batch, fits), min(minBatch, p.options.Batch))
	} else if f.Full {
		p.batch = min(max(p.batch, min(fits, 2*p.batch)), p.options.Batch)
	}
}
