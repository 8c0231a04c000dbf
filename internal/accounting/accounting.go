// Package accounting tells how many rows a database has read for something, by what the database itself counts
// while it does it. Nothing is estimated.
package accounting

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"strings"

	"entgo.io/ent/dialect"

	"github.com/entcounter/entcounter/internal/dsn"
)

// Usage is what a database has read.
type Usage struct {
	// Rows is what [Account.Unit] says.
	Rows int64
	// Steps are those of SQLite's virtual machine: all that it does, also what Rows leaves out. Other databases
	// have none.
	Steps int64
}

// StepsUnit tells what steps are.
const StepsUnit = "steps of SQLite's virtual machine (sqlite3_stmt_status)"

// Account is a database whose reads are counted. DB has one connection.
type Account struct {
	DB      *stdsql.DB
	source  dsn.Source
	version string
	log     *recorder // of SQLite's statements
}

// Open connects to a database that exists.
func Open(ctx context.Context, src dsn.Source) (*Account, error) {
	a := &Account{source: src}
	var err error
	if src.Dialect == dialect.SQLite {
		a.log = &recorder{dsn: src.DSN}
		a.DB = stdsql.OpenDB(a.log)
	} else if a.DB, err = stdsql.Open(src.Driver, src.DSN); err != nil {
		return nil, fmt.Errorf("opening %s: %w", src.Label, err)
	}
	a.DB.SetMaxOpenConns(1)
	switch src.Dialect {
	case dialect.SQLite:
		err = a.DB.PingContext(ctx)
	case dialect.Postgres:
		// What a parallel worker reads is not in the session's statistics.
		_, err = a.DB.ExecContext(ctx, "SET max_parallel_workers_per_gather = 0")
	default:
		err = a.DB.QueryRowContext(ctx, "SELECT VERSION()").Scan(&a.version)
	}
	if err != nil {
		_ = a.DB.Close()
		return nil, fmt.Errorf("connecting to %s: %w", src.Label, err)
	}
	return a, nil
}

// Unit tells what rows are, and where the database says so.
func (a *Account) Unit() string {
	switch a.source.Dialect {
	case dialect.SQLite:
		return "rows that scans step to, without those found by an index (sqlite3_stmt_status)"
	case dialect.Postgres:
		return "rows read by scans, and entries read from indexes, also those of rows that are gone and not yet vacuumed (pg_stat_get_xact_tuples_returned)"
	}
	unit := "rows read by the session, also from temporary tables (Handler_read_*)"
	if !a.countsAll() {
		unit += ", without those that a COUNT without WHERE and GROUP BY counts inside of InnoDB"
	}
	return unit
}

// countsAll reports whether rows that a COUNT without WHERE and GROUP BY counts are in the account. In MySQL
// they are not: the engine counts them without handing them to the server.
func (a *Account) countsAll() bool {
	return a.source.Dialect != dialect.MySQL || strings.Contains(a.version, "MariaDB")
}

// Querier is a transaction on the account's connection.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*stdsql.Rows, error)
}

// Of calls read, which reads in the given transaction on the account's connection, and returns what the database
// has read for it.
func (a *Account) Of(ctx context.Context, tx Querier, read func() error) (Usage, error) {
	if a.source.Dialect == dialect.SQLite {
		a.log.begin()
		err := read()
		statements := a.log.end()
		if err != nil {
			return Usage{}, err
		}
		return replay(a.source.DSN, statements)
	}
	status := "SHOW SESSION STATUS LIKE 'Handler_read%'"
	if a.source.Dialect == dialect.Postgres {
		status = "SELECT relname, pg_stat_get_xact_tuples_returned(oid) FROM pg_class" +
			" WHERE relkind IN ('r', 'i') AND relnamespace = current_schema()::regnamespace"
	}
	// To ask is to read too. What that adds is the same each time.
	var counts [3]int64
	for i := range counts {
		if i == 2 {
			if err := read(); err != nil {
				return Usage{}, err
			}
		}
		var err error
		if counts[i], err = sum(ctx, tx, status); err != nil {
			return Usage{}, fmt.Errorf("asking how many rows were read: %w", err)
		}
	}
	return Usage{Rows: counts[2] - counts[1] - (counts[1] - counts[0])}, nil
}

// sum adds up the second column of a result.
func sum(ctx context.Context, tx Querier, query string) (total int64, err error) {
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var name string
		var n int64
		if err := rows.Scan(&name, &n); err != nil {
			return 0, err
		}
		total += n
	}
	return total, rows.Err()
}
