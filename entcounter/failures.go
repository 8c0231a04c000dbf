package entcounter

import (
	"context"
	"database/sql/driver"
	"errors"

	"entgo.io/ent/dialect"
)

// More error numbers of MySQL and MariaDB.
const (
	mysqlDuplicateKey  = 1062
	mysqlLockTableFull = 1206
	mysqlGroupConflict = 3101
)

// postgresAborted is PostgreSQL's answer to every statement after one that failed.
const postgresAborted = "25P02"

// More primary result codes of SQLite.
const (
	sqliteNoMemory  = 7
	sqliteInterrupt = 9
	sqliteIOError   = 10
	sqliteCorrupt   = 11
	sqliteFull      = 13
)

// endsTransaction reports whether, with this error, the server may have rolled
// back more than the statement that failed. What follows would then run outside
// of any transaction. PostgreSQL refuses it by itself.
func endsTransaction(dialectName string, err error, writer bool, timeoutRollsBack func() bool) bool {
	if errors.Is(err, driver.ErrBadConn) {
		return true
	}
	switch dialectName {
	case dialect.MySQL:
		switch serverErrorOf(err).mysql {
		case mysqlDeadlock, mysqlRecordChanged, mysqlLockTableFull, mysqlGroupConflict:
			return true
		case mysqlLockTimeout:
			return timeoutRollsBack()
		}
	case dialect.SQLite:
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return true
		}
		switch serverErrorOf(err).sqlite {
		case sqliteInterrupt, sqliteFull, sqliteIOError, sqliteNoMemory, sqliteCorrupt:
			return true
		case sqliteBusy:
			return writer
		}
	}
	return false
}

// errRaced is returned when another transaction came in between in a way that
// only running the whole again can make good.
var errRaced = errors.New("another transaction came in between")

// Retryable reports whether an error only says that a transaction lost against
// another: a deadlock, a serialization failure, a lock wait that took too long, or
// [ErrTransactionFailed] because of one of these. Run again as a whole, the
// transaction may succeed.
func Retryable(err error) bool {
	return lostRace(err) || timedOut(err) || errors.Is(err, errRaced)
}
