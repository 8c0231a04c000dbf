// Package tap watches the statements of a database/sql pool and breaks its
// connections. Both happen at the connection: what runs above it, ent and the
// counters included, is the real thing.
package tap

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/entcounter/entcounter/internal/testdb"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// Kind is what a statement is sent for.
type Kind uint8

// The kinds of statements.
const (
	Begin Kind = iota
	Exec
	Query
	Commit
	Rollback
)

// Statement is one statement on its way to the server.
type Statement struct {
	Kind Kind
	// SQL as sent. For the ends of a transaction it is BEGIN, COMMIT or ROLLBACK,
	// whatever the driver makes of it, and BEGIN is followed by the isolation level
	// that was asked for.
	SQL  string
	Args []any
	// Conn is the number of the connection.
	Conn int
	// Index is the position since the last Reset.
	Index int
	// Err is the error that the statement ended with, be it while its rows were
	// read.
	Err error

	refused bool
}

func (s Statement) String() string {
	text := s.SQL
	if len(s.Args) > 0 {
		text += fmt.Sprintf(" %v", s.Args)
	}
	if s.Err != nil {
		text += fmt.Sprintf(" -- %v", s.Err)
	}
	return text
}

// Is reports whether the statement starts with the words.
func (s Statement) Is(prefix string) bool { return strings.HasPrefix(s.SQL, prefix) }

// Fault is what happens to a statement.
type Fault struct {
	action action
	err    error
	call   func()
}

type action uint8

const (
	pass action = iota
	refuse
	cutBefore
	cutAfter
	run
	call
)

var (
	// Pass lets the statement through.
	Pass = Fault{}
	// CutBefore loses the connection before the statement arrives.
	CutBefore = Fault{action: cutBefore}
	// CutAfter loses the connection when the statement has arrived and before the
	// answer does.
	CutAfter = Fault{action: cutAfter}
)

// Refuse keeps the statement from the server and answers with an error.
func Refuse(err error) Fault { return Fault{action: refuse, err: err} }

// Run lets the server run the statement, and answers with an error all the same.
func Run(err error) Fault { return Fault{action: run, err: err} }

// Call calls f, and then lets the statement through.
func Call(f func()) Fault { return Fault{action: call, call: f} }

// Tap is a pool's watcher.
type Tap struct {
	mu         sync.Mutex
	conns      int
	statements []*Statement
	keep       bool
	next       int
	fault      func(Statement) Fault
	failed     func(Statement)
}

// Open opens a pool to the database, with further parameters of its driver, that
// is watched. It is closed when the test ends.
func Open(tb testing.TB, db *testdb.Database, params map[string]string) (*sql.DB, *Tap) {
	tb.Helper()
	t := &Tap{keep: true}
	c := &connector{tap: t}
	dsn := db.DSN
	if len(params) > 0 {
		dsn = db.WithParams(params)
	}
	switch db.Driver {
	case "mysql":
		cfg, err := mysql.ParseDSN(dsn)
		if err != nil {
			tb.Fatal(err)
		}
		cfg.DialFunc = dial
		cfg.Logger = &mysql.NopLogger{} // lost connections are expected
		if c.Connector, err = mysql.NewConnector(cfg); err != nil {
			tb.Fatal(err)
		}
		c.prepares = !cfg.InterpolateParams
	case "pgx":
		cfg, err := pgx.ParseConfig(dsn)
		if err != nil {
			tb.Fatal(err)
		}
		cfg.DialFunc = dial
		c.Connector = stdlib.GetConnector(*cfg)
	default:
		plain, err := sql.Open(db.Driver, dsn)
		if err != nil {
			tb.Fatal(err)
		}
		c.Connector = dsnConnector{plain.Driver(), dsn}
		_ = plain.Close()
	}
	pool := sql.OpenDB(c)
	tb.Cleanup(func() { _ = pool.Close() })
	return pool, t
}

// Reset forgets the statements so far.
func (t *Tap) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.statements, t.next = nil, 0
}

// Forget stops keeping statements, for long runs.
func (t *Tap) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.statements, t.keep = nil, false
}

// Statements returns the statements since the last Reset.
func (t *Tap) Statements() []Statement {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Statement, len(t.statements))
	for i, s := range t.statements {
		all[i] = *s
	}
	return all
}

// SQL returns the texts of the statements since the last Reset.
func (t *Tap) SQL() []string {
	var all []string
	for _, s := range t.Statements() {
		all = append(all, s.SQL)
	}
	return all
}

// Texts returns the statements since the last Reset with their arguments.
func (t *Tap) Texts() []string {
	var all []string
	for _, s := range t.Statements() {
		all = append(all, s.String())
	}
	return all
}

// locking is how a SELECT locks rows.
var locking = regexp.MustCompile(` FOR (UPDATE|NO KEY UPDATE|SHARE|KEY SHARE)\b| LOCK IN SHARE MODE\b`)

