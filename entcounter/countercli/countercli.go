// Package countercli is a command line for the counters of a program: it shows how
// they do, reads, verifies and repairs them. A program adds it to its own module, since
// it needs the generated client:
//
//	func main() {
//		client, err := ent.Open(…)
//		…
//		countercli.Main(client.Counters())
//	}
//
// What it prints to standard output are tables, or JSON by --json; progress, notes and
// errors go to standard error. The exit code tells a script how it went: see [ExitOK] and
// the others.
package countercli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/entcounter/entcounter/entcounter"
	"github.com/spf13/cobra"
)

// Exit codes.
const (
	// ExitOK: done, and nothing wrong was found.
	ExitOK = 0
	// ExitError: the database or something else failed, or the answer to a question was no.
	ExitError = 1
	// ExitUsage: the command line is wrong, and nothing was done.
	ExitUsage = 2
	// ExitDrift: verify found keys that differ from the rows, or status negative ones, which
	// proves the same.
	ExitDrift = 3
	// ExitNotReady: status found a counter that cannot be read, or that is beyond
	// the limits of --max-rows and --max-age.
	ExitNotReady = 4
	// ExitInterrupted: a signal or the context ended the command. What had not been committed
	// is undone, which loses nothing.
	ExitInterrupted = 130
)

// Main runs the command line that the process was started with, on the given
// counters, and exits with one of the codes: it does not return, so what is deferred does
// not run, and connections end with the process. An interrupt ends a command cleanly; a
// second one kills.
func Main(counters []*entcounter.Handle) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	cmd := Command(func(context.Context) ([]*entcounter.Handle, error) { return counters, nil })
	cmd.Use = filepath.Base(os.Args[0])
	os.Exit(Execute(ctx, cmd))
}

// Command returns the command line as a command called "counters", for a program that
// has others too. The function opens the counters; it is called by commands that need
// them, after flags have been read, and not for help.
func Command(open func(context.Context) ([]*entcounter.Handle, error)) *cobra.Command {
	root := &cobra.Command{
		Use:   "counters",
		Short: "Look at counters, verify and repair them",
		Long: strings.TrimSpace(`
Look at counters, verify and repair them.

A scope is given by the first columns of a counter's key, each as --scope column=value:
  --scope dataset_id=7                     all keys of dataset 7
  --scope dataset_id=7 --scope status=New  one key
Write bytes in hexadecimal digits, and periods as 2026-11-30T15, 2026-11-30 or 2026-11.

Exit codes:
  0    done, and nothing wrong was found
  1    something failed, or the answer to a question was no
  2    the command line is wrong, and nothing was done
  3    drift: verify found keys that differ, or status negative ones
  4    status found a counter that cannot be read, or beyond the given limits
  130  interrupted; what had not been committed is undone`),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			mend := "see " + cmd.CommandPath() + " --help"
			cmd.SuggestionsMinimumDistance = 2
			if names := cmd.SuggestionsFor(args[0]); len(names) > 0 {
				mend = "do you mean " + strings.Join(names, " or ") + "?"
			}
			return usage("there is no command %q: %s", args[0], mend)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	a := &app{open: open}
	for _, command := range []func() *cobra.Command{
		a.status, a.watch, a.read, a.top, a.verify, a.rebuild, a.build, a.fold, a.pause, a.resume, a.deleteScope,
	} {
		cmd := command()
		cmd.Args = func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("unexpected argument %q: what a command is about is given by flags, such as --counter and --scope", args[0])
			}
			return nil
		}
		root.AddCommand(cmd)
	}
	root.PersistentFlags().StringArrayVar(&a.counters, "counter", nil, "a counter by its `name` (default: all, or the only one); may be repeated")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON")
	_ = root.RegisterFlagCompletionFunc("counter", a.completeCounter)
	for _, cmd := range append(root.Commands(), root) {
		cmd.SilenceUsage = true
		cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
			return usage("%s: see %s --help", err, cmd.CommandPath())
		})
	}
	return root
}

// Execute runs a command, reports its error on standard error, and returns the exit
// code.
func Execute(ctx context.Context, cmd *cobra.Command) int {
	cmd.SilenceErrors = true
	err := cmd.ExecuteContext(ctx)
	if err != nil && ctx.Err() != nil {
		err = interruptedError{}
	}
	if err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", cmd.Name(), strings.TrimPrefix(err.Error(), "entcounter: "))
	}
	return ExitCode(err)
}

// ExitCode returns the exit code for an error of a command.
func ExitCode(err error) int {
	var coded interface{ ExitCode() int }
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &coded):
		return coded.ExitCode()
	default:
		return ExitError
	}
}

// codedError is an error with an exit code of its own.
type codedError struct {
	error
	code int
}

func (e codedError) ExitCode() int { return e.code }
func (e codedError) Unwrap() error { return e.error }

// usage returns an error of the command line.
func usage(format string, args ...any) error {
	return codedError{fmt.Errorf(format, args...), ExitUsage}
}

type interruptedError struct{}

func (interruptedError) Error() string {
	return "interrupted: what had not been committed is undone, and nothing is lost"
}
func (interruptedError) ExitCode() int { return ExitInterrupted }
