package entcounter

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"

	"entgo.io/ent/dialect"
)

// Rebuilt is what a rebuild has done.
type Rebuilt struct {
	// Keys that were corrected.
	Keys int
}

// Rebuild recounts the counted rows of a scope and journals, for each key, what
// is missing: recount − counter row − journal. The scope is a list of values for
// the first key columns; an empty one is the whole counter. That also builds a counter
// that is new or differently declared, which reads refuse until then; for many rows,
// [Handle.Build] does it in steps. Writers and folds go on meanwhile, except on SQLite, which
// has one writer. At most 50,000 keys are held in memory.
//
// It is one transaction at REPEATABLE READ. Its first statement writes the
// counter's rebuild row in counter_locks, so that rebuilds run one after the other
// and the snapshot, which is taken after that, shows the corrections of those
// before: PostgreSQL fails the statement if it does not, and MariaDB, where the
// lock is free an instant before the commit is visible, is found out by the
// version that each rebuild leaves in the rebuilt row. Nothing else is locked. A
// writer commits its change and its delta together, so the snapshot shows both or
// neither, and a fold does not change counter row + journal, so neither disturbs
// the correction (ADR, Rebuilding). It commits through INSERT … VALUES into the
// journal like any delta.
//
// The whole is run again when it loses a race; an error that remains means that
// nothing was corrected.
func (c *Handle) Rebuild(ctx context.Context, scope []any) (rebuilt Rebuilt, err error) {
	ctx, done := c.trace(ctx, "rebuild", len(scope))
	defer func() { done(Outcome{Keys: rebuilt.Keys, Err: err}) }()
	values, err := c.def.scope(scope)
	if err != nil {
		return Rebuilt{}, c.wrap("rebuilding", err)
	}
	err = c.transact(ctx, stdsql.LevelRepeatableRead, true, func(tx dialect.Tx) error {
		rebuilt = Rebuilt{}
		version, err := c.correctionVersion(ctx, tx)
		if err != nil {
			return err
		}
		if rebuilt.Keys, err = c.correct(ctx, tx, region{prefix: values}); err != nil {
			return err
		}
		if len(values) == 0 {
			return c.setBuilt(ctx, tx, version)
		}
		return c.setRebuilt(ctx, tx, version, "")
	}, lockRebuild)
	if err != nil {
		return Rebuilt{}, c.wrap("rebuilding", err)
	}
	if len(values) == 0 {
		builtKeyOf(c.drv, c.def).remember(true)
	}
	return rebuilt, nil
}

// correct journals the corrections of a region, some keys at a time. The snapshot
// shows the transaction's own inserts, so a key that is corrected is not found
// again.
func (c *Handle) correct(ctx context.Context, tx dialect.Tx, r region) (int, error) {
	var (
		total    int
		previous map[string]struct{}
	)
	for {
		deltas, keys, err := c.corrections(ctx, tx, r, difference, previous)
		if err != nil {
			return 0, err
		}
		if len(deltas) > 0 {
			if err := insertJournal(ctx, tx, c.sql.name(), c.def, deltas); err != nil {
				return 0, err
			}
		}
		total += len(deltas)
		if len(deltas) < c.rebuildChunk {
			return total, nil
		}
		previous = keys
	}
}

// corrections reads what mends keys of a region, at most rebuildChunk of them, and
// returns the keys as a set too. None of them may be in the set of those that were
// mended before. What the statement selects beyond the deltas goes to further
// destinations.
func (c *Handle) corrections(ctx context.Context, ex dialect.ExecQuerier, r region, kind driftKind, previous map[string]struct{}, further ...any) ([]Delta, map[string]struct{}, error) {
	var (
		d       = c.def
		deltas  []Delta
		keys    = make(map[string]struct{})
		keyDest = make([]any, len(d.Key))
	)
	for i, col := range d.Key {
		keyDest[i] = scanTarget(col)
	}
	w := newWriter(c.sql)
	drift(w, c.sql, d, r, kind, c.rebuildChunk)
	err := query(ctx, ex, w, func(scan func(...any) error) error {
		delta := Delta{Measures: make([]int64, len(d.Measures))}
		dest := append(make([]any, 0, len(keyDest)+len(d.Measures)+len(further)), keyDest...)
		for i := range delta.Measures {
			dest = append(dest, (*Amount)(&delta.Measures[i]))
		}
		if err := scan(append(dest, further...)...); err != nil {
			return err
		}
		var err error
		if delta.Key, err = d.scannedKey(keyDest); err != nil {
			return err
		}
		encoded := encodeKey(delta.Key)
		if _, again := previous[encoded]; again {
			return fmt.Errorf("key %s differs from the recount after its correction: the key columns of %s and of the counted table compare differently",
				formatKey(d.Key, delta.Key), d.Journal)
		}
		keys[encoded] = struct{}{}
		deltas = append(deltas, delta)
		return nil
	})
	return deltas, keys, err
}

