package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"ariga.io/atlas/schemahcl"
	"ariga.io/atlas/sql/migrate"
	"ariga.io/atlas/sql/mysql"
	_ "ariga.io/atlas/sql/mysql/mysqlcheck" // analyzers
	"ariga.io/atlas/sql/postgres"
	_ "ariga.io/atlas/sql/postgres/postgrescheck" // analyzers
	"ariga.io/atlas/sql/schema"
	"ariga.io/atlas/sql/sqlcheck"
	"ariga.io/atlas/sql/sqlclient"
	"ariga.io/atlas/sql/sqlite"
	_ "ariga.io/atlas/sql/sqlite/sqlitecheck" // analyzers
	"entgo.io/ent/dialect"
)

// lint runs every file on the dev database, has Atlas' analyzers look at what each statement changes, and
// compares the result with the ent schema.
func (p *program) lint(ctx context.Context) (err error) {
	d, dir, err := p.openDev(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	found, err := findings(ctx, d, dir)
	if err != nil {
		return devError(err)
	}
	missing, err := behind(ctx, d, dir)
	if err != nil {
		return err
	}
	for _, f := range found {
		fmt.Fprintln(p.stdout, f)
	}
	if len(missing) > 0 {
		fmt.Fprintf(p.stdout, "%s is behind the schema: run diff. Missing:\n", dir.Path())
		for _, stmt := range missing {
			fmt.Fprintln(p.stdout, indent(stmt)+";")
		}
	}
	if n := len(found); n > 0 || len(missing) > 0 {
		return fmt.Errorf("%s: findings: %d, statements missing: %d", dir.Path(), n, len(missing))
	}
	fmt.Fprintf(p.stdout, "%s is current, and nothing was found\n", dir.Path())
	return nil
}

// findings returns what the analyzers say, one line for each finding.
func findings(ctx context.Context, d *database, dir migrate.Dir) (found []string, err error) {
	drv, err := d.atlas(d.conn)
	if err != nil {
		return nil, err
	}
	restore, err := drv.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, restore(context.WithoutCancel(ctx))) }()
	name := map[string]string{dialect.MySQL: mysql.DriverName, dialect.Postgres: postgres.DriverName, dialect.SQLite: sqlite.DriverName}[d.Dialect]
	analyzers, err := sqlcheck.AnalyzerFor(name, &schemahcl.Resource{})
	if err != nil {
		return nil, err
	}
	dev := &sqlclient.Client{Name: name, Driver: drv, DB: d.pool, URL: &sqlclient.URL{URL: &url.URL{}}}
	files, err := dir.Files()
	if err != nil {
		return nil, err
	}
	current, err := drv.InspectSchema(ctx, "", nil)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		file := &sqlcheck.File{File: f, From: realmOf(current)}
		start := current
		stmts, err := migrate.FileStmtDecls(drv, f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		for _, stmt := range stmts {
			if _, err := drv.ExecContext(ctx, stmt.Text); err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", f.Name(), err, indent(stmt.Text))
			}
			next, err := drv.InspectSchema(ctx, "", nil)
			if err != nil {
				return nil, err
			}
			changes, err := drv.SchemaDiff(current, next)
			if err != nil {
				return nil, err
			}
			file.Changes = append(file.Changes, &sqlcheck.Change{Stmt: stmt, Changes: changes})
			current = next
		}
		if file.Sum, err = drv.SchemaDiff(start, current); err != nil {
			return nil, err
		}
		file.To = realmOf(current)
		report := sqlcheck.ReportWriterFunc(func(r sqlcheck.Report) {
			for _, diagnostic := range r.Diagnostics {
				line := strings.Count(string(f.Bytes()[:diagnostic.Pos]), "\n") + 1
				found = append(found, fmt.Sprintf("%s:%d: %s (%s)", f.Name(), line, diagnostic.Text, diagnostic.Code))
			}
		})
		// An analyzer fails because of what it has reported, among other things.
		before := len(found)
		if err := sqlcheck.Analyzers(analyzers).Analyze(ctx, &sqlcheck.Pass{File: file, Dev: dev, Reporter: report}); err != nil && len(found) == before {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
	}
	return found, nil
}

func realmOf(s *schema.Schema) *schema.Realm {
	if s.Realm == nil {
		s.Realm = schema.NewRealm(s)
	}
	return s.Realm
}
