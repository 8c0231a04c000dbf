// Command cms shows the counts of a content management system without counting.
//
//	go run ./examples/cms [-dsn DSN] [-entries N] [-media N] [-users N] [-operations N] [-workers N]
//
// Its dashboard shows for each collection how many entries there are and how many of them are published, drafts and
// scheduled, and how many media and users. Its editor shows for each term of three taxonomies how many entries have
// it, and how many of these visitors see. Each of these numbers is a row of a counter.
//
// The program fills the tables to the given sizes. Then editors create, publish, unpublish, schedule, unschedule,
// delete, restore and purge entries, assign and unassign terms, upload media and invite users, all at once, while a
// sweep publishes the entries whose time has come and a worker folds the counters' journals. At the end both pages
// are shown twice in one snapshot, from the counters and by COUNT(*), with how many rows the database says that it
// has read for them.
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
	"github.com/entcounter/entcounter/examples/cms/ent"
	"github.com/entcounter/entcounter/examples/cms/ent/collection"
	"github.com/entcounter/entcounter/examples/cms/ent/entry"
	"github.com/entcounter/entcounter/examples/cms/ent/entrycounters"
	"github.com/entcounter/entcounter/examples/cms/ent/media"
	"github.com/entcounter/entcounter/examples/cms/ent/taxonomy"
	"github.com/entcounter/entcounter/examples/cms/ent/term"
	"github.com/entcounter/entcounter/examples/cms/ent/user"
	"github.com/entcounter/entcounter/examples/internal/console"
	"github.com/entcounter/entcounter/examples/internal/database"
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
	dsn                   string
	entries, media, users int
	operations, workers   int
}

// app is one run of the program.
type app struct {
	options
	source  database.Source
	client  *ent.Client
	console *console.Console
	site    site
	done    [operations]atomic.Int64
	filled  struct{ entries, assignments, media, users atomic.Int64 }
	swept   atomic.Int64
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
		fmt.Fprintln(stderr, "cms:", err)
		return code
	}
	src, err := database.Parse(opts.dsn, "cms")
	if err != nil {
		return fail(exitUsage, err)
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
	return a.run(ctx, stdout)
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("cms", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.dsn, "dsn", "", "an empty database, or that of an earlier run: "+strings.Join(dsn.Forms, ", ")+"\n(default: a SQLite file in the user's cache directory)")
	flags.IntVar(&o.entries, "entries", 26_224, "number of entries to fill the database to")
	flags.IntVar(&o.media, "media", 23_899, "number of media to fill the database to")
	flags.IntVar(&o.users, "users", 120, "number of users to fill the database to")
	flags.IntVar(&o.operations, "operations", 2000, "number of operations of all editors together")
	flags.IntVar(&o.workers, "workers", 4, "number of concurrent editors")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	err := func() error {
		switch {
		case flags.NArg() > 0:
			return fmt.Errorf("unexpected argument %q", flags.Arg(0))
		case o.entries < 0 || o.media < 0 || o.users < 0 || o.operations < 0:
			return errors.New("-entries, -media, -users and -operations cannot be negative")
		case o.workers < 1 || o.workers > 256:
			return errors.New("-workers is not between 1 and 256")
		}
		return nil
	}()
	if err != nil {
		fmt.Fprintln(stderr, "cms:", err)
		flags.Usage()
	}
	return o, err
}

// spareConnections are those beside the editors': sweeping, folding three counters, showing progress.
const spareConnections = 5

// open connects, creates the tables that are missing, and returns the server's version.
func open(ctx context.Context, src database.Source, connections int) (*ent.Client, string, error) {
	db, version, err := src.Open(ctx, connections)
	if err != nil {
		return nil, "", err
	}
	err = src.MustBeOurs(ctx, db, map[string][]string{
		collection.Table: collection.Columns, entry.Table: entry.Columns, media.Table: media.Columns,
		taxonomy.Table: taxonomy.Columns, term.Table: term.Columns, user.Table: user.Columns,
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

// run fills and edits until it is done or ctx ends, and reports.
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
	step("fill", a.fill, a.toldFilled)
	step("edit", a.edit, a.toldEdited)

	stopFolding()
	if ferr := <-folding; err == nil {
		err = ferr
	}
	interrupted := ctx.Err() != nil
	if interrupted {
		a.console.Printf("interrupted: run it again to go on")
	} else if err != nil {
		a.console.Printf("cms: %v", err)
	}

	// What has been done is counted, whatever ended it: with what is in the journals, and once more without.
	r, cerr := a.compare(context.WithoutCancel(ctx))
	if pending := r.pending(); cerr == nil && r.wrongs == 0 {
		if cerr = a.foldAll(context.WithoutCancel(ctx)); cerr == nil {
			r, cerr = a.compare(context.WithoutCancel(ctx))
		}
		r.before = pending
	}
	if cerr != nil {
		a.console.Printf("cms: comparing: %v", cerr)
		return exitFailed
	}
	r.print(stdout)
	switch {
	case r.wrongs > 0, err != nil && !interrupted:
		return exitFailed
	case interrupted:
		return exitInterrupted
	}
	return exitOK
}

// foldAll folds what the worker has left.
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

// state is the line of progress: what the dashboard says of all collections.
func (a *app) state(ctx context.Context) (string, error) {
	total, err := a.client.EntryCounters.Total(ctx, entrycounters.Scope{})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s entries  %s published  %s drafts  %s scheduled  (journal %s)",
		console.Comma(total.Total), console.Comma(total.Published), console.Comma(total.Draft),
		console.Comma(total.Scheduled), console.Comma(total.Pending)), nil
}

func (a *app) toldFilled() string {
	return fmt.Sprintf("%s entries with %s terms, %s media, %s users", console.Comma(a.filled.entries.Load()),
		console.Comma(a.filled.assignments.Load()), console.Comma(a.filled.media.Load()), console.Comma(a.filled.users.Load()))
}

func (a *app) toldEdited() string {
	var done []string
	for op := range operations {
		done = append(done, console.Comma(a.done[op].Load())+" "+op.String())
	}
	return strings.Join(append(done, console.Comma(a.swept.Load())+" published by the sweep"), ", ")
}
