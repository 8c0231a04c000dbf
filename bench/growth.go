package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// What growth is measured with unless flags say otherwise.
const (
	growthRows          = 10_000_000
	growthQuickRows     = 100_000
	growthLeastRows     = 10_000 // smaller sizes would not differ
	growthDuration      = 300 * time.Millisecond
	growthQuickDuration = 50 * time.Millisecond
)

// Growth is what a run has measured of how cost grows, as it is kept in results.json.
type Growth struct {
	Command  string         `json:"command"` // that makes it
	Made     time.Time      `json:"made"`
	Machine  Machine        `json:"machine"`
	Duration time.Duration  `json:"duration"` // of one measurement of reads or writes, in nanoseconds
	Rounds   int            `json:"rounds"`
	Rows     int64          `json:"rows"` // of the largest table
	Quick    bool           `json:"quick,omitempty"`
	Took     time.Duration  `json:"took"` // all of it, in nanoseconds
	Servers  []Server       `json:"servers"`
	Points   []Point        `json:"points"`
	Reads    []PointReads   `json:"reads"`
	Failures []PointFailure `json:"failures,omitempty"`
}

// Place is where a point belongs.
type Place struct {
	Database string `json:"database"`
	Part     string `json:"part"`
	Subject  string `json:"subject"` // what is done
	Size     int64  `json:"size"`    // what its cost may grow with, by part
	Clients  int    `json:"clients,omitempty"`
}

// Point is one measurement.
type Point struct {
	Place
	Round      int     `json:"round"`
	Operations int     `json:"operations"`
	Seconds    float64 `json:"seconds"`
	// Latency of operations, if there are several.
	Latency *Latency `json:"latency,omitempty"`
	// Rows that were recounted or folded, or that writers have journalled.
	Rows int64 `json:"rows,omitempty"`
	// Written is how long writers had journalled, in seconds; also before what is recorded.
	Written float64 `json:"written,omitempty"`
	// Deadlocks that ended a transaction, which then was run again, and other conflicts that did.
	Deadlocks int `json:"deadlocks,omitempty"`
	Retries   int `json:"retries,omitempty"`
	// Memory is nil where it is not measured.
	Memory *Memory `json:"memory,omitempty"`
}

// PointReads is how many rows a database reads for one read.
type PointReads struct {
	Place
	Rows  int64  `json:"rows"`
	Steps int64  `json:"steps,omitempty"` // of SQLite's virtual machine
	Unit  string `json:"unit"`
}

// PointFailure is why something was not measured, or a count that was wrong.
type PointFailure struct {
	Database string `json:"database"`
	Part     string `json:"part"`
	Error    string `json:"error"`
}

// throughput is in operations a second.
func (p Point) throughput() float64 { return perSecond(float64(p.Operations), p.Seconds) }

// rowRate is in rows a second.
func (p Point) rowRate() float64 { return perSecond(float64(p.Rows), p.Seconds) }

// journalRate is how many rows a second writers have journalled.
func (p Point) journalRate() float64 { return perSecond(float64(p.Rows), p.Written) }

func perSecond(n, seconds float64) float64 {
	if seconds == 0 {
		return 0
	}
	return n / seconds
}

// The parts of the measurement, which are also headings.
const (
	partDepth  = "depth"
	partKeys   = "keys"
	partWrites = "writes"
	partFolds  = "folds"
	partRows   = "rows"
)

type growthPart struct {
	name, doc string
	measure   func(*growing, context.Context) error
}

var growthParts = []growthPart{
	{partDepth, "reads by the depth of the journal", (*growing).depths},
	{partKeys, "reads by the number of keys", (*growing).keys},
	{partWrites, "writes by the number of counters and of key columns", (*growing).writes},
	{partFolds, "folds by the size of a batch", (*growing).folds},
	{partRows, "builds, recounts and folds by the number of counted rows", (*growing).counted},
}

