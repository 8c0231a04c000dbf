package entcounter

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
)

// Handle runs the operations of one counter on a database. Generated clients
// offer them under typed names.
type Handle struct {
	def *Definition
	drv dialect.Driver
	sql sqlDialect
	// rebuildChunk is how many drifting keys a rebuild keeps in memory.
	rebuildChunk int
}

// New returns the operations of a counter on the database of a driver.
func New(d *Definition, drv dialect.Driver) *Handle {
	if plain, ok := PlainDriver(drv); ok {
		drv = plain
	}
	return &Handle{def: d, drv: drv, sql: sqlFor(drv.Dialect()), rebuildChunk: 50_000}
}

// Name returns the name that the counter was declared with.
func (c *Handle) Name() string { return c.def.Name }

// Journal adds deltas to those that the transaction writes when it commits. It is
// for changes that the counted tables undergo by SQL of one's own, in the same
// transaction. A delta is derived from the rows as the transaction found them
// under its own locks, or from the affected rows of a conditional statement, never
// from what was read before (ADR, Writing). Outside of a transaction it returns
// [ErrNoTransaction].
func (c *Handle) Journal(ctx context.Context, deltas ...Delta) error {
	const operation = "journalling"
	t, ok := transactionOf(c.drv)
	if !ok {
		return c.wrap(operation, ErrNoTransaction)
	}
	normal := make([]Delta, len(deltas))
	for i, delta := range deltas {
		key, err := c.def.key(delta.Key, len(c.def.Key))
		if err != nil {
			return c.wrap(operation, err)
		}
		if len(delta.Measures) != len(c.def.Measures) {
			return c.wrap(operation, fmt.Errorf("key %s: %d measures given, the counter has %d",
				formatKey(c.def.Key, key), len(delta.Measures), len(c.def.Measures)))
		}
		normal[i] = Delta{Key: key, Measures: delta.Measures}
	}
	return c.wrap(operation, t.Add(ctx, c.def, normal))
}

// Backlog is what a fold has yet to do.
type Backlog struct {
	// Rows of the journal.
	Rows int64
	// Oldest is the time at which the oldest of them was inserted, by the
	// database's clock; the zero time if there is none.
	Oldest time.Time
}

// Backlog returns the size and age of the journal. A journal that grows slows
// reads down, it never makes them wrong. It scans the journal in one plain
// statement and takes no locks; in a transaction, it shows what that sees.
func (c *Handle) Backlog(ctx context.Context) (Backlog, error) {
	w := newWriter(c.sql)
	w.sql("SELECT COUNT(*), ", c.sql.timeText("MIN("+w.quote(ColumnInsertedAt)+")"), " FROM ").ident(c.def.Journal)
	var (
		b      Backlog
		oldest Time
	)
	if err := queryRow(ctx, c.drv, w, &b.Rows, &oldest); err != nil {
		return Backlog{}, c.wrap("reading the backlog of", err)
	}
	if b.Rows > 0 {
		b.Oldest = time.Time(oldest).UTC()
	}
	return b, nil
}

// InTransaction reports whether the counter is bound to a transaction, as those of a
// generated Tx are.
func (c *Handle) InTransaction() bool { return inTransaction(c.drv) }

// inTransaction reports whether a driver is bound to a transaction.
func inTransaction(drv dialect.Driver) bool {
	t, user := binding(drv)
	return t != nil || user != nil
}

// Attempts at a transaction that others can get in the way of.
const (
	raceAttempts  = 50 // each is over as soon as it has lost
	waitAttempts  = 8  // each has waited as long as the server or the DSN says
	maxRetryDelay = 200 * time.Millisecond
)

// interruptedError reports that others got in the way of every attempt.
type interruptedError struct{ cause error }

func (e *interruptedError) Error() string {
	return "gave way to other transactions: " + e.cause.Error()
}
func (e *interruptedError) Unwrap() error { return e.cause }

var (
	// errNoLockRows is returned when counter_locks has no rows of a counter yet.
	errNoLockRows = errors.New("no lock rows")
	// errStaleSnapshot is returned when a snapshot taken under the rebuild lock
	// does not show the previous holder's commit.
	errStaleSnapshot = errors.New("the snapshot does not show the last rebuild: in " + LockTable + ", the version of rebuilt is not the one before that of rebuild")
)

