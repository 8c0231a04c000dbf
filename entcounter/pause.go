package entcounter

import "context"

// Pause makes workers and backstops leave the counter alone, in all processes, until
// [Handle.Resume]: a row of counter_locks says so, which each looks at before it folds. A
// fold that is under way ends as it would. Reads stay exact, and get slower as the
// journal grows. [Handle.Fold] itself, which somebody asked for, goes on as ever. Pausing
// twice is no error.
func (c *Handle) Pause(ctx context.Context) error {
	w := newWriter(c.sql)
	c.sql.pause(w, c.def.Name)
	return c.wrap("pausing", exec(ctx, c.drv, w))
}

// Resume ends a [Handle.Pause]. It is no error if there is none.
func (c *Handle) Resume(ctx context.Context) error {
	w := newWriter(c.sql)
	w.sql("DELETE FROM ").ident(LockTable).sql(" WHERE ").
		equals([]string{"counter_name", "operation"}, []any{c.def.Name, markPaused})
	return c.wrap("resuming", exec(ctx, c.drv, w))
}
