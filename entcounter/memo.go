package entcounter

import (
	"context"
	stdsql "database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
	"weak"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
)

type memoKey struct{}

// WithMemo returns a context in which equal reads of counters ask the database once:
// the others get the answer of the first, each in values of its own. It is for the
// time of one request, in which a page shows the same count in several places. A
// context that has a memo already keeps it.
//
// An answer is not older than what the request has done. These make all answers of
// the memo be forgotten: a counted mutation with the context or one derived from it,
// when it has returned; the end of a transaction with such a mutation or with a read;
// Rebuild, DeleteScope and Fold; and [ForgetMemo]. What others change meanwhile is not
// noticed: that is what a memo is for.
//
// What is read in a transaction and outside is kept apart. Within a transaction, any
// statement but a plain SELECT makes answers be forgotten too, a locking read and SQL
// of the user's own among them: who has waited for a lock sees what was committed
// meanwhile.
//
// Errors are not remembered, and a read whose context has ended fails. Goroutines may
// share the context: reads that are equal at the same time wait for one statement.
// Answers are held in memory as long as the context is.
func WithMemo(ctx context.Context) context.Context {
	if memoOf(ctx) != nil {
		return ctx
	}
	return context.WithValue(ctx, memoKey{}, &memo{})
}

// ForgetMemo makes the reads that follow ask the database again. It is for what the
// memo cannot notice: SQL of your own outside of a transaction, a change by another
// context or program that the request has waited for, or a decision that needs the
// newest count. Without a memo in the context it does nothing.
func ForgetMemo(ctx context.Context) { memoOf(ctx).forget() }

// memo holds the answers to the reads of one request. A nil one holds none.
type memo struct {
	mu      sync.Mutex
	answers map[question]*answer
}

func memoOf(ctx context.Context) *memo {
	m, _ := ctx.Value(memoKey{}).(*memo)
	return m
}

// forget leaves also the reads that are under way to those who wait for them already:
// they began before what makes them old had ended.
func (m *memo) forget() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers = nil
}

// question is one read: a statement with its arguments, on a database or in a
// transaction.
type question struct {
	where       any // *Tx, or a weak.Pointer to a pool
	query, args string
	vars        string // session variables that the context sets
}

// answer is what a read has yielded. It is written once, before done is closed, and
// never changed after that.
type answer struct {
	done    chan struct{}
	failed  bool
	columns []string
	types   []*stdsql.ColumnType
	rows    [][]driver.Value
}

// ask returns the answer to a question: a remembered one, or that of read, which is
// remembered if it succeeds. Of several who ask at once, one reads.
func (m *memo) ask(ctx context.Context, q question, read func(*answer) error) (*answer, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		m.mu.Lock()
		a, ok := m.answers[q]
		if !ok {
			a = &answer{done: make(chan struct{}), failed: true}
			if m.answers == nil {
				m.answers = make(map[question]*answer)
			}
			m.answers[q] = a
		}
		m.mu.Unlock()
		if !ok {
			return a, m.lead(q, a, read)
		}
		select {
		case <-a.done:
			if !a.failed {
				return a, nil
			}
			// The error is that of another, whose context may have ended.
		case <-ctx.Done():
		}
	}
}

// lead reads for all who ask. What fails is forgotten. So is an answer that is remembered
// instead, because answers were forgotten meanwhile: the database may have given it
// earlier than this one, which may have waited for a connection, and whoever gets both
// would see a count go back.
func (m *memo) lead(q question, a *answer, read func(*answer) error) (err error) {
	returned := false
	defer func() {
		m.mu.Lock()
		a.failed = err != nil || !returned
		if remembered := m.answers[q] == a; remembered == a.failed {
			delete(m.answers, q)
		}
		m.mu.Unlock()
		close(a.done)
	}()
	err = read(a)
	returned = true
	return err
}

// memoDriver is the driver of a query that reads a counter: it answers from the memo
// of the context, if that has one.
type memoDriver struct{ dialect.Driver }