// Issued returns what the statements since the last Reset do, and resets: for each its
// verb and the table that it is about. LOCK is a locking read, ONE a statement that
// does all of a mutation, and BECOME WRITER takes SQLite's write lock.
func (t *Tap) Issued() []string {
	var all []string
	for _, s := range t.Statements() {
		text := strings.NewReplacer("`", "", `"`, "").Replace(s.SQL)
		words := strings.Fields(text)
		verb, table := words[0], ""
		switch verb {
		case "SELECT", "DELETE":
			for i, word := range words {
				if word == "FROM" && i+1 < len(words) {
					table = strings.Trim(words[i+1], "()")
					break
				}
			}
			if verb == "SELECT" && locking.MatchString(text) {
				verb = "LOCK"
			}
		case "UPDATE":
			table = words[1]
			if strings.HasSuffix(text, "WHERE FALSE") {
				verb = "BECOME WRITER"
			}
		case "INSERT":
			table = words[2]
		case "WITH":
			verb = "ONE"
		case "BEGIN":
			if len(words) > 1 && words[1] == "NOT" {
				verb = "ONE"
			}
		case "ROLLBACK":
			if len(words) > 1 {
				verb = "ROLLBACK TO"
			}
		}
		all = append(all, strings.TrimSpace(verb+" "+table))
	}
	t.Reset()
	return all
}

// Inject asks fault, before every statement, what is to happen to it. With nil,
// nothing does.
func (t *Tap) Inject(fault func(Statement) Fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fault = fault
}

// OnError calls failed with every statement that ends with an error.
func (t *Tap) OnError(failed func(Statement)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = failed
}

func (t *Tap) start(conn *conn, kind Kind, query string, args []driver.NamedValue) (*Statement, Fault) {
	s := &Statement{Kind: kind, SQL: query, Conn: conn.number}
	for _, a := range args {
		s.Args = append(s.Args, a.Value)
	}
	t.mu.Lock()
	s.Index = t.next
	t.next++
	if t.keep {
		t.statements = append(t.statements, s)
	}
	fault := t.fault
	t.mu.Unlock()
	if fault == nil {
		return s, Pass
	}
	return s, fault(*s)
}

func (t *Tap) end(s *Statement, err error) {
	if err == nil || err == io.EOF {
		return
	}
	t.mu.Lock()
	s.Err = err
	failed := t.failed
	copied := *s
	t.mu.Unlock()
	if failed != nil {
		failed(copied)
	}
}

type dsnConnector struct {
	driver driver.Driver
	dsn    string
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }

type connector struct {
	driver.Connector
	tap      *Tap
	prepares bool
}

type wireKey struct{}

// wire is the network connection under one of the pool's.
type wire struct {
	net.Conn
	mu       sync.Mutex
	cutAfter bool
}

func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: c}
	if holder, ok := ctx.Value(wireKey{}).(**wire); ok {
		*holder = w
	}
	return w, nil
}

// Write lets a statement out, and then cuts the connection if told to.
func (w *wire) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	w.mu.Lock()
	cut := w.cutAfter
	w.mu.Unlock()
	if cut {
		// The server notices the end of the connection only when it answers.
		time.Sleep(5 * time.Millisecond)
		_ = w.Conn.Close()
	}
	return n, err
}

func (w *wire) cut() { _ = w.Conn.Close() }

func (w *wire) cutAfterWrite() {
	w.mu.Lock()
	w.cutAfter = true
	w.mu.Unlock()
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	var w *wire
	inner, err := c.Connector.Connect(context.WithValue(ctx, wireKey{}, &w))
	if err != nil {
		return nil, err
	}
	c.tap.mu.Lock()
	defer c.tap.mu.Unlock()
	c.tap.conns++
	return &conn{Conn: inner, tap: c.tap, wire: w, number: c.tap.conns, prepares: c.prepares}, nil
}

// conn is a connection of the pool.
type conn struct {
	driver.Conn
	tap      *Tap
	wire     *wire // nil for a database in the process
	number   int
	prepares bool // the driver wants statements with arguments prepared
	lost     bool
}

// do runs one statement, or what the fault makes of it. The result of the
// statement is let go by release if its answer is lost.
func do[T any](c *conn, kind Kind, query string, args []driver.NamedValue, statement func() (T, error), release func(T)) (result T, s *Statement, err error) {
	if c.lost {
		return result, nil, driver.ErrBadConn
	}
	s, fault := c.tap.start(c, kind, query, args)
	defer func() { c.tap.end(s, err) }()
	var none T
	switch fault.action {
	case refuse:
		s.refused = true
		return none, s, fault.err
	case run:
		result, err = statement()
		if err == nil {
			release(result)
		}
		return none, s, errors.Join(fault.err, err)
	case call:
		fault.call()
	case cutBefore:
		if c.wire == nil {
			return none, s, c.lose()
		}
		c.wire.cut()
	case cutAfter:
		if c.wire == nil {
			if result, err = statement(); err == nil {
				release(result)
			}
			return none, s, c.lose()
		}
		c.wire.cutAfterWrite()
	}
	result, err = statement()
	return result, s, err
}

