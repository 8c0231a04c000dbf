package main

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Results are what a run has measured, as they are kept in results.json.
type Results struct {
	Command   string        `json:"command"` // that makes them
	Made      time.Time     `json:"made"`
	Machine   Machine       `json:"machine"`
	Duration  time.Duration `json:"duration"` // of one measurement, in nanoseconds
	Rounds    int           `json:"rounds"`
	Quick     bool          `json:"quick,omitempty"`  // with little data
	Failed    string        `json:"failed,omitempty"` // why it ended before everything was measured
	Clients   []int         `json:"clients"`
	Servers   []Server      `json:"servers"`
	Loads     []Described   `json:"loads"`
	Variants  []Described   `json:"variants"`
	Cells     []Cell        `json:"cells"`
	Statement []Statements  `json:"statements"`
	Reads     []Reads       `json:"reads"`
}

// Machine is where it was measured.
type Machine struct {
	Processor string `json:"processor"`
	Cores     int    `json:"cores"`
	System    string `json:"system"`
	Go        string `json:"go"`
}

// Described is a load or a variant.
type Described struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
	Base string `json:"base,omitempty"` // the variant that a load's others are relative to
	P99  bool   `json:"p99,omitempty"`  // a load's variants are compared by the 99th percentile of the latency
}

// Server is a database that was measured.
type Server struct {
	Name     string            `json:"name"`
	Version  string            `json:"version"`
	Settings map[string]string `json:"settings"`
	Durable  bool              `json:"durable"` // a commit is on the disk
}

// Cell is one measurement.
type Cell struct {
	Database   string  `json:"database"`
	Load       string  `json:"load"`
	Variant    string  `json:"variant"`
	Clients    int     `json:"clients"`
	Round      int     `json:"round"`
	Operations int     `json:"operations"`
	Seconds    float64 `json:"seconds"`
	Latency    Latency `json:"latency"`
	// Deadlocks that ended a transaction of a client's, which then ran it again; also before what is recorded.
	Deadlocks int `json:"deadlocks"`
	// Retries because of other conflicts.
	Retries int `json:"retries"`
	// Server is what the server has counted; nil for SQLite.
	Server *Stats `json:"server,omitempty"`
	// WrongKeys is how many counts differed from the files at the end; nil where none are kept.
	WrongKeys *int `json:"wrong_keys,omitempty"`
	// Folded is what was left in the journal, and was folded then.
	Folded *Folded `json:"folded,omitempty"`
}

// Latency of operations, retries included, in microseconds.
type Latency struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
}

// Stats is what a server counts. Waits are nil where it does not count them.
type Stats struct {
	Deadlocks       int64    `json:"deadlocks"`
	LockWaits       *int64   `json:"lock_waits,omitempty"`
	LockWaitSeconds *float64 `json:"lock_wait_seconds,omitempty"`
}

// Folded is what folding without writers took.
type Folded struct {
	Rows    int     `json:"rows"`
	Seconds float64 `json:"seconds"`
	// Written is how long clients had written into the journal, in seconds; also before what is recorded.
	Written float64 `json:"written,omitempty"`
}

// Statements is how many one operation takes, BEGIN and COMMIT included.
type Statements struct {
	Database string  `json:"database"`
	Load     string  `json:"load"`
	Variant  string  `json:"variant"`
	Number   float64 `json:"number"`
}

// Reads is how many rows the database reads for one read of one key.
type Reads struct {
	Database string `json:"database"`
	Variant  string `json:"variant"`
	Rows     int64  `json:"rows"`
	Steps    int64  `json:"steps,omitempty"` // of SQLite's virtual machine
	Unit     string `json:"unit"`
}

// throughput is in operations a second.
func (c Cell) throughput() float64 {
	if c.Seconds == 0 {
		return 0
	}
	return float64(c.Operations) / c.Seconds
}

// percentiles sorts the latencies.
func percentiles(latencies []time.Duration) Latency {
	if len(latencies) == 0 {
		return Latency{}
	}
	slices.Sort(latencies)
	at := func(p float64) float64 {
		i := int(math.Ceil(p*float64(len(latencies)))) - 1
		return math.Round(latencies[max(i, 0)].Seconds()*1e7) / 10
	}
	return Latency{P50: at(0.5), P99: at(0.99), P999: at(0.999)}
}

// spread is a median with its range.
type spread struct {
	median, low, high float64
	n                 int
}

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return spread{median: (values[(n-1)/2] + values[n/2]) / 2, low: values[0], high: values[n-1], n: n}
}

// group is the measurements of one variant under one load by a number of clients.
type group struct {
	database, load, variant string
	clients                 int
}

// over returns the spread of a value over the rounds of a group.
func (r *Results) over(g group, value func(Cell) float64) spread {
	var values []float64
	for _, c := range r.Cells {
		if g.has(c) {
			values = append(values, value(c))
		}
	}
	return spreadOf(values)
}

func (g group) has(c Cell) bool {
	return c.Database == g.database && c.Load == g.load && c.Variant == g.variant && c.Clients == g.clients
}

// ratios returns the spread of a variant's value divided by that of the base in the same round.
func (r *Results) ratios(g group, base string, value func(Cell) float64) spread {
	byRound := make(map[int]float64)
	denominator := g
	denominator.variant = base
	for _, c := range r.Cells {
		if denominator.has(c) {
			byRound[c.Round] = value(c)
		}
	}
	var values []float64
	for _, c := range r.Cells {
		if g.has(c) && byRound[c.Round] > 0 {
			values = append(values, value(c)/byRound[c.Round])
		}
	}
	return spreadOf(values)
}

// clientsOf returns the numbers of clients that a load was measured with.
func (r *Results) clientsOf(database, load string) []int {
	var clients []int
	for _, c := range r.Cells {
		if c.Database == database && c.Load == load && !slices.Contains(clients, c.Clients) {
			clients = append(clients, c.Clients)
		}
	}
	slices.SortFunc(clients, cmp.Compare[int])
	return clients
}
