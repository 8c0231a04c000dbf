package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ariga.io/atlas/sql/migrate"
	"ariga.io/atlas/sql/schema"
	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	entschema "entgo.io/ent/dialect/sql/schema"
	"entgo.io/ent/entc"
	"entgo.io/ent/entc/gen"

	entmigrate "github.com/entcounter/entcounter/ent/migrate"
	"github.com/entcounter/entcounter/internal/dsn"
	"github.com/entcounter/entcounter/internal/testdb"
	"github.com/entcounter/entcounter/migrate/migrations"
)

// envArgs makes the test binary be the program, called with these arguments.
const envArgs = "ENTCOUNTER_MIGRATE_ARGS"

func TestMain(m *testing.M) {
	if args := os.Getenv(envArgs); args != "" {
		os.Exit(run(context.Background(), strings.Split(args, "\n"), os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// call runs the program and wants it to exit with the code. It returns all that was printed.
func call(t *testing.T, code int, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if got := run(t.Context(), args, &out, &out); got != code {
		t.Fatalf("%s: exit code %d, want %d:\n%s", args[0], got, code, out.String())
	}
	return out.String()
}

// want makes sure that a text holds each of the parts.
func want(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
}

// connect opens a test database in the way of the program.
func connect(t *testing.T, db *testdb.Database) (*database, migrate.Driver) {
	t.Helper()
	src, err := dsn.Parse(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	d, err := open(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.close() })
	drv, err := d.atlas(d.conn)
	if err != nil {
		t.Fatal(err)
	}
	return d, drv
}

// inspect returns what the catalogue of a database says, without the revisions.
func inspect(t *testing.T, db *testdb.Database) *schema.Schema {
	t.Helper()
	_, drv := connect(t, db)
	s, err := drv.InspectSchema(t.Context(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Tables = slices.DeleteFunc(s.Tables, func(t *schema.Table) bool { return t.Name == revisionsTable.Name })
	s.Name = ""
	return s
}

func tables(t *testing.T, db *testdb.Database) (names []string) {
	t.Helper()
	for _, table := range inspect(t, db).Tables {
		names = append(names, table.Name)
	}
	slices.Sort(names)
	return names
}

// same makes sure that two databases have one schema.
func same(t *testing.T, a, b *testdb.Database) {
	t.Helper()
	_, drv := connect(t, a)
	for _, pair := range [][2]*testdb.Database{{a, b}, {b, a}} {
		changes, err := drv.SchemaDiff(inspect(t, pair[0]), inspect(t, pair[1]))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			t.Errorf("the databases differ by %T %+v", c, c)
		}
	}
}

// create makes the tables as a program without versioned migrations does. Tests that call it or diff do not run
// in parallel: ent's migrations write to the generated tables, which they share.
func create(t *testing.T, db *testdb.Database) *entmigrate.Schema {
	t.Helper()
	s := entmigrate.NewSchema(entsql.OpenDB(db.Dialect, db.DB(t)))
	if err := s.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// folders writes migrations for every kind, and signs them.
func folders(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{"sqlite", "mysql", "postgres"} {
		if err := os.Mkdir(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, root, files)
	call(t, exitOK, "hash", "-dir", root)
	return root
}

func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for _, folder := range []string{"sqlite", "mysql", "postgres"} {
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(root, folder, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func execute(t *testing.T, db *testdb.Database, stmts ...string) {
	t.Helper()
	pool := db.DB(t)
	for _, stmt := range stmts {
		if _, err := pool.ExecContext(t.Context(), stmt); err != nil {
			t.Fatalf("%s: %v", stmt, err)
		}
	}
}

func number(t *testing.T, db *testdb.Database, query string) (n int) {
	t.Helper()
	if err := db.DB(t).QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// A database made by apply is the one that ent makes, and the folder is current. The latter fails when the ent
// schema is changed and diff was not run.
func TestApplyMakesTheSchema(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		want(t, call(t, exitOK, "apply", "-dsn", db.DSN), "files run: 1")
		want(t, call(t, exitOK, "apply", "-dsn", db.DSN), "files run: 0")
		want(t, call(t, exitOK, "status", "-dsn", db.DSN), "  applied  ", "nothing to do")
		created := testdb.New(t, db.Kind)
		create(t, created)
		same(t, db, created)

		dev := testdb.New(t, db.Kind)
		want(t, call(t, exitOK, "lint", "-dev", dev.DSN, "-dir", "migrations"), "is current")
		if left := tables(t, dev); left != nil {
			t.Errorf("lint leaves tables behind: %v", left)
		}
	})
}

// A folder that lacks a table, or has one too many, is stale.
func TestLintStale(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		for name, change := range map[string]string{
			"lacks a table":      "DROP TABLE counter_locks;",
			"has a table":        "CREATE TABLE further (id bigint NOT NULL);",
			"lacks an index":     map[string]string{dialect.MySQL: "DROP INDEX file_counter_journal_by_key ON file_counter_journal;"}[db.Dialect],
			"has another column": "ALTER TABLE file_counters ADD COLUMN further bigint NULL;",
		} {
			if change == "" {
				change = "DROP INDEX file_counter_journal_by_key;"
			}
			root := folders(t, nil)
			dir, err := migrations.Dir(db.Dialect)
			if err != nil {
				t.Fatal(err)
			}
			files, err := dir.Files()
			if err != nil {
				t.Fatal(err)
			}
			folder, _ := migrations.Folder(db.Dialect)
			for _, f := range files {
				if err := os.WriteFile(filepath.Join(root, folder, f.Name()), f.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(t, root, map[string]string{"29990101000000_change.sql": change})
			call(t, exitOK, "hash", "-dir", root)
			if out := call(t, exitFailed, "lint", "-dev", db.DSN, "-dir", root); !strings.Contains(out, "is behind the schema") {
				t.Errorf("a folder that %s:\n%s", name, out)
			}
		}
	})
}

func TestDiff(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		root := folders(t, nil)
		dev := []string{"-dev", db.DSN, "-dir", root}
		want(t, call(t, exitOK, append([]string{"diff", "init"}, dev...)...), "wrote", "_init.sql")
		want(t, call(t, exitOK, append([]string{"diff", "again"}, dev...)...), "has all of the schema")
		target, created := testdb.New(t, db.Kind), testdb.New(t, db.Kind)
		call(t, exitOK, "apply", "-dsn", target.DSN, "-dir", root)
		create(t, created)
		same(t, target, created)
		want(t, call(t, exitFailed, "diff", "more", "-dev", created.DSN, "-dir", root), "-dev: the database is not empty")
		if db.Kind == testdb.SQLite {
			other := folders(t, nil)
			want(t, call(t, exitOK, "diff", "-dialect", "sqlite", "init", "-dir", other), "_init.sql")
		}
	})
}

// The SQL for Atlas' external schema makes the tables that ent makes.
func TestSchema(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ddl := call(t, exitOK, "schema", "-dialect", string(db.Kind))
		stmts, err := migrate.NewLocalFile("schema.sql", []byte(ddl)).Stmts()
		if err != nil {
			t.Fatal(err)
		}
		execute(t, db, stmts...)
		created := testdb.New(t, db.Kind)
		create(t, created)
		same(t, db, created)
	})
}

// No route that goes through the generated package plans to drop or change the tables of counters. Atlas' loader
// for ent:// reads the schema without the extensions in entc.go: it does.
func TestRoutes(t *testing.T) {
	// What the loader does.
	graph, err := entc.LoadGraph("../schema", &gen.Config{})
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := graph.Tables()
	if err != nil {
		t.Fatal(err)
	}
	ours := []string{"counter_locks", "file_counter_journal", "file_counters"}
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		s := create(t, db)
		for _, options := range [][]entschema.MigrateOption{
			{entschema.WithMigrationMode(entschema.ModeInspect)},
			{entschema.WithMigrationMode(entschema.ModeReplay)},
		} {
			dir := &migrate.MemDir{}
			options = append(options, entschema.WithDir(dir), entschema.WithFormatter(migrate.DefaultFormatter),
				entschema.WithDropColumn(true), entschema.WithDropIndex(true))
			empty := entmigrate.NewSchema(entsql.OpenDB(db.Dialect, testdb.New(t, db.Kind).DB(t)))
			for _, route := range []func(context.Context, ...entschema.MigrateOption) error{
				empty.Diff,
				func(ctx context.Context, o ...entschema.MigrateOption) error {
					return empty.NamedDiff(ctx, "named", o...)
				},
			} {
				dir.Reset()
				if err := route(t.Context(), options...); err != nil {
					t.Fatal(err)
				}
				files, err := dir.Files()
				if err != nil || len(files) != 1 {
					t.Fatalf("%d files, error %v", len(files), err)
				}
				for _, table := range ours {
					want(t, string(files[0].Bytes()), "Create \""+table+"\" table")
				}
			}
		}
		var again bytes.Buffer
		if err := s.WriteTo(t.Context(), &again, entschema.WithDropColumn(true), entschema.WithDropIndex(true)); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(again.String(), "TABLE") {
			t.Errorf("creating the schema again changes it:\n%s", again.String())
		}

		d, drv := connect(t, db)
		for name, desired := range map[string][]*entschema.Table{"generated": entmigrate.Tables, "loader": loaded} {
			m, err := entschema.NewMigrate(d.ent())
			if err != nil {
				t.Fatal(err)
			}
			realm, err := m.StateReader(desired...).ReadState(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			realm.Schemas[0].Name = ""
			changes, err := drv.SchemaDiff(inspect(t, db), realm.Schemas[0])
			if err != nil {
				t.Fatal(err)
			}
			var dropped []string
			for _, c := range changes {
				if drop, ok := c.(*schema.DropTable); ok {
					dropped = append(dropped, drop.T.Name)
				}
			}
			slices.Sort(dropped)
			if name == "generated" && dropped != nil || name == "loader" && !slices.Equal(dropped, ours) {
				t.Errorf("%s: drops %v", name, dropped)
			}
		}
	})
}

// Appliers on one database wait for each other, and each file is run once.
func TestAppliersWait(t *testing.T) {
	t.Parallel()
	root := folders(t, map[string]string{
		"1_a.sql": "CREATE TABLE a (n integer NOT NULL);",
		"2_b.sql": "INSERT INTO a VALUES (1); CREATE TABLE b (n integer NOT NULL);",
		"3_c.sql": "INSERT INTO a VALUES (1);",
	})
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		apply := func(timeout string) (int, string) {
			var out bytes.Buffer
			code := run(t.Context(), []string{"apply", "-dsn", db.DSN, "-dir", root, "-lock-timeout", timeout}, &out, &out)
			return code, out.String()
		}
		holder, _ := connect(t, db)
		if err := holder.lock(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		release := holder.close
		if db.Kind == testdb.SQLite {
			tx, err := holder.begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			release = tx.rollback
		}
		if code, out := apply("1s"); code != exitFailed || !strings.Contains(out, "another run has been migrating") {
			t.Errorf("exit code %d while another run holds the lock:\n%s", code, out)
		}
		var (
			wg       sync.WaitGroup
			finished = make(chan struct{})
		)
		for range 4 {
			wg.Go(func() {
				if code, out := apply("1m"); code != exitOK {
					t.Errorf("exit code %d:\n%s", code, out)
				}
			})
		}
		go func() { wg.Wait(); close(finished) }()
		select {
		case <-finished:
			t.Error("nobody has waited for the lock")
		case <-time.After(300 * time.Millisecond):
		}
		if err := release(); err != nil {
			t.Fatal(err)
		}
		<-finished
		if n := number(t, db, "SELECT COUNT(*) FROM a"); n != 2 {
			t.Errorf("rows inserted by two files: %d", n)
		}
	})
}

func TestChecksums(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		root := folders(t, map[string]string{"1_a.sql": "CREATE TABLE a (n integer NOT NULL);", "2_b.sql": "CREATE TABLE b (n integer NOT NULL);"})
		call(t, exitOK, "apply", "-dsn", db.DSN, "-dir", root)
		write(t, root, map[string]string{"1_a.sql": "CREATE TABLE a (n bigint NOT NULL);"})
		fresh := testdb.New(t, db.Kind)
		for _, args := range [][]string{
			{"apply", "-dsn", fresh.DSN}, {"apply", "-dry-run", "-dsn", fresh.DSN}, {"status", "-dsn", fresh.DSN},
			{"lint", "-dev", fresh.DSN}, {"diff", "more", "-dev", fresh.DSN},
		} {
			want(t, call(t, exitFailed, append(args, "-dir", root)...), "checksum does not match: 1_a.sql was edited", "run hash")
		}
		if left := tables(t, fresh); left != nil {
			t.Errorf("there are tables: %v", left)
		}
		want(t, call(t, exitOK, "hash", "-dir", root), "signed")
		want(t, call(t, exitFailed, "apply", "-dsn", db.DSN, "-dir", root), "1_a.sql, or a file before it, is not what was run on this database")
		want(t, call(t, exitOK, "status", "-dsn", db.DSN, "-dir", root), "is not what was run on this database")
		call(t, exitOK, "apply", "-dsn", fresh.DSN, "-dir", root)

		if err := os.Remove(filepath.Join(root, "sqlite", "2_b.sql")); err != nil {
			t.Fatal(err)
		}
		if db.Kind == testdb.SQLite {
			want(t, call(t, exitFailed, "apply", "-dsn", db.DSN, "-dir", root), "2_b.sql was removed")
			if err := os.Remove(filepath.Join(root, "sqlite", "atlas.sum")); err != nil {
				t.Fatal(err)
			}
			want(t, call(t, exitFailed, "apply", "-dsn", db.DSN, "-dir", root), "there is no atlas.sum")
		}
	})
}

