package main

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/entcounter/entcounter/internal/testdb"
)

// stats returns what the server has counted since it started, and PostgreSQL since the database was made. It is nil
// for SQLite, which counts none of it.
func (s *site) stats(ctx context.Context) (*Stats, error) {
	switch s.server.kind {
	case testdb.SQLite:
		return nil, nil
	case testdb.Postgres:
		return s.postgresStats(ctx)
	}
	return s.server.innodbStats(ctx)
}

func (s *server) innodbStats(ctx context.Context) (*Stats, error) {
	status := make(map[string]int64)
	scan := func(rows *stdsql.Rows) error {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		n, err := strconv.ParseInt(value, 10, 64)
		status[name] = n
		return err
	}
	queries := []string{"SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_deadlocks', 'Innodb_row_lock_waits', 'Innodb_row_lock_time')"}
	if s.kind == testdb.MySQL {
		queries = append(queries, "SELECT 'Innodb_deadlocks', COUNT FROM information_schema.INNODB_METRICS WHERE NAME = 'lock_deadlocks'")
	}
	for _, query := range queries {
		if err := eachRow(ctx, s.admin, scan, query); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	waits, seconds := status["Innodb_row_lock_waits"], float64(status["Innodb_row_lock_time"])/1000
	return &Stats{Deadlocks: status["Innodb_deadlocks"], LockWaits: &waits, LockWaitSeconds: &seconds}, nil
}

// postgresStats ends the connections, and waits until they are gone: then what they have met is in the statistics. There
// are none of waits.
func (s *site) postgresStats(ctx context.Context) (*Stats, error) {
	connections := s.db.Stats().MaxOpenConnections
	s.db.SetMaxIdleConns(0)
	s.db.SetMaxIdleConns(connections)
	admin := s.server.admin
	for others, limit := 1, time.Now().Add(10*time.Second); others > 0 && time.Now().Before(limit); {
		err := admin.QueryRowContext(ctx, "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'", s.name).Scan(&others)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.server.Name, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	var n Stats
	err := admin.QueryRowContext(ctx, "SELECT deadlocks FROM pg_stat_database WHERE datname = $1", s.name).Scan(&n.Deadlocks)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.server.Name, err)
	}
	return &n, nil
}

// since returns what has been added since before.
func (n *Stats) since(before *Stats) *Stats {
	if n == nil || before == nil {
		return nil
	}
	d := &Stats{Deadlocks: n.Deadlocks - before.Deadlocks}
	if n.LockWaits != nil {
		waits, seconds := *n.LockWaits-*before.LockWaits, *n.LockWaitSeconds-*before.LockWaitSeconds
		d.LockWaits, d.LockWaitSeconds = &waits, &seconds
	}
	return d
}