// growing measures one part on one database.
type growing struct {
	*Growth
	srv     *server
	part    string
	clients []int
	started time.Time
	log     io.Writer
}

// grow measures how cost grows. What fails on one database is told, and the rest is measured. An interrupted run has what
// was measured until then.
func grow(ctx context.Context, o options, command string, log io.Writer) (*Growth, error) {
	servers, err := start(ctx, o)
	if err != nil {
		return nil, err
	}
	defer stop(servers)
	g := &Growth{
		Command:  command,
		Made:     time.Now().UTC().Truncate(time.Second),
		Machine:  machine(),
		Duration: o.duration,
		Rounds:   o.rounds,
		Rows:     o.rows,
		Quick:    o.quick,
	}
	for _, srv := range servers {
		g.Servers = append(g.Servers, srv.Server)
	}
	started := time.Now()
	defer func() { g.Took = time.Since(started).Round(time.Second) }()
	for _, part := range growthParts {
		if !slices.Contains(o.parts, part.name) {
			continue
		}
		for _, srv := range servers {
			one := &growing{Growth: g, srv: srv, part: part.name, clients: o.clients, started: started, log: log}
			one.tell("begins")
			err := part.measure(one, ctx)
			if ctx.Err() != nil {
				err = errors.New("interrupted")
			}
			if err != nil {
				g.Failures = append(g.Failures, PointFailure{srv.Name, part.name, err.Error()})
				one.tell("%v", err)
			}
			if ctx.Err() != nil {
				return g, nil
			}
		}
	}
	return g, nil
}

// tell writes a line about how far it has come.
func (g *growing) tell(format string, args ...any) {
	fmt.Fprintf(g.log, "%7s %s %s: %s\n", time.Since(g.started).Round(100*time.Millisecond), g.srv.Name, g.part, fmt.Sprintf(format, args...))
}

func (g *growing) place(subject string, size int64) Place {
	return Place{Database: g.srv.Name, Part: g.part, Subject: subject, Size: size}
}

// add keeps a point of a number of operations.
func (g *growing) add(p Point, latencies []time.Duration) {
	p.Operations = len(latencies)
	if len(latencies) > 0 {
		l := percentiles(latencies)
		p.Latency = &l
	}
	g.Points = append(g.Points, p)
}

// fractions returns those fractions of a number that are sizes: different ones, in order.
func fractions(most int64, dividedBy ...int64) []int64 {
	var list []int64
	for _, d := range dividedBy {
		if n := most / d; n > 1 && !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list
}

// wrong implements [report].
func (g *Growth) wrong() error {
	var errs []error
	for _, f := range g.Failures {
		errs = append(errs, fmt.Errorf("%s, %s: %s", f.Database, f.Part, f.Error))
	}
	return errors.Join(errs...)
}

// over returns the spread of a value over the rounds of a place.
func (g *Growth) over(at Place, value func(Point) float64) spread {
	var values []float64
	for _, p := range g.Points {
		if p.Place == at {
			values = append(values, value(p))
		}
	}
	return spreadOf(values)
}

// ratios returns the spread of a value divided by that of a base in the same round.
func (g *Growth) ratios(at, base Place, value func(Point) float64) spread {
	byRound := make(map[int]float64)
	for _, p := range g.Points {
		if p.Place == base {
			byRound[p.Round] = value(p)
		}
	}
	var values []float64
	for _, p := range g.Points {
		if p.Place == at && byRound[p.Round] > 0 {
			values = append(values, value(p)/byRound[p.Round])
		}
	}
	return spreadOf(values)
}

// sizesOf returns the sizes that a subject was measured with, or all subjects of a part if it is empty, in order.
func (g *Growth) sizesOf(database, part, subject string) []int64 {
	var list []int64
	for _, p := range g.Points {
		if p.Database == database && p.Part == part && (subject == "" || p.Subject == subject) && !slices.Contains(list, p.Size) {
			list = append(list, p.Size)
		}
	}
	slices.Sort(list)
	return list
}