func TestDryRun(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		want(t, call(t, exitOK, "apply", "-dry-run", "-dsn", db.DSN), "CREATE TABLE", "file_counter_journal", "nothing of this was run; files: 1")
		_, drv := connect(t, db)
		s, err := drv.InspectSchema(t.Context(), "", nil)
		if err != nil || len(s.Tables) != 0 {
			t.Errorf("%d tables, error %v", len(s.Tables), err)
		}
		root := folders(t, map[string]string{"1_a.sql": "CREATE TABLE a (n integer NOT NULL);"})
		call(t, exitOK, "apply", "-dsn", db.DSN, "-dir", root)
		write(t, root, map[string]string{"2_b.sql": "CREATE TABLE b (n integer NOT NULL);"})
		call(t, exitOK, "hash", "-dir", root)
		out := call(t, exitOK, "apply", "-dry-run", "-dsn", db.DSN, "-dir", root)
		want(t, out, "2_b.sql", "CREATE TABLE b")
		if got := tables(t, db); !slices.Equal(got, []string{"a"}) || strings.Contains(out, "1_a.sql") {
			t.Errorf("tables %v after:\n%s", got, out)
		}
		want(t, call(t, exitOK, "status", "-dsn", db.DSN, "-dir", root), "pending  2_b.sql", "files to run by apply: 1")
	})
}

