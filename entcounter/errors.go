package entcounter

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
)

var (
	// ErrNoTransaction is returned by Journal outside of a transaction: a delta
	// commits with the change it describes, or not at all.
	ErrNoTransaction = errors.New("entcounter: not in a transaction")

	// ErrInTransaction is returned by operations that run in transactions of their
	// own (Fold, Rebuild, DeleteScope, a Worker) when they are called on a client
	// that is bound to one.
	ErrInTransaction = errors.New("entcounter: cannot run inside a transaction")

	// ErrNoSkipLocked is returned by Fold on a server that lacks SKIP LOCKED.
	// Counts read on it are exact, but its journal can never be folded.
	ErrNoSkipLocked = errors.New("entcounter: the server lacks SELECT … FOR UPDATE SKIP LOCKED (it is in MySQL 8.0, MariaDB 10.6, PostgreSQL 9.5 and later)")

	// ErrEmptyScope is returned by DeleteScope for a scope that fixes no key
	// column: deleting all of a counter is not what its name says.
	ErrEmptyScope = errors.New("entcounter: scope fixes no key column")
)

// serverError is what an error says in terms of the server, whichever driver it
// comes from. The runtime links no driver, so it looks for the methods and fields
// that drivers are known by.
type serverError struct {
	mysql  uint16 // error number: go-sql-driver/mysql
	state  string // SQLSTATE: pgx, lib/pq
	sqlite int    // primary result code: modernc.org/sqlite, mattn/go-sqlite3
}

// Error numbers of MySQL and MariaDB.
const (
	mysqlRecordChanged  = 1020 // MariaDB, with innodb_snapshot_isolation
	mysqlSyntax         = 1064
	mysqlLockTimeout    = 1205
	mysqlDeadlock       = 1213
	mysqlAccessDenied   = 1227
	mysqlOutOfRange     = 1264
	mysqlDataOutOfRange = 1690
)

// Primary result codes of SQLite.
const (
	sqliteBusy   = 5
	sqliteLocked = 6
)

// serverErrorOf looks for a server's error in err and in all that it wraps.
func serverErrorOf(err error) serverError {
	var found serverError
	walkErrors(err, func(err error) bool {
		switch e := err.(type) {
		case interface{ SQLState() string }:
			found.state = e.SQLState()
			return true
		case interface{ Code() int }:
			found.sqlite = e.Code() & 0xff
			return true
		}
		v := reflect.Indirect(reflect.ValueOf(err))
		if v.Kind() != reflect.Struct {
			return false
		}
		if f := v.FieldByName("Number"); f.IsValid() && f.Kind() == reflect.Uint16 {
			found.mysql = uint16(f.Uint())
			return true
		}
		if f := v.FieldByName("ExtendedCode"); f.IsValid() && f.CanInt() {
			found.sqlite = int(f.Int()) & 0xff
			return true
		}
		return false
	})
	return found
}

// walkErrors calls visit with err and all that it wraps, until visit is
// satisfied.
func walkErrors(err error, visit func(error) bool) bool {
	for err != nil {
		if visit(err) {
			return true
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				if walkErrors(inner, visit) {
					return true
				}
			}
			return false
		default:
			return false
		}
	}
	return false
}

// lostRace reports whether the server ended a transaction in favour of another:
// run again as a whole, it may succeed.
func lostRace(err error) bool {
	e := serverErrorOf(err)
	switch e.mysql {
	case mysqlDeadlock, mysqlRecordChanged, mysqlGroupConflict:
		return true
	}
	return e.state == "40001" || e.state == "40P01"
}

// busy reports whether SQLite's one write lock was not to be had.
func busy(err error) bool {
	code := serverErrorOf(err).sqlite
	return code == sqliteBusy || code == sqliteLocked
}

// timedOut reports whether somebody else held a lock for too long.
func timedOut(err error) bool {
	e := serverErrorOf(err)
	return e.mysql == mysqlLockTimeout || e.state == "55P03" || busy(err)
}

// overflows reports whether err tells of a value that left the range of BIGINT.
// SQLite has no code for it.
func overflows(err error) bool {
	e := serverErrorOf(err)
	return errors.Is(err, ErrOverflow) ||
		e.mysql == mysqlOutOfRange || e.mysql == mysqlDataOutOfRange || e.state == "22003" ||
		err != nil && strings.Contains(err.Error(), "integer overflow")
}

// overflowOf marks a sum that the database could not add up.
func overflowOf(err error) error {
	if overflows(err) && !errors.Is(err, ErrOverflow) {
		return fmt.Errorf("%w: %w", ErrOverflow, err)
	}
	return err
}

// wrap adds the operation and the counter to an error.
func (c *Handle) wrap(operation string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("entcounter: %s counter %s: %w", operation, c.def.Name, err)
}
