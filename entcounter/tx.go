package entcounter

import (
	"cmp"
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
)

// ErrTransactionFailed is returned by every statement and by the commit of a
// transaction that the server rolled back on its own (a deadlock, say) or in
// which a counted mutation failed half-way. Such a transaction cannot be
// committed with correct counts: roll it back and run it again as a whole. The
// error that caused it is wrapped.
var ErrTransactionFailed = errors.New("entcounter: transaction failed, roll it back and retry it as a whole")

// Tx is a transaction with the counter changes that it has not written yet. It
// wraps the transaction of a user, or one opened for a single mutation, inside
// of all of the user's commit hooks, so that a change and its deltas commit or
// roll back together.
type Tx struct {
	inner   dialect.Tx
	dialect string

	mu       sync.Mutex
	pending  changes
	ctx      context.Context // of the last mutation, for the flush at commit
	failed   error
	undoable bool  // failed by what a rollback to a savepoint undoes
	ended    error // set when a statement of the user's own has ended the transaction
	written  int64 // rows affected by statements
	insertID int64 // of the last statement
	writer   bool  // SQLite's write lock is held
	// isolation level in PostgreSQL, once it is known.
	isolation string
	// exact are counters that a recount in the transaction has found to be exact.
	exact map[builtKey]bool
	// memos that hold answers from the transaction, or are out of date when it commits.
	memos map[*memo]struct{}
}

func newTx(inner dialect.Tx, dialectName string) *Tx {
	return &Tx{inner: inner, dialect: dialectName, ctx: context.Background()}
}

// Exec implements dialect.ExecQuerier.
func (t *Tx) Exec(ctx context.Context, query string, args, v any) error {
	if err := cmp.Or(t.failure(), ctx.Err()); err != nil {
		return err
	}
	defer t.forgetAnswers()
	var own sql.Result
	res, ok := v.(*sql.Result)
	if !ok {
		if v != nil {
			return fmt.Errorf("entcounter: invalid type %T, expect *sql.Result", v)
		}
		res = &own
	}
	if err := t.inner.Exec(ctx, query, args, res); err != nil {
		return t.observe(err)
	}
	n, err := (*res).RowsAffected()
	if err != nil {
		n = 1 // not known: it may have changed something
	}
	id, err := (*res).LastInsertId()
	if err != nil {
		id = 0 // PostgreSQL
	}
	t.noteWrite(n, id)
	return nil
}

// Query implements dialect.ExecQuerier.
func (t *Tx) Query(ctx context.Context, query string, args, v any) error {
	if err := cmp.Or(t.failure(), ctx.Err()); err != nil {
		return err
	}
	if t.isUsed() && (!isPlainSelect(query) || sessionVars(ctx) != "") {
		defer t.forgetAnswers()
	}
	if err := t.inner.Query(ctx, query, args, v); err != nil {
		t.forgetAnswers() // PostgreSQL answers nothing any more
		return t.observe(err)
	}
	if rows, ok := v.(*sql.Rows); ok && rows.ColumnScanner != nil {
		rows.ColumnScanner = &watchedRows{rows.ColumnScanner, t, !startsWith(query, "SELECT")}
	}
	return nil
}

// ExecContext passes a statement of the user's own on to the transaction, as
// ent's sql/execquery feature does. Rows that it changes are not counted: see
// the generated Journal method. Savepoints are understood.
func (t *Tx) ExecContext(ctx context.Context, query string, args ...any) (stdsql.Result, error) {
	ex, ok := t.inner.(interface {
		ExecContext(context.Context, string, ...any) (stdsql.Result, error)
	})
	if !ok {
		return nil, fmt.Errorf("entcounter: ExecContext is not supported by transaction of type %T", t.inner)
	}
	if err := t.beforeRaw(ctx, query); err != nil {
		return nil, err
	}
	defer t.forgetAnswers()
	res, err := ex.ExecContext(ctx, query, args...)
	if err != nil {
		return nil, t.observe(err)
	}
	t.noteWrite(1, 0)
	t.afterRaw(query)
	return res, nil
}

