// Package activity tells tests whether a process has written anything since they
// looked last.
package activity

import "sync/atomic"

var writes atomic.Int64

// Wrote notes that a mutation has reached the database, whatever came of it.
func Wrote() { writes.Add(1) }

// Writes is the number of mutations that have reached a database so far.
func Writes() int64 { return writes.Load() }
