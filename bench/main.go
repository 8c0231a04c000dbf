// Command bench measures what counting costs: entcounter beside what people use instead, on MariaDB, MySQL, PostgreSQL
// and SQLite.
//
//	go run ./bench -out docs                                            # all of it: docs/benchmarks.md, takes hours
//	go run ./bench -quick                                               # a look at everything, with little data
//	go run ./bench -databases mariadb -loads hot-tx,spread-tx -clients 8
//	go run ./bench -postgres18 -databases postgres -variants entcounter,ivm
//	go run ./bench -render docs/benchmarks/results.json -out docs       # tables and plots again
//	go run ./bench -growth -out docs                                    # how cost grows: docs/growth.md, takes half an hour
//
// In each round every variant is measured once, one after the other, so that what changes on the machine meanwhile
// changes them all. Ratios are taken within a round. Servers are started for the run, with commits that are on the disk
// before they return; those that the environment names (ENTCOUNTER_MARIADB_DSN and so on) are taken as they are. After each measurement
// the counts are compared with the files.
//
// It exits with 0 when every count was right, 1 when one was not or something failed, 2 when it was called wrongly.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/entcounter/entcounter/internal/testdb"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// options are what the command line says.
type options struct {
	databases, variants, loads []string
	clients                    []int
	duration                   time.Duration
	rounds                     int
	out, render                string
	quick                      bool
	postgres18                 bool
	interpolate                bool
	growth                     bool
	parts                      []string // of growth
	rows                       int64    // of the largest table that growth is measured with
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal kills
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	testdb.Stop()
	os.Exit(code)
}

func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	} else if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitUsage
	}
	results, err := o.results(ctx, strings.Join(append([]string{"go run ./bench"}, args...), " "), stderr)
	if err == nil {
		err = publish(results, o.out, stdout)
	}
	if err == nil {
		err = results.wrong()
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return exitFailed
	}
	return exitOK
}

// results measures, or reads what was measured.
func (o options) results(ctx context.Context, command string, log io.Writer) (report, error) {
	switch {
	case o.growth && o.render != "":
		return readResults[Growth](o.render)
	case o.growth:
		return grow(ctx, o, command, log)
	case o.render != "":
		return readResults[Results](o.render)
	}
	return run(ctx, o, command, log)
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var databases, variantNames, loadNames, clients, parts string
	all := kinds()
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&databases, "databases", strings.Join(all, ","), "`names` of databases, separated by commas")
	flags.StringVar(&variantNames, "variants", "all", "`names` of variants; "+variantNone+" is always among them")
	flags.StringVar(&loadNames, "loads", "all", "`names` of loads")
	flags.StringVar(&clients, "clients", "1,8,32", "`numbers` of clients; a load of 10,000 rows has 8 at most")
	flags.DurationVar(&o.duration, "duration", 2*time.Second, "`time` of one measurement")
	flags.IntVar(&o.rounds, "rounds", 5, "`number` of measurements of everything")
	flags.StringVar(&o.out, "out", "", "`folder` for benchmarks.md, and benchmarks/ with plots and results.json (default: tables are printed, nothing is kept); with -growth for growth.md and growth/")
	flags.StringVar(&o.render, "render", "", "measure nothing, and make tables and plots from the results in a `file`")
	flags.BoolVar(&o.quick, "quick", false, "little data, 1 and 8 clients, 2 rounds of 200ms, unless flags say otherwise: numbers are no more than a hint")
	flags.BoolVar(&o.postgres18, "postgres18", false, "take PostgreSQL 18 with pg_ivm, for the variant ivm: run internal/testdb/install.sh postgres18 first")
	flags.BoolVar(&o.interpolate, "interpolate", false, "let the driver of MariaDB and MySQL put arguments into statements (interpolateParams=true): one round trip for each, rather than two")
	flags.BoolVar(&o.growth, "growth", false, fmt.Sprintf("measure how cost grows instead; unless flags say otherwise by 1 and 8 clients, in 3 rounds of %s, with -quick in 2 of %s", growthDuration, growthQuickDuration))
	flags.StringVar(&parts, "parts", "all", "with -growth: `names` of its parts")
	flags.Int64Var(&o.rows, "rows", growthRows, fmt.Sprintf("with -growth: the largest `number` of counted rows, %d with -quick; the number of keys and of journal rows goes to a tenth of it, the depth of a key to a hundredth", growthQuickRows))
	flags.Usage = func() { usage(flags) }
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	given := make(map[string]bool)
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if (o.quick || o.growth) && !given["clients"] {
		clients = "1,8"
	}
	if !given["rounds"] {
		switch {
		case o.quick:
			o.rounds = 2
		case o.growth:
			o.rounds = 3
		}
	}
	if !given["duration"] {
		switch {
		case o.growth && o.quick:
			o.duration = growthQuickDuration
		case o.growth:
			o.duration = growthDuration
		case o.quick:
			o.duration = 200 * time.Millisecond
		}
	}
	switch {
	case o.growth && (given["loads"] || given["variants"]):
		return o, errors.New("-growth has neither loads nor variants to choose")
	case !o.growth && (given["rows"] || given["parts"]):
		return o, errors.New("-rows and -parts are for -growth: give that too")
	case o.rows < growthLeastRows:
		return o, fmt.Errorf("-rows is %d: give %d at least", o.rows, growthLeastRows)
	case o.quick && !given["rows"]:
		o.rows = growthQuickRows
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.duration <= 0 {
		return o, fmt.Errorf("-duration is %s: give a time such as 2s", o.duration)
	}
	if o.rounds < 1 {
		return o, fmt.Errorf("-rounds is %d: at least one is needed", o.rounds)
	}
	var err error
	if o.databases, err = choose("-databases", databases, all); err != nil {
		return o, err
	}
	if o.variants, err = choose("-variants", variantNames, names(variants, func(v variant) string { return v.name })); err != nil {
		return o, err
	}
	if o.loads, err = choose("-loads", loadNames, names(loads, func(l load) string { return l.name })); err != nil {
		return o, err
	}
	if o.parts, err = choose("-parts", parts, names(growthParts, func(p growthPart) string { return p.name })); err != nil {
		return o, err
	}
	if o.postgres18 && !slices.Contains(o.databases, string(testdb.Postgres)) {
		return o, fmt.Errorf("-postgres18: %s is not among -databases %s", testdb.Postgres, databases)
	}
	if variantNames != "all" && slices.Contains(o.variants, "ivm") && !o.postgres18 {
		return o, errors.New("-variants: ivm needs PostgreSQL 18 with pg_ivm: give -postgres18 too")
	}
	for _, text := range strings.Split(clients, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 || n > 300 {
			return o, fmt.Errorf("-clients: %q is not a number from 1 to 300", text)
		}
		o.clients = append(o.clients, n)
	}
	return o, nil
}

