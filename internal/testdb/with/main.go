// Command with runs another command with every database server at hand, so that the packages of one
// `go test ./...` share them:
//
//	go run ./internal/testdb/with [-mariadb] [-mysql] [-postgres] -- go test ./...
//
// It gets each server once (all of them unless flags name some), passes their DSNs in the environment,
// stops them after the command, and exits with the command's code. When a server cannot be had,
// it says why and runs nothing.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/entcounter/entcounter/internal/testdb"
)

func main() { os.Exit(run()) }

func run() int {
	var kinds []testdb.Kind
	for _, kind := range testdb.Kinds {
		if kind == testdb.SQLite { // no server
			continue
		}
		flag.BoolFunc(string(kind), "start "+string(kind), func(string) error {
			kinds = append(kinds, kind)
			return nil
		})
	}
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: with [-mariadb] [-mysql] [-postgres] -- command [argument...]")
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		return 2
	}
	if kinds == nil {
		kinds = []testdb.Kind{testdb.MariaDB, testdb.MySQL, testdb.Postgres}
	}

	// From here on a signal ends the command, and this one by way of it.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)

	defer testdb.Stop()
	type result struct {
		servers []*testdb.Server
		err     error
	}
	started := make(chan result, 1)
	go func() {
		servers, err := testdb.Start(kinds...)
		started <- result{servers, err}
	}()
	var got result
	select {
	case got = <-started:
	case s := <-signals:
		return exitSignal(s)
	}
	if got.err != nil {
		fmt.Fprintln(os.Stderr, got.err)
		return 1
	}

	cmd := exec.Command(flag.Arg(0), flag.Args()[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = os.Environ()
	for _, srv := range got.servers {
		fmt.Printf("%-8s %s (%s)\n", srv.Kind, srv.Version, srv.Source)
		cmd.Env = append(cmd.Env, srv.Kind.EnvDSN()+"="+srv.DSN)
	}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "testdb:", err)
		return 1
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &exit):
		fmt.Fprintln(os.Stderr, "testdb:", err)
		return 1
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitSignal(status.Signal())
	}
	return exit.ExitCode()
}

// exitSignal returns the code by which a shell reports a command that the signal ended.
func exitSignal(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return 1
}