// A statement fails in the middle of a file; status tells, and apply goes on when the file is mended.
func TestFailedStatement(t *testing.T) {
	t.Parallel()
	const first, bad, last = "CREATE TABLE b (n integer NOT NULL);\n", "INSERT INTO missing VALUES (1);\n", "CREATE TABLE c (n integer NOT NULL);\n"
	for _, directive := range []string{"", "-- atlas:txmode none\n\n"} {
		testdb.Each(t, func(t *testing.T, db *testdb.Database) {
			root := folders(t, map[string]string{"1_a.sql": "CREATE TABLE a (n integer NOT NULL);", "2_b.sql": directive + first + bad + last})
			undone := db.Dialect != dialect.MySQL && directive == ""
			next, kept := "Done before it and kept: 1", []string{"a", "b"}
			if undone {
				next, kept = "Nothing of this file is in the database", []string{"a"}
			}
			out := call(t, exitFailed, "apply", "-dsn", db.DSN, "-dir", root)
			want(t, out, "2_b.sql: statement 2 of 3 failed", "INSERT INTO missing", next)
			if got := tables(t, db); !slices.Equal(got, kept) {
				t.Errorf("tables %v", got)
			}
			stopped := "at statement 2 of 3"
			if undone {
				stopped = "at statement 1 of 3"
			}
			want(t, call(t, exitOK, "status", "-dsn", db.DSN, "-dir", root), "applied  1_a.sql", "stopped  2_b.sql", stopped, "INSERT INTO missing", next)
			call(t, exitFailed, "apply", "-dsn", db.DSN, "-dir", root) // and stays as it is
			if undone {
				want(t, call(t, exitFailed, "apply", "-skip", "-dsn", db.DSN, "-dir", root), "there is nothing to skip")
			}

			if !undone {
				write(t, root, map[string]string{"2_b.sql": directive + "CREATE TABLE b (n bigint NOT NULL);\n" + last})
				call(t, exitOK, "hash", "-dir", root)
				want(t, call(t, exitFailed, "apply", "-dsn", db.DSN, "-dir", root), "statement 1 was changed after it was run")
			}
			write(t, root, map[string]string{"2_b.sql": directive + first + last + "INSERT INTO a VALUES (1);\nINSERT INTO a VALUES (2);\n"})
			call(t, exitOK, "hash", "-dir", root)
			call(t, exitOK, "apply", "-dsn", db.DSN, "-dir", root)
			want(t, call(t, exitOK, "status", "-dsn", db.DSN, "-dir", root), "applied  2_b.sql", "nothing to do")
			if n := number(t, db, "SELECT COUNT(*) FROM a"); n != 2 || !slices.Equal(tables(t, db), []string{"a", "b", "c"}) {
				t.Errorf("%d rows, tables %v", n, tables(t, db))
			}
		})
	}
}

