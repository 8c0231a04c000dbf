package entcounter

import (
	"context"
	stdsql "database/sql"
	"database/sql/driver"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"weak"

	"entgo.io/ent/dialect"
	"entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
)

// In MariaDB, a mutation that would be a transaction of its own is one compound
// statement where its own row count, or what it inserts, is all that there is to count:
// it begins the transaction, changes rows, journals that, and commits.

// Variables of the statement. They would hide columns of these names.
const (
	compoundRows = "entcounter_rows" // that the change affected
	compoundID   = "entcounter_id"   // the first that an insert has generated
)

// compound is a driver that sqlgraph runs the one statement of a mutation on, which is
// completed on the way.
type compound struct {
	dialect.Driver
	pool *stdsql.DB
	// journal writes what journals the change, if that has affected rows.
	journal func(*writer)
}

// Exec implements dialect.ExecQuerier.
func (c *compound) Exec(ctx context.Context, query string, args, v any) error {
	journal := newWriter(mysqlSQL{})
	if c.journal(journal); journal.Len() == 0 {
		return c.Driver.Exec(ctx, query, args, v)
	}
	w := newWriter(mysqlSQL{})
	w.args = slices.Concat(args.([]any), journal.args)
	w.sql("BEGIN NOT ATOMIC DECLARE ", compoundRows, " BIGINT; DECLARE ", compoundID, " BIGINT UNSIGNED; START TRANSACTION; ", query,
		"; SET ", compoundRows, " = ROW_COUNT(), ", compoundID, " = LAST_INSERT_ID(); IF ", compoundRows, " > 0 THEN ", journal.String(),
		"END IF; COMMIT; SELECT ", compoundRows, ", ", compoundID, "; END")
	res, err := c.run(ctx, w)
	if r, ok := v.(*sql.Result); ok {
		*r = res
	}
	return err
}

func (*compound) failed(err error) error { return overflowOf(err) }

// run runs the statement on a connection of its own, which an error may leave within
// the transaction.
func (c *compound) run(ctx context.Context, w *writer) (res compoundResult, err error) {
	const attempts = 3 // as database/sql makes them
	for range attempts {
		var conn *stdsql.Conn
		if conn, err = c.pool.Conn(ctx); err != nil {
			return res, err
		}
		err = conn.QueryRowContext(ctx, w.String(), w.args...).Scan(&res.rows, &res.id)
		if err != nil {
			rollBack(ctx, conn)
		}
		_ = conn.Close()                        // the mutation is done, or undone, by now
		if !errors.Is(err, driver.ErrBadConn) { // nothing was sent on that one
			break
		}
	}
	return res, err
}

// rollBack leaves no transaction open on a connection that goes back to its pool.
func rollBack(ctx context.Context, conn *stdsql.Conn) {
	if _, err := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK"); err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the server rolls back when it is closed
	}
}

// compoundResult is what the statement of a mutation has done.
type compoundResult struct {
	rows int64
	id   uint64
}

func (r compoundResult) RowsAffected() (int64, error) { return r.rows, nil }
func (r compoundResult) LastInsertId() (int64, error) { return int64(r.id), nil }

// compoundOn returns the pool that a mutation can be a compound statement on, or nil: the
// driver of a transaction is of another type.
func (s *Schema) compoundOn(ctx context.Context, drv dialect.Driver) *stdsql.DB {
	d, ok := drv.(*sql.Driver)
	if !ok || d.Dialect() != dialect.MySQL || s.imagesOnly || sessionVars(ctx) != "" {
		return nil
	}
	if pool, ok := d.ExecQuerier.(*stdsql.DB); ok && runsCompounds(ctx, pool) {
		return pool
	}
	return nil
}

// compoundPools remembers, by weak pointer to a pool, whether its server runs compound
// statements.
var compoundPools sync.Map

// runsCompounds asks the server of a pool, the first time.
func runsCompounds(ctx context.Context, pool *stdsql.DB) bool {
	key := weak.Make(pool)
	if known, ok := compoundPools.Load(key); ok {
		return known.(bool)
	}
	var runs bool
	// Oracle's syntax, a mode of MariaDB, has blocks of another form.
	err := pool.QueryRowContext(ctx, "SELECT VERSION() LIKE '%MariaDB%' AND @@sql_mode NOT LIKE '%ORACLE%'").Scan(&runs)
	if err != nil {
		return false // the mutation meets it, too
	}
	if _, known := compoundPools.Swap(key, runs); !known {
		runtime.AddCleanup(pool, func(key weak.Pointer[stdsql.DB]) { compoundPools.Delete(key) }, key)
	}
	return runs
}

// updateCompound updates rows whose number is all that is to be journalled. It is not
// ok where there is more.
func (m *mutation) updateCompound(pool *stdsql.DB, spec *sqlgraph.UpdateSpec, u update) (n int, ok bool, err error) {
	if u.computed || u.edges {
		return 0, false, nil
	}
	pins, ok := m.pinned(spec, u.set, u.counters)
	if !ok {
		return 0, false, nil
	}
	deltas, err := u.perRow(pins)
	if err != nil {
		return 0, true, err
	}
	n, err = sqlgraph.UpdateNodes(m.ctx, m.compound(pool, deltas), spec)
	return n, true, overflowOf(err)
}

// deleteCompound deletes such rows.
func (m *mutation) deleteCompound(pool *stdsql.DB, spec *sqlgraph.DeleteSpec, t *Table, counters []counted) (n int, ok bool, err error) {
	pins, ok := m.pinnedDelete(spec, t, counters)
	if !ok {
		return 0, false, nil
	}
	var deltas changes
	if err := deltas.addRow(counters, row{values: pins}, -1); err != nil {
		return 0, true, err
	}
	n, err = sqlgraph.DeleteNodes(m.ctx, m.compound(pool, &deltas), spec)
	return n, true, overflowOf(err)
}

// compound returns the driver for a statement that changes the counters by so much for
// each row that it affects.
func (m *mutation) compound(pool *stdsql.DB, perRow *changes) *compound {
	return &compound{m.drv, pool, func(w *writer) {
		for _, d := range perRow.counters() {
			deltas := perRow.drain(d)
			for i, delta := range deltas {
				if i == 0 {
					w.intoJournal(d).sql("VALUES (")
				} else {
					w.sql(", (")
				}
				for _, v := range delta.Key {
					w.arg(v).sql(", ")
				}
				for _, n := range delta.Measures {
					w.sql(strconv.FormatInt(n, 10), " * ", compoundRows, ", ")
				}
				w.sql(mysqlSQL{}.now(), ")")
			}
			if len(deltas) > 0 {
				w.sql("; ")
			}
		}
	}}
}
