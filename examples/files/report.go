package main

import (
	"cmp"
	"context"
	stdsql "database/sql"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	entsql "entgo.io/ent/dialect/sql"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/dataset"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/ent/filecounters"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/examples/internal/console"
)

// shown is how many datasets, and how many wrong keys, are printed.
const shown = 20

// measures of some files.
type measures struct{ count, bytes int64 }

func (m *measures) add(o measures) {
	m.count += o.count
	m.bytes += o.bytes
}

// pair is what the counters tell of some files, and what counting them tells.
type pair struct{ counted, actual measures }

func (p *pair) add(o pair) {
	p.counted.add(o.counted)
	p.actual.add(o.actual)
}

// line is a pair with a name.
type line struct {
	name string
	pair
}

// check is the outcome of comparing all counters with all files.
type check struct {
	datasets, keys int64
	largest        []line // the datasets with the most files
	byStatus       map[file.Status]pair
	total          pair
	drifting       int64
	drift          []line // the first keys that differ
	backlog        entcounter.Backlog
}

// check compares the counters of all datasets with their files, inside one snapshot. It keeps a page of
// datasets in memory.
func (a *app) check(ctx context.Context) (*check, error) {
	tx, err := a.client.BeginTx(ctx, &stdsql.TxOptions{Isolation: stdsql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	c := &check{byStatus: make(map[file.Status]pair)}
	// Ranges of dataset ids cover all of them, also those that counters have and datasets have not.
	for last, more := math.MinInt, true; more; {
		page, err := tx.Dataset.Query().Where(dataset.IDGT(last)).Order(dataset.ByID()).Limit(a.batch).All(ctx)
		if err != nil {
			return nil, err
		}
		next := math.MaxInt
		if more = len(page) == a.batch; more {
			next = page[len(page)-1].ID
		}
		if err := c.compare(ctx, tx, page, last, next); err != nil {
			return nil, err
		}
		last = next
	}
	if c.backlog, err = tx.FileCounters.Backlog(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// compare compares the datasets with ids above after and up to last.
func (c *check) compare(ctx context.Context, tx *ent.Tx, page []*ent.Dataset, after, last int) error {
	keys := make(map[filecounters.Key]pair)
	counters, err := tx.FileCounters.Query().
		Where(
			filecounters.DatasetIDGT(after), filecounters.DatasetIDLTE(last),
			filecounters.Or(filecounters.CountNEQ(0), filecounters.BytesNEQ(0)),
		).
		All(ctx)
	if err != nil {
		return err
	}
	for _, row := range counters {
		keys[filecounters.Key{DatasetID: row.DatasetID, Status: row.Status}] = pair{counted: measures{row.Count, row.Bytes}}
	}
	var actual []struct {
		DatasetID int         `sql:"dataset_id"`
		Status    file.Status `sql:"status"`
		Count     int64       `sql:"count"`
		Bytes     int64       `sql:"bytes"`
	}
	err = tx.File.Query().
		Where(entsql.FieldGT(file.FieldDatasetID, after), entsql.FieldLTE(file.FieldDatasetID, last)).
		GroupBy(file.FieldDatasetID, file.FieldStatus).
		Aggregate(ent.As(ent.Count(), "count"), ent.As(ent.Sum(file.FieldSize), "bytes")).
		Scan(ctx, &actual)
	if err != nil {
		return err
	}
	for _, row := range actual {
		key := filecounters.Key{DatasetID: row.DatasetID, Status: row.Status}
		p := keys[key]
		p.actual = measures{row.Count, row.Bytes}
		keys[key] = p
	}

	names := make(map[int]string, len(page))
	sums := make(map[int]pair, len(page))
	for _, d := range page {
		names[d.ID] = d.Name
		sums[d.ID] = pair{}
	}
	for key, p := range keys {
		sum := sums[key.DatasetID]
		sum.add(p)
		sums[key.DatasetID] = sum
		status := c.byStatus[key.Status]
		status.add(p)
		c.byStatus[key.Status] = status
		c.total.add(p)
		if p.counted != p.actual {
			c.drifting++
			if len(c.drift) < shown {
				c.drift = append(c.drift, line{fmt.Sprintf("%d %s %s", key.DatasetID, key.Status, names[key.DatasetID]), p})
			}
		}
	}
	c.keys += int64(len(keys))
	c.datasets += int64(len(page))
	for id, sum := range sums {
		if _, ok := names[id]; ok {
			c.largest = append(c.largest, line{names[id], sum})
		}
	}
	slices.SortFunc(c.largest, func(a, b line) int {
		return cmp.Or(cmp.Compare(b.actual.count, a.actual.count), cmp.Compare(b.actual.bytes, a.actual.bytes), cmp.Compare(a.name, b.name))
	})
	c.largest = c.largest[:min(len(c.largest), shown)]
	return nil
}

// nameWidth is the width of the first column.
const nameWidth = 44

// print writes the report.
func (a *app) print(w io.Writer, c *check, before entcounter.Backlog) {
	row := func(name string, p pair) {
		fmt.Fprintf(w, "%s%s %11s %11s %18s %18s\n", name, strings.Repeat(" ", nameWidth-len([]rune(name))),
			console.Comma(p.counted.count), console.Comma(p.actual.count), console.Comma(p.counted.bytes), console.Comma(p.actual.bytes))
	}
	fmt.Fprintf(w, "\n%-*s %11s %11s %18s %18s\n", nameWidth, "dataset", "count", "COUNT(*)", "bytes", "SUM(size)")
	rest := pair{c.total.counted, c.total.actual}
	for _, l := range c.largest {
		row(console.Fit(a.short(l.name), nameWidth), l.pair)
		rest.counted.add(measures{-l.counted.count, -l.counted.bytes})
		rest.actual.add(measures{-l.actual.count, -l.actual.bytes})
	}
	if n := c.datasets - int64(len(c.largest)); n > 0 {
		row(console.Comma(n)+" more", rest)
	}
	for _, s := range statuses {
		row("all "+s.String(), c.byStatus[s])
	}
	row(fmt.Sprintf("all %s datasets", console.Comma(c.datasets)), c.total)

	folded := a.done.folded.Load()
	fmt.Fprintf(w, "\njournal    %s rows written, %s folded, %s pending\n",
		console.Comma(folded+c.backlog.Rows-before.Rows), console.Comma(folded), console.Comma(c.backlog.Rows))
	if c.drifting == 0 {
		fmt.Fprintf(w, "exact      %s keys in one snapshot: every count and every sum is right\n", console.Comma(c.keys))
		return
	}
	fmt.Fprintf(w, "WRONG      %s of %s keys differ in one snapshot\n", console.Comma(c.drifting), console.Comma(c.keys))
	for _, l := range c.drift {
		row(console.Fit(l.name, nameWidth), l.pair)
	}
}

// short is a dataset's name relative to the tree, if it is in it.
func (a *app) short(name string) string {
	if !within(a.root, name) {
		return name
	}
	if name = strings.TrimPrefix(strings.TrimPrefix(name, encode(a.root, maxDataset)), string(filepath.Separator)); name == "" {
		return "."
	}
	return name
}
