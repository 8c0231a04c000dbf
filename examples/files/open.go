package main

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
	entsql "entgo.io/ent/dialect/sql"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // database/sql driver "pgx"
	_ "modernc.org/sqlite"             // database/sql driver "sqlite"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/dataset"
	"github.com/entcounter/entcounter/ent/file"
)

// dsnForms are the forms of a DSN that are understood.
var dsnForms = []string{
	"sqlite:PATH",
	"file:PATH?PARAMS",
	"mysql://USER:PASSWORD@HOST:PORT/DATABASE",
	"mariadb://…",
	"USER:PASSWORD@tcp(HOST:PORT)/DATABASE",
	"postgres://USER:PASSWORD@HOST:PORT/DATABASE",
	`"host=HOST user=USER dbname=DATABASE"`,
}

// spareConnections are those beside the workers': paging through the rows, folding, showing
// progress.
const spareConnections = 3

// source is a database to open.
type source struct {
	driver  string // of database/sql
	dialect string // of ent
	dsn     string
	label   string // for people: without a password
}

var (
	schemeOf      = regexp.MustCompile(`^([a-zA-Z][a-zA-Z0-9+.-]*):`)
	mysqlNative   = regexp.MustCompile(`^(.*@)?[a-z0-9]*\(.*\)/|@/`)
	postgresWords = regexp.MustCompile(`(^|\s)(host|hostaddr|user|dbname|port|service)\s*=`)
)

// parseDSN tells what database a DSN means. Errors do not repeat the DSN, which may hold a password.
func parseDSN(dsn string) (source, error) {
	if dsn == "" {
		path, err := defaultDatabase()
		if err != nil {
			return source{}, err
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
			return source{}, fmt.Errorf("-dsn: %w", err)
		}
		return mysqlSource(native)
	case scheme == "postgres" || scheme == "postgresql", scheme == "" && postgresWords.MatchString(dsn):
		return postgresSource(dsn)
	case isURL:
		return source{}, fmt.Errorf("-dsn: %q is no database that this program knows: give %s", scheme, strings.Join(dsnForms, " or "))
	}
	return source{}, fmt.Errorf("-dsn: cannot tell what database it means: give %s", strings.Join(dsnForms, " or "))
}

// defaultDatabase returns the path of a SQLite file whose folder exists.
func defaultDatabase() (string, error) {
	dir, err := os.UserCacheDir()
	if err == nil {
		dir = filepath.Join(dir, "entcounter")
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "files.db"), nil
}

// sqliteSource completes the URI of a SQLite database. A transaction takes the write lock when it
// begins: one that takes it later fails when another one has written meanwhile.
func sqliteSource(uri string) (source, error) {
	path, rawParams, _ := strings.Cut(uri, "?")
	params, err := url.ParseQuery(rawParams)
	if err != nil {
		return source{}, fmt.Errorf("-dsn: %w", err)
	}
	plain, err := url.PathUnescape(strings.TrimPrefix(strings.TrimPrefix(path, "file:"), "//"))
	if err != nil {
		return source{}, fmt.Errorf("-dsn: %w", err)
	}
	if plain == "" || plain == ":memory:" || params.Get("mode") == "memory" {
		return source{}, errors.New("-dsn: a database in memory is gone when the program ends: give the path of a file")
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
	return source{driver: "sqlite", dialect: dialect.SQLite, dsn: path + "?" + params.Encode(), label: "sqlite:" + plain}, nil
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

func mysqlSource(native string) (source, error) {
	cfg, err := mysql.ParseDSN(native)
	if err != nil {
		return source{}, fmt.Errorf("-dsn: %w", err)
	}
	if cfg.DBName == "" {
		return source{}, errors.New("-dsn: it names no database")
	}
	cfg.ParseTime = true // as ent needs it
	return source{
		driver: "mysql", dialect: dialect.MySQL, dsn: cfg.FormatDSN(),
		label: fmt.Sprintf("mysql %s(%s)/%s", cfg.Net, cfg.Addr, cfg.DBName),
	}, nil
}

func postgresSource(dsn string) (source, error) {
	if strings.Contains(dsn, "://") {
		if _, err := parseURL(dsn); err != nil {
			return source{}, fmt.Errorf("-dsn: %w", err)
		}
	}
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return source{}, fmt.Errorf("-dsn: %w", err) // without the password
	}
	return source{
		driver: "pgx", dialect: dialect.Postgres, dsn: dsn,
		label: fmt.Sprintf("postgres %s:%d/%s", cfg.Host, cfg.Port, cfg.Database),
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

// open connects, creates the tables that are missing, and returns the server's version.
func (s source) open(ctx context.Context, connections int) (*ent.Client, string, error) {
	db, err := stdsql.Open(s.driver, s.dsn)
	if err != nil {
		return nil, "", fmt.Errorf("opening %s: %w", s.label, err)
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	version, err := func() (version string, err error) {
		query := "SELECT VERSION()"
		if s.dialect == dialect.SQLite {
			query = "SELECT 'SQLite ' || sqlite_version()"
		}
		ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		err = db.QueryRowContext(ctx, query).Scan(&version)
		return version, err
	}()
	if err != nil {
		_ = db.Close()
		return nil, "", fmt.Errorf("connecting to %s: %w", s.label, err)
	}
	if err := mustBeOurs(ctx, db); err != nil {
		_ = db.Close()
		return nil, "", fmt.Errorf("%s: %w", s.label, err)
	}
	client := ent.NewClient(ent.Driver(entsql.OpenDB(s.dialect, db)))
	if err := client.Schema.Create(ctx); err != nil {
		_ = client.Close()
		return nil, "", fmt.Errorf("creating the tables in %s: %w", s.label, err)
	}
	version, _, _ = strings.Cut(version, " (")
	return client, version, nil
}

// mustBeOurs refuses a database with tables of somebody else's that have the names of ours: creating what is
// missing would change them.
func mustBeOurs(ctx context.Context, db *stdsql.DB) error {
	for table, columns := range map[string][]string{dataset.Table: dataset.Columns, file.Table: file.Columns} {
		has := func(what string) bool {
			rows, err := db.QueryContext(ctx, "SELECT "+what+" FROM "+table+" WHERE 1 = 0")
			return err == nil && rows.Close() == nil
		}
		if has("1") && !has(strings.Join(columns, ", ")) && ctx.Err() == nil {
			return fmt.Errorf("there is a table %q that is not this program's: give a database of its own", table)
		}
	}
	return nil
}
