// Command migrate brings a database to the ent schema of this repository by versioned migrations: folders of
// SQL files with checksums, one folder for each kind of database.
//
//	go run ./migrate diff NAME [-dialect sqlite] [-dev DSN] [-dir PATH]
//	go run ./migrate lint      [-dialect sqlite] [-dev DSN] [-dir PATH]
//	go run ./migrate hash      [-dir PATH]
//	go run ./migrate apply     -dsn DSN [-dry-run] [-baseline VERSION] [-skip] [-lock-timeout 1m] [-dir PATH]
//	go run ./migrate status    -dsn DSN [-dir PATH]
//	go run ./migrate schema    -dialect mysql
//
// diff writes what is missing from a folder to the schema; lint finds what can hurt in the files, and whether
// one is missing; hash signs files that were edited; apply runs on a database what it does not have yet, status
// tells how far it is; schema prints the whole schema as SQL.
//
// Planning, checksums, execution and the table of revisions are those of Atlas: its own command line works with
// the same folders and databases (see atlas.hcl).
//
// It exits with 0 when all is well, 1 when something failed or was found, 2 when it was called wrongly.
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
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// program is one run.
type program struct {
	stdout, stderr io.Writer

	dsn         string
	dev         string
	dialect     string
	dir         string
	baseline    string
	dryRun      bool
	skip        bool
	lockTimeout time.Duration
}

// command is one thing that the program does.
type command struct {
	name  string
	takes string // its argument, if any
	does  string
	flags func(p *program, f *flag.FlagSet)
	run   func(p *program, ctx context.Context, argument string) error
}

var commands = []command{
	{"diff", "NAME", "write the migration from the files to the schema", devFlags, (*program).diff},
	{"lint", "", "find what can hurt in the files, and whether one is missing", devFlags, withoutArgument((*program).lint)},
	{"hash", "", "sign the files after they were edited by hand", fileFlags, withoutArgument((*program).hash)},
	{"apply", "", "run what the database does not have yet", applyFlags, withoutArgument((*program).apply)},
	{"status", "", "tell how far the database is", databaseFlags, withoutArgument((*program).status)},
	{"schema", "", "print the whole schema as SQL", schemaFlags, withoutArgument((*program).schema)},
}

func withoutArgument(run func(*program, context.Context) error) func(*program, context.Context, string) error {
	return func(p *program, ctx context.Context, _ string) error { return run(p, ctx) }
}

// usageError is an error in how the program was called.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal kills
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := start(ctx, args, stdout, stderr)
	var usage usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintln(stderr, "migrate:", err)
		return exitUsage
	default:
		fmt.Fprintln(stderr, "migrate:", err)
		return exitFailed
	}
}

func start(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return usagef("no command is given: give %s", names())
	}
	if args[0] == "-h" || args[0] == "-help" || args[0] == "--help" || args[0] == "help" {
		fmt.Fprintln(stdout, "usage: go run ./migrate COMMAND [flags]; -h after a command lists its flags")
		for _, c := range commands {
			fmt.Fprintf(stdout, "  %-10s %s\n", strings.TrimSpace(c.name+" "+c.takes), c.does)
		}
		return nil
	}
	for _, c := range commands {
		if c.name == args[0] {
			p := &program{stdout: stdout, stderr: stderr}
			argument, err := c.parse(p, args[1:])
			if err != nil {
				return err
			}
			return c.run(p, ctx, argument)
		}
	}
	return usagef("there is no command %q: give %s", args[0], names())
}

func names() string {
	var all []string
	for _, c := range commands {
		all = append(all, c.name)
	}
	return strings.Join(all, ", ")
}

// parse reads the flags, which may stand before and after the command's argument.
func (c *command) parse(p *program, args []string) (argument string, err error) {
	f := flag.NewFlagSet("migrate "+c.name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	c.flags(p, f)
	var arguments []string
	for len(args) > 0 {
		if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(p.stdout, "usage: go run ./migrate %s [flags]: %s\n", strings.TrimSpace(c.name+" "+c.takes), c.does)
			f.SetOutput(p.stdout)
			f.PrintDefaults()
			return "", err
		} else if err != nil {
			return "", usagef("%s: %w", c.name, err)
		}
		if args = f.Args(); len(args) > 0 {
			arguments, args = append(arguments, args[0]), args[1:]
		}
	}
	switch {
	case c.takes == "" && len(arguments) > 0:
		return "", usagef("%s: %q is too much: it takes flags only", c.name, arguments[0])
	case c.takes != "" && len(arguments) == 0:
		return "", usagef("%s: the %s is missing, such as %s add_files", c.name, strings.ToLower(c.takes), c.name)
	case len(arguments) > 1:
		return "", usagef("%s: %q is too much: it takes one %s", c.name, arguments[1], strings.ToLower(c.takes))
	case len(arguments) == 1:
		argument = arguments[0]
	}
	return argument, nil
}

func fileFlags(p *program, f *flag.FlagSet) {
	f.StringVar(&p.dir, "dir", "migrate/migrations", "`path` of the folder that holds the folders of migrations")
}

func devFlags(p *program, f *flag.FlagSet) {
	fileFlags(p, f)
	f.StringVar(&p.dialect, "dialect", "", "sqlite, mysql (MariaDB too) or postgres; -dev tells it too")
	f.StringVar(&p.dev, "dev", "", "`DSN` of an empty database to try migrations in; SQLite needs none")
}

func databaseFlags(p *program, f *flag.FlagSet) {
	f.StringVar(&p.dsn, "dsn", "", "`DSN` of the database")
	f.StringVar(&p.dir, "dir", "", "`path` of the folder that holds the folders of migrations (default: those the program was built with)")
}

func applyFlags(p *program, f *flag.FlagSet) {
	databaseFlags(p, f)
	f.BoolVar(&p.dryRun, "dry-run", false, "print what would be run, and change nothing")
	f.StringVar(&p.baseline, "baseline", "", "`version` that a database without revisions has already: later ones are run")
	f.BoolVar(&p.skip, "skip", false, "count the statement at which the last run stopped as done")
	f.DurationVar(&p.lockTimeout, "lock-timeout", time.Minute, "how long to wait for another run on the same database")
}

func schemaFlags(p *program, f *flag.FlagSet) {
	f.StringVar(&p.dialect, "dialect", "", "sqlite, mysql, mariadb or postgres")
}
