package main

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"time"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/entcounter/entcounter/bench/files"
	"github.com/entcounter/entcounter/internal/accounting"
	"github.com/entcounter/entcounter/internal/dsn"
	"github.com/entcounter/entcounter/internal/testdb"
)

// site is a database in which one variant counts the files of one load.
type site struct {
	server  *server
	variant variant
	load    load
	layout  layout
	source  dsn.Source
	db      *stdsql.DB
	way     way
	client  files.Client
	drop    func() error
	name    string // of the database in PostgreSQL
	names   int    // of clients so far
}

// open makes the database and fills it.
func open(ctx context.Context, srv *server, v variant, l load, data layout, connections int) (_ *site, err error) {
	s := &site{server: srv, variant: v, load: l, layout: data}
	if s.source, s.drop, err = srv.newDatabase(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s, %s: %w", srv.Name, v.name, err), s.close())
		}
	}()
	if s.db, err = stdsql.Open(s.source.Driver, s.source.DSN); err != nil {
		return nil, err
	}
	s.db.SetMaxOpenConns(connections)
	s.db.SetMaxIdleConns(connections)
	if srv.kind == testdb.Postgres {
		if err := s.db.QueryRowContext(ctx, "SELECT current_database()").Scan(&s.name); err != nil {
			return nil, err
		}
	}
	s.way = v.make(s.source.Dialect, l.sums)
	s.client = s.way.connect(entsql.OpenDB(s.source.Dialect, s.db))
	if err := s.client.Migrate(ctx); err != nil {
		return nil, err
	}
	if err := s.way.create(ctx, s.client); err != nil {
		return nil, err
	}
	if err := s.fill(ctx); err != nil {
		return nil, err
	}
	if err := s.way.recount(ctx, s.client); err != nil {
		return nil, err
	}
	if srv.kind == testdb.Postgres { // whose autovacuum would do it a minute later, in the midst of the measurements
		_, err = s.db.ExecContext(ctx, "ANALYZE")
	}
	return s, err
}

func (s *site) close() error {
	var err error
	if s.db != nil {
		err = s.db.Close()
	}
	return errors.Join(err, s.drop())
}

// fill adds the files that the layout has and the database has not.
func (s *site) fill(ctx context.Context) error {
	there := 0
	err := eachRow(ctx, s.db, func(rows *stdsql.Rows) error { return rows.Scan(&there) }, "SELECT COUNT(*) FROM datasets")
	if err != nil {
		return err
	}
	b := batch{ctx: ctx, db: s.db, into: "datasets (id, name)"}
	for d := there + 1; d <= s.layout.datasets; d++ {
		b.add(fmt.Sprintf("(%d, 'dataset %d')", d, d))
	}
	if err := b.flush(); err != nil {
		return err
	}
	found := make(map[int]int)
	err = eachRow(ctx, s.db, func(rows *stdsql.Rows) error {
		var dataset, n int
		err := rows.Scan(&dataset, &n)
		found[dataset] = n
		return err
	}, "SELECT dataset_id, COUNT(*) FROM files GROUP BY dataset_id")
	if err != nil {
		return err
	}
	s.names++
	b = batch{ctx: ctx, db: s.db, into: "files (dataset_id, path, size, status)"}
	for d := 1; d <= s.layout.datasets; d++ {
		for i := found[d]; i < s.layout.files; i++ {
			b.add(fmt.Sprintf("(%d, 'filled %d/%d', %d, '%s')", d, s.names, i, sizeOf(i), s.layout.statuses[i%len(s.layout.statuses)]))
		}
	}
	return b.flush()
}

// batch inserts rows by statements of many.
type batch struct {
	ctx    context.Context
	db     *stdsql.DB
	into   string
	values []string
	err    error
}

func (b *batch) add(values string) {
	if b.values = append(b.values, values); len(b.values) == 1000 {
		b.err = errors.Join(b.err, b.flush())
	}
}

func (b *batch) flush() error {
	if b.err == nil && len(b.values) > 0 {
		_, b.err = b.db.ExecContext(b.ctx, "INSERT INTO "+b.into+" VALUES "+strings.Join(b.values, ", "))
	}
	b.values = b.values[:0]
	return b.err
}

// clients returns new clients, each with its files.
func (s *site) clients(ctx context.Context, n int) ([]*client, error) {
	if s.load.topUp {
		if err := errors.Join(s.fill(ctx), s.way.recount(ctx, s.client)); err != nil {
			return nil, err
		}
	}
	clients := make([]*client, n)
	for i := range clients {
		s.names++
		clients[i] = &client{site: s, load: s.load, name: fmt.Sprint("client ", s.names), rng: rand.New(rand.NewPCG(uint64(s.names), 0))}
	}
	if s.layout.files == 0 {
		return clients, nil
	}
	var rows []row
	err := eachRow(ctx, s.db, func(r *stdsql.Rows) error {
		var f row
		err := r.Scan(&f.id, &f.key.Dataset, &f.key.Status)
		rows = append(rows, f)
		return err
	}, "SELECT id, dataset_id, status FROM files ORDER BY id")
	deal(rows, s.layout, clients)
	return clients, err
}

