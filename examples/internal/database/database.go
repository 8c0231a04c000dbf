// Package database opens the databases that the examples run on: whatever a DSN on
// the command line means.
package database

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"entgo.io/ent/dialect"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // database/sql driver "pgx"
	_ "modernc.org/sqlite"             // database/sql driver "sqlite"
)

// Forms are the forms of a DSN that are understood.
var Forms = []string{
	"sqlite:PATH",
	"file:PATH?PARAMS",
	"mysql://USER:PASSWORD@HOST:PORT/DATABASE",
	"mariadb://…",
	"USER:PASSWORD@tcp(HOST:PORT)/DATABASE",
	"postgres://USER:PASSWORD@HOST:PORT/DATABASE",
	`"host=HOST user=USER dbname=DATABASE"`,
}

// Source is a database to open.
type Source struct {
	Driver  string // of database/sql
	Dialect string // of ent
	DSN     string
	Label   string // for people: without a password
}

var (
	schemeOf      = regexp.MustCompile(`^([a-zA-Z][a-zA-Z0-9+.-]*):`)
	mysqlNative   = regexp.MustCompile(`^(.*@)?[a-z0-9]*\(.*\)/|@/`)
	postgresWords = regexp.MustCompile(`(^|\s)(host|hostaddr|user|dbname|port|service)\s*=`)
)

// Parse tells what database a DSN means. An empty one means a SQLite file in the user's cache directory, named
// after the program. Errors do not repeat the DSN, which may hold a password.
func Parse(dsn, program string) (Source, error) {
	if dsn == "" {
		path, err := defaultDatabase(program)
		if err != nil {
			return Source{}, err
		}
		return sqliteSource("file:" + (&url.URL{Path: path}).EscapedPath())
	}
	scheme := ""
	if m := schemeOf.FindStringSubmatch(dsn); m != nil {
		scheme = strings.ToLower(m[1])
	}
	isURL := scheme != "" && strings.HasPrefix(dsn[len(scheme)+1:], "//")
	switch {
	case scheme == "sqlite" || scheme == "sqlite3":
		path, params, _ := strings.Cut(strings.TrimPrefix(dsn[len(scheme)+1:], "//"), "?")
		if path != ":memory:" {
			path = (&url.URL{Path: path}).EscapedPath()
		}
		return sqliteSource("file:" + path + "?" + params)
	case scheme == "file":
		return sqliteSource(dsn)
	case mysqlNative.MatchString(dsn) && !isURL:
		return mysqlSource(dsn)
	case scheme == "mysql" || scheme == "mariadb":
		native, err := mysqlFromURL(dsn)
		if err != nil {
			return Source{}, fmt.Errorf("-dsn: %w", err)
		}
		return mysqlSource(native)
	case scheme == "postgres" || scheme == "postgresql", scheme == "" && postgresWords.MatchString(dsn):
		return postgresSource(dsn)
	case isURL:
		return Source{}, fmt.Errorf("-dsn: %q is no database that this program knows: give %s", scheme, strings.Join(Forms, " or "))
	}
	return Source{}, fmt.Errorf("-dsn: cannot tell what database it means: give %s", strings.Join(Forms, " or "))
}

// defaultDatabase returns the path of a SQLite file whose folder exists.
func defaultDatabase(program string) (string, error) {
	dir, err := os.UserCacheDir()
	if err == nil {
		dir = filepath.Join(dir, "entcounter")
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, program+".db"), nil
}

// sqliteSource completes the URI of a SQLite database. A transaction takes the write lock when it
// begins: one that takes it later fails when another one has written meanwhile.
func sqliteSource(uri string) (Source, error) {
	path, rawParams, _ := strings.Cut(uri, "?")
	params, err := url.ParseQuery(rawParams)
	if err != nil {
		return Source{}, fmt.Errorf("-dsn: %w", err)
	}
	plain, err := url.PathUnescape(strings.TrimPrefix(strings.TrimPrefix(path, "file:"), "//"))
	if err != nil {
		return Source{}, fmt.Errorf("-dsn: %w", err)
	}
	if plain == "" || plain == ":memory:" || params.Get("mode") == "memory" {
		return Source{}, errors.New("-dsn: a database in memory is gone when the program ends: give the path of a file")
	}
	for _, pragma := range []struct{ name, value, alias string }{
		{"busy_timeout", "30000", "_timeout"},
		{"journal_mode", "WAL", "_journal"},
		{"synchronous", "NORMAL", "_sync"},
		{"foreign_keys", "1", "_fk"},
	} {
		given := slices.ContainsFunc(params["_pragma"], func(p string) bool { return strings.HasPrefix(strings.ToLower(p), pragma.name) })
		if !given && !params.Has("_"+pragma.name) && !params.Has(pragma.alias) {
			params.Add("_pragma", pragma.name+"("+pragma.value+")")
		}
	}
	if !params.Has("_txlock") {
		params.Set("_txlock", "immediate")
	}
	return Source{Driver: "sqlite", Dialect: dialect.SQLite, DSN: path + "?" + params.Encode(), Label: "sqlite:" + plain}, nil
}