// QueryContext passes a query of the user's own on to the transaction.
func (t *Tx) QueryContext(ctx context.Context, query string, args ...any) (*stdsql.Rows, error) {
	q, ok := t.inner.(interface {
		QueryContext(context.Context, string, ...any) (*stdsql.Rows, error)
	})
	if !ok {
		return nil, fmt.Errorf("entcounter: QueryContext is not supported by transaction of type %T", t.inner)
	}
	if err := t.beforeRaw(ctx, query); err != nil {
		return nil, err
	}
	defer t.forgetAnswers()
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, t.observe(err)
	}
	t.afterRaw(query)
	return rows, nil
}

// Commit writes the pending deltas and commits. A failed transaction is rolled
// back instead.
func (t *Tx) Commit() error {
	defer t.forgetAnswers()
	if err := t.Flush(t.ctx); err != nil {
		if rerr := t.inner.Rollback(); rerr != nil {
			err = errors.Join(err, rerr)
		}
		return err
	}
	if err := t.inner.Commit(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.exact {
		key.remember(false)
	}
	return nil
}

// noteExact notes that the transaction sees a counter equal a recount. What counts
// changes both, so it stays so.
func (t *Tx) noteExact(key builtKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.exact == nil {
		t.exact = make(map[builtKey]bool)
	}
	t.exact[key] = true
}

// foundExact reports what noteExact has noted.
func (t *Tx) foundExact(key builtKey) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.exact[key]
}

// Rollback rolls the transaction back and forgets its deltas.
func (t *Tx) Rollback() error {
	defer t.forgetAnswers()
	t.mu.Lock()
	t.pending = changes{}
	t.mu.Unlock()
	return t.inner.Rollback()
}

// Add adds deltas to those that the transaction writes when it commits.
func (t *Tx) Add(ctx context.Context, d *Definition, deltas []Delta) error {
	var c changes
	if err := c.addAll(d, deltas); err != nil {
		return err
	}
	return t.merge(ctx, &c)
}

// merge takes over the changes of one mutation that succeeded.
func (t *Tx) merge(ctx context.Context, c *changes) error {
	if m := memoOf(ctx); m != nil {
		t.usedBy(m)
	}
	defer t.forgetAnswers()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed != nil {
		return t.failed
	}
	// A commit has no context of its own. The values of this one may matter to the
	// driver; its end does not concern the deltas of rows already changed.
	t.ctx = context.WithoutCancel(ctx)
	return t.pending.merge(c)
}

// Flush writes the pending deltas to the journals: one row for each key with a
// change that is not zero. It runs at commit and before a counter is read in the
// transaction.
func (t *Tx) Flush(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed != nil {
		return t.failed
	}
	if len(t.pending.byCounter) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err // the deltas stay
	}
	ctx = context.WithoutCancel(ctx)
	for _, d := range t.pending.counters() {
		deltas := t.pending.drain(d)
		if len(deltas) == 0 {
			continue
		}
		if err := insertJournal(ctx, t.inner, t.dialect, d, deltas); err != nil {
			if serverErrorOf(err).state == postgresAborted {
				// It takes nothing but ROLLBACK TO a savepoint, which forgets the deltas.
				return errors.Join(fmt.Errorf("%w: %w", ErrTransactionFailed, err), t.pending.addAll(d, deltas))
			}
			// The deltas are lost to this transaction, which must not commit without
			// them.
			t.failed = fmt.Errorf("%w: %w", ErrTransactionFailed, err)
			return t.failed
		}
		t.written++
	}
	return nil
}

// fail makes the transaction impossible to commit, unless it goes back to a
// savepoint: any that is there is older, as no statement follows.
func (t *Tx) fail(cause error) {
	defer t.forgetAnswers()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed == nil {
		t.failed = fmt.Errorf("%w: %w", ErrTransactionFailed, cause)
		t.undoable = true
	}
	t.pending = changes{}
}

// lose makes the transaction impossible to commit for good: the server has ended it.
func (t *Tx) lose(cause error) {
	t.fail(cause)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.undoable = false
}

// usedBy notes that a memo holds answers from the transaction, or belongs to whoever
// changes something in it.
func (t *Tx) usedBy(m *memo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.memos == nil {
		t.memos = make(map[*memo]struct{})
	}
	t.memos[m] = struct{}{}
}

