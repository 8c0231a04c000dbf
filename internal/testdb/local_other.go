//go:build !linux

package testdb

import (
	"context"
	"runtime"
)

// openLocal has nothing to offer where a child cannot be made to die with its parent.
func openLocal(context.Context, Kind) (*Server, error) {
	return nil, absent("local servers are started on linux only, not on %s", runtime.GOOS)
}