func kinds() []string {
	return names(testdb.Kinds, func(k testdb.Kind) string { return string(k) })
}

func names[T any](all []T, name func(T) string) []string {
	list := make([]string, len(all))
	for i, one := range all {
		list[i] = name(one)
	}
	return list
}

// choose returns the named ones, in the order of all.
func choose(flagName, text string, all []string) ([]string, error) {
	if text == "all" {
		return all, nil
	}
	chosen := strings.Split(text, ",")
	for i, name := range chosen {
		chosen[i] = strings.TrimSpace(name)
		if !slices.Contains(all, chosen[i]) {
			return nil, fmt.Errorf("%s: there is no %q: give some of %s", flagName, chosen[i], strings.Join(all, ","))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !slices.Contains(chosen, name) }), nil
}

func usage(flags *flag.FlagSet) {
	w := flags.Output()
	fmt.Fprint(w, `usage: go run ./bench [flags]

Measures what counting costs: entcounter beside what people use instead.

  go run ./bench -out docs                 all of it, for docs/benchmarks.md; takes hours
  go run ./bench -quick                    a look at everything, with little data
  go run ./bench -databases mariadb -loads hot-tx,spread-tx -clients 8
  go run ./bench -postgres18 -databases postgres -variants entcounter,ivm
  go run ./bench -render docs/benchmarks/results.json -out docs
  go run ./bench -growth -out docs         how cost grows, for docs/growth.md; takes half an hour
  go run ./bench -growth -render docs/growth/results.json -out docs

`)
	flags.PrintDefaults()
	fmt.Fprintln(w, "\nvariants")
	for _, v := range variants {
		fmt.Fprintf(w, "  %-19s %s\n", v.name, v.doc)
	}
	fmt.Fprintln(w, "\nloads")
	for _, l := range loads {
		fmt.Fprintf(w, "  %-19s %s\n", l.name, l.doc)
	}
	fmt.Fprintln(w, "\nparts of -growth")
	for _, p := range growthParts {
		fmt.Fprintf(w, "  %-19s %s\n", p.name, p.doc)
	}
}
