package testdb

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	// CI asks whether the product's tests ran on every kind. These here are no answer.
	_ = os.Unsetenv(EnvRecord)
	os.Exit(Main(m))
}

// tables counts the tables of the database.
func tables(t *testing.T, d *Database, db *sql.DB) (n int) {
	t.Helper()
	query := "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()"
	switch d.Kind {
	case SQLite:
		query = "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table'"
	case Postgres:
		query = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'public'"
	}
	require.NoError(t, db.QueryRow(query).Scan(&n))
	return n
}

func run(t *testing.T, db *sql.DB, stmts ...string) {
	t.Helper()
	for _, stmt := range stmts {
		_, err := db.Exec(stmt)
		require.NoError(t, err, stmt)
	}
}

func TestNew(t *testing.T) {
	dialects := map[Kind]string{
		SQLite: dialect.SQLite, MariaDB: dialect.MySQL, MySQL: dialect.MySQL, Postgres: dialect.Postgres,
	}
	var ran []Kind
	Each(t, func(t *testing.T, d *Database) {
		ran = append(ran, d.Kind)
		require.Equal(t, "TestNew/"+string(d.Kind), t.Name())
		require.Equal(t, dialects[d.Kind], d.Dialect)
		db := d.DB(t)
		require.Zero(t, tables(t, d, db))
		run(t, db, "CREATE TABLE t (id BIGINT PRIMARY KEY, s VARCHAR(10))", "INSERT INTO t VALUES (1, '€🙂')")
		var s string
		require.NoError(t, db.QueryRow("SELECT s FROM t").Scan(&s))
		require.Equal(t, "€🙂", s)
		require.Equal(t, 1, tables(t, d, db))
	})
	require.Equal(t, Kinds, ran)
}

func TestNewIsIsolated(t *testing.T) {
	Each(t, func(t *testing.T, d *Database) {
		other := New(t, d.Kind)
		require.NotEqual(t, d.DSN, other.DSN)
		db, otherDB := d.DB(t), other.DB(t)
		run(t, db, "CREATE TABLE t (id BIGINT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
		require.Zero(t, tables(t, other, otherDB))
		run(t, otherDB, "CREATE TABLE t (id BIGINT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
	})
}

func TestNewMemory(t *testing.T) {
	d := NewMemory(t)
	db := d.DB(t)
	run(t, db, "CREATE TABLE t (id BIGINT PRIMARY KEY)")
	require.NoError(t, db.Close())
	require.Equal(t, 1, tables(t, d, d.DB(t)), "survives its connections")
	other := NewMemory(t)
	require.Zero(t, tables(t, other, other.DB(t)))
}

// What a test leaves open must neither block the drop nor survive it.
func TestNewDropsUnderOpenTransactions(t *testing.T) {
	for _, kind := range []Kind{MariaDB, MySQL, Postgres} {
		t.Run(string(kind), func(t *testing.T) {
			var left *sql.Tx
			var dsn string
			t.Run("test", func(t *testing.T) {
				d := New(t, kind)
				dsn = d.DSN
				db, err := sql.Open(d.Driver, d.DSN)
				require.NoError(t, err)
				run(t, db, "CREATE TABLE t (id BIGINT PRIMARY KEY)")
				left, err = db.Begin()
				require.NoError(t, err)
				_, err = left.Exec("INSERT INTO t VALUES (1)")
				require.NoError(t, err)
			})
			require.Error(t, left.Commit())
			db, err := sql.Open(kind.driver(), dsn)
			require.NoError(t, err)
			defer func() { _ = db.Close() }()
			require.Error(t, db.Ping(), "the database is dropped")
		})
	}
}

func TestWithParams(t *testing.T) {
	for _, tt := range []struct {
		name, dsn string
		params    map[string]string
		want      string
	}{
		{"none", "u@tcp(h)/d?parseTime=true", nil, "u@tcp(h)/d?parseTime=true"},
		{"first", "u@tcp(h)/d", map[string]string{"clientFoundRows": "true"}, "u@tcp(h)/d?clientFoundRows=true"},
		{"replaced", "u@tcp(h)/d?parseTime=true&loc=UTC", map[string]string{"parseTime": "false"}, "u@tcp(h)/d?loc=UTC&parseTime=false"},
		{"escaped", "u@tcp(h)/d?a=b", map[string]string{"sql_mode": "'ANSI'"}, "u@tcp(h)/d?a=b&sql_mode=%27ANSI%27"},
		{"pragma", "file:x?_pragma=a(1)&_pragma=b(1)", map[string]string{"_pragma": "b(2)"}, "file:x?_pragma=a(1)&_pragma=b%282%29"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, (&Database{DSN: tt.dsn}).WithParams(tt.params))
		})
	}
}

