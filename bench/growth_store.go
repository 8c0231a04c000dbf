package main

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/schema"

	"github.com/entcounter/entcounter/bench/shapes"
	"github.com/entcounter/entcounter/bench/shapes/entrycounters"
	"github.com/entcounter/entcounter/bench/shapes/migrate"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/dsn"
	"github.com/entcounter/entcounter/internal/testdb"
)

// store is a database of entries and of other shapes.
type store struct {
	server    *server
	source    dsn.Source
	db        *stdsql.DB
	client    *shapes.Client
	drop      func() error
	journaled int64 // rows, since they added up to nothing
}

// Numbers of a key: a tenant has folders times statuses of them.
const (
	tenantKeys = 1000
	statuses   = 4
)

// keyOf returns the key with a number, from 0.
func keyOf(k int64) entrycounters.Key {
	return entrycounters.Key{Tenant: int(k/tenantKeys) + 1, Folder: int(k%tenantKeys/statuses) + 1, Status: int(k % statuses)}
}

// keySQL is keyOf for an expression.
func (s *store) keySQL(k string) []string {
	return []string{
		s.div(k, tenantKeys) + " + 1",
		s.div(fmt.Sprintf("((%s) %% %d)", k, tenantKeys), statuses) + " + 1",
		fmt.Sprintf("(%s) %% %d", k, statuses),
	}
}

// div divides integers.
func (s *store) div(n string, by int64) string {
	operator := "/"
	if s.source.Dialect == dialect.MySQL {
		operator = "DIV"
	}
	return fmt.Sprintf("(%s) %s %d", n, operator, by)
}

// now is the time as the counters have it.
func (s *store) now() string {
	switch s.server.kind {
	case testdb.SQLite:
		return "strftime('%Y-%m-%d %H:%M:%f', 'now')"
	case testdb.Postgres:
		return "clock_timestamp()"
	}
	return "UTC_TIMESTAMP(6)"
}

// The number of rows that one statement inserts at most: as many as two numbers from 0 to 999 have pairs.
const (
	numbers   = 1000
	chunkRows = numbers * numbers
)

// entryTables are those of entries and their counter.
var entryTables = []*schema.Table{migrate.EntriesTable, migrate.EntryCountersTable, migrate.EntryCounterJournalTable, migrate.CounterLocksTable}

