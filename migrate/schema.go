package main

import (
	"context"
	"fmt"
	"strings"

	"entgo.io/ent/dialect"
	entschema "entgo.io/ent/dialect/sql/schema"

	entmigrate "github.com/entcounter/entcounter/ent/migrate"
)

// schema prints the tables as SQL, those of counters among them. It needs no database: ent writes for the oldest
// version that is supported.
func (p *program) schema(ctx context.Context) error {
	args := entschema.DDLArgs{Tables: entmigrate.Tables, HashSymbols: true}
	switch strings.ToLower(p.dialect) {
	case "sqlite", "sqlite3":
		args.Dialect, args.Version = dialect.SQLite, "3.35.0"
	case "mysql":
		args.Dialect, args.Version = dialect.MySQL, "8.0.19"
	case "mariadb":
		args.Dialect, args.Version = dialect.MySQL, "10.6.0-MariaDB"
	case "postgres", "postgresql":
		args.Dialect, args.Version = dialect.Postgres, "13.0.0"
	case "":
		return usagef("schema: -dialect is missing: give sqlite, mysql, mariadb or postgres")
	default:
		return usagef("schema: -dialect: %q is not known: give sqlite, mysql, mariadb or postgres", p.dialect)
	}
	ddl, err := entschema.DDL(ctx, args)
	if err != nil {
		return err
	}
	fmt.Fprint(p.stdout, ddl)
	return nil
}