// A statement that was finished before the program was killed is skipped on demand.
func TestSkip(t *testing.T) {
	t.Parallel()
	root := folders(t, map[string]string{
		"1_a.sql": "CREATE TABLE a (n integer NOT NULL);",
		"2_b.sql": "-- atlas:txmode none\n\nCREATE TABLE b (n integer NOT NULL);\nALTER TABLE a ADD COLUMN x integer NULL;\nCREATE TABLE c (n integer NOT NULL);",
	})
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		want(t, call(t, exitFailed, "apply", "-skip", "-dsn", db.DSN, "-dir", root), "there is nothing to skip")
		first := folders(t, map[string]string{"1_a.sql": "CREATE TABLE a (n integer NOT NULL);"})
		call(t, exitOK, "apply", "-dsn", db.DSN, "-dir", first)
		execute(t, db, "ALTER TABLE a ADD COLUMN x integer NULL")
		want(t, call(t, exitFailed, "apply", "-dsn", db.DSN, "-dir", root), "statement 2 of 3", "apply -skip")
		want(t, call(t, exitOK, "apply", "-skip", "-dsn", db.DSN, "-dir", root), "skipped statement 2 of 2_b.sql", "from statement 3")
		want(t, call(t, exitOK, "status", "-dsn", db.DSN, "-dir", root), "nothing to do")
		if got := tables(t, db); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("tables %v", got)
		}
	})
}

