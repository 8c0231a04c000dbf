package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/entcounter/entcounter/internal/testdb"
)

// run measures what the options say. What it has when something fails, or it is interrupted, is kept.
func run(ctx context.Context, o options, command string, log io.Writer) (_ *Results, err error) {
	servers, err := start(ctx, o)
	if err != nil {
		return nil, err
	}
	defer stop(servers)
	r := &Results{
		Command:  command,
		Made:     time.Now().UTC().Truncate(time.Second),
		Machine:  machine(),
		Duration: o.duration,
		Rounds:   o.rounds,
		Quick:    o.quick,
		Clients:  o.clients,
	}
	for _, srv := range servers {
		r.Servers = append(r.Servers, srv.Server)
		fmt.Fprintf(log, "%s %s\n", srv.Name, srv.Version)
		if !srv.Durable {
			fmt.Fprintf(log, "%s: its settings do not make commits durable: %v\n", srv.Name, srv.Settings)
		}
	}
	fmt.Fprintf(log, "%d measurements, at least %s\n", o.measurements(servers), (time.Duration(o.measurements(servers)) * o.duration * 11 / 10).Round(time.Second))
	measured := make(map[string]bool)
	for _, srv := range servers {
		for _, l := range loads {
			if !slices.Contains(o.loads, l.name) || r.Failed != "" {
				continue
			}
			chosen := o.variantsOf(srv, l)
			if err := r.measure(ctx, o, srv, l, chosen, log); err != nil {
				r.Failed = fmt.Sprintf("%s, %s: %v", srv.Name, l.name, err)
			}
			for _, v := range chosen {
				measured[v.name] = true
			}
		}
	}
	for _, l := range loads {
		if slices.Contains(o.loads, l.name) {
			r.Loads = append(r.Loads, Described{Name: l.name, Doc: l.doc, Base: l.base(), P99: l.p99})
		}
	}
	for _, v := range variants {
		if measured[v.name] {
			r.Variants = append(r.Variants, Described{Name: v.name, Doc: v.doc})
		}
	}
	return r, nil
}

// measurements is how many there will be.
func (o options) measurements(servers []*server) int {
	n := 0
	for _, srv := range servers {
		for _, l := range loads {
			if slices.Contains(o.loads, l.name) {
				n += len(o.variantsOf(srv, l)) * len(o.clientsOf(l)) * o.rounds
			}
		}
	}
	return n
}

// variantsOf returns the variants to measure.
func (o options) variantsOf(srv *server, l load) []variant {
	var chosen []variant
	for _, v := range variants {
		switch {
		case !l.has(v):
		case v.extension != "" && (srv.kind != testdb.Postgres || !o.postgres18):
		case v.name == l.base(), l.p99, slices.Contains(o.variants, v.name):
			chosen = append(chosen, v)
		}
	}
	return chosen
}

// measure makes all measurements of one load on one database: each round has every variant once.
func (r *Results) measure(ctx context.Context, o options, srv *server, l load, chosen []variant, log io.Writer) (err error) {
	numbers := o.clientsOf(l)
	most := slices.Max(numbers)
	size := fullSizes
	if o.quick {
		size = quickSizes
	}
	data := l.data(size, most)
	fmt.Fprintf(log, "%s %s: %s\n", srv.Name, l.name, data)
	var sites []*site
	defer func() {
		for _, s := range sites {
			err = errors.Join(err, s.close())
		}
	}()
	for _, v := range chosen {
		s, err := open(ctx, srv, v, l, data, most+2)
		if err != nil {
			return err
		}
		sites = append(sites, s)
	}
	for _, n := range numbers {
		for round := range o.rounds {
			line := fmt.Sprintf("  %s, round %d:", clients(n), round+1)
			for i := range sites {
				s := sites[(i+round)%len(sites)] // none is always the first
				cell, err := s.measure(ctx, n, o.duration)
				if err != nil {
					return err
				}
				cell.Round = round + 1
				r.Cells = append(r.Cells, cell)
				line += fmt.Sprintf(" %s %.0f/s", cell.Variant, cell.throughput())
				if cell.WrongKeys != nil && *cell.WrongKeys > 0 {
					line += fmt.Sprintf(" (%d keys wrong)", *cell.WrongKeys)
				}
			}
			fmt.Fprintln(log, line)
		}
	}
	for _, s := range sites {
		if err := r.account(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// account counts statements and rows.
func (r *Results) account(ctx context.Context, s *site) error {
	n, err := s.statements(ctx)
	if err == nil {
		r.Statement = append(r.Statement, Statements{s.server.Name, s.load.name, s.variant.name, n})
	}
	if err == nil && s.load.name == loadRead {
		var reads Reads
		reads, err = s.rowsRead(ctx)
		r.Reads = append(r.Reads, reads)
	}
	if err != nil {
		return fmt.Errorf("%s, %s, %s: %w", s.server.Name, s.load.name, s.variant.name, err)
	}
	return nil
}

// clientsOf returns the numbers of clients that a load can have.
func (o options) clientsOf(l load) []int {
	clients := slices.Clone(o.clients)
	if l.maxClients > 0 {
		for i := range clients {
			clients[i] = min(clients[i], l.maxClients)
		}
	}
	slices.SortFunc(clients, cmp.Compare[int])
	return slices.Compact(clients)
}

// clients writes a number of them.
func clients(n int) string {
	if n == 1 {
		return "1 client"
	}
	return fmt.Sprintf("%d clients", n)
}

// machine tells what this runs on.
func machine() Machine {
	m := Machine{Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version()}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return m // no Linux
	}
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.Processor = strings.TrimSpace(value)
			break
		}
	}
	return m
}

// wrong returns an error if any variant has counted wrong.
func (r *Results) wrong() error {
	var errs []error
	if r.Failed != "" {
		errs = append(errs, errors.New(r.Failed))
	}
	for _, c := range r.Cells {
		if c.WrongKeys != nil && *c.WrongKeys > 0 {
			errs = append(errs, fmt.Errorf("%s, %s, %s, %s, round %d: %d keys are counted wrong", c.Database, c.Load, c.Variant, clients(c.Clients), c.Round, *c.WrongKeys))
		}
	}
	return errors.Join(errs...)
}
