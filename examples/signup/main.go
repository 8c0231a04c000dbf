// Command signup counts users while several processes sign them up, change them and delete them.
//
//	go run ./examples/signup [-dsn DSN] [-processes N] [-workers N] [-operations N] [-emails N]
//
// It is the users count that is otherwise kept by transactions in the application: a user is inserted only if
// absent, changed only if present and deleted only if present, and the count must follow, whoever else does the
// same at the same moment. Here each of these is one ordinary call of ent, and nothing but the schema says that
// users are counted.
//
// The program first inserts some users as a program would that knows nothing of counters. Then it starts itself
// several times. All of these processes at once initialise the counter, by counting the users that are there, and
// go on with random operations on a small set of e-mail addresses, so that they often meet. At the end the
// counter is compared with COUNT(*) and SUM(changes) in one snapshot, and with what the processes say that they
// have done.
//
// It can be run again on the same database. It exits with 0 when every number is right, 1 when one is not or
// something failed, 2 when it was called wrongly, and 130 when it was interrupted and the counter is right.
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
	"syscall"
	"time"

	entsql "entgo.io/ent/dialect/sql"

	"github.com/entcounter/entcounter/examples/internal/database"
	"github.com/entcounter/entcounter/examples/signup/ent"
	"github.com/entcounter/entcounter/examples/signup/ent/user"
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
	dsn        string
	processes  int
	workers    int
	operations int
	emails     int
	process    int // number of a process that the program has started, or 0
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal kills
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	opts, err := parse(args, stderr)
	if err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitOK
		}
		return exitUsage // flag has said why
	}
	fail := func(code int, err error) int {
		fmt.Fprintln(stderr, "signup:", err)
		return code
	}
	src, err := database.Parse(opts.dsn, "signup")
	if err != nil {
		return fail(exitUsage, err)
	}
	// Beside the workers there is one that folds, and what initialises the counter.
	client, version, err := open(ctx, src, opts.workers+2, opts.process == 0)
	switch {
	case err != nil && ctx.Err() != nil:
		return fail(exitInterrupted, errors.New("interrupted before anything was done"))
	case err != nil:
		return fail(exitFailed, err)
	}
	defer func() { _ = client.Close() }()
	if opts.process > 0 {
		p := &process{options: opts, client: client}
		if err := p.run(ctx, stdin, stdout); err != nil {
			return fail(exitFailed, fmt.Errorf("process %d: %w", opts.process, err))
		}
		return exitOK
	}

	fmt.Fprintf(stdout, "database   %s (%s)\n", src.Label, version)
	started := time.Now()
	before, err := signedUpBefore(ctx, client)
	if err != nil {
		return fail(exitFailed, err)
	}
	did, err := startProcesses(ctx, opts, args, stderr)
	interrupted := ctx.Err() != nil
	// What has been done is counted, whatever ended it.
	c, cerr := newCheck(context.WithoutCancel(ctx), client)
	if cerr != nil {
		return fail(exitFailed, fmt.Errorf("comparing: %w", cerr))
	}
	fmt.Fprintf(stdout, "processes  %d, each with %d workers (%.1fs)\n%s", opts.processes, opts.workers, time.Since(started).Seconds(), did)
	exact := c.print(stdout)
	switch {
	case interrupted:
		fmt.Fprintln(stderr, "signup: interrupted")
		if exact {
			return exitInterrupted
		}
	case err != nil:
		return fail(exitFailed, err)
	default:
		exact = c.agrees(stdout, before, did) && exact
	}
	if !exact {
		return exitFailed
	}
	return exitOK
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("signup", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.dsn, "dsn", "", "an empty database, or that of an earlier run: "+strings.Join(dsn.Forms, ", ")+"\n(default: a SQLite file in the user's cache directory)")
	flags.IntVar(&o.processes, "processes", 4, "number of processes to start")
	flags.IntVar(&o.workers, "workers", 4, "number of concurrent workers in each process")
	flags.IntVar(&o.operations, "operations", 200, "number of operations of each worker")
	flags.IntVar(&o.emails, "emails", 100, "number of e-mail addresses that users have")
	flags.IntVar(&o.process, "process", 0, "`number` of the process, given by the program when it starts itself")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	err := func() error {
		switch {
		case flags.NArg() > 0:
			return fmt.Errorf("unexpected argument %q", flags.Arg(0))
		case o.processes < 1 || o.processes > 64:
			return errors.New("-processes is not between 1 and 64")
		case o.workers < 1 || o.workers > 64:
			return errors.New("-workers is not between 1 and 64")
		case o.operations < 0:
			return errors.New("-operations is negative")
		case o.emails < 2:
			return errors.New("-emails is less than 2")
		case o.process < 0:
			return errors.New("-process is negative")
		}
		return nil
	}()
	if err != nil {
		fmt.Fprintln(stderr, "signup:", err)
		flags.Usage()
	}
	return o, err
}

// open connects, creates the tables that are missing if it is told to, and returns the server's version.
func open(ctx context.Context, src database.Source, connections int, create bool) (*ent.Client, string, error) {
	db, version, err := src.Open(ctx, connections)
	if err != nil {
		return nil, "", err
	}
	if err := src.MustBeOurs(ctx, db, map[string][]string{user.Table: user.Columns}); err != nil {
		_ = db.Close()
		return nil, "", err
	}
	client := ent.NewClient(ent.Driver(entsql.OpenDB(src.Dialect, db)))
	if create {
		if err := client.Schema.Create(ctx); err != nil {
			_ = client.Close()
			return nil, "", fmt.Errorf("creating the tables in %s: %w", src.Label, err)
		}
	}
	return client, version, nil
}
