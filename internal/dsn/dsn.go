// Package dsn tells which database a data source name means, for the programs of this repository.
package dsn

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

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
	Driver  string // database/sql's name of the driver
	Dialect string // ent's name of the dialect
	DSN     string // as the driver takes it
	Label   string // for people: without a password
}

var (
	schemeOf      = regexp.MustCompile(`^([a-zA-Z][a-zA-Z0-9+.-]*):`)
	mysqlNative   = regexp.MustCompile(`^(.*@)?[a-z0-9]*\(.*\)/|@/`)
	postgresWords = regexp.MustCompile(`(^|\s)(host|hostaddr|user|dbname|port|service)\s*=`)
)

// Parse tells what database a DSN means. Errors do not repeat the DSN, which may hold a password.
func Parse(dsn string) (Source, error) {
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
			return Source{}, err
		}
		return mysqlSource(native)
	case scheme == "postgres" || scheme == "postgresql", scheme == "" && postgresWords.MatchString(dsn):
		return postgresSource(dsn)
	case isURL:
		return Source{}, fmt.Errorf("%q is no database that this program knows: give %s", scheme, strings.Join(Forms, " or "))
	}
	return Source{}, fmt.Errorf("cannot tell what database it means: give %s", strings.Join(Forms, " or "))
}

// sqliteSource completes the URI of a SQLite database. A transaction takes the write lock when it
// begins: one that takes it later fails when another one has written meanwhile.
func sqliteSource(uri string) (Source, error) {
	path, rawParams, _ := strings.Cut(uri, "?")
	params, err := url.ParseQuery(rawParams)
	if err != nil {
		return Source{}, err
	}
	plain, err := url.PathUnescape(strings.TrimPrefix(strings.TrimPrefix(path, "file:"), "//"))
	if err != nil {
		return Source{}, err
	}
	if plain == "" || plain == ":memory:" || params.Get("mode") == "memory" {
		return Source{}, errors.New("a database in memory is gone when the program ends: give the path of a file")
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
		return Source{}, err
	}
	if cfg.DBName == "" {
		return Source{}, errors.New("it names no database")
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
			return Source{}, err
		}
	}
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return Source{}, err // without the password
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
