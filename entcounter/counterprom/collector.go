// Package counterprom exports how counters do to Prometheus.
//
//	collector := counterprom.NewCollector(client.Counters())
//	prometheus.MustRegister(collector)
//	worker := entcounter.NewWorker(client.Counters(), entcounter.WorkerOptions{OnCycle: collector.OnCycle})
//
// What a database says, such as the depth of a journal, is the same in every process that
// collects it: let one do so, or aggregate by max. What a worker says is of that process.
package counterprom

import (
	"context"
	"time"

	"github.com/entcounter/entcounter/entcounter"
	"github.com/prometheus/client_golang/prometheus"
)

// DefaultTimeout is how long a collection waits for the databases at most.
const DefaultTimeout = 10 * time.Second

// Collector is a [prometheus.Collector] of the health of counters. Every collection
// reads it from the database: see [entcounter.Handle.Health] for what that costs.
type Collector struct {
	counters []*entcounter.Handle
	timeout  time.Duration

	folds    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	interval *prometheus.GaugeVec
	batch    *prometheus.GaugeVec
}

// Option changes a [Collector].
type Option func(*Collector)

// WithTimeout sets how long a collection waits for the databases at most, in place of
// [DefaultTimeout]. A counter whose health could not be read in time has the value 0 of
// entcounter_up, and no others.
func WithTimeout(d time.Duration) Option {
	return func(c *Collector) { c.timeout = d }
}

// gauge is a metric that a Health has, or has not.
type gauge struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(entcounter.Health) (float64, bool)
}

func newGauge(name, help string, kind prometheus.ValueType, value func(entcounter.Health) (float64, bool)) gauge {
	return gauge{prometheus.NewDesc("entcounter_"+name, help, []string{"counter"}, nil), kind, value}
}

var (
	up     = prometheus.NewDesc("entcounter_up", "Whether the counter's health could be read: 1 or 0.", []string{"counter"}, nil)
	gauges = []gauge{
		newGauge("keys", "Keys that have a counter row, 1,000,000 at most.", prometheus.GaugeValue, count(func(h entcounter.Health) int64 { return h.Keys })),
		newGauge("journal_rows", "Journal rows that are not folded: exact up to 100,000, estimated beyond.", prometheus.GaugeValue, count(func(h entcounter.Health) int64 { return h.Journal })),
		newGauge("journal_oldest_seconds", "Age of the oldest journal row; 0 if there is none.", prometheus.GaugeValue, func(h entcounter.Health) (float64, bool) { return h.Oldest.Seconds(), true }),
		newGauge("journal_deepest_key_rows", "Journal rows of the key that has most: a read of it adds so many.", prometheus.GaugeValue, count(func(h entcounter.Health) int64 { return h.Deepest })),
		newGauge("folded_rows_total", "Journal rows that all folds have moved, in whatever process.", prometheus.CounterValue, count(func(h entcounter.Health) int64 { return h.Folded })),
		newGauge("fold_rows_per_second", "Speed of the last fold.", prometheus.GaugeValue, func(h entcounter.Health) (float64, bool) { return h.FoldedPerSecond, !h.LastFold.IsZero() }),
		newGauge("last_fold_timestamp_seconds", "When a fold last moved rows.", prometheus.GaugeValue, at(func(h entcounter.Health) time.Time { return h.LastFold })),
		newGauge("last_build_timestamp_seconds", "When the whole counter was last rebuilt, or found to be exact as a new one.", prometheus.GaugeValue, at(func(h entcounter.Health) time.Time { return h.LastBuild })),
		newGauge("built", "Whether the counter is built by the program's declaration, so that it can be read: 1 or 0.", prometheus.GaugeValue, flag(func(h entcounter.Health) bool { return h.Built == nil })),
		newGauge("paused", "Whether an operator has paused folding: 1 or 0.", prometheus.GaugeValue, flag(func(h entcounter.Health) bool { return h.Paused })),
		newGauge("negative_keys", "Keys with a negative count or sum, which proves drift. Absent while the journal is too deep to tell.", prometheus.GaugeValue, count(func(h entcounter.Health) int64 { return h.Negative })),
		newGauge("innodb_history_list_length", "Transactions that InnoDB has yet to purge, in the whole server.", prometheus.GaugeValue, count(func(h entcounter.Health) int64 { return h.HistoryLength })),
		newGauge("postgres_dead_rows", "Dead rows of the counter's two tables in PostgreSQL.", prometheus.GaugeValue, count(func(h entcounter.Health) int64 { return h.DeadRows })),
	}
)