// transact runs fn in a transaction of its own at the given isolation level,
// whose first statement writes the given lock rows in order, and commits. The
// level is set for this transaction; the pool's default does not matter. A
// transaction that lost against others is run again as a whole after a pause
// with jitter, and a patient one also when it has waited for a lock in vain. Lock
// rows that are missing are created before it, in autocommit.
func (c *Handle) transact(ctx context.Context, level stdsql.IsolationLevel, patient bool, fn func(dialect.Tx) error, locks ...string) error {
	if inTransaction(c.drv) {
		return ErrInTransaction
	}
	defer ForgetMemo(ctx)
	creations := 0
	for races, waits, delay := 0, 0, time.Millisecond; ; {
		err := c.attempt(ctx, level, fn, locks)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return err
		case errors.Is(err, errNoLockRows) && creations < 3:
			creations++
			w := newWriter(c.sql)
			c.sql.createLocks(w, c.def.Name)
			// Two first folds at once may get in each other's way here, too.
			if err := exec(ctx, c.drv, w); err != nil && !lostRace(err) && !busy(err) {
				return fmt.Errorf("creating its rows in %s: %w", LockTable, err)
			}
			continue
		case lostRace(err), errors.Is(err, errStaleSnapshot):
			if races++; races >= raceAttempts {
				return &interruptedError{err}
			}
		case busy(err), patient && timedOut(err):
			if waits++; waits >= waitAttempts {
				return &interruptedError{err}
			}
		default:
			return err
		}
		delay = min(2*delay, maxRetryDelay)
		if err := sleep(ctx, rand.N(delay)); err != nil {
			return err
		}
	}
}

func (c *Handle) attempt(ctx context.Context, level stdsql.IsolationLevel, fn func(dialect.Tx) error, locks []string) error {
	tx, err := c.begin(ctx, level)
	if err != nil {
		return err
	}
	err = c.lock(ctx, tx, locks)
	if err == nil {
		err = fn(tx)
	}
	if err != nil {
		// A transaction whose context has ended is rolled back already, and the
		// error that matters is the first one.
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

func (c *Handle) begin(ctx context.Context, level stdsql.IsolationLevel) (dialect.Tx, error) {
	drv, ok := c.drv.(interface {
		BeginTx(context.Context, *stdsql.TxOptions) (dialect.Tx, error)
	})
	if !ok {
		return nil, fmt.Errorf("driver %T cannot begin a transaction at an isolation level: it has no BeginTx", c.drv)
	}
	return drv.BeginTx(ctx, c.sql.options(level))
}

func (c *Handle) lock(ctx context.Context, tx dialect.Tx, locks []string) error {
	for _, operation := range locks {
		w := newWriter(c.sql)
		writeLock(w, c.def.Name, operation)
		n, err := execAffected(ctx, tx, w)
		if err != nil {
			return err
		}
		if n == 0 {
			return errNoLockRows
		}
	}
	return nil
}

func exec(ctx context.Context, ex dialect.ExecQuerier, w *writer) error {
	return ex.Exec(ctx, w.String(), w.args, nil)
}

func execAffected(ctx context.Context, ex dialect.ExecQuerier, w *writer) (int64, error) {
	var res sql.Result
	if err := ex.Exec(ctx, w.String(), w.args, &res); err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// query calls visit for each row of a result.
func query(ctx context.Context, ex dialect.ExecQuerier, w *writer, visit func(scan func(dest ...any) error) error) (err error) {
	var rows sql.Rows
	if err := ex.Query(ctx, w.String(), w.args, &rows); err != nil {
		return err
	}
	defer func() {
		if cerr := rows.Close(); err == nil {
			err = cerr
		}
	}()
	for rows.Next() {
		if err := visit(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// queryRow scans the only row of a result.
func queryRow(ctx context.Context, ex dialect.ExecQuerier, w *writer, dest ...any) error {
	found := false
	err := query(ctx, ex, w, func(scan func(...any) error) error {
		found = true
		return scan(dest...)
	})
	if err == nil && !found {
		err = stdsql.ErrNoRows
	}
	return err
}

// sleep pauses, and returns the context's error if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
