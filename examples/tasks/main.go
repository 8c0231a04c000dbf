// Command tasks shows a count beside every filter of a grid of tasks.
//
//	go run ./examples/tasks [-dsn DSN] [-tasks N] [-operations N] [-workers N] [-filters N] [-filter JSON]
//
// A filter is a list of conditions on status, group, assignee and day of creation, in any combination. None of them is
// declared, registered or remembered: its number is a sum over a few rows of a counter, true the first time it is
// asked, and a write costs the same however many filters are in use.
//
// Each task has a number that no other has, and no number is left out, also when a task is created in a transaction that
// is rolled back.
//
// The program generates tasks up to the given number. Then workers create, change, assign, move, delete and restore
// tasks, all at once, while another one asks for the numbers of random filters and holds each of them against COUNT(*)
// in the same snapshot. At the end it does so with many more, and with a filter for each status, group, assignee and
// day there is, and tells what that took.
//
// It can be interrupted at any moment, and run again on the same database. It exits with 0 when every number is right,
// 1 when one is not or something failed, 2 when it was called wrongly, and 130 when it was interrupted and every
// number is right.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	entsql "entgo.io/ent/dialect/sql"

	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/examples/internal/console"
	"github.com/entcounter/entcounter/examples/internal/database"
	"github.com/entcounter/entcounter/examples/tasks/ent"
	"github.com/entcounter/entcounter/examples/tasks/ent/group"
	"github.com/entcounter/entcounter/examples/tasks/ent/task"
	"github.com/entcounter/entcounter/examples/tasks/ent/taskcounters"
	"github.com/entcounter/entcounter/examples/tasks/ent/user"
	"github.com/entcounter/entcounter/internal/dsn"
)

// Exit codes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// options are what the command line says.
type options struct {
	dsn                        string
	tasks, operations, workers int
	filters                    int
	filter                     string
}

// app is one run of the program.
type app struct {
	options
	source        database.Source
	client        *ent.Client
	console       *console.Console
	groups, users []int // ids
	created       atomic.Int64
	done          [operations]atomic.Int64
	asked         atomic.Int64 // while others worked
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	opts, err := parse(args, stderr)
	if err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitOK
		}
		return exitUsage // flag has said why
	}
	fail := func(code int, err error) int {
		fmt.Fprintln(stderr, "tasks:", err)
		return code
	}
	src, err := database.Parse(opts.dsn, "tasks")
	if err != nil {
		return fail(exitUsage, err)
	}
	var own filter
	if opts.filter != "" {
		if own, err = parseFilter(opts.filter); err != nil {
			return fail(exitUsage, fmt.Errorf("-filter: %w", err))
		}
	}
	client, version, err := open(ctx, src, opts.workers+spareConnections)
	switch {
	case err != nil && ctx.Err() != nil:
		return fail(exitInterrupted, errors.New("interrupted before anything was done"))
	case err != nil:
		return fail(exitFailed, err)
	}
	defer func() { _ = client.Close() }()
	fmt.Fprintf(stdout, "database   %s (%s)\n", src.Label, version)
	a := &app{options: opts, source: src, client: client, console: console.New(stderr)}
	if opts.filter != "" {
		return a.answer(ctx, own, stdout)
	}
	return a.run(ctx, stdout)
}

// maxFilters bounds what is remembered of filters, so that none is asked twice.
const maxFilters = 100_000

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("tasks", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.dsn, "dsn", "", "an empty database, or that of an earlier run: "+strings.Join(dsn.Forms, ", ")+"\n(default: a SQLite file in the user's cache directory)")
	flags.IntVar(&o.tasks, "tasks", 100_000, "number of tasks to fill the database to")
	flags.IntVar(&o.operations, "operations", 2000, "number of operations of all workers together")
	flags.IntVar(&o.workers, "workers", 4, "number of concurrent workers")
	flags.IntVar(&o.filters, "filters", 200, "number of random filters to ask for at the end")
	flags.StringVar(&o.filter, "filter", "", "a filter to ask for instead of all that, as\n"+exampleFilter)
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	err := func() error {
		switch {
		case flags.NArg() > 0:
			return fmt.Errorf("unexpected argument %q", flags.Arg(0))
		case o.tasks < 0 || o.operations < 0:
			return errors.New("-tasks and -operations cannot be negative")
		case o.workers < 1 || o.workers > 256:
			return errors.New("-workers is not between 1 and 256")
		case o.filters < 0 || o.filters > maxFilters:
			return fmt.Errorf("-filters is not between 0 and %d", maxFilters)
		}
		return nil
	}()
	if err != nil {
		fmt.Fprintln(stderr, "tasks:", err)
		flags.Usage()
	}
	return o, err
}

