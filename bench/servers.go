package main

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/entcounter/entcounter/internal/dsn"
	"github.com/entcounter/entcounter/internal/testdb"
)

// server is a database server, or SQLite.
type server struct {
	Server
	kind   testdb.Kind
	remote *testdb.Server // nil for SQLite
	admin  *stdsql.DB
	dir    string // of SQLite's files
	files  int
	params string // for the DSN of MariaDB and MySQL
}

// durability are the settings that decide whether a commit is on the disk, and what they are if it is.
var durability = map[testdb.Kind]map[string]string{
	testdb.SQLite:   {"journal_mode": "wal", "synchronous": "2"},
	testdb.MariaDB:  {"innodb_flush_log_at_trx_commit": "1", "innodb_doublewrite": "ON"},
	testdb.MySQL:    {"innodb_flush_log_at_trx_commit": "1", "innodb_doublewrite": "ON"},
	testdb.Postgres: {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"},
}

// further are settings that are told, whatever they are.
var further = map[testdb.Kind][]string{
	testdb.MariaDB:  {"log_bin", "innodb_buffer_pool_size", "tx_isolation"},
	testdb.MySQL:    {"log_bin", "innodb_buffer_pool_size", "transaction_isolation"},
	testdb.Postgres: {"shared_buffers", "default_transaction_isolation"},
}

// postgres18 is where internal/testdb/install.sh postgres18 puts the programs.
func postgres18() string {
	cache := os.Getenv("ENTCOUNTER_CACHE")
	if cache == "" {
		cache = "/var/cache/entcounter"
	}
	return filepath.Join(cache, "postgres18", "usr/lib/postgresql/18/bin")
}

// start starts servers whose commits are durable, or takes those that the environment names as they are.
func start(ctx context.Context, o options) (_ []*server, err error) {
	if err := os.Setenv(testdb.EnvDurable, "1"); err != nil {
		return nil, err
	}
	if o.postgres18 && os.Getenv(testdb.Postgres.EnvDSN()) == "" {
		bin := postgres18()
		if _, err := os.Stat(bin); err != nil {
			return nil, fmt.Errorf("-postgres18: %w: run internal/testdb/install.sh postgres18 first, or name a server of yours that has pg_ivm in %s", err, testdb.Postgres.EnvDSN())
		}
		if err := os.Setenv(testdb.EnvPostgresBin, bin); err != nil {
			return nil, err
		}
	}
	var servers []*server
	defer func() {
		if err != nil {
			stop(servers)
		}
	}()
	for _, name := range o.databases {
		srv, err := newServer(ctx, testdb.Kind(name), o)
		if err != nil {
			return servers, err
		}
		servers = append(servers, srv)
	}
	return servers, nil
}

func newServer(ctx context.Context, kind testdb.Kind, o options) (*server, error) {
	srv := &server{Server: Server{Name: string(kind)}, kind: kind}
	if kind == testdb.SQLite {
		dir, err := os.MkdirTemp("", "entcounter-bench-")
		if err != nil {
			return nil, err
		}
		srv.dir = dir
		return srv, srv.describe(ctx)
	}
	started, err := testdb.Start(kind)
	if err != nil {
		return nil, err
	}
	srv.remote = started[0]
	if o.interpolate && kind != testdb.Postgres {
		srv.params = "interpolateParams=true"
	}
	if o.postgres18 && kind == testdb.Postgres && !strings.HasPrefix(srv.remote.Version, "18.") {
		return nil, fmt.Errorf("-postgres18: the server is version %s", srv.remote.Version)
	}
	return srv, srv.describe(ctx)
}

// stop removes what the run has made. The servers themselves go with the program.
func stop(servers []*server) {
	for _, srv := range servers {
		if srv.admin != nil {
			_ = srv.admin.Close()
		}
		if srv.dir != "" {
			_ = os.RemoveAll(srv.dir)
		}
	}
}

// newDatabase makes an empty database.
func (s *server) newDatabase() (dsn.Source, func() error, error) {
	if s.kind == testdb.SQLite {
		s.files++
		path := filepath.Join(s.dir, fmt.Sprintf("%d.db", s.files))
		src, err := dsn.Parse("file:" + (&url.URL{Path: path}).EscapedPath() + "?_pragma=synchronous(FULL)")
		return src, func() error {
			var errs []error
			for _, suffix := range []string{"", "-wal", "-shm"} {
				if err := os.Remove(path + suffix); err != nil && !os.IsNotExist(err) {
					errs = append(errs, err)
				}
			}
			return errors.Join(errs...)
		}, err
	}
	db, drop, err := s.remote.NewDatabase()
	if err != nil {
		return dsn.Source{}, nil, err
	}
	text := db.DSN
	if s.params != "" {
		text = db.WithParams(map[string]string{"interpolateParams": "true"})
	}
	src, err := dsn.Parse(text)
	if err != nil {
		return src, nil, errors.Join(err, drop())
	}
	return src, drop, nil
}

// describe asks the server for its version and settings.
func (s *server) describe(ctx context.Context) (err error) {
	if s.kind == testdb.SQLite {
		src, drop, err := s.newDatabase()
		if err != nil {
			return err
		}
		db, err := stdsql.Open(src.Driver, src.DSN)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, db.Close(), drop()) }()
		if err := db.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&s.Version); err != nil {
			return err
		}
		return s.readSettings(ctx, db)
	}
	s.Version = s.remote.Version
	driver := "mysql"
	if s.kind == testdb.Postgres {
		driver = "pgx"
	}
	if s.admin, err = stdsql.Open(driver, s.remote.DSN); err != nil {
		return err
	}
	s.admin.SetMaxOpenConns(1)
	return s.readSettings(ctx, s.admin)
}

func (s *server) readSettings(ctx context.Context, db *stdsql.DB) error {
	s.Settings, s.Durable = make(map[string]string), true
	if s.params != "" {
		s.Settings["driver"] = s.params
	}
	read := func(name string) (value string, err error) {
		query := "SELECT @@GLOBAL." + name
		switch s.kind {
		case testdb.SQLite:
			query = "PRAGMA " + name
		case testdb.Postgres:
			query = "SHOW " + name
		}
		if err := db.QueryRowContext(ctx, query).Scan(&value); err != nil {
			return "", fmt.Errorf("%s: %s: %w", s.Name, query, err)
		}
		s.Settings[name] = value
		return value, nil
	}
	for name, want := range durability[s.kind] {
		value, err := read(name)
		if err != nil {
			return err
		}
		if value != want && (want != "ON" || value != "1") {
			s.Durable = false
		}
	}
	for _, name := range further[s.kind] {
		if _, err := read(name); err != nil {
			return err
		}
	}
	return nil
}