// openStore makes a database with empty tables.
func openStore(ctx context.Context, srv *server, tables []*schema.Table, connections int) (_ *store, err error) {
	s := &store{server: srv}
	if s.source, s.drop, err = srv.newDatabase(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.db, err = stdsql.Open(s.source.Driver, s.source.DSN); err != nil {
		return nil, err
	}
	s.db.SetMaxOpenConns(connections)
	s.db.SetMaxIdleConns(connections)
	s.client = shapes.NewClient(shapes.Driver(entsql.OpenDB(s.source.Dialect, s.db)))
	if tables, err = schema.CopyTables(tables); err != nil { // ent writes into those that it creates
		return nil, err
	}
	if err := migrate.Create(ctx, s.client.Schema, tables); err != nil {
		return nil, err
	}
	if err := s.exec(ctx, "CREATE TABLE numbers (n BIGINT NOT NULL PRIMARY KEY)"); err != nil {
		return nil, err
	}
	b := batch{ctx: ctx, db: s.db, into: "numbers"}
	for n := range numbers {
		b.add(fmt.Sprintf("(%d)", n))
	}
	return s, b.flush()
}

func (s *store) close() error {
	var err error
	if s.db != nil {
		err = s.db.Close()
	}
	return errors.Join(err, s.drop())
}

func (s *store) exec(ctx context.Context, query string) error {
	if _, err := s.db.ExecContext(ctx, query); err != nil {
		return fmt.Errorf("%w: %s", err, query)
	}
	return nil
}

// insert inserts a row for each i from one number to before another, in this order. The values are expressions of i.
func (s *store) insert(ctx context.Context, table, columns string, from, to int64, values ...string) error {
	for first := from; first < to; first += chunkRows {
		n := min(chunkRows, to-first)
		err := s.exec(ctx, fmt.Sprintf(
			"INSERT INTO %s (%s) SELECT %s FROM (SELECT %d + a.n * %d + b.n AS i FROM numbers a CROSS JOIN numbers b WHERE a.n < %d) AS t WHERE t.i < %d ORDER BY t.i",
			table, columns, strings.Join(values, ", "), first, numbers, (n+numbers-1)/numbers, first+n))
		if err != nil {
			return err
		}
	}
	return nil
}

// addEntries inserts rows, spread evenly over keys from 0 on. The index is made when they are there, which is several times
// as fast.
func (s *store) addEntries(ctx context.Context, rows, keys int64) error {
	const columns = "tenant, folder, status"
	index := migrate.EntriesTable.Indexes[0].Name
	drop := "DROP INDEX " + index
	if s.source.Dialect == dialect.MySQL {
		drop += " ON entries"
	}
	if err := s.exec(ctx, drop); err != nil {
		return err
	}
	key := s.keySQL(s.div(fmt.Sprintf("i * %d", keys), rows))
	if err := s.insert(ctx, "entries", "id, "+columns, 0, rows, append([]string{"i + 1"}, key...)...); err != nil {
		return err
	}
	return s.exec(ctx, fmt.Sprintf("CREATE INDEX %s ON entries (%s)", index, columns))
}

// addFolded inserts a row for each of some keys, and its counter row. A build then finds that nothing is missing.
func (s *store) addFolded(ctx context.Context, from, to int64) error {
	key := s.keySQL("i")
	err := s.insert(ctx, "entries", "id, tenant, folder, status", from, to, append([]string{"i + 1"}, key...)...)
	if err != nil {
		return err
	}
	err = s.insert(ctx, "entry_counters", "tenant, folder, status, count, updated_at", from, to, append(key, "1", s.now())...)
	if err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	progress, err := s.entries().Build(ctx, entcounter.BuildOptions{})
	if err == nil && progress.Keys > 0 {
		err = fmt.Errorf("a build has corrected %d keys, want none", progress.Keys)
	}
	return err
}

// addJournal inserts journal rows of keys from 0 on, one after the other, which add one to each and take it away in turns.
func (s *store) addJournal(ctx context.Context, rows, keys int64) error {
	sign := fmt.Sprintf("1 - 2 * ((%s) %% 2)", s.div("i", keys))
	values := append(s.keySQL(fmt.Sprintf("i %% %d", keys)), sign, s.now())
	err := s.insert(ctx, "entry_counter_journal", "tenant, folder, status, count_delta, inserted_at", s.journaled, s.journaled+rows, values...)
	s.journaled += rows
	return err
}

// balance inserts journal rows until all that there were add up to nothing, folded or not.
func (s *store) balance(ctx context.Context, keys int64) error {
	turn := 2 * keys
	return s.addJournal(ctx, (turn-s.journaled%turn)%turn, keys)
}

// settle does what a server does by itself some time after many rows were inserted.
func (s *store) settle(ctx context.Context) error {
	switch s.server.kind {
	case testdb.SQLite:
		return s.exec(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	case testdb.Postgres:
		return s.exec(ctx, "VACUUM ANALYZE entries, entry_counters, entry_counter_journal")
	}
	return s.exec(ctx, "ANALYZE TABLE entries, entry_counters, entry_counter_journal")
}

// entries returns the counter of the entries.
func (s *store) entries() *entcounter.Handle { return s.countersOf("entries")[0] }

// countersOf returns the counters of a table.
func (s *store) countersOf(table string) []*entcounter.Handle {
	var handles []*entcounter.Handle
	for _, h := range s.client.Counters() {
		if h.Definition().Sources[0].Table == table {
			handles = append(handles, h)
		}
	}
	return handles
}

// check returns an error if a counter differs from a recount.
func check(ctx context.Context, h *entcounter.Handle) error {
	const told = 3
	n := 0
	var errs []error
	for d, err := range h.Drifts(ctx, nil) {
		if err != nil {
			return err
		}
		if n++; n <= told {
			errs = append(errs, fmt.Errorf("wrong count: %s", d))
		}
	}
	if n > told {
		errs = append(errs, fmt.Errorf("%d keys are counted wrong", n))
	}
	return errors.Join(errs...)
}

// timed returns how long something takes, in seconds.
func timed(do func() error) (float64, error) {
	started := time.Now()
	err := do()
	return time.Since(started).Seconds(), err
}