// The program is killed while a statement runs. The next run waits for what the server still does, and finishes.
func TestKill(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		slow := "ALTER TABLE a ADD COLUMN x integer NULL"
		if db.Kind == testdb.SQLite {
			slow = "INSERT INTO b WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < (SELECT MAX(n) FROM a)) SELECT x FROM c"
		}
		root := folders(t, map[string]string{
			"1_a.sql": "CREATE TABLE a (n integer NOT NULL);\nINSERT INTO a VALUES (1000000000);",
			"2_b.sql": "CREATE TABLE b (n integer NOT NULL);\n" + slow + ";\nCREATE TABLE c (n integer NOT NULL);",
		})
		args := []string{"apply", "-dsn", db.DSN, "-dir", root}

		// Whoever has read a table keeps it from being altered.
		reader, err := db.DB(t).BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		first := folders(t, map[string]string{"1_a.sql": "CREATE TABLE a (n integer NOT NULL);\nINSERT INTO a VALUES (1000000000);"})
		call(t, exitOK, "apply", "-dsn", db.DSN, "-dir", first)
		if db.Kind != testdb.SQLite {
			if _, err := reader.ExecContext(t.Context(), "SELECT COUNT(*) FROM a"); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), envArgs+"="+strings.Join(args, "\n"))
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(stdout)
		for lines.Scan() && !strings.Contains(lines.Text(), slow) {
		}
		time.Sleep(300 * time.Millisecond) // the statement is printed before it is sent
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, stdout)
		if err := cmd.Wait(); err == nil {
			t.Fatal("the program was not killed")
		}
		if err := reader.Rollback(); err != nil {
			t.Fatal(err)
		}
		if db.Kind == testdb.SQLite {
			if got := tables(t, db); !slices.Equal(got, []string{"a"}) {
				t.Errorf("tables after the kill: %v", got)
			}
			execute(t, db, "UPDATE a SET n = 10")
		}
		status := call(t, exitOK, "status", "-dsn", db.DSN, "-dir", root)
		if db.Dialect == dialect.MySQL {
			want(t, status, "stopped  2_b.sql", "at statement 2 of 3", "apply -skip")
		} else {
			want(t, status, "pending  2_b.sql")
		}
		var out bytes.Buffer
		code := run(t.Context(), args, &out, &out)
		if code != exitOK && db.Dialect == dialect.MySQL && strings.Contains(out.String(), "Duplicate column") {
			// The server has finished what nobody waited for.
			code = run(t.Context(), append(args, "-skip"), &out, &out)
		}
		if code != exitOK {
			t.Fatalf("exit code %d:\n%s", code, out.String())
		}
		want(t, call(t, exitOK, "status", "-dsn", db.DSN, "-dir", root), "nothing to do")
		if got := tables(t, db); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("tables %v", got)
		}
	})
}