// measure lets clients work for a time, after a tenth of it that is not recorded, and checks the counts.
func (s *site) measure(ctx context.Context, n int, duration time.Duration) (Cell, error) {
	cell := Cell{Database: s.server.Name, Load: s.load.name, Variant: s.variant.name, Clients: n}
	err := s.measureInto(ctx, &cell, duration)
	if err != nil {
		err = fmt.Errorf("%s, %s, %s, %s: %w", cell.Database, cell.Load, cell.Variant, clients(n), err)
	}
	return cell, err
}

func (s *site) measureInto(ctx context.Context, cell *Cell, duration time.Duration) error {
	clients, err := s.clients(ctx, cell.Clients)
	if err != nil {
		return err
	}
	before, err := s.stats(ctx)
	if err != nil {
		return err
	}
	if err := connect(ctx, s.db, cell.Clients); err != nil {
		return err
	}
	started := time.Now()
	if err := s.work(ctx, clients, cell, duration); err != nil {
		return err
	}
	written := time.Since(started).Seconds()
	after, err := s.stats(ctx)
	if err != nil {
		return err
	}
	cell.Server = after.since(before)
	for _, c := range clients {
		cell.Deadlocks += c.deadlocks
		cell.Retries += c.retries
	}
	if err := s.check(ctx, cell); err != nil {
		return err
	}
	if w, ok := s.way.(counted); ok {
		folded, err := w.fold(ctx, s.client)
		if err != nil {
			return err
		}
		folded.Written = written
		cell.Folded = &folded
	}
	return nil
}

// connect makes the connections that clients need: that takes PostgreSQL longer than many operations.
func connect(ctx context.Context, db *stdsql.DB, n int) (err error) {
	for range n {
		conn, cerr := db.Conn(ctx)
		if cerr != nil {
			return cerr
		}
		defer func() { err = errors.Join(err, conn.Close()) }()
	}
	return nil
}

// work runs the clients, and what the variant does meanwhile.
func (s *site) work(ctx context.Context, clients []*client, cell *Cell, duration time.Duration) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if w, ok := s.way.(counted); ok {
		stop := w.background(ctx, s.client)
		defer func() { err = errors.Join(err, stop()) }()
	}
	operations := make([]func(context.Context) error, len(clients))
	for i, c := range clients {
		operations[i] = c.operation
	}
	latencies, elapsed, err := together(ctx, duration, operations)
	if err != nil {
		return err
	}
	cell.Operations = len(latencies)
	cell.Seconds = elapsed.Seconds()
	cell.Latency = percentiles(latencies)
	return nil
}

// check compares what the variant has counted with the files.
func (s *site) check(ctx context.Context, cell *Cell) error {
	got, err := s.way.readAll(ctx, s.client)
	if err != nil || got == nil {
		return err
	}
	sum := "0"
	if s.load.sums {
		sum = "SUM(size)"
	}
	want, err := countsBy(ctx, s.db, "SELECT dataset_id, status, COUNT(*), "+sum+" FROM files GROUP BY dataset_id, status")
	if err != nil {
		return err
	}
	keys := maps.Clone(want)
	maps.Copy(keys, got)
	wrong := 0
	for k := range keys {
		if got[k] != want[k] {
			wrong++
		}
	}
	cell.WrongKeys = &wrong
	if wrong > 0 { // what comes next is not to blame for it
		return s.way.recount(ctx, s.client)
	}
	return nil
}

// statements returns how many statements one operation takes, BEGIN and COMMIT included: as a MariaDB or MySQL
// server counts what clients send, and elsewhere as ent's debug driver sees them.
func (s *site) statements(ctx context.Context) (float64, error) {
	const operations = 10
	var (
		seen  int64
		debug = *s
		count = func() (int64, error) { return seen, nil }
	)
	if s.source.Dialect == dialect.MySQL {
		asked := int64(0) // by this
		count = func() (n int64, err error) {
			var name string
			asked++
			err = s.server.admin.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n)
			return n - asked, err
		}
	} else {
		debug.client = s.way.connect(dialect.DebugWithContext(entsql.OpenDB(s.source.Dialect, s.db), func(context.Context, ...any) { seen++ }))
	}
	clients, err := debug.clients(ctx, 1)
	s.names = debug.names
	if err != nil {
		return 0, err
	}
	if err := clients[0].operation(ctx); err != nil { // some things happen once
		return 0, err
	}
	before, err := count()
	if err != nil {
		return 0, err
	}
	for range operations {
		if err := clients[0].operation(ctx); err != nil {
			return 0, err
		}
	}
	after, err := count()
	return float64(after-before) / operations, err
}

// rowsRead returns how many rows the database reads for one read.
func (s *site) rowsRead(ctx context.Context) (reads Reads, err error) {
	clients, err := s.clients(ctx, 1)
	if err != nil {
		return reads, err
	}
	account, err := accounting.Open(ctx, s.source)
	if err != nil {
		return reads, err
	}
	defer func() { err = errors.Join(err, account.DB.Close()) }()
	c := s.way.connect(entsql.OpenDB(s.source.Dialect, account.DB))
	read := func(q files.Session) error {
		_, err := s.way.read(ctx, q, clients[0].rows[0])
		return err
	}
	if err := read(c); err != nil { // some things happen once
		return reads, err
	}
	tx, err := c.Begin(ctx)
	if err != nil {
		return reads, err
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	usage, err := account.Of(ctx, tx, func() error { return read(tx) })
	return Reads{s.server.Name, s.variant.name, usage.Rows, usage.Steps, account.Unit()}, err
}
