// Command files keeps a catalogue of a directory tree and exact counts of what is in it.
//
//	go run ./examples/files [-dir PATH] [-dsn DSN] [-workers N] [-batch N] [-read BYTES] [-console ADDRESS]
//	go run ./examples/files [-dsn DSN] counters COMMAND
//
// Every folder below PATH becomes a dataset, every regular file a row with its size. Workers then
// take the files from New through Copying to Copied or Failed, many rows in one update, while
// another one folds the counters' journal. A copy reads the file and writes nothing. At the end the counts and
// bytes that the counters tell are compared, for every dataset and status, with COUNT(*) and
// SUM(size) in the same snapshot.
//
// The program can be interrupted at any moment, and goes on where it stopped when it is run again:
// with files that were not copied, that were being copied, that failed, that are new or have another
// size than before. Rows of files and folders that are gone are deleted.
//
// With -console, a web page shows the counters meanwhile, and afterwards until the program is
// interrupted. With counters, the program does nothing but run a command of the counters' command
// line: counters --help lists them, and their exit codes.
//
// It exits with 0 when every number is right, 1 when one is not or something failed, 2 when it was
// called wrongly, and 130 when it was interrupted and every number is right.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/entcounter"
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
	dir     string
	dsn     string
	workers int
	batch   int
	read    int64
	web     string   // address of the console
	command []string // of the counters' command line
}

// app is one run of the program.
type app struct {
	options
	root    string // absolute
	disk    disk
	client  *ent.Client
	console *console.Console
	names   longNames
	done    stats
}

// stats is what a run has done so far.
type stats struct {
	folders, files          atomic.Int64 // seen
	created, changed, gone  atomic.Int64 // rows of files
	removed                 atomic.Int64 // datasets
	copied, failed, skipped atomic.Int64
	folded                  atomic.Int64 // journal rows
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
	if opts.command != nil {
		return runCounters(ctx, opts.dsn, opts.command, stdout, stderr)
	}
	fail := func(code int, err error) int {
		fmt.Fprintln(stderr, "files:", err)
		return code
	}
	root, err := rootOf(opts.dir)
	if err != nil {
		return fail(exitUsage, err)
	}
	src, err := database.Parse(opts.dsn, "files")
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
	fmt.Fprintf(stdout, "tree       %s\ndatabase   %s (%s)\n", encode(root, 4096), src.Label, version)

	a := &app{options: opts, root: root, disk: osDisk{}, client: client, console: console.New(stderr)}
	if opts.web == "" {
		return a.run(ctx, stdout)
	}
	url, stop, err := a.serveConsole(ctx, opts.web)
	if err != nil {
		return fail(exitFailed, err)
	}
	defer stop()
	fmt.Fprintf(stdout, "console    %s\n", url)
	code := a.run(ctx, stdout)
	if ctx.Err() == nil {
		fmt.Fprintf(stdout, "console    %s until interrupted\n", url)
		<-ctx.Done()
	}
	return code
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("files", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.dir, "dir", "", "`path` of the tree (default: the Go installation's own source, else /usr)")
	flags.StringVar(&o.dsn, "dsn", "", "an empty database, or that of an earlier run: "+strings.Join(dsn.Forms, ", ")+"\n(default: a SQLite file in the user's cache directory)")
	flags.IntVar(&o.workers, "workers", 4, "number of concurrent workers")
	flags.IntVar(&o.batch, "batch", 500, "number of rows that one statement changes at most")
	flags.Int64Var(&o.read, "read", 4<<10, "number of bytes that a copy reads of each file at most")
	flags.StringVar(&o.web, "console", "", "loopback `address` to serve a web page of the counters on, such as 127.0.0.1:8080")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.Arg(0) == "counters" {
		o.command = flags.Args()[1:]
		return o, nil
	}
	err := func() error {
		switch {
		case flags.NArg() > 0:
			return fmt.Errorf("unexpected argument %q", flags.Arg(0))
		case o.workers < 1 || o.workers > 256:
			return errors.New("-workers is not between 1 and 256")
		case o.batch < 1 || o.batch > maxBatch:
			return fmt.Errorf("-batch is not between 1 and %d", maxBatch)
		case o.read < 0:
			return errors.New("-read is negative")
		case o.web != "":
			return checkConsole(o.web)
		}
		return nil
	}()
	if err != nil {
		fmt.Fprintln(stderr, "files:", err)
		flags.Usage()
	}
	return o, err
}