// An interrupt ends a statement that runs for long. What is kept is as after a failure.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		slow := map[string]string{
			dialect.MySQL:    "SELECT SLEEP(100)",
			dialect.Postgres: "SELECT pg_sleep(100)",
			dialect.SQLite:   "INSERT INTO a WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 1000000000) SELECT x FROM c",
		}[db.Dialect]
		root := folders(t, map[string]string{"1_a.sql": "CREATE TABLE a (n integer NOT NULL);\n" + slow + ";"})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		var out bytes.Buffer
		if code := run(ctx, []string{"apply", "-dsn", db.DSN, "-dir", root}, &out, &out); code != exitFailed || !strings.Contains(out.String(), "1_a.sql: statement 2 of 2 failed") {
			t.Errorf("exit code %d:\n%s", code, out.String())
		}
		kept := []string(nil)
		if db.Dialect == dialect.MySQL {
			kept = []string{"a"}
		}
		if got := tables(t, db); !slices.Equal(got, kept) {
			t.Errorf("tables %v", got)
		}
		write(t, root, map[string]string{"1_a.sql": "CREATE TABLE a (n integer NOT NULL);\nCREATE TABLE b (n integer NOT NULL);"})
		call(t, exitOK, "hash", "-dir", root)
		call(t, exitOK, "apply", "-dsn", db.DSN, "-dir", root)
		if got := tables(t, db); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("tables %v", got)
		}
	})
}

func TestBaseline(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		create(t, db)
		want(t, call(t, exitFailed, "apply", "-dsn", db.DSN), "the database is not empty", "-baseline")
		want(t, call(t, exitFailed, "apply", "-baseline", "1", "-dsn", db.DSN), `baseline version "1" not found`)
		dir, err := migrations.Dir(db.Dialect)
		if err != nil {
			t.Fatal(err)
		}
		files, err := dir.Files()
		if err != nil {
			t.Fatal(err)
		}
		want(t, call(t, exitOK, "apply", "-baseline", files[len(files)-1].Version(), "-dsn", db.DSN), "files run: 0")
		want(t, call(t, exitOK, "apply", "-dsn", db.DSN), "files run: 0")
		want(t, call(t, exitOK, "status", "-dsn", db.DSN), "the baseline", "nothing to do")
	})
}

// Files that are older than what a database has, and those that it has and the folder has not, are told of.
func TestHistory(t *testing.T) {
	t.Parallel()
	a, b := "CREATE TABLE a (n integer NOT NULL);", "CREATE TABLE b (n integer NOT NULL);"
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		call(t, exitOK, "apply", "-dsn", db.DSN, "-dir", folders(t, map[string]string{"1_a.sql": a, "3_b.sql": b}))
		root := folders(t, map[string]string{"1_a.sql": a})
		want(t, call(t, exitOK, "status", "-dsn", db.DSN, "-dir", root), "unknown  3_b.sql", "nothing to do")
		write(t, root, map[string]string{"2_c.sql": "CREATE TABLE c (n integer NOT NULL);", "3_b.sql": b})
		call(t, exitOK, "hash", "-dir", root)
		out := call(t, exitFailed, "apply", "-dsn", db.DSN, "-dir", root)
		if !strings.Contains(out, "2_c.sql: older than a file that the database has already") {
			t.Error(out)
		}
	})
}

