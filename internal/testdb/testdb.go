// Package testdb gives tests a fresh, empty database on each kind of server that entcounter supports.
//
// A kind is never skipped: where its server cannot be had, the test fails and says what to install.
// Servers are throwaway. They start once per process, or once for a whole `go test ./...` by the
// command internal/testdb/with, and never outlive the process that started them.
package testdb

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"entgo.io/ent/dialect"
	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // database/sql driver "pgx"
	_ "modernc.org/sqlite"             // database/sql driver "sqlite"
)

// Kind is a kind of database. MariaDB and MySQL share ent's dialect and the driver, and differ in
// locking, in SQL, and in what they report.
type Kind string

// The kinds that every feature must work on.
const (
	SQLite   Kind = "sqlite"
	MariaDB  Kind = "mariadb"
	MySQL    Kind = "mysql"
	Postgres Kind = "postgres"
)

// Kinds lists every kind, in the order in which Each runs them.
var Kinds = []Kind{SQLite, MariaDB, MySQL, Postgres}

// EnvRecord names the environment variable with the path of a file to which each process appends
// "kind version source" for every kind that New gave it a database of. CI reads it to see that no
// kind was left out.
const EnvRecord = "ENTCOUNTER_TEST_RECORD"

// timeout bounds each single administrative step (connect, create, drop).
const timeout = 30 * time.Second

// A Database is one empty database that belongs to one test.
type Database struct {
	Kind    Kind
	Dialect string // ent's name of the dialect
	Driver  string // database/sql's name of the driver
	DSN     string
}

// New returns a fresh empty database, on a running server of the kind, which it starts if need be.
// The database is dropped, and who is still connected to it thrown out, when the test ends.
//
// A SQLite database is a file in WAL mode. Its transactions are deferred, SQLite's default: one that
// reads before it writes may fail with SQLITE_BUSY at once, whatever busy_timeout says.
// WithParams({"_txlock": "immediate"}) makes every transaction take the write lock when it begins.
func New(tb testing.TB, kind Kind) *Database {
	tb.Helper()
	if kind == SQLite {
		path := url.URL{Path: filepath.Join(tb.TempDir(), "test.db")} // the test's name is in it, # and all
		return newSQLite(tb, "file:"+path.EscapedPath()+
			"?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_pragma=foreign_keys(1)&_pragma=synchronous(OFF)")
	}
	srv, err := serverOf(kind)
	if err != nil {
		tb.Fatal(err)
	}
	db, drop, err := srv.NewDatabase()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := drop(); err != nil {
			tb.Error(err)
		}
	})
	record(tb, kind, srv.Version, srv.Source)
	return db
}

// NewMemory returns a fresh SQLite database in memory. Connections share one cache: they lock whole
// tables, and a conflict fails at once (SQLITE_LOCKED), since busy_timeout does not apply there.
func NewMemory(tb testing.TB) *Database {
	tb.Helper()
	db := newSQLite(tb, "file:"+newName()+
		"?mode=memory&cache=shared&_pragma=busy_timeout(30000)&_pragma=foreign_keys(1)")
	// The database lives as long as its last connection: keep one, whatever the test closes.
	keep, err := db.DB(tb).Conn(context.Background())
	if err != nil {
		tb.Fatalf("testdb: sqlite: %v", err)
	}
	tb.Cleanup(func() { _ = keep.Close() })
	return db
}

// Each runs fn as one subtest per kind, named after the kind.
func Each(t *testing.T, fn func(t *testing.T, db *Database)) {
	t.Helper()
	for _, kind := range Kinds {
		t.Run(string(kind), func(t *testing.T) { fn(t, New(t, kind)) })
	}
}

// DB returns a pool of connections to the database, closed when the test ends.
func (d *Database) DB(tb testing.TB) *sql.DB {
	tb.Helper()
	db, err := sql.Open(d.Driver, d.DSN)
	if err != nil {
		tb.Fatalf("testdb: %s: %v", d.Kind, err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Errorf("testdb: %s: %v", d.Kind, err)
		}
	})
	return db
}

// WithParams returns the DSN with further parameters of the driver, which win over those it has:
// clientFoundRows=true for MySQL and MariaDB, _txlock=immediate for SQLite,
// default_query_exec_mode=simple_protocol for Postgres.
func (d *Database) WithParams(params map[string]string) string {
	base, query, _ := strings.Cut(d.DSN, "?")
	pairs := slices.DeleteFunc(strings.Split(query, "&"), func(pair string) bool {
		key, old, _ := strings.Cut(pair, "=")
		value, replaced := params[key]
		if key == "_pragma" { // one for each pragma
			oldName, _, _ := strings.Cut(old, "(")
			name, _, _ := strings.Cut(value, "(")
			replaced = name == oldName
		}
		return pair == "" || replaced
	})
	values := url.Values{}
	for key, value := range params {
		values.Set(key, value)
	}
	if len(values) > 0 {
		pairs = append(pairs, values.Encode())
	}
	return base + "?" + strings.Join(pairs, "&")
}

func newSQLite(tb testing.TB, dsn string) *Database {
	tb.Helper()
	version, err := sqliteVersion()
	if err != nil {
		tb.Fatalf("testdb: sqlite: %v", err)
	}
	record(tb, SQLite, version, "linked")
	return &Database{Kind: SQLite, Dialect: dialect.SQLite, Driver: SQLite.driver(), DSN: dsn}
}

var sqliteVersion = sync.OnceValues(func() (version string, err error) {
	db, err := sql.Open(SQLite.driver(), ":memory:")
	if err != nil {
		return "", err
	}
	defer func() { _ = db.Close() }()
	err = db.QueryRow("SELECT sqlite_version()").Scan(&version)
	return version, err
})

// newName returns a database name that no other test, process or run uses on the same server.
func newName() string {
	return "entcounter_" + strings.ToLower(rand.Text()[:16])
}

var recorded sync.Map // what this process has recorded, and where

func record(tb testing.TB, kind Kind, version, source string) {
	tb.Helper()
	path := os.Getenv(EnvRecord)
	if path == "" {
		return
	}
	if _, again := recorded.LoadOrStore([2]string{path, string(kind)}, true); again {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = fmt.Fprintf(f, "%s %s %s\n", kind, version, source)
		err = firstError(err, f.Close())
	}
	if err != nil {
		tb.Fatalf("testdb: %s: %v", EnvRecord, err)
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// database returns the Database called name on the server.
func (s *Server) database(name string) *Database {
	db := &Database{Kind: s.Kind, Driver: s.Kind.driver()}
	switch s.Kind {
	case Postgres:
		db.Dialect = dialect.Postgres
		u, _ := url.Parse(s.DSN) // parsed before, by connect
		u.Path = "/" + name
		db.DSN = u.String()
	default:
		db.Dialect = dialect.MySQL
		cfg, _ := mysql.ParseDSN(s.DSN) // likewise
		cfg.DBName = name
		db.DSN = cfg.FormatDSN()
	}
	return db
}