// spareConnections are those beside the workers': asking, folding three counters, showing progress.
const spareConnections = 5

// open connects, creates the tables that are missing, and returns the server's version.
func open(ctx context.Context, src database.Source, connections int) (*ent.Client, string, error) {
	db, version, err := src.Open(ctx, connections)
	if err != nil {
		return nil, "", err
	}
	err = src.MustBeOurs(ctx, db, map[string][]string{
		task.Table: task.Columns, group.Table: group.Columns, user.Table: user.Columns,
	})
	if err != nil {
		_ = db.Close()
		return nil, "", err
	}
	client := ent.NewClient(ent.Driver(entsql.OpenDB(src.Dialect, db)))
	if err := client.Schema.Create(ctx); err != nil {
		_ = client.Close()
		return nil, "", fmt.Errorf("creating the tables in %s: %w", src.Label, err)
	}
	if err := database.Build(ctx, client.Counters()); err != nil {
		_ = client.Close()
		return nil, "", err
	}
	return client, version, nil
}

// run fills and works until it is done or ctx ends, and reports.
func (a *app) run(ctx context.Context, stdout io.Writer) int {
	// The fold worker outlives the interruption of the others.
	foldCtx, stopFolding := context.WithCancel(context.WithoutCancel(ctx))
	defer stopFolding()
	worker := entcounter.NewWorker(a.client.Counters(), entcounter.WorkerOptions{
		Logger: a.console.Logger(),
	})
	folding := make(chan error, 1)
	go func() { folding <- worker.Run(foldCtx) }()

	var err error
	step := func(name string, do func(context.Context) error, told func() string) {
		if err != nil || ctx.Err() != nil {
			return
		}
		started := time.Now()
		stop := a.console.Watch(ctx, name, a.state)
		err = do(ctx)
		stop()
		fmt.Fprintf(stdout, "%-10s %s (%.1fs)\n", name, told(), time.Since(started).Seconds())
	}
	step("fill", a.fill, func() string { return console.Comma(a.created.Load()) + " tasks" })
	step("work", a.work, a.toldWork)

	stopFolding()
	if ferr := <-folding; err == nil {
		err = ferr
	}
	interrupted := ctx.Err() != nil
	if interrupted {
		a.console.Printf("interrupted: run it again to go on")
	} else if err != nil {
		a.console.Printf("tasks: %v", err)
	}

	// What has been done is counted, whatever ended it.
	filters := a.filters
	if interrupted {
		filters = min(filters, interruptedFilters)
	} else if err := a.foldAll(context.WithoutCancel(ctx)); err != nil {
		a.console.Printf("tasks: folding: %v", err)
		return exitFailed
	}
	r, rerr := a.compare(context.WithoutCancel(ctx), filters)
	if rerr != nil {
		a.console.Printf("tasks: comparing: %v", rerr)
		return exitFailed
	}
	r.print(stdout)
	switch {
	case !r.right(), err != nil && !interrupted:
		return exitFailed
	case interrupted:
		return exitInterrupted
	}
	return exitOK
}

// interruptedFilters is how many random filters an interrupted run still asks for.
const interruptedFilters = 20

// foldAll folds what the worker has left. Numbers were held against COUNT(*) before, with journal rows in them.
func (a *app) foldAll(ctx context.Context) error {
	for _, c := range a.client.Counters() {
		for full := true; full; {
			folded, err := c.Fold(ctx)
			if err != nil {
				return err
			}
			full = folded.Full
		}
	}
	return nil
}

// answer asks for one filter.
func (a *app) answer(ctx context.Context, f filter, stdout io.Writer) int {
	r, err := a.compareThese(ctx, func(context.Context, *ent.Tx, func(filter) error) error { return nil }, f)
	if err != nil {
		a.console.Printf("tasks: %v", err)
		return exitFailed
	}
	r.print(stdout)
	if !r.right() {
		return exitFailed
	}
	return exitOK
}

// state is the line of progress.
func (a *app) state(ctx context.Context) (string, error) {
	total, err := a.client.TaskCounters.Total(ctx, taskcounters.Scope{})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s tasks  (journal %s)", console.Comma(total.Count), console.Comma(total.Pending)), nil
}

func (a *app) toldWork() string {
	var done []string
	for op := range operations {
		done = append(done, console.Comma(a.done[op].Load())+" "+op.String())
	}
	return fmt.Sprintf("%s; meanwhile %s filters asked", strings.Join(done, ", "), console.Comma(a.asked.Load()))
}
