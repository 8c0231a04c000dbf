package testdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// A Server is a running database server.
type Server struct {
	Kind    Kind
	Version string
	Source  string // where it comes from: "env", "local" or "container"
	DSN     string // of an administrator, who may create and drop databases

	admin *sql.DB
	stop  func() // nil for a server that somebody else started
}

// EnvDSN returns the name of the environment variable that may hold the DSN of an administrator of a
// server of the kind: a go-sql-driver DSN for MariaDB and MySQL, a postgres:// URL for Postgres.
func (k Kind) EnvDSN() string {
	return "ENTCOUNTER_" + strings.ToUpper(string(k)) + "_DSN"
}

func (k Kind) driver() string {
	switch k {
	case SQLite:
		return "sqlite"
	case Postgres:
		return "pgx"
	default:
		return "mysql"
	}
}

// EnvDurable names the environment variable that, when it is "1", lets servers keep their own durability
// settings, for tests and measurements in which the cost of a commit matters. By default they are fast and
// would not survive a power cut.
const EnvDurable = "ENTCOUNTER_TEST_DURABLE"

func durable() bool { return os.Getenv(EnvDurable) == "1" }

// EnvPostgresBin names the environment variable with the folder of the initdb and postgres to start, in
// place of the newest ones that are installed.
const EnvPostgresBin = "ENTCOUNTER_POSTGRES_BIN"

// A lookup is one way to get a server.
type lookup struct {
	source string
	// open returns a server with its DSN and stop set.
	open func(ctx context.Context, kind Kind) (*Server, error)
	// final: when open finds one that then fails, no other way is tried. Somebody who names a
	// server must not silently get another.
	final bool
}

var lookups = []lookup{
	{source: "env", open: openEnv, final: true},
	{source: "local", open: openLocal},
	{source: "container", open: openContainer},
}

// errAbsent is wrapped by the error of a lookup that has nothing to offer.
var errAbsent = errors.New("absent")

func absent(format string, args ...any) error {
	return absentError(fmt.Sprintf(format, args...))
}

type absentError string

func (e absentError) Error() string      { return string(e) }
func (absentError) Is(target error) bool { return target == errAbsent }

// acquire tries the lookups in turn, and returns the first server that answers.
func acquire(ctx context.Context, kind Kind, lookups []lookup) (*Server, error) {
	var failed []string
	for _, l := range lookups {
		srv, err := l.open(ctx, kind)
		if err == nil {
			srv.Kind, srv.Source = kind, l.source
			if err = srv.connect(ctx); err == nil {
				return srv, nil
			}
			srv.close()
		}
		failed = append(failed, fmt.Sprintf("\n\t%s: %s", l.source, strings.ReplaceAll(err.Error(), "\n", "\n\t\t")))
		if l.final && !errors.Is(err, errAbsent) {
			break
		}
	}
	return nil, fmt.Errorf("testdb: no %s server; run internal/testdb/install.sh, set %s, or start docker:%s",
		kind, kind.EnvDSN(), strings.Join(failed, ""))
}

func openEnv(_ context.Context, kind Kind) (*Server, error) {
	dsn := os.Getenv(kind.EnvDSN())
	if dsn == "" {
		return nil, absent("%s is not set", kind.EnvDSN())
	}
	return &Server{DSN: dsn}, nil
}