// mysqlFromURL turns a URL into the driver's form.
func mysqlFromURL(dsn string) (string, error) {
	u, err := parseURL(dsn)
	if err != nil {
		return "", err
	}
	if u.Hostname() == "" {
		return "", errors.New("the URL names no host")
	}
	cfg := mysql.NewConfig()
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.Net = "tcp"
	cfg.Addr = u.Host
	if u.Port() == "" {
		cfg.Addr += ":3306"
	}
	cfg.DBName = strings.TrimPrefix(u.Path, "/")
	native := cfg.FormatDSN()
	if u.RawQuery != "" {
		if strings.Contains(native[strings.LastIndex(native, "/"):], "?") {
			native += "&" + u.RawQuery
		} else {
			native += "?" + u.RawQuery
		}
	}
	return native, nil
}

func mysqlSource(native string) (Source, error) {
	cfg, err := mysql.ParseDSN(native)
	if err != nil {
		return Source{}, fmt.Errorf("-dsn: %w", err)
	}
	if cfg.DBName == "" {
		return Source{}, errors.New("-dsn: it names no database")
	}
	cfg.ParseTime = true // as ent needs it
	return Source{
		Driver: "mysql", Dialect: dialect.MySQL, DSN: cfg.FormatDSN(),
		Label: fmt.Sprintf("mysql %s(%s)/%s", cfg.Net, cfg.Addr, cfg.DBName),
	}, nil
}

func postgresSource(dsn string) (Source, error) {
	if strings.Contains(dsn, "://") {
		if _, err := parseURL(dsn); err != nil {
			return Source{}, fmt.Errorf("-dsn: %w", err)
		}
	}
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return Source{}, fmt.Errorf("-dsn: %w", err) // without the password
	}
	return Source{
		Driver: "pgx", Dialect: dialect.Postgres, DSN: dsn,
		Label: fmt.Sprintf("postgres %s:%d/%s", cfg.Host, cfg.Port, cfg.Database),
	}, nil
}

// parseURL parses a URL. Its error does not repeat it.
func parseURL(dsn string) (*url.URL, error) {
	u, err := url.Parse(dsn)
	var uerr *url.Error
	if errors.As(err, &uerr) {
		err = fmt.Errorf("the URL is malformed: %w (write @ / : ? # %% in a password as %%40 %%2F %%3A %%3F %%23 %%25)", uerr.Err)
	}
	return u, err
}

// Open connects, and returns the server's version.
func (s Source) Open(ctx context.Context, connections int) (*stdsql.DB, string, error) {
	db, err := stdsql.Open(s.Driver, s.DSN)
	if err != nil {
		return nil, "", fmt.Errorf("opening %s: %w", s.Label, err)
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	version, err := func() (version string, err error) {
		query := "SELECT VERSION()"
		if s.Dialect == dialect.SQLite {
			query = "SELECT 'SQLite ' || sqlite_version()"
		}
		ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		err = db.QueryRowContext(ctx, query).Scan(&version)
		return version, err
	}()
	if err != nil {
		_ = db.Close()
		return nil, "", fmt.Errorf("connecting to %s: %w", s.Label, err)
	}
	version, _, _ = strings.Cut(version, " (")
	return db, version, nil
}

// MustBeOurs refuses a database with tables of somebody else's that have the names of the given ones, but not
// their columns: creating what is missing would change them.
func (s Source) MustBeOurs(ctx context.Context, db *stdsql.DB, tables map[string][]string) error {
	for table, columns := range tables {
		has := func(what string) bool {
			rows, err := db.QueryContext(ctx, "SELECT "+what+" FROM "+table+" WHERE 1 = 0")
			return err == nil && rows.Close() == nil
		}
		if has("1") && !has(strings.Join(columns, ", ")) && ctx.Err() == nil {
			return fmt.Errorf("%s: there is a table %q that is not this program's: give a database of its own", s.Label, table)
		}
	}
	return nil
}