// maxBatch keeps a bulk insert of four columns below SQLite's limit of 32,766 parameters.
const maxBatch = 8000

// rootOf returns the absolute path of the tree.
func rootOf(dir string) (string, error) {
	if dir == "" {
		dir = defaultTree()
	}
	root, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("-dir: %w", err)
	}
	if root, err = filepath.EvalSymlinks(root); err != nil { // the root itself may be a link
		return "", fmt.Errorf("-dir: %w", err)
	}
	info, err := os.Stat(root)
	if err != nil {
		return "", fmt.Errorf("-dir: %w", err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("-dir: %s is not a directory", root)
	}
	if n := len(encode(root, 4096)); n > maxRoot {
		return "", fmt.Errorf("-dir: the path has %d bytes, at most %d are possible", n, maxRoot)
	}
	return root, nil
}

func defaultTree() string {
	if out, err := exec.Command("go", "env", "GOROOT").Output(); err == nil {
		src := filepath.Join(strings.TrimSpace(string(out)), "src")
		if info, err := os.Stat(src); err == nil && info.IsDir() {
			return src
		}
	}
	if runtime.GOOS == "windows" {
		return os.Getenv("SystemRoot")
	}
	return "/usr"
}

// run catalogues and transfers until it is done or ctx ends, and reports.
func (a *app) run(ctx context.Context, stdout io.Writer) int {
	before, err := a.client.FileCounters.Backlog(context.WithoutCancel(ctx))
	if err != nil {
		a.console.Printf("files: %v", err)
		return exitFailed
	}

	// The fold worker outlives the interruption of the others.
	foldCtx, stopFolding := context.WithCancel(context.WithoutCancel(ctx))
	defer stopFolding()
	worker := entcounter.NewWorker(a.client.Counters(), entcounter.WorkerOptions{
		OnCycle: func(c entcounter.Cycle) { a.done.folded.Add(int64(c.Folded.Rows)) },
		Logger:  a.console.Logger(),
	})
	folding := make(chan error, 1)
	go func() { folding <- worker.Run(foldCtx) }()

	var summary strings.Builder
	step := func(name string, do func(context.Context) error, told func() string) {
		if err != nil || ctx.Err() != nil {
			return
		}
		started := time.Now()
		stop := a.console.Watch(ctx, name, a.state)
		err = do(ctx)
		stop()
		fmt.Fprintf(&summary, "%-10s %s (%.1fs)\n", name, told(), time.Since(started).Seconds())
	}
	step("catalogue", a.catalogue, a.catalogued)
	step("transfer", a.transfer, a.transferred)

	stopFolding()
	if ferr := <-folding; err == nil {
		err = ferr
	}
	interrupted := ctx.Err() != nil
	if interrupted {
		a.console.Printf("interrupted: run it again to go on")
	} else if err != nil {
		a.console.Printf("files: %v", err)
	}

	// What has been done is counted, whatever ended it.
	check, cerr := a.check(context.WithoutCancel(ctx))
	if cerr != nil {
		a.console.Printf("files: comparing: %v", cerr)
		return exitFailed
	}
	fmt.Fprint(stdout, summary.String())
	a.print(stdout, check, before)
	switch {
	case check.drifting > 0, err != nil && !interrupted:
		return exitFailed
	case interrupted:
		return exitInterrupted
	}
	return exitOK
}

func (a *app) catalogued() string {
	s := fmt.Sprintf("%s files in %s folders: %s new, %s changed, %s gone with %s folders",
		console.Comma(a.done.files.Load()), console.Comma(a.done.folders.Load()), console.Comma(a.done.created.Load()),
		console.Comma(a.done.changed.Load()), console.Comma(a.done.gone.Load()), console.Comma(a.done.removed.Load()))
	if n := a.done.skipped.Load(); n > 0 {
		s += fmt.Sprintf(", %s skipped", console.Comma(n))
	}
	return s
}

func (a *app) transferred() string {
	return fmt.Sprintf("%s copied, %s failed", console.Comma(a.done.copied.Load()), console.Comma(a.done.failed.Load()))
}