func TestLintFindings(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		root := folders(t, map[string]string{
			"1_a.sql": "CREATE TABLE a (n integer NOT NULL, m integer NOT NULL);",
			"2_b.sql": "-- why\nALTER TABLE a DROP COLUMN m;",
			"3_c.sql": "DROP TABLE a;",
		})
		want(t, call(t, exitFailed, "lint", "-dev", db.DSN, "-dir", root),
			`2_b.sql:2: Dropping non-virtual column "m" (DS103)`, `3_c.sql:1: Dropping table "a" (DS102)`, "findings: ")
		if left := tables(t, db); left != nil {
			t.Errorf("lint leaves tables behind: %v", left)
		}
	})
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "no command is given: give diff, lint, hash, apply, status, schema"},
		{[]string{"migrate"}, `there is no command "migrate"`},
		{[]string{"apply"}, "-dsn is missing: give sqlite:PATH"},
		{[]string{"status"}, "-dsn is missing"},
		{[]string{"apply", "-dsn", "oracle://u:secret@h/d"}, `-dsn: "oracle" is no database that this program knows`},
		{[]string{"apply", "-dsn", "mysql://u:secret@h:1"}, "-dsn: it names no database"},
		{[]string{"apply", "-dsn", "sqlite:x.db", "now"}, `apply: "now" is too much`},
		{[]string{"apply", "-dsn", "sqlite:x.db", "-n", "1"}, "flag provided but not defined: -n"},
		{[]string{"apply", "-dsn", "sqlite:x.db", "-dir", "nowhere"}, "-dir: there is no folder nowhere/sqlite"},
		{[]string{"diff"}, "diff: the name is missing"},
		{[]string{"diff", "a", "b"}, `diff: "b" is too much`},
		{[]string{"diff", "../x"}, "is no name for a file"},
		{[]string{"diff", "x"}, "the kind of database is missing: give -dialect sqlite or, for MySQL, MariaDB and PostgreSQL, -dev"},
		{[]string{"diff", "x", "-dialect", "mysql"}, "-dev is missing: give the DSN of an empty database"},
		{[]string{"diff", "x", "-dialect", "oracle"}, `-dialect: "oracle" is not known`},
		{[]string{"diff", "x", "-dialect", "mysql", "-dev", "postgres://u:secret@h/d"}, "-dev is a database of another kind"},
		{[]string{"lint", "-dev", "u:secret@tcp(h:1)/"}, "-dev: it names no database"},
		{[]string{"hash", "-dir", "nowhere"}, "-dir:"},
		{[]string{"schema"}, "-dialect is missing"},
		{[]string{"schema", "-dialect", "oracle"}, `"oracle" is not known`},
	} {
		out := call(t, exitUsage, append([]string{}, test.args...)...)
		if !strings.Contains(out, test.want) || strings.Contains(out, "secret") {
			t.Errorf("%v: %s", test.args, out)
		}
	}
	for _, c := range commands {
		want(t, call(t, exitOK, c.name, "-h"), "usage: go run ./migrate "+c.name)
	}
	want(t, call(t, exitOK, "-h"), "diff NAME", "status")
	want(t, call(t, exitFailed, "apply", "-dsn", "postgres://u:secret@127.0.0.1:1/d"), "connecting to postgres 127.0.0.1:1/d")
}

// The revisions are stored as the Atlas command line stores them.
func TestRevisions(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		d, drv := connect(t, db)
		table, err := atlasTable(t.Context(), d, revisionsTable)
		if err != nil {
			t.Fatal(err)
		}
		revs, err := createRevisions(t.Context(), d, drv, table)
		if err != nil {
			t.Fatal(err)
		}
		rev := &migrate.Revision{Version: "1", Description: "d", Type: migrate.RevisionTypeExecute, Applied: 1, Total: 2,
			ExecutedAt: time.Now().Truncate(time.Second), ExecutionTime: 3, Error: "e", ErrorStmt: "s", Hash: "h",
			PartialHashes: []string{"h1:x"}, OperatorVersion: "o"}
		cloud := &migrate.Revision{Version: atlasCloudID, ExecutedAt: rev.ExecutedAt}
		for _, r := range []*migrate.Revision{rev, cloud, rev} {
			if err := revs.WriteRevision(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		all, err := revs.ReadRevisions(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("%v, error %v", all, err)
		}
		if !all[0].ExecutedAt.Equal(rev.ExecutedAt) {
			t.Errorf("time %v, want %v", all[0].ExecutedAt, rev.ExecutedAt)
		}
		all[0].ExecutedAt = rev.ExecutedAt
		if got, want := fmt.Sprintf("%+v", *all[0]), fmt.Sprintf("%+v", *rev); got != want {
			t.Errorf("read %s, want %s", got, want)
		}
		if err := revs.DeleteRevision(t.Context(), "1"); err != nil {
			t.Fatal(err)
		}
		if _, err := revs.ReadRevision(t.Context(), "1"); err != migrate.ErrRevisionNotExist {
			t.Errorf("error %v", err)
		}
	})
}
