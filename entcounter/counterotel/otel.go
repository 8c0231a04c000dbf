// Package counterotel reports how counters do to OpenTelemetry: metrics of their health
// and of workers, and spans of folds, rebuilds, verifications and deletions of scopes.
//
//	metrics, err := counterotel.NewMetrics(client.Counters(), otel.GetMeterProvider())
//	defer metrics.Close()
//	worker := entcounter.NewWorker(client.Counters(), entcounter.WorkerOptions{OnCycle: metrics.OnCycle})
//	worker.Run(entcounter.WithTracer(ctx, counterotel.NewTracer(otel.GetTracerProvider())))
package counterotel

import (
	"context"
	"errors"
	"time"

	"github.com/entcounter/entcounter/entcounter"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// scope is the instrumentation scope of metrics and spans.
const scope = "github.com/entcounter/entcounter/entcounter/counterotel"

// counterName is the attribute that names the counter.
func counterName(name string) attribute.KeyValue { return attribute.String("entcounter.counter", name) }

// Metrics observes the health of counters whenever metrics are collected, and counts the
// turns of workers.
type Metrics struct {
	registration metric.Registration
	cycles       metric.Int64Counter
	duration     metric.Float64Histogram
}

// observed is a metric that a Health has, or has not.
type observed struct {
	name, unit, help string
	monotonic        bool
	value            func(entcounter.Health) (float64, bool)
}

func known(n int64) (float64, bool) { return float64(n), n >= 0 }

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

var all = []observed{
	{"entcounter.keys", "{key}", "Keys that have a counter row, 1,000,000 at most.", false, func(h entcounter.Health) (float64, bool) { return known(h.Keys) }},
	{"entcounter.journal.rows", "{row}", "Journal rows that are not folded: exact up to 100,000, estimated beyond.", false, func(h entcounter.Health) (float64, bool) { return known(h.Journal) }},
	{"entcounter.journal.oldest", "s", "Age of the oldest journal row; 0 if there is none.", false, func(h entcounter.Health) (float64, bool) { return h.Oldest.Seconds(), true }},
	{"entcounter.journal.deepest_key", "{row}", "Journal rows of the key that has most.", false, func(h entcounter.Health) (float64, bool) { return known(h.Deepest) }},
	{"entcounter.folded", "{row}", "Journal rows that all folds have moved, in whatever process.", true, func(h entcounter.Health) (float64, bool) { return known(h.Folded) }},
	{"entcounter.fold.speed", "{row}/s", "Speed of the last fold.", false, func(h entcounter.Health) (float64, bool) { return h.FoldedPerSecond, !h.LastFold.IsZero() }},
	{"entcounter.fold.age", "s", "Time since a fold last moved rows.", false, func(h entcounter.Health) (float64, bool) {
		return time.Since(h.LastFold).Seconds(), !h.LastFold.IsZero()
	}},
	{"entcounter.built", "1", "Whether the counter is built by the program's declaration: 1 or 0.", false, func(h entcounter.Health) (float64, bool) { return number(h.Built == nil), true }},
	{"entcounter.paused", "1", "Whether an operator has paused folding: 1 or 0.", false, func(h entcounter.Health) (float64, bool) { return number(h.Paused), true }},
	{"entcounter.negative_keys", "{key}", "Keys with a negative count or sum, which proves drift.", false, func(h entcounter.Health) (float64, bool) { return known(h.Negative) }},
	{"entcounter.innodb.history_list_length", "{transaction}", "Transactions that InnoDB has yet to purge, in the whole server.", false, func(h entcounter.Health) (float64, bool) { return known(h.HistoryLength) }},
	{"entcounter.postgres.dead_rows", "{row}", "Dead rows of the counter's two tables in PostgreSQL.", false, func(h entcounter.Health) (float64, bool) { return known(h.DeadRows) }},
}

// NewMetrics makes the provider observe the counters until [Metrics.Close]. Every
// collection reads their health from the database, with the context of the collection: see
// [entcounter.Handle.Health] for what that costs.
func NewMetrics(counters []*entcounter.Handle, provider metric.MeterProvider) (*Metrics, error) {
	var (
		m           = new(Metrics)
		meter       = provider.Meter(scope)
		instruments = make([]metric.Observable, len(all))
		err         error
	)
	for i, o := range all {
		if o.monotonic {
			instruments[i], err = meter.Float64ObservableCounter(o.name, metric.WithUnit(o.unit), metric.WithDescription(o.help))
		} else {
			instruments[i], err = meter.Float64ObservableGauge(o.name, metric.WithUnit(o.unit), metric.WithDescription(o.help))
		}
		if err != nil {
			return nil, err
		}
	}
	if m.cycles, err = meter.Int64Counter("entcounter.worker.cycles", metric.WithUnit("{cycle}"),
		metric.WithDescription("Turns of this process's worker, by result: folded, idle, paused, elsewhere or failed.")); err != nil {
		return nil, err
	}
	if m.duration, err = meter.Float64Histogram("entcounter.worker.fold.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of the folds of this process's worker that have moved rows.")); err != nil {
		return nil, err
	}
	m.registration, err = meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		var errs []error
		for _, c := range counters {
			health, err := c.Health(ctx)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			attributes := metric.WithAttributes(counterName(c.Name()))
			for i, observed := range all {
				if v, ok := observed.value(health); ok {
					o.ObserveFloat64(instruments[i].(metric.Float64Observable), v, attributes)
				}
			}
		}
		return errors.Join(errs...)
	}, instruments...)
	return m, err
}

// Close ends the observation.
func (m *Metrics) Close() error { return m.registration.Unregister() }

// OnCycle counts a worker's turn: it is for [entcounter.WorkerOptions].
func (m *Metrics) OnCycle(cycle entcounter.Cycle) {
	result := "idle"
	switch {
	case cycle.Err != nil:
		result = "failed"
	case errors.Is(cycle.Skipped, entcounter.ErrPaused):
		result = "paused"
	case cycle.Skipped != nil:
		result = "elsewhere"
	case cycle.Folded.Rows > 0:
		result = "folded"
		m.duration.Record(context.Background(), cycle.Duration.Seconds(), metric.WithAttributes(counterName(cycle.Counter)))
	}
	m.cycles.Add(context.Background(), 1, metric.WithAttributes(counterName(cycle.Counter), attribute.String("entcounter.result", result)))
}

type tracer struct{ trace.Tracer }

// NewTracer returns a tracer for [entcounter.WithTracer] that makes a span of each
// operation.
func NewTracer(provider trace.TracerProvider) entcounter.Tracer {
	return tracer{provider.Tracer(scope)}
}

// Start implements [entcounter.Tracer].
func (t tracer) Start(ctx context.Context, op entcounter.Operation) (context.Context, func(entcounter.Outcome)) {
	ctx, span := t.Tracer.Start(ctx, "entcounter "+op.Name+" "+op.Counter, trace.WithAttributes(
		counterName(op.Counter),
		attribute.String("entcounter.operation", op.Name),
		attribute.Int("entcounter.scope_columns", op.Scope),
	))
	return ctx, func(o entcounter.Outcome) {
		span.SetAttributes(attribute.Int("entcounter.rows", o.Rows), attribute.Int("entcounter.keys", o.Keys))
		switch {
		case errors.Is(o.Err, entcounter.ErrFoldedElsewhere):
			span.SetAttributes(attribute.String("entcounter.gave_way", o.Err.Error()))
		case o.Err != nil:
			span.RecordError(o.Err)
			span.SetStatus(codes.Error, o.Err.Error())
		}
		span.End()
	}
}