func (t *Tx) isUsed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.memos) > 0
}

// forgetAnswers makes reads ask the database again, in the transaction and for those
// whose changes it holds.
func (t *Tx) forgetAnswers() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for m := range t.memos {
		m.forget()
	}
}

// failure is what a failed transaction answers to every statement: the server may
// have ended it, and a write would then commit at once and uncounted.
func (t *Tx) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

// beforeRaw keeps deltas and the statements of a user's own together. Such a
// statement may be anything: a savepoint, DDL that commits in MySQL, a read of the
// journal. Pending deltas are written before it. Only what follows a savepoint is
// forgotten when the transaction goes back to it, where an aborted PostgreSQL
// transaction takes no other statement.
func (t *Tx) beforeRaw(ctx context.Context, query string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !rollsBackTo(query) {
		return t.Flush(ctx)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending, t.exact = changes{}, nil
	if t.undoable {
		return nil
	}
	return t.failed
}

// afterRaw notes that a statement of the user's own has ended the transaction, or has
// undone what made it fail. What it had changed until it ended is counted; what it
// changes from now on would commit at once, whatever becomes of the deltas.
func (t *Tx) afterRaw(query string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.undoable && rollsBackTo(query) {
		t.failed, t.undoable = nil, false
	}
	if !endsByItself(t.dialect, query) {
		return
	}
	t.ended = fmt.Errorf("%w: it was ended by the statement %q", ErrTransactionFailed, query)
}

// over is what counted mutations get after the transaction was ended by a statement
// of the user's own.
func (t *Tx) over() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

// endsByItself reports whether a statement ends the transaction that it runs in.
func endsByItself(dialectName, query string) bool {
	words := strings.Fields(strings.ToUpper(strings.TrimLeft(stripComments(query), "; \t\r\n")))
	if len(words) == 0 {
		return false
	}
	switch strings.TrimRight(words[0], ";") {
	case "COMMIT", "END", "ABORT":
		return true
	case "ROLLBACK":
		return !rollsBackTo(query)
	case "BEGIN", "START", "ALTER", "TRUNCATE", "RENAME", "GRANT", "REVOKE", "LOCK", "UNLOCK", "ANALYZE", "OPTIMIZE", "REPAIR":
		return dialectName == dialect.MySQL
	case "CREATE", "DROP":
		return dialectName == dialect.MySQL && len(words) > 1 && words[1] != "TEMPORARY"
	}
	return false
}

// rollsBackTo reports whether a statement is ROLLBACK … TO a savepoint, and nothing
// else.
func rollsBackTo(query string) bool {
	words := strings.Fields(stripComments(query))
	if len(words) < 3 || !strings.EqualFold(words[0], "ROLLBACK") {
		return false
	}
	to := 1
	if strings.EqualFold(words[1], "WORK") || strings.EqualFold(words[1], "TRANSACTION") {
		to = 2
	}
	return strings.EqualFold(words[to], "TO") && !strings.Contains(strings.TrimRight(query, "; \t\r\n"), ";")
}

// stripComments replaces the comments before and between the words of a statement
// by spaces.
func stripComments(query string) string {
	var b strings.Builder
	for query != "" {
		end, skip := "", 0
		switch {
		case strings.HasPrefix(query, "/*"):
			end, skip = "*/", 2
		case strings.HasPrefix(query, "--"), strings.HasPrefix(query, "#"):
			end, skip = "\n", 1
		default:
			b.WriteByte(query[0])
			query = query[1:]
			continue
		}
		b.WriteByte(' ')
		i := strings.Index(query[skip:], end)
		if i < 0 {
			break
		}
		query = query[skip+i+len(end):]
	}
	return b.String()
}

// noteWrite records a statement that affected rows.
func (t *Tx) noteWrite(affected, insertID int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.insertID = insertID
	if affected > 0 {
		t.written += affected
		t.writer = true
	}
}

// affected counts the rows that statements affected so far.
func (t *Tx) affected() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.written
}

// forgetSince takes back what affected counted since it was at a value: the
// statements since then have been undone, or have changed nothing.
func (t *Tx) forgetSince(affected int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.written = affected
}

// lastInsertID is the insert id of the last statement, where the server has one.
func (t *Tx) lastInsertID() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.insertID
}

