package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"ariga.io/atlas/sql/migrate"
	"ariga.io/atlas/sql/schema"
	"entgo.io/ent/dialect"
	entschema "entgo.io/ent/dialect/sql/schema"

	entmigrate "github.com/entcounter/entcounter/ent/migrate"
	"github.com/entcounter/entcounter/internal/dsn"
	"github.com/entcounter/entcounter/migrate/migrations"
)

// dialects are the kinds of databases by the names that people give them.
var dialects = map[string]string{
	"sqlite": dialect.SQLite, "sqlite3": dialect.SQLite, "mysql": dialect.MySQL, "mariadb": dialect.MySQL,
	"postgres": dialect.Postgres, "postgresql": dialect.Postgres,
}

// fileName is what a migration may be called.
var fileName = regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)*$`)

// devSource tells in which database migrations are tried.
func (p *program) devSource() (dsn.Source, error) {
	want, known := dialects[strings.ToLower(p.dialect)]
	const what = "an empty database of that kind, which migrations are tried in and which is emptied afterwards"
	switch {
	case p.dialect != "" && !known:
		return dsn.Source{}, usagef("-dialect: %q is not known: give sqlite, mysql or postgres", p.dialect)
	case p.dev == "" && p.dialect == "":
		return dsn.Source{}, usagef("the kind of database is missing: give -dialect sqlite or, for MySQL, MariaDB and PostgreSQL, -dev with the DSN of %s", what)
	case p.dev == "" && want != dialect.SQLite:
		return dsn.Source{}, usagef("-dev is missing: give the DSN of %s", what)
	case p.dev == "":
		return dsn.Source{Driver: "sqlite", Dialect: dialect.SQLite, DSN: "file::memory:?_pragma=foreign_keys(1)", Label: "sqlite in memory"}, nil
	}
	src, err := dsn.Parse(p.dev)
	switch {
	case err != nil:
		return dsn.Source{}, usagef("-dev: %w", err)
	case p.dialect != "" && src.Dialect != want:
		return dsn.Source{}, usagef("-dev is a database of another kind than -dialect %s: leave one of the two out", p.dialect)
	}
	return src, nil
}

// dev opens the database in which migrations are tried, and their folder.
func (p *program) openDev(ctx context.Context) (*database, *migrate.LocalDir, error) {
	src, err := p.devSource()
	if err != nil {
		return nil, nil, err
	}
	dir, path, err := p.folder(src.Dialect)
	if err != nil {
		return nil, nil, err
	}
	if err := validate(dir, path); err != nil {
		return nil, nil, err
	}
	d, err := open(ctx, src)
	return d, dir, err
}

// diff writes the migration from the files of a folder to the ent schema.
func (p *program) diff(ctx context.Context, name string) (err error) {
	if !fileName.MatchString(name) {
		return usagef("diff: %q is no name for a file: give one of lower-case letters, digits and _, such as add_files", name)
	}
	d, dir, err := p.openDev(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	before, err := dir.Files()
	if err != nil {
		return err
	}
	err = entmigrate.NewSchema(d.ent()).NamedDiff(ctx, name,
		entschema.WithDir(dir),
		entschema.WithMigrationMode(entschema.ModeReplay),
		entschema.WithFormatter(migrate.DefaultFormatter),
		entschema.WithDropColumn(true),
		entschema.WithDropIndex(true),
		entschema.WithErrNoPlan(true),
		entschema.WithIndent("  "),
	)
	if errors.Is(err, migrate.ErrNoPlan) {
		fmt.Fprintf(p.stdout, "%s has all of the schema\n", dir.Path())
		return nil
	}
	if err != nil {
		return devError(err)
	}
	after, err := dir.Files()
	if err != nil {
		return err
	}
	for _, f := range after {
		if !slices.ContainsFunc(before, func(b migrate.File) bool { return b.Name() == f.Name() }) {
			fmt.Fprintln(p.stdout, "wrote", filepath.Join(dir.Path(), f.Name()))
		}
	}
	return nil
}

func devError(err error) error {
	var dirty *migrate.NotCleanError
	if errors.As(err, &dirty) {
		return fmt.Errorf("-dev: the database is not empty (%s): give one that is, since it is emptied afterwards", dirty.Reason)
	}
	return err
}

// behind returns the statements that lead from the files of a folder to the ent schema, none if the folder is
// current. Unlike diff it also tells of tables that the schema does not have any more.
func behind(ctx context.Context, d *database, dir migrate.Dir) ([]string, error) {
	drv, err := d.atlas(d.conn)
	if err != nil {
		return nil, err
	}
	ex, err := migrate.NewExecutor(drv, dir, migrate.NopRevisionReadWriter{})
	if err != nil {
		return nil, err
	}
	replayed, err := ex.Replay(ctx, migrate.SchemaConn(drv, "", nil))
	if err != nil {
		return nil, devError(err)
	}
	m, err := entschema.NewMigrate(d.ent())
	if err != nil {
		return nil, err
	}
	realm, err := m.StateReader(entmigrate.Tables...).ReadState(ctx)
	if err != nil {
		return nil, err
	}
	current, desired := replayed.Schemas[0], realm.Schemas[0]
	desired.Name, desired.Attrs = current.Name, current.Attrs
	if n, ok := drv.(schema.Normalizer); ok {
		if desired, err = n.NormalizeSchema(ctx, desired); err != nil {
			return nil, devError(err)
		}
	}
	changes, err := drv.SchemaDiff(current, desired)
	if err != nil || len(changes) == 0 {
		return nil, err
	}
	plan, err := drv.PlanChanges(ctx, "", changes, func(o *migrate.PlanOptions) { o.SchemaQualifier = new(string) })
	if err != nil {
		return nil, err
	}
	var stmts []string
	for _, c := range plan.Changes {
		stmts = append(stmts, c.Cmd)
	}
	return stmts, nil
}

// hash signs the files of every folder as they are.
func (p *program) hash(context.Context) error {
	for _, name := range []string{dialect.SQLite, dialect.MySQL, dialect.Postgres} {
		folder, err := migrations.Folder(name)
		if err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(p.dir, folder)); err != nil {
			return usagef("-dir: %w: run in the root of the repository, or give the folder that holds sqlite, mysql and postgres", err)
		}
		dir, path, err := p.folder(name)
		if err != nil {
			return err
		}
		before := migrate.Validate(dir)
		sum, err := dir.Checksum()
		if err == nil {
			err = migrate.WriteSumFile(dir, sum)
		}
		if err != nil {
			return fmt.Errorf("signing %s: %w", path, err)
		}
		if before != nil {
			fmt.Fprintln(p.stdout, "signed", path)
		}
	}
	return nil
}