func TestWithParamsReachesTheDriver(t *testing.T) {
	for _, kind := range []Kind{MariaDB, MySQL} {
		t.Run(string(kind), func(t *testing.T) {
			d := New(t, kind)
			run(t, d.DB(t), "CREATE TABLE t (id BIGINT PRIMARY KEY, n INT)", "INSERT INTO t VALUES (1, 5)")
			for value, want := range map[string]int64{"false": 0, "true": 1} {
				db, err := sql.Open(d.Driver, d.WithParams(map[string]string{"clientFoundRows": value}))
				require.NoError(t, err)
				res, err := db.Exec("UPDATE t SET n = 5")
				require.NoError(t, err)
				n, err := res.RowsAffected()
				require.NoError(t, err)
				require.Equal(t, want, n, "clientFoundRows=%s", value)
				require.NoError(t, db.Close())
			}
		})
	}
	t.Run("sqlite", func(t *testing.T) {
		d := New(t, SQLite)
		d.DSN = d.WithParams(map[string]string{"_txlock": "immediate", "_pragma": "busy_timeout(0)"})
		db := d.DB(t)
		tx, err := db.Begin()
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		_, err = db.Begin()
		require.ErrorContains(t, err, "SQLITE_BUSY", "a second writer cannot begin")
	})
}

func TestEnvDSN(t *testing.T) {
	for _, kind := range []Kind{MariaDB, MySQL, Postgres} {
		t.Run(string(kind), func(t *testing.T) {
			running, err := serverOf(kind)
			require.NoError(t, err)
			t.Setenv(kind.EnvDSN(), running.DSN)
			srv, err := acquire(context.Background(), kind, lookups)
			require.NoError(t, err)
			defer srv.close()
			require.Equal(t, "env", srv.Source)
			require.Equal(t, running.Version, srv.Version)
			name := newName()
			require.NoError(t, srv.create(name))
			db, err := sql.Open(kind.driver(), srv.database(name).DSN)
			require.NoError(t, err)
			require.NoError(t, db.Ping())
			require.NoError(t, srv.drop(name))
			_ = db.Close()
		})
	}
}

// A server that somebody names and that does not do is an error, not a reason to take another.
func TestEnvDSNIsFinal(t *testing.T) {
	other := lookup{source: "other", open: func(context.Context, Kind) (*Server, error) {
		t.Error("tried another way")
		return nil, errors.New("other")
	}}
	mariadb, err := serverOf(MariaDB)
	require.NoError(t, err)
	for _, tt := range []struct {
		name string
		kind Kind
		dsn  string
		want string
	}{
		{"nobody there", Postgres, "postgres://127.0.0.1:1/postgres", "connection refused"},
		{"not a DSN", MySQL, "nonsense", "invalid DSN"},
		{"not a URL", Postgres, "host=127.0.0.1", "not a postgres:// URL"},
		{"another kind", MySQL, mariadb.DSN, "the server is not mysql but version " + mariadb.Version},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(tt.kind.EnvDSN(), tt.dsn)
			_, err := acquire(context.Background(), tt.kind, []lookup{lookups[0], other})
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestNoServer(t *testing.T) {
	t.Setenv(MySQL.EnvDSN(), "")
	failing := func(source string, err error) lookup {
		return lookup{source: source, open: func(context.Context, Kind) (*Server, error) { return nil, err }}
	}
	_, err := acquire(context.Background(), MySQL, []lookup{
		lookups[0],
		failing("local", absent("no mysqld")),
		failing("container", errors.New("no engine\nat all")),
	})
	require.EqualError(t, err, strings.Join([]string{
		"testdb: no mysql server; run internal/testdb/install.sh, set ENTCOUNTER_MYSQL_DSN, or start docker:",
		"\tenv: ENTCOUNTER_MYSQL_DSN is not set",
		"\tlocal: no mysqld",
		"\tcontainer: no engine",
		"\t\tat all",
	}, "\n"))
}

func TestUnknownKind(t *testing.T) {
	_, err := serverOf("oracle")
	require.EqualError(t, err, `testdb: no server of kind "oracle"`)
}

func TestRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	t.Setenv(EnvRecord, path)
	for range 2 {
		Each(t, func(*testing.T, *Database) {})
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	require.Len(t, lines, len(Kinds), "one line a kind: %s", text)
	for i, kind := range Kinds {
		require.Regexp(t, "^"+string(kind)+` [0-9]\S+ (linked|env|local|container)$`, lines[i])
	}
}