// open opens an administrator's pool. MySQL's driver prints what it makes of a server that is still
// starting, or has been stopped; the errors it returns are enough.
func open(kind Kind, dsn string) (*sql.DB, error) {
	if kind == Postgres {
		return sql.Open(kind.driver(), dsn)
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	cfg.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// answers waits until the server that was started on the DSN answers. The images of servers start
// a first one to install the second, so that a port which accepts connections says little.
func answers(ctx context.Context, kind Kind, dsn string, limit time.Duration) error {
	db, err := open(kind, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		if err = db.PingContext(ctx); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no answer: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// connect brings the server's DSN into the form that database needs, and asks for its version.
func (s *Server) connect(ctx context.Context) error {
	query := "SELECT VERSION()"
	if s.Kind == Postgres {
		query = "SHOW server_version"
		u, err := url.Parse(s.DSN)
		if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
			return fmt.Errorf("the DSN is not a postgres:// URL")
		}
	} else {
		cfg, err := mysql.ParseDSN(s.DSN)
		if err != nil {
			return err
		}
		cfg.ParseTime = true
		cfg.Loc = time.UTC
		cfg.Collation = "utf8mb4_general_ci"
		s.DSN = cfg.FormatDSN()
	}
	admin, err := open(s.Kind, s.DSN)
	if err != nil {
		return err
	}
	// Tests come in bursts, and a container or an env server has other users: hold no idle crowd.
	admin.SetMaxOpenConns(4)
	s.admin = admin
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := admin.QueryRowContext(ctx, query).Scan(&s.Version); err != nil {
		return err
	}
	s.Version, _, _ = strings.Cut(s.Version, " ") // Postgres: "15.13 (Debian 15.13-0+deb12u1)"
	if s.Kind != Postgres && strings.Contains(s.Version, "MariaDB") != (s.Kind == MariaDB) {
		return fmt.Errorf("the server is not %s but version %s", s.Kind, s.Version)
	}
	return nil
}

func (s *Server) close() {
	if s.admin != nil {
		_ = s.admin.Close()
	}
	if s.stop != nil {
		s.stop()
	}
}

func (s *Server) create(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	stmt := "CREATE DATABASE " + name
	if s.Kind != Postgres {
		stmt += " CHARACTER SET utf8mb4"
	}
	if _, err := s.admin.ExecContext(ctx, stmt); err != nil {
		return fmt.Errorf("testdb: %s: create database: %w", s.Kind, err)
	}
	return nil
}

// NewDatabase returns a fresh empty database on the server, and a function that drops it and throws out who
// is still connected.
func (s *Server) NewDatabase() (*Database, func() error, error) {
	name := newName()
	if err := s.create(name); err != nil {
		return nil, nil, err
	}
	return s.database(name), func() error { return s.drop(name) }, nil
}

// drop drops the database. Connections that a test left open would make it wait, or fail, so they
// are ended first.
func (s *Server) drop(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	stmt := "DROP DATABASE IF EXISTS " + name
	if s.Kind == Postgres {
		stmt += " WITH (FORCE)"
	} else if err := s.kill(ctx, name); err != nil {
		return fmt.Errorf("testdb: %s: end connections: %w", s.Kind, err)
	}
	if _, err := s.admin.ExecContext(ctx, stmt); err != nil {
		return fmt.Errorf("testdb: %s: drop database: %w", s.Kind, err)
	}
	return nil
}

// kill ends every connection of MariaDB or MySQL whose current database is name.
func (s *Server) kill(ctx context.Context, name string) error {
	rows, err := s.admin.QueryContext(ctx, "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = ?", name)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var ids []uint64
	for rows.Next() {
		var id uint64
		if err := rows.Scan(&id); err != nil {
			return err
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, id := range ids {
		var gone *mysql.MySQLError
		_, err := s.admin.ExecContext(ctx, fmt.Sprintf("KILL %d", id))
		if err != nil && (!errors.As(err, &gone) || gone.Number != 1094) { // 1094: no such thread
			return err
		}
	}
	return nil
}

// servers holds, for each kind, the function that gets its server once.
var servers struct {
	sync.Mutex
	once     map[Kind]func() (*Server, error)
	running  []*Server
	stopped  bool
	starting sync.WaitGroup
}

// stopping is cancelled by Stop, so that it need not wait for a server that is starting.
var stopping, cancelStarts = context.WithCancel(context.Background())

// serverOf returns the process's one server of the kind.
func serverOf(kind Kind) (*Server, error) {
	servers.Lock()
	once := servers.once[kind]
	if once == nil {
		once = sync.OnceValues(func() (*Server, error) { return start(kind) })
		if servers.once == nil {
			servers.once = make(map[Kind]func() (*Server, error))
		}
		servers.once[kind] = once
	}
	servers.Unlock()
	return once() // unlocked: kinds start side by side
}

func start(kind Kind) (*Server, error) {
	switch kind {
	case MariaDB, MySQL, Postgres:
	default:
		return nil, fmt.Errorf("testdb: no server of kind %q", kind)
	}
	servers.Lock()
	if servers.stopped {
		servers.Unlock()
		return nil, fmt.Errorf("testdb: %s: stopped", kind)
	}
	servers.starting.Add(1)
	servers.Unlock()
	defer servers.starting.Done()

	srv, err := acquire(stopping, kind, lookups)
	if err != nil {
		return nil, err
	}
	servers.Lock()
	defer servers.Unlock()
	servers.running = append(servers.running, srv)
	return srv, nil
}

// Start gets a server of each of the kinds, side by side. On an error it has stopped them all.
func Start(kinds ...Kind) ([]*Server, error) {
	got := make([]*Server, len(kinds))
	errs := make([]error, len(kinds))
	var wg sync.WaitGroup
	for i, kind := range kinds {
		wg.Go(func() { got[i], errs[i] = serverOf(kind) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		Stop()
		return nil, err
	}
	return got, nil
}

// Stop stops every server that this process started. None can be started after it.
func Stop() { stopOnce() } // a second call waits for the first

var stopOnce = sync.OnceFunc(func() {
	servers.Lock()
	servers.stopped = true
	servers.Unlock()
	cancelStarts()
	servers.starting.Wait()

	var wg sync.WaitGroup
	for _, srv := range servers.running {
		wg.Go(srv.close)
	}
	wg.Wait()
})

// Main runs the tests of a package, and stops the servers that they started:
//
//	func TestMain(m *testing.M) { os.Exit(testdb.Main(m)) }
//
// Without it, the servers are killed when the process ends, and their files stay until the next
// process that starts servers sweeps them.
func Main(m *testing.M) int {
	defer Stop()
	return m.Run()
}