// remembering returns the driver for reading a counter with a context.
func remembering(ctx context.Context, drv dialect.Driver) dialect.Driver {
	if wrapped, ok := MemoDriver(ctx, drv); ok {
		return wrapped
	}
	return drv
}

// MemoDriver returns the driver that a generated query has to have from now on, for
// reading a counter with a context. It is not ok if that is the one it has.
func MemoDriver(ctx context.Context, drv dialect.Driver) (_ dialect.Driver, ok bool) {
	if _, is := drv.(memoDriver); is || memoOf(ctx) == nil {
		return nil, false
	}
	return memoDriver{drv}, true
}

// PlainDriver undoes MemoDriver, for the nodes that a query hands out. It is not ok
// if there is nothing to undo.
func PlainDriver(drv dialect.Driver) (_ dialect.Driver, ok bool) {
	d, ok := drv.(memoDriver)
	return d.Driver, ok
}

// Query implements dialect.ExecQuerier.
func (d memoDriver) Query(ctx context.Context, query string, args, v any) error {
	m := memoOf(ctx)
	rows, ok := v.(*sql.Rows)
	q, known := d.question(ctx, query, args)
	if m == nil || !ok || !known {
		return d.Driver.Query(ctx, query, args, v)
	}
	if t, ok := q.where.(*Tx); ok {
		t.usedBy(m)
	}
	a, err := m.ask(ctx, q, func(a *answer) error {
		var rows sql.Rows
		if err := d.Driver.Query(ctx, query, args, &rows); err != nil {
			return err
		}
		return a.collect(rows.ColumnScanner)
	})
	if err != nil {
		return err
	}
	rows.ColumnScanner, err = a.replay()
	return err
}

// question returns what a statement asks. It is not ok where the same question could
// have another answer without anything having changed, or where that is not known: a
// driver of the user's may choose a database by the context.
func (d memoDriver) question(ctx context.Context, query string, args any) (q question, ok bool) {
	q = question{query: query, vars: sessionVars(ctx)}
	if t, ok := transactionOf(d.Driver); ok {
		q.where = t
	} else if q.where, ok = builtKeyOf(d.Driver, nil).database.(weak.Pointer[stdsql.DB]); !ok {
		return question{}, false
	}
	list, ok := args.([]any)
	if !ok || !isPlainSelect(query) || setsSession(q) {
		return question{}, false
	}
	q.args, ok = encodeArgs(list)
	return q, ok
}

// setsSession reports whether a statement sets variables that stay set for the rest of
// its transaction.
func setsSession(q question) bool {
	_, ok := q.where.(*Tx)
	return ok && q.vars != ""
}

// sessionVars returns the session variables that ent sets before each statement with
// the context: see [sql.WithVar]. Row level security may depend on them.
func sessionVars(ctx context.Context) string {
	c := &varsContext{Context: ctx}
	sql.VarFromContext(c, "")
	if c.vars == nil {
		return ""
	}
	return fmt.Sprintf("%q", c.vars)
}

// varsContext learns what ent keeps in a context under a key of its own.
type varsContext struct {
	context.Context
	vars any
}

func (c *varsContext) Value(key any) any {
	c.vars = c.Context.Value(key)
	return c.vars
}

// collect takes all rows of a result, in the form in which the driver has them.
func (a *answer) collect(rows sql.ColumnScanner) (err error) {
	defer func() {
		if cerr := rows.Close(); err == nil {
			err = cerr
		}
	}()
	if a.columns, err = rows.Columns(); err != nil {
		return err
	}
	if a.types, err = rows.ColumnTypes(); err != nil {
		return err
	}
	for rows.Next() {
		values, dest := make([]any, len(a.columns)), make([]any, len(a.columns))
		for i := range values {
			dest[i] = &values[i]
		}
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		row := make([]driver.Value, len(values))
		for i, v := range values {
			row[i] = v
		}
		a.rows = append(a.rows, row)
	}
	return rows.Err()
}

