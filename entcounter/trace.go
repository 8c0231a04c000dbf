package entcounter

import "context"

// Tracer is told of operations on counters: folds, rebuilds, verifications and deletions of
// scopes. Package counterotel has one that makes OpenTelemetry spans.
type Tracer interface {
	// Start is called before an operation, which goes on with the context that it returns,
	// and the function after it.
	Start(ctx context.Context, op Operation) (context.Context, func(Outcome))
}

// Operation is what is done to a counter.
type Operation struct {
	// Counter is the name of the counter.
	Counter string
	// Name is "fold" (of a journal that has rows), "rebuild", "verify" or "delete scope".
	Name string
	// Scope is how many key columns are fixed; 0 for the whole counter.
	Scope int
}

// Outcome is how an operation has ended.
type Outcome struct {
	// Rows of the journal that a fold has moved.
	Rows int
	// Keys that a fold has added to, a rebuild has corrected, or a verification has found
	// to differ.
	Keys int
	// Err is why it failed, or [ErrFoldedElsewhere] if a worker's fold gave way.
	Err error
}

type tracerKey struct{}

// WithTracer returns a context in which operations are traced, such as one for
// [Worker.Run].
func WithTracer(ctx context.Context, t Tracer) context.Context {
	return context.WithValue(ctx, tracerKey{}, t)
}

// trace tells the context's tracer, if it has one, that an operation begins.
func (c *Handle) trace(ctx context.Context, name string, scope int) (context.Context, func(Outcome)) {
	t, ok := ctx.Value(tracerKey{}).(Tracer)
	if !ok {
		return ctx, func(Outcome) {}
	}
	return t.Start(ctx, Operation{Counter: c.def.Name, Name: name, Scope: scope})
}