// versions reads the versions of the rebuild and the rebuilt row by a plain
// read, in the transaction's snapshot.
func (c *Handle) versions(ctx context.Context, tx dialect.Tx) (rebuild, rebuilt int64, err error) {
	w := newWriter(c.sql)
	readVersions(w, c.def.Name)
	var versions []int64
	err = query(ctx, tx, w, func(scan func(...any) error) error {
		var v int64
		if err := scan(&v); err != nil {
			return err
		}
		versions = append(versions, v)
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	if len(versions) != 2 {
		return 0, 0, errNoLockRows
	}
	return versions[0], versions[1], nil
}

// correctionVersion returns the version of the correction that a transaction with the
// rebuild lock is making, or an error if its snapshot does not show the one before.
func (c *Handle) correctionVersion(ctx context.Context, tx dialect.Tx) (int64, error) {
	version, last, err := c.versions(ctx, tx)
	if err == nil && last != version-1 {
		err = errStaleSnapshot
	}
	return version, err
}

// setBuilt notes that all of the counter was corrected. A build that is under way has
// nothing left to do.
func (c *Handle) setBuilt(ctx context.Context, tx dialect.Tx, version int64) error {
	if err := c.deleteLockRow(ctx, tx, lockBuild); err != nil {
		return err
	}
	return c.setRebuilt(ctx, tx, version, c.def.declaration())
}

// setRebuilt notes that the transaction's corrections are made and, if one is given,
// the declaration that the counter is built by.
func (c *Handle) setRebuilt(ctx context.Context, tx dialect.Tx, version int64, declaration string) error {
	w := newWriter(c.sql)
	writeRebuilt(w, c.sql, c.def.Name, version, declaration)
	return exec(ctx, tx, w)
}

// Verify recounts the counted rows of a scope and calls visit for every key that
// differs from what the counter says, with a function that scans the row: the key
// columns in order, then for each measure what the counter says, then for each
// measure what the recount says. It writes nothing. Rows are streamed: visit must
// not use the same transaction or connection meanwhile.
//
// It is one plain statement, which sees the counted tables, the counter rows and
// the journal in one snapshot and takes no locks. Outside of a transaction it runs
// in one of its own at READ COMMITTED. In a transaction it sees the changes made
// in it so far.
func (c *Handle) Verify(ctx context.Context, scope []any, visit func(scan func(dest ...any) error) error) (err error) {
	ctx, done := c.trace(ctx, "verify", len(scope))
	keys, each := 0, visit
	defer func() { done(Outcome{Keys: keys, Err: err}) }()
	visit = func(scan func(...any) error) error {
		keys++
		return each(scan)
	}
	values, err := c.def.scope(scope)
	if err != nil {
		return c.wrap("verifying", err)
	}
	w := newWriter(c.sql)
	drift(w, c.sql, c.def, region{prefix: values}, bothSides, 0)
	if t, ok := transactionOf(c.drv); ok {
		if err := t.Flush(ctx); err != nil {
			return err
		}
		return c.wrap("verifying", query(ctx, c.drv, w, visit))
	}
	return c.wrap("verifying", c.plainly(ctx, func(ex dialect.ExecQuerier) error { return query(ctx, ex, w, visit) }))
}

// plainly runs plain reads, each in a snapshot of its own, at READ COMMITTED. On
// SQLite a statement needs no transaction for that, and one could take the write
// lock, as the DSN says.
func (c *Handle) plainly(ctx context.Context, read func(dialect.ExecQuerier) error) error {
	if c.sql.name() == dialect.SQLite {
		return read(c.drv)
	}
	tx, err := c.begin(ctx, stdsql.LevelReadCommitted)
	if err != nil {
		return err
	}
	err = read(tx)
	if rerr := tx.Rollback(); err == nil && rerr != nil && !errors.Is(rerr, stdsql.ErrTxDone) {
		err = rerr
	}
	return err
}
