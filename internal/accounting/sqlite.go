package accounting

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"modernc.org/libc"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// statement is a query with its arguments.
type statement struct {
	query string
	args  []driver.NamedValue
}

// recorder connects to a SQLite database and keeps the queries that are made.
type recorder struct {
	dsn string

	mu         sync.Mutex
	recording  bool
	statements []statement
}

func (r *recorder) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recording, r.statements = true, nil
}

func (r *recorder) end() []statement {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recording = false
	return r.statements
}

// Driver implements [driver.Connector].
func (r *recorder) Driver() driver.Driver { return &sqlite.Driver{} }

// Connect implements [driver.Connector].
func (r *recorder) Connect(context.Context) (driver.Conn, error) {
	c, err := r.Driver().Open(r.dsn)
	if err != nil {
		return nil, err
	}
	conn, ok := c.(sqliteConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T lacks methods of a connection", c), c.Close())
	}
	return recordingConn{conn, r}, nil
}

type sqliteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

type recordingConn struct {
	sqliteConn
	log *recorder
}

// QueryContext implements [driver.QueryerContext].
func (c recordingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	s := statement{query, slices.Clone(args)}
	for i, arg := range args {
		if t, ok := arg.Value.(time.Time); ok {
			text, err := c.text(ctx, t)
			if err != nil {
				return nil, err
			}
			s.args[i].Value = text
		}
	}
	c.log.mu.Lock()
	if c.log.recording {
		c.log.statements = append(c.log.statements, s)
	}
	c.log.mu.Unlock()
	return c.sqliteConn.QueryContext(ctx, query, args)
}

// text is how the driver writes a time.
func (c recordingConn) text(ctx context.Context, t time.Time) (string, error) {
	rows, err := c.sqliteConn.QueryContext(ctx, "SELECT CAST(? AS TEXT)", []driver.NamedValue{{Ordinal: 1, Value: t}})
	if err != nil {
		return "", err
	}
	values := make([]driver.Value, 1)
	err = errors.Join(rows.Next(values), rows.Close())
	return fmt.Sprint(values[0]), err
}

// replay runs statements once more by SQLite's own interface, which tells of each what it took: database/sql has no
// place for that.
func replay(dsn string, statements []statement) (usage Usage, err error) {
	tls := libc.NewTLS()
	defer tls.Close()
	db, err := openHandle(tls, dsn)
	defer func() {
		if rc := sqlite3.Xsqlite3_close_v2(tls, db.handle); rc != sqlite3.SQLITE_OK && err == nil {
			err = fmt.Errorf("SQLite: closing: result code %d", rc)
		}
	}()
	if err != nil {
		return Usage{}, err
	}
	for _, s := range statements {
		u, err := db.run(s)
		if err != nil {
			return Usage{}, err
		}
		usage.Rows += u.Rows
		usage.Steps += u.Steps
	}
	return usage, nil
}

// handle is a connection by SQLite's own interface.
type handle struct {
	tls    *libc.TLS
	handle uintptr
}

// text calls fn with a C string.
func (h handle) text(s string, fn func(text uintptr) int32) error {
	text, err := libc.CString(s)
	if err != nil {
		return err
	}
	defer libc.Xfree(h.tls, text)
	return h.check(fn(text))
}

// pointer returns what fn writes where it is told to.
func (h handle) pointer(fn func(to uintptr) error) (uintptr, error) {
	to := h.tls.Alloc(8)
	defer h.tls.Free(8)
	err := fn(to)
	return libc.AtomicLoadPUintptr(to), err
}

// check makes an error of a result code.
func (h handle) check(rc int32) error {
	switch rc {
	case sqlite3.SQLITE_OK, sqlite3.SQLITE_ROW, sqlite3.SQLITE_DONE:
		return nil
	}
	text := sqlite3.Xsqlite3_errstr(h.tls, rc)
	if h.handle != 0 {
		text = sqlite3.Xsqlite3_errmsg(h.tls, h.handle)
	}
	return fmt.Errorf("SQLite: %s (%d)", libc.GoString(text), rc)
}

// openHandle opens the database of a URI. The handle has to be closed also after an error.
func openHandle(tls *libc.TLS, dsn string) (h handle, err error) {
	h.tls = tls
	h.handle, err = h.pointer(func(to uintptr) error {
		return h.text(dsn, func(text uintptr) int32 {
			return sqlite3.Xsqlite3_open_v2(tls, text, to, sqlite3.SQLITE_OPEN_READWRITE|sqlite3.SQLITE_OPEN_URI, 0)
		})
	})
	if err != nil {
		return h, err
	}
	return h, h.check(sqlite3.Xsqlite3_busy_timeout(tls, h.handle, 30_000))
}

// run runs a statement to its end.
func (h handle) run(s statement) (usage Usage, err error) {
	stmt, err := h.pointer(func(to uintptr) error {
		return h.text(s.query, func(text uintptr) int32 {
			return sqlite3.Xsqlite3_prepare_v2(h.tls, h.handle, text, -1, to, 0)
		})
	})
	if err != nil {
		return Usage{}, fmt.Errorf("%w: %s", err, s.query)
	}
	defer func() {
		if ferr := h.check(sqlite3.Xsqlite3_finalize(h.tls, stmt)); err == nil {
			err = ferr
		}
	}()
	for _, arg := range s.args {
		if err := h.bind(stmt, arg); err != nil {
			return Usage{}, fmt.Errorf("%w: %s", err, s.query)
		}
	}
	for {
		rc := sqlite3.Xsqlite3_step(h.tls, stmt)
		if rc == sqlite3.SQLITE_DONE {
			break
		}
		if err := h.check(rc); err != nil {
			return Usage{}, fmt.Errorf("%w: %s", err, s.query)
		}
	}
	status := func(counter int32) int64 {
		return int64(uint32(sqlite3.Xsqlite3_stmt_status(h.tls, stmt, counter, 0)))
	}
	return Usage{
		Rows:  status(sqlite3.SQLITE_STMTSTATUS_FULLSCAN_STEP),
		Steps: status(sqlite3.SQLITE_STMTSTATUS_VM_STEP),
	}, nil
}

func (h handle) bind(stmt uintptr, arg driver.NamedValue) error {
	i := int32(arg.Ordinal)
	switch v := arg.Value.(type) {
	case nil:
		return h.check(sqlite3.Xsqlite3_bind_null(h.tls, stmt, i))
	case int64:
		return h.check(sqlite3.Xsqlite3_bind_int64(h.tls, stmt, i, v))
	case bool:
		n := int64(0)
		if v {
			n = 1
		}
		return h.check(sqlite3.Xsqlite3_bind_int64(h.tls, stmt, i, n))
	case string:
		if len(v) > math.MaxInt32 {
			return errors.New("a text is too long")
		}
		return h.text(v, func(text uintptr) int32 {
			return sqlite3.Xsqlite3_bind_text(h.tls, stmt, i, text, int32(len(v)), transient)
		})
	}
	return fmt.Errorf("a %T cannot be bound", arg.Value)
}

// transient has SQLite copy a text.
const transient = ^uintptr(0)
