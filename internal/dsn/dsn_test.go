package dsn

import (
	"strings"
	"testing"

	"entgo.io/ent/dialect"
)

func TestParse(t *testing.T) {
	for _, test := range []struct{ dsn, driver, dialect, label, contains string }{
		{"sqlite:data/files.db", "sqlite", dialect.SQLite, "sqlite:data/files.db", "file:data/files.db?"},
		{"sqlite:///srv/files.db", "sqlite", dialect.SQLite, "sqlite:/srv/files.db", "busy_timeout%2830000%29"},
		{"sqlite:a b#c%.db", "sqlite", dialect.SQLite, "sqlite:a b#c%.db", "file:a%20b%23c%25.db?"},
		{"file:files.db?_pragma=busy_timeout(5)", "sqlite", dialect.SQLite, "sqlite:files.db", "busy_timeout%285%29"},
		{"file:files.db?_journal_mode=DELETE&_txlock=deferred", "sqlite", dialect.SQLite, "sqlite:files.db", "_txlock=deferred"},
		{"mysql://u:p%40ss@db.example:3307/files", "mysql", dialect.MySQL, "mysql tcp(db.example:3307)/files", "u:p@ss@tcp(db.example:3307)/files?"},
		{"mariadb://root@[::1]/files?timeout=5s", "mysql", dialect.MySQL, "mysql tcp([::1]:3306)/files", "timeout=5s"},
		{"u:p@tcp(localhost:3306)/files", "mysql", dialect.MySQL, "mysql tcp(localhost:3306)/files", "parseTime=true"},
		{"root@unix(/run/mysqld/mysqld.sock)/files?clientFoundRows=true", "mysql", dialect.MySQL, "mysql unix(/run/mysqld/mysqld.sock)/files", "clientFoundRows=true"},
		{"u:p://w@tcp(h:1)/files", "mysql", dialect.MySQL, "mysql tcp(h:1)/files", "u:p://w@"},
		{"postgres://u:p@db.example:5433/files?sslmode=disable", "pgx", dialect.Postgres, "postgres db.example:5433/files", "sslmode=disable"},
		{"postgresql://u@db.example/files", "pgx", dialect.Postgres, "postgres db.example:5432/files", ""},
		{"host=/run/postgresql user=u dbname=files", "pgx", dialect.Postgres, "postgres /run/postgresql:5432/files", ""},
	} {
		got, err := Parse(test.dsn)
		if err != nil {
			t.Errorf("%s: %v", test.dsn, err)
			continue
		}
		if got.Driver != test.driver || got.Dialect != test.dialect || got.Label != test.label || !strings.Contains(got.DSN, test.contains) {
			t.Errorf("%s: %+v", test.dsn, got)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, test := range []struct{ dsn, want string }{
		{"nonsense", "cannot tell what database it means"},
		{"/var/lib/files.db", "cannot tell what database it means"},
		{"oracle://u:secret@h/files", `"oracle" is no database that this program knows`},
		{"mysql://u:secret@/files", "names no host"},
		{"mysql://u:secret@h:3306", "names no database"},
		{"mysql://u:sec%ret@h:3306/files", "the URL is malformed"},
		{"mysql://u:secret@h:port/files", "the URL is malformed"},
		{"mysql://u:secret@h:3306/files?parseTime=perhaps", "invalid bool value"},
		{"u:secret@tcp(h:3306)/", "names no database"},
		{"u:secret@tcp(h:3306", "cannot tell"},
		{"postgres://u:sec%ret@h/files", "the URL is malformed"},
		{"postgres://u:secret@h/files?sslmode=perhaps", "sslmode"},
		{"host=h user=u password=secret port=none", "port"},
		{"sqlite:", "in memory"},
		{"sqlite::memory:", "in memory"},
		{"file::memory:?cache=shared", "in memory"},
		{"file:x?mode=memory", "in memory"},
	} {
		_, err := Parse(test.dsn)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", test.dsn, err, test.want)
		} else if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "sec%ret") {
			t.Errorf("%s: the error tells the password: %v", test.dsn, err)
		}
	}
}
