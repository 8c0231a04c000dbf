package main

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"time"

	"ariga.io/atlas/sql/migrate"
	"ariga.io/atlas/sql/mysql"
	"ariga.io/atlas/sql/postgres"
	"ariga.io/atlas/sql/schema"
	"ariga.io/atlas/sql/sqlite"
	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/entcounter/entcounter/internal/dsn"
)

// lockName is the lock that the Atlas command line takes too.
const lockName = "atlas_migrate_execute"

// sqliteBusy is SQLite's code for a lock that somebody else holds.
const sqliteBusy = 5

// database is one connection to a database. It is one so that the lock belongs to the connection that runs the
// statements: when the program is killed, the lock stays for as long as the server goes on with its statement.
type database struct {
	dsn.Source
	pool *stdsql.DB
	conn *stdsql.Conn
	wait time.Duration // for the lock
}

func open(ctx context.Context, src dsn.Source) (*database, error) {
	pool, err := stdsql.Open(src.Driver, src.DSN)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", src.Label, err)
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connecting to %s: %w", src.Label, err), pool.Close())
	}
	return &database{Source: src, pool: pool, conn: conn}, nil
}

// close ends the connection, and with it the lock.
func (d *database) close() error { return errors.Join(d.conn.Close(), d.pool.Close()) }

// ent returns ent's view of the connection, which must not open transactions.
func (d *database) ent() dialect.Driver {
	return entsql.NewDriver(d.Dialect, entsql.Conn{ExecQuerier: d.conn})
}

// atlas returns Atlas' view of the connection, or of a transaction on it.
func (d *database) atlas(conn schema.ExecQuerier) (migrate.Driver, error) {
	switch d.Dialect {
	case dialect.MySQL:
		return mysql.Open(conn)
	case dialect.Postgres:
		return postgres.Open(conn)
	default:
		return sqlite.Open(conn)
	}
}

// lock keeps every other run away from the database until the connection ends.
//
// SQLite does without a lock of its own: each file runs in a transaction that takes the write lock when it
// begins, and looks under it what there is to do. Atlas' lock there is a file that two can create at once, that
// expires while it is held, and that stays behind when its owner is killed.
func (d *database) lock(ctx context.Context, timeout time.Duration) error {
	d.wait = timeout
	if d.Dialect == dialect.SQLite {
		_, err := d.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", timeout.Milliseconds()))
		return err
	}
	drv, err := d.atlas(d.conn)
	if err != nil {
		return err
	}
	_, err = drv.Lock(ctx, lockName, timeout)
	if errors.Is(err, schema.ErrLocked) {
		return d.lockedError()
	}
	return err
}

func (d *database) lockedError() error {
	return fmt.Errorf("another run has been migrating %s for more than %s: wait until it ends, or give -lock-timeout a longer time", d.Label, d.wait)
}

// transactional reports whether a file can be undone as a whole. MySQL and MariaDB commit with every statement
// that changes the schema.
func (d *database) transactional() bool { return d.Dialect != dialect.MySQL }

// transaction is where a file runs.
type transaction struct {
	migrate.Driver
	commit, rollback func() error
}

// begin starts a transaction. On SQLite it is done as Atlas does: foreign keys are not enforced in it, so that
// tables can be replaced, and checked before the commit.
func (d *database) begin(ctx context.Context) (*transaction, error) {
	enforced := false
	if d.Dialect == dialect.SQLite {
		if err := d.conn.QueryRowContext(ctx, "PRAGMA foreign_keys").Scan(&enforced); err != nil {
			return nil, err
		}
		if _, err := d.conn.ExecContext(ctx, "PRAGMA foreign_keys = off"); err != nil {
			return nil, err
		}
	}
	// The context must not roll the transaction back behind our back.
	tx, err := d.conn.BeginTx(context.WithoutCancel(ctx), nil)
	var code interface{ Code() int }
	if errors.As(err, &code) && code.Code()&0xff == sqliteBusy {
		return nil, d.lockedError()
	}
	if err != nil {
		return nil, err
	}
	t := &transaction{commit: tx.Commit, rollback: tx.Rollback}
	if t.Driver, err = d.atlas(tx); err == nil && d.Dialect == dialect.SQLite {
		t.rollback = sqlite.RollbackFunc(context.WithoutCancel(ctx), d.conn, tx, enforced)
		t.commit, err = sqlite.CommitFunc(context.WithoutCancel(ctx), d.conn, tx, enforced)
	}
	if err != nil {
		return nil, errors.Join(err, t.rollback())
	}
	return t, nil
}

// executorDriver is a driver for Atlas' executor, which may be told to run nothing. Whether a database is empty
// is asked of the schema that the connection is in: others may be there for other reasons.
type executorDriver struct {
	migrate.Driver
	dry bool
}

func (d executorDriver) ExecContext(ctx context.Context, query string, args ...any) (stdsql.Result, error) {
	if d.dry {
		return nil, nil
	}
	return d.Driver.ExecContext(ctx, query, args...)
}

// ScanStmts splits files as the database would.
func (d executorDriver) ScanStmts(input string) ([]*migrate.Stmt, error) {
	return d.Driver.(migrate.StmtScanner).ScanStmts(input)
}

func (d executorDriver) CheckClean(ctx context.Context, revisions *migrate.TableIdent) error {
	s, err := d.InspectSchema(ctx, "", nil)
	if err != nil {
		return err
	}
	for _, t := range s.Tables {
		if t.Name != revisions.Name {
			return &migrate.NotCleanError{State: schema.NewRealm(s), Reason: fmt.Sprintf("it has a table %q", t.Name)}
		}
	}
	return nil
}