func (t *Tx) isFailed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed != nil
}

// isWriter reports whether the transaction holds SQLite's write lock.
func (t *Tx) isWriter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.writer
}

func (t *Tx) becameWriter() {
	t.mu.Lock()
	t.writer = true
	t.mu.Unlock()
}

// observe looks at an error of the transaction's for one that ended it.
func (t *Tx) observe(err error) error {
	if err == nil {
		return nil
	}
	if endsTransaction(t.dialect, err, t.isWriter(), t.rollsBackOnTimeout) {
		t.lose(err)
	}
	return err
}

// rollsBackOnTimeout asks an InnoDB server whether a lock wait timeout has
// rolled back the whole transaction rather than the statement.
func (t *Tx) rollsBackOnTimeout() bool {
	var rows sql.Rows
	if err := t.inner.Query(context.Background(), "SELECT @@innodb_rollback_on_timeout", []any{}, &rows); err != nil {
		return true
	}
	defer rows.Close()
	on, err := sql.ScanBool(rows)
	return err != nil || on
}

// watchedRows tells the transaction what happens while rows are read. MySQL
// sends the columns before it runs the statement, so that a deadlock in a
// locking read shows up only here; and an INSERT … RETURNING has changed
// something when it returns a row.
type watchedRows struct {
	sql.ColumnScanner
	tx     *Tx
	writes bool
}

func (r *watchedRows) Next() bool {
	ok := r.ColumnScanner.Next()
	if ok && r.writes {
		r.tx.noteWrite(1, 0)
	}
	return ok
}

func (r *watchedRows) Err() error   { return r.tx.observe(r.ColumnScanner.Err()) }
func (r *watchedRows) Close() error { return r.tx.observe(r.ColumnScanner.Close()) }

// startsWith reports whether a statement starts with a keyword.
func startsWith(query, keyword string) bool {
	query = strings.TrimLeft(query, " \t\r\n(")
	return len(query) >= len(keyword) && strings.EqualFold(query[:len(keyword)], keyword)
}

// opDriver is the driver of a transaction opened for one mutation. Like the one
// that ent generates for a user's transaction, it hands itself out as the
// transaction, and its Commit and Rollback do nothing: the owner ends it.
type opDriver struct {
	tx *Tx
}

func (d opDriver) Exec(ctx context.Context, query string, args, v any) error {
	return d.tx.Exec(ctx, query, args, v)
}

func (d opDriver) Query(ctx context.Context, query string, args, v any) error {
	return d.tx.Query(ctx, query, args, v)
}

func (d opDriver) Tx(context.Context) (dialect.Tx, error) { return d, nil }
func (d opDriver) Dialect() string                        { return d.tx.dialect }
func (opDriver) Close() error                             { return nil }
func (opDriver) Commit() error                            { return nil }
func (opDriver) Rollback() error                          { return nil }

// counterTx is implemented by the transaction driver that ent generates.
type counterTx interface {
	// CounterTx returns the wrapper around the inner transaction, after having
	// put it there if there was none.
	CounterTx(wrap func(dialect.Tx) *Tx) *Tx
	// CounterDriver returns the driver that the transaction was begun on.
	CounterDriver() dialect.Driver
}

// transactionOf returns the wrapper of the transaction that a driver is bound to,
// if it is bound to one. It puts the wrapper in place around a user's transaction.
func transactionOf(drv dialect.Driver) (*Tx, bool) {
	t, user := binding(drv)
	if user != nil {
		t = user.CounterTx(func(inner dialect.Tx) *Tx { return newTx(inner, drv.Dialect()) })
	}
	return t, t != nil
}

// binding returns the transaction that a driver is bound to: one of the product's
// own, or the user's.
func binding(drv dialect.Driver) (*Tx, counterTx) {
	for {
		switch d := drv.(type) {
		case *dialect.DebugDriver:
			drv = d.Driver
		case memoDriver:
			drv = d.Driver
		case opDriver:
			return d.tx, nil
		case counterTx:
			return nil, d
		default:
			return nil, nil
		}
	}
}

var (
	_ dialect.Tx     = (*Tx)(nil)
	_ dialect.Driver = opDriver{}
)