// count is absent where it is -1: not known.
func count(of func(entcounter.Health) int64) func(entcounter.Health) (float64, bool) {
	return func(h entcounter.Health) (float64, bool) {
		n := of(h)
		return float64(n), n >= 0
	}
}

func at(of func(entcounter.Health) time.Time) func(entcounter.Health) (float64, bool) {
	return func(h entcounter.Health) (float64, bool) {
		t := of(h)
		return float64(t.UnixMicro()) / 1e6, !t.IsZero()
	}
}

func flag(of func(entcounter.Health) bool) func(entcounter.Health) (float64, bool) {
	return func(h entcounter.Health) (float64, bool) {
		if of(h) {
			return 1, true
		}
		return 0, true
	}
}

// NewCollector returns a collector of the health of counters. Register it.
func NewCollector(counters []*entcounter.Handle, options ...Option) *Collector {
	c := &Collector{
		counters: counters,
		timeout:  DefaultTimeout,
		folds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "entcounter_worker_cycles_total",
			Help: "Turns of this process's worker at the counter, by result: folded, idle, paused, elsewhere (another process was folding) or failed.",
		}, []string{"counter", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "entcounter_worker_fold_duration_seconds",
			Help:    "Duration of the folds of this process's worker that have moved rows.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"counter"}),
		interval: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "entcounter_worker_pause_seconds",
			Help: "Pause of this process's worker until its next turn at the counter.",
		}, []string{"counter"}),
		batch: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "entcounter_worker_batch_rows",
			Help: "Journal rows that one fold of this process's worker claims at most.",
		}, []string{"counter"}),
	}
	for _, option := range options {
		option(c)
	}
	return c
}

// OnCycle counts a worker's turn: it is for [entcounter.WorkerOptions].
func (c *Collector) OnCycle(cycle entcounter.Cycle) {
	result := "idle"
	switch {
	case cycle.Err != nil:
		result = "failed"
	case cycle.Skipped == entcounter.ErrPaused:
		result = "paused"
	case cycle.Skipped != nil:
		result = "elsewhere"
	case cycle.Folded.Rows > 0:
		result = "folded"
		c.seconds.WithLabelValues(cycle.Counter).Observe(cycle.Duration.Seconds())
	}
	c.folds.WithLabelValues(cycle.Counter, result).Inc()
	c.interval.WithLabelValues(cycle.Counter).Set(cycle.Pause.Seconds())
	c.batch.WithLabelValues(cycle.Counter).Set(float64(cycle.Batch))
}

// ofWorker are the metrics that OnCycle fills.
func (c *Collector) ofWorker() []prometheus.Collector {
	return []prometheus.Collector{c.folds, c.seconds, c.interval, c.batch}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	descs <- up
	for _, g := range gauges {
		descs <- g.desc
	}
	for _, m := range c.ofWorker() {
		m.Describe(descs)
	}
}

// Collect implements [prometheus.Collector]. It reads one counter after the other, and
// so uses one connection.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	for _, counter := range c.counters {
		health, err := counter.Health(ctx)
		if err != nil {
			metrics <- prometheus.MustNewConstMetric(up, prometheus.GaugeValue, 0, counter.Name())
			continue
		}
		metrics <- prometheus.MustNewConstMetric(up, prometheus.GaugeValue, 1, counter.Name())
		for _, g := range gauges {
			if v, ok := g.value(health); ok {
				metrics <- prometheus.MustNewConstMetric(g.desc, g.kind, v, counter.Name())
			}
		}
	}
	for _, m := range c.ofWorker() {
		m.Collect(metrics)
	}
}
