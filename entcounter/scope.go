package entcounter

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"

	"entgo.io/ent/dialect"
)

// key brings the first n key columns' values, as given by a caller, to the form
// in which they are stored.
func (d *Definition) key(values []any, n int) ([]any, error) {
	if len(values) != n {
		return nil, fmt.Errorf("%d key values given, the key has %d columns", len(values), n)
	}
	key := make([]any, n)
	for i, v := range values {
		value, err := normalizeValue(d.Key[i], v)
		if err == nil && value == nil {
			err = errors.New("no value, and a row with NULL in the key is not counted")
		}
		if err != nil {
			return nil, fmt.Errorf("key column %s: %w", d.Key[i].Name, err)
		}
		key[i] = value
	}
	return key, nil
}

// scope checks a scope: values of the first key columns, none for everything.
func (d *Definition) scope(values []any) ([]any, error) {
	if len(values) > len(d.Key) {
		return nil, fmt.Errorf("scope of %d values, the key has %d columns", len(values), len(d.Key))
	}
	scope, err := d.key(values, len(values))
	if err != nil {
		return nil, fmt.Errorf("scope: %w", err)
	}
	return scope, nil
}

// DeleteScope deletes the counter and journal rows of a scope, after its counted
// rows have been deleted without being counted, or while that goes on. The caller
// sees to it that nothing writes to the scope's counted rows any more and deletes
// them itself (ADR, Deleting a scope). An empty scope is refused with
// [ErrEmptyScope].
//
// It is one short transaction at READ COMMITTED. It first writes the counter's
// rebuild row and then its fold row in counter_locks, so it waits for a running
// rebuild, whose correction it then deletes, and for a running fold, which could
// otherwise add to a row just deleted. A DELETE sees what is committed, whatever
// the snapshot, and nothing is inserted into the scope, so no higher level is
// needed.
func (c *Handle) DeleteScope(ctx context.Context, scope []any) (err error) {
	ctx, done := c.trace(ctx, "delete scope", len(scope))
	defer func() { done(Outcome{Err: err}) }()
	const operation = "deleting a scope of"
	values, err := c.def.scope(scope)
	if err != nil {
		return c.wrap(operation, err)
	}
	if len(values) == 0 {
		return c.wrap(operation, ErrEmptyScope)
	}
	return c.wrap(operation, c.transact(ctx, stdsql.LevelReadCommitted, true, func(tx dialect.Tx) error {
		for _, table := range []string{c.def.Table, c.def.Journal} {
			w := newWriter(c.sql)
			deleteByScope(w, table, c.def, values)
			if err := exec(ctx, tx, w); err != nil {
				return err
			}
		}
		rebuild, _, err := c.versions(ctx, tx)
		if err != nil {
			return err
		}
		return c.setRebuilt(ctx, tx, rebuild, "")
	}, lockRebuild, lockFold))
}