// lose ends a connection within the process.
func (c *conn) lose() error {
	c.lost = true
	_ = c.Conn.Close()
	return driver.ErrBadConn
}

func (c *conn) Close() error {
	if c.lost {
		return nil
	}
	return c.Conn.Close()
}

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	query := "BEGIN"
	if level := sql.IsolationLevel(opts.Isolation); level != sql.LevelDefault {
		query += " " + strings.ToUpper(level.String())
	}
	if opts.ReadOnly {
		query += " READ ONLY"
	}
	inner, _, err := do(c, Begin, query, nil, func() (driver.Tx, error) {
		return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	}, func(tx driver.Tx) { _ = tx.Rollback() })
	if err != nil {
		return nil, err
	}
	return &tx{inner, c}, nil
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.prepares && len(args) > 0 {
		return nil, driver.ErrSkip
	}
	res, _, err := do(c, Exec, query, args, func() (driver.Result, error) {
		return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	}, func(driver.Result) {})
	return res, err
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.prepares && len(args) > 0 {
		return nil, driver.ErrSkip
	}
	return c.watchRows(query, args, func() (driver.Rows, error) {
		return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	})
}

func (c *conn) watchRows(query string, args []driver.NamedValue, statement func() (driver.Rows, error)) (driver.Rows, error) {
	inner, s, err := do(c, Query, query, args, statement, func(r driver.Rows) { _ = r.Close() })
	if err != nil {
		return nil, err
	}
	return &rows{inner, c.tap, s}, nil
}

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if c.lost {
		return nil, driver.ErrBadConn
	}
	inner, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		// The statement never comes to be: show what failed.
		s, _ := c.tap.start(c, Exec, query, nil)
		c.tap.end(s, err)
		return nil, err
	}
	return &stmt{inner, c, query}, nil
}

func (c *conn) Ping(ctx context.Context) error {
	if c.lost {
		return driver.ErrBadConn
	}
	if p, ok := c.Conn.(driver.Pinger); ok {
		return p.Ping(ctx)
	}
	return nil
}

func (c *conn) ResetSession(ctx context.Context) error {
	if c.lost {
		return driver.ErrBadConn
	}
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *conn) IsValid() bool {
	if c.lost {
		return false
	}
	if v, ok := c.Conn.(driver.Validator); ok {
		return v.IsValid()
	}
	return true
}

func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type tx struct {
	driver.Tx
	conn *conn
}

func (t *tx) Commit() error   { return t.finish(Commit, "COMMIT", t.Tx.Commit) }
func (t *tx) Rollback() error { return t.finish(Rollback, "ROLLBACK", t.Tx.Rollback) }

func (t *tx) finish(kind Kind, query string, end func() error) error {
	_, s, err := do(t.conn, kind, query, nil, func() (struct{}, error) { return struct{}{}, end() }, func(struct{}) {})
	if s != nil && s.refused {
		_ = t.Tx.Rollback() // as a server does that refuses to commit
	}
	return err
}

type stmt struct {
	driver.Stmt
	conn  *conn
	query string
}

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	res, _, err := do(s.conn, Exec, s.query, args, func() (driver.Result, error) {
		return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
	}, func(driver.Result) {})
	return res, err
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.watchRows(s.query, args, func() (driver.Rows, error) {
		return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
	})
}

func (s *stmt) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := s.Stmt.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return s.conn.CheckNamedValue(v)
}

func (s *stmt) Close() error {
	if s.conn.lost {
		return nil
	}
	return s.Stmt.Close()
}

// rows watches for the errors of a statement that show up late.
type rows struct {
	driver.Rows
	tap       *Tap
	statement *Statement
}

func (r *rows) Next(dest []driver.Value) error {
	err := r.Rows.Next(dest)
	r.tap.end(r.statement, err)
	return err
}

func (r *rows) HasNextResultSet() bool {
	n, ok := r.Rows.(driver.RowsNextResultSet)
	return ok && n.HasNextResultSet()
}

func (r *rows) NextResultSet() error {
	if n, ok := r.Rows.(driver.RowsNextResultSet); ok {
		return n.NextResultSet()
	}
	return io.EOF
}

func (r *rows) ColumnTypeDatabaseTypeName(i int) string {
	if n, ok := r.Rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
		return n.ColumnTypeDatabaseTypeName(i)
	}
	return ""
}

var (
	_ driver.ConnBeginTx        = (*conn)(nil)
	_ driver.ExecerContext      = (*conn)(nil)
	_ driver.QueryerContext     = (*conn)(nil)
	_ driver.ConnPrepareContext = (*conn)(nil)
	_ driver.SessionResetter    = (*conn)(nil)
	_ driver.Validator          = (*conn)(nil)
	_ driver.NamedValueChecker  = (*conn)(nil)
	_ driver.StmtExecContext    = (*stmt)(nil)
	_ driver.StmtQueryContext   = (*stmt)(nil)
)
