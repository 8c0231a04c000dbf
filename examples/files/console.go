package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/ent/filecounters"
	"github.com/entcounter/entcounter/examples/internal/console"
)

// state sums the counters of all datasets for each status.
func (a *app) state(ctx context.Context) (string, error) {
	var sums []struct {
		Status  file.Status `sql:"status"`
		Count   int64       `sql:"count"`
		Pending int64       `sql:"pending"`
	}
	err := a.client.FileCounters.Query().
		GroupBy(filecounters.FieldStatus).
		Aggregate(
			ent.As(ent.Sum(filecounters.FieldCount), filecounters.FieldCount),
			ent.As(ent.Sum(filecounters.FieldPending), filecounters.FieldPending),
		).
		Scan(ctx, &sums)
	if err != nil {
		return "", err
	}
	var pending int64
	count := make(map[file.Status]int64)
	for _, s := range sums {
		count[s.Status] = s.Count
		pending += s.Pending
	}
	var b strings.Builder
	for _, s := range statuses {
		fmt.Fprintf(&b, "%s %s  ", s, console.Comma(count[s]))
	}
	fmt.Fprintf(&b, "(journal %s)", console.Comma(pending))
	return b.String(), nil
}

// maxSkipped is how many skipped or failed files and folders are named.
const maxSkipped = 20

// skip reports a file or folder that cannot be read.
func (a *app) skip(path string, err error) {
	a.complain(a.done.skipped.Add(1), "skipped", path, err)
}

func (a *app) complain(n int64, what, path string, err error) {
	if n <= maxSkipped {
		a.console.Printf("%s %s: %s", what, encode(path, 4096), encode(cause(err).Error(), 4096))
	}
	if n == maxSkipped {
		a.console.Printf("%s files are no longer named from here on", what)
	}
}

// cause takes the path away from an error of package os.
func cause(err error) error {
	for {
		switch e := err.(type) {
		case unreadableError:
			err = e.error
		case *os.PathError:
			return e.Err
		default:
			return err
		}
	}
}