// replay returns the rows of an answer anew. They go through a database/sql of their
// own, so that they are scanned by the same rules as those of the driver.
func (a *answer) replay() (sql.ColumnScanner, error) {
	db := stdsql.OpenDB(replayer{a})
	rows, err := db.QueryContext(context.Background(), "")
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return &replayed{rows, a, db}, nil
}

// replayed are rows of an answer.
type replayed struct {
	*stdsql.Rows
	answer *answer
	db     *stdsql.DB
}

// ColumnTypes returns those of the driver.
func (r *replayed) ColumnTypes() ([]*stdsql.ColumnType, error) {
	return slices.Clone(r.answer.types), nil
}

func (r *replayed) Close() error {
	return errors.Join(r.Rows.Close(), r.db.Close())
}

// replayer is a database that answers every query by one answer.
type replayer struct{ answer *answer }

var errReplayOnly = errors.New("entcounter: remembered rows can only be read")

func (r replayer) Connect(context.Context) (driver.Conn, error) { return r, nil }
func (r replayer) Driver() driver.Driver                        { return r }
func (r replayer) Open(string) (driver.Conn, error)             { return r, nil }
func (r replayer) Prepare(string) (driver.Stmt, error)          { return nil, errReplayOnly }
func (r replayer) Begin() (driver.Tx, error)                    { return nil, errReplayOnly }
func (r replayer) Close() error                                 { return nil }
func (r replayer) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return &replayRows{answer: r.answer}, nil
}

// replayRows are the rows of an answer for database/sql.
type replayRows struct {
	answer *answer
	next   int
}

func (r *replayRows) Columns() []string { return r.answer.columns }
func (r *replayRows) Close() error      { return nil }

func (r *replayRows) Next(dest []driver.Value) error {
	if r.next == len(r.answer.rows) {
		return io.EOF
	}
	for i, v := range r.answer.rows[r.next] {
		if b, ok := v.([]byte); ok {
			v = slices.Clone(b) // whoever scans may keep it, and change it
		}
		dest[i] = v
	}
	r.next++
	return nil
}

// isPlainSelect reports whether a statement certainly neither writes nor locks.
func isPlainSelect(query string) bool {
	text, ok := unquoted(query)
	text = strings.ToUpper(text)
	return ok && startsWith(text, "SELECT") && !strings.Contains(text, "LOCK") && !strings.Contains(text, " FOR ")
}

// unquoted returns a statement without what is quoted in it. It is not ok where a
// backslash or a dollar sign makes that hard to tell.
func unquoted(query string) (string, bool) {
	var (
		b     strings.Builder
		quote byte
	)
	for i := range len(query) {
		switch c := query[i]; {
		case c == '\\' || c == '$' && (i+1 == len(query) || query[i+1] < '0' || query[i+1] > '9'):
			return "", false
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'' || c == '`':
			quote = c
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), quote == 0
}

// encodeArgs writes the arguments of a statement so that different ones have
// different texts. It is not ok for those of which that is not known.
func encodeArgs(args []any) (text string, ok bool) {
	var b []byte
	sized := func(kind byte, s string) {
		b = binary.AppendUvarint(append(b, kind), uint64(len(s)))
		b = append(b, s...)
	}
	for _, arg := range args {
		v, err := driver.DefaultParameterConverter.ConvertValue(arg)
		if err != nil {
			return "", false
		}
		switch v := v.(type) {
		case nil:
			b = append(b, 'n')
		case int64:
			b = binary.AppendVarint(append(b, 'i'), v)
		case float64:
			b = binary.BigEndian.AppendUint64(append(b, 'f'), math.Float64bits(v))
		case bool:
			sized('b', fmt.Sprint(v))
		case []byte:
			sized('x', string(v))
		case string:
			sized('s', v)
		case time.Time:
			sized('t', v.Format(time.RFC3339Nano)+" "+v.Location().String())
		default:
			return "", false
		}
	}
	return string(b), true
}

var (
	_ dialect.Driver        = memoDriver{}
	_ driver.QueryerContext = replayer{}
)
