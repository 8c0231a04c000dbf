package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/entcounter/countercli"
	"github.com/entcounter/entcounter/entcounter/counterconsole"
	"github.com/entcounter/entcounter/examples/internal/database"
)

// runCounters runs the counters' command line on the catalogue's database.
func runCounters(ctx context.Context, dsn string, args []string, stdout, stderr io.Writer) int {
	var client *ent.Client
	cmd := countercli.Command(func(ctx context.Context) ([]*entcounter.Handle, error) {
		if client == nil {
			src, err := database.Parse(dsn, "files")
			if err != nil {
				return nil, err
			}
			if client, _, err = open(ctx, src, spareConnections); err != nil {
				return nil, err
			}
		}
		return client.Counters(), nil
	})
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	code := countercli.Execute(ctx, cmd)
	if client != nil {
		_ = client.Close()
	}
	return code
}

// checkConsole refuses an address that others can reach: whoever opens the console can
// see every name of a folder, and rebuild.
func checkConsole(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("-console: %w: give an address such as 127.0.0.1:8080", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("-console: %q is no loopback address: give one such as 127.0.0.1:8080", host)
	}
	return nil
}

// serveConsole serves the console of the counters, and returns its address and a function
// that ends it.
func (a *app) serveConsole(ctx context.Context, address string) (url string, stop func(), err error) {
	console, err := counterconsole.New(a.client.Counters(), counterconsole.Options{
		Title:     "Files",
		Authorize: counterconsole.Loopback,
		Logger:    a.console.Logger(),
	})
	if err != nil {
		return "", nil, err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return "", nil, fmt.Errorf("-console: %w", err)
	}
	server := &http.Server{Handler: console, ReadHeaderTimeout: 10 * time.Second}
	server.RegisterOnShutdown(console.Close)
	go func() { _ = console.Run(ctx) }()
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			a.console.Printf("files: console: %v", err)
		}
	}()
	return "http://" + listener.Addr().String() + "/", func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
		console.Close()
	}, nil
}
