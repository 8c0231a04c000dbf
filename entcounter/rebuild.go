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
// that is new or differently declared, which reads refuse until then. Writers and folds go on meanwhile, except on SQLite, which
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
func (c *Handle) Rebuild(ctx context.Context, scope []any) (Rebuilt, error) {
	values, err := c.def.scope(scope)
	if err != nil {
		return Rebuilt{}, c.wrap("rebuilding", err)
	}
	var rebuilt Rebuilt
	err = c.transact(ctx, stdsql.LevelRepeatableRead, true, func(tx dialect.Tx) error {
		rebuilt = Rebuilt{}
		version, last, err := c.versions(ctx, tx)
		if err != nil {
			return err
		}
		if last != version-1 {
			return errStaleSnapshot
		}
		if rebuilt.Keys, err = c.correct(ctx, tx, values); err != nil {
			return err
		}
		declaration := ""
		if len(values) == 0 {
			declaration = c.def.declaration()
		}
		return c.setRebuilt(ctx, tx, version, declaration)
	}, lockRebuild)
	if err != nil {
		return Rebuilt{}, c.wrap("rebuilding", err)
	}
	if len(values) == 0 {
		builtKeyOf(c.drv, c.def).remember(true)
	}
	return rebuilt, nil
}

// correct journals the corrections of a scope, some keys at a time. The snapshot
// shows the transaction's own inserts, so a key that is corrected is not found
// again.
func (c *Handle) correct(ctx context.Context, tx dialect.Tx, scope []any) (int, error) {
	var (
		d        = c.def
		total    int
		previous map[string]struct{}
	)
	for {
		var (
			deltas  []Delta
			current = make(map[string]struct{})
			keyDest = make([]any, len(d.Key))
		)
		for i, col := range d.Key {
			keyDest[i] = scanTarget(col)
		}
		w := newWriter(c.sql)
		drift(w, c.sql, d, scope, true, c.rebuildChunk)
		err := query(ctx, tx, w, func(scan func(...any) error) error {
			delta := Delta{Measures: make([]int64, len(d.Measures))}
			dest := append(make([]any, 0, len(keyDest)+len(d.Measures)), keyDest...)
			for i := range delta.Measures {
				dest = append(dest, &delta.Measures[i])
			}
			if err := scan(dest...); err != nil {
				return err
			}
			var err error
			if delta.Key, err = d.scannedKey(keyDest); err != nil {
				return err
			}
			encoded := string(appendKey(nil, delta.Key))
			if _, again := previous[encoded]; again {
				return fmt.Errorf("key %s differs from the recount after its correction: the key columns of %s and of the counted table compare differently",
					formatKey(d.Key, delta.Key), d.Journal)
			}
			current[encoded] = struct{}{}
			deltas = append(deltas, delta)
			return nil
		})
		if err != nil {
			return 0, err
		}
		if len(deltas) > 0 {
			if err := insertJournal(ctx, tx, c.sql.name(), d, deltas); err != nil {
				return 0, err
			}
		}
		total += len(deltas)
		if len(deltas) < c.rebuildChunk {
			return total, nil
		}
		previous = current
	}
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
func (c *Handle) Verify(ctx context.Context, scope []any, visit func(scan func(dest ...any) error) error) error {
	values, err := c.def.scope(scope)
	if err != nil {
		return c.wrap("verifying", err)
	}
	w := newWriter(c.sql)
	drift(w, c.sql, c.def, values, false, 0)
	if t, ok := transactionOf(c.drv); ok {
		if err := t.Flush(ctx); err != nil {
			return err
		}
		return c.wrap("verifying", query(ctx, c.drv, w, visit))
	}
	tx, err := c.begin(ctx, stdsql.LevelReadCommitted)
	if err != nil {
		return c.wrap("verifying", err)
	}
	err = query(ctx, tx, w, visit)
	if rerr := tx.Rollback(); err == nil && rerr != nil && !errors.Is(rerr, stdsql.ErrTxDone) {
		err = rerr
	}
	return c.wrap("verifying", err)
}
