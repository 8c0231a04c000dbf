package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/entcounter/entcounter/bench/files"
)

// A load is what clients do over and over.
type load struct {
	name string
	doc  string
	// inTx: each operation is a transaction of the application's.
	inTx bool
	// sums: counters also sum the sizes of files.
	sums bool
	// reads: each operation reads a count, which the variant none has not.
	reads bool
	// readsOnly: it changes nothing.
	readsOnly bool
	// data are the files that it begins with.
	data func(o sizes, clients int) layout
	// topUp: each measurement begins with all of data anew.
	topUp bool
	// maxClients is how many clients it has at most, 0 for any number.
	maxClients int
	// p99 tells that variants are compared by that, not by throughput.
	p99 bool
	// do makes changes. What has to be remembered of them is so only when they are committed, by committed.
	do func(ctx context.Context, c *client, s files.Session) (committed func(), err error)
}

// sizes are how large the data is.
type sizes struct {
	keys       int // of the loads spread
	hotRows    int // of each client in one pair of keys
	deleteRows int // that each client can delete in one measurement
	bulk       [2]int
	readRows   int // of each key that is read
}

var (
	fullSizes  = sizes{keys: 10_000, hotRows: 32, deleteRows: 5_000, bulk: [2]int{100, 10_000}, readRows: 1_000}
	quickSizes = sizes{keys: 400, hotRows: 16, deleteRows: 300, bulk: [2]int{20, 300}, readRows: 50}
)

// layout is how files are spread over keys: each dataset has as many, in turn with each of the statuses.
type layout struct {
	datasets int
	files    int // of each dataset
	statuses []string
	// ownDataset: each client has a dataset, rather than some files of all.
	ownDataset bool
}

func (l layout) String() string {
	return fmt.Sprintf("%d files in each of %d datasets", l.files, l.datasets)
}

// pair are the statuses that files of the loads on few keys go back and forth between.
var pair = []string{"New", "Copying"}

func hotData(o sizes, clients int) layout {
	return layout{datasets: 1, files: clients * o.hotRows, statuses: pair}
}

func spreadData(o sizes, clients int) layout {
	datasets := o.keys / len(files.Statuses)
	return layout{datasets: datasets, files: len(files.Statuses) * max(2, 1+clients*2/datasets), statuses: files.Statuses}
}

func bulkData(i int) func(o sizes, clients int) layout {
	return func(o sizes, clients int) layout {
		return layout{datasets: clients, files: o.bulk[i], statuses: pair[:1], ownDataset: true}
	}
}

func insertData(sizes, int) layout { return layout{datasets: 1} }

func deleteData(o sizes, clients int) layout {
	return layout{datasets: 1, files: clients * o.deleteRows, statuses: pair[:1]}
}

func readData(o sizes, _ int) layout {
	return layout{datasets: 25, files: o.readRows * len(files.Statuses), statuses: files.Statuses}
}

// loadRead is the load for which the rows that a read takes are told.
const loadRead = "read"

var loads = []load{
	{name: "hot-tx", doc: "a transaction changes the status of one file; all in one pair of keys", inTx: true, data: hotData, do: transitions(1)},
	{name: "hot", doc: "one file changes its status, without a transaction of the application's; all in one pair of keys", data: hotData, do: transitions(1)},
	{name: "hot-tx-sums", doc: "a transaction changes the status of one file; all in one pair of keys; sizes are summed too", inTx: true, sums: true, data: hotData, do: transitions(1)},
	{name: "spread-tx", doc: "a transaction changes the status of one file; over 10,000 keys", inTx: true, data: spreadData, do: transitions(1)},
	{name: "spread", doc: "one file changes its status, without a transaction of the application's; over 10,000 keys", data: spreadData, do: transitions(1)},
	{name: "ten-tx", doc: "a transaction changes the status of ten files, one after the other; all in one pair of keys", inTx: true, data: hotData, do: transitions(10)},
	{name: "insert-tx", doc: "a transaction creates a file; all with one key", inTx: true, data: insertData, do: insert},
	{name: "insert", doc: "a file is created, without a transaction of the application's; all with one key", data: insertData, do: insert},
	{name: "delete-tx", doc: "a transaction deletes a file; all with one key", inTx: true, data: deleteData, topUp: true, do: remove},
	{name: "delete", doc: "a file is deleted, without a transaction of the application's; all with one key", data: deleteData, topUp: true, do: remove},
	{name: "bulk-100", doc: "a transaction changes the status of all 100 files of a dataset; one dataset for each client", inTx: true, data: bulkData(0), do: transitionOfAll},
	{name: "bulk-100-sums", doc: "a transaction changes the status of all 100 files of a dataset; one dataset for each client; sizes are summed too", inTx: true, sums: true, data: bulkData(0), do: transitionOfAll},
	{name: "bulk-10000", doc: "a transaction changes the status of all 10,000 files of a dataset; one dataset for each client", inTx: true, data: bulkData(1), maxClients: 8, do: transitionOfAll},
	{name: "bulk-10000-sums", doc: "a transaction changes the status of all 10,000 files of a dataset; one dataset for each client; sizes are summed too", inTx: true, sums: true, data: bulkData(1), maxClients: 8, do: transitionOfAll},
	{name: "mixed", doc: "a transaction changes the status of one file; all in one pair of keys; after it one of the two is read, and a file by its primary key in the variant none", inTx: true, reads: true, data: hotData, do: transitions(1)},
	{name: loadRead, doc: "one key of 1,000 files is read, all is folded; the variant none reads one file by its primary key", reads: true, readsOnly: true, data: readData},
	{name: "folding", doc: "a transaction changes the status of one file; all in one pair of keys; compared is the p99 with one fold after the other to that without any", inTx: true, p99: true, data: hotData, do: transitions(1)},
}

// base is the variant that the others are relative to.
func (l load) base() string {
	if l.p99 {
		return variantStill
	}
	return variantNone
}

// has tells whether a variant is measured under the load.
func (l load) has(v variant) bool {
	if l.p99 || v.comparison != "" {
		return v.comparison == l.name
	}
	return l.reads || !v.readsOnly
}

// errNoneLeft is returned by a client that has nothing left to do.
var errNoneLeft = errors.New("no files are left")

// transitions changes the status of n different files, one after the other.
func transitions(n int) func(context.Context, *client, files.Session) (func(), error) {
	return func(ctx context.Context, c *client, s files.Session) (func(), error) {
		first := c.rng.IntN(len(c.rows))
		next := make([]string, n)
		for i := range next {
			f := c.rows[(first+i)%len(c.rows)]
			next[i] = c.otherStatus(f.key.Status)
			moved, err := s.Move(ctx, f.id, f.key, next[i])
			if err == nil && moved != 1 {
				err = fmt.Errorf("%d files with id %d and %+v, want 1", moved, f.id, f.key)
			}
			if err != nil {
				return nil, err
			}
		}
		return func() {
			for i, status := range next {
				c.rows[(first+i)%len(c.rows)].key.Status = status
			}
			c.last = c.rows[first]
		}, nil
	}
}

// transitionOfAll changes the status of all files of the client's dataset.
func transitionOfAll(ctx context.Context, c *client, s files.Session) (func(), error) {
	from := c.rows[0].key
	to := c.otherStatus(from.Status)
	moved, err := s.MoveAll(ctx, from, to)
	if err == nil && moved != len(c.rows) {
		err = fmt.Errorf("%d files have %+v, want %d", moved, from, len(c.rows))
	}
	return func() {
		for i := range c.rows {
			c.rows[i].key.Status = to
		}
	}, err
}

func insert(ctx context.Context, c *client, s files.Session) (func(), error) {
	c.created++
	return func() {}, s.Create(ctx, files.New{
		Key:  files.Key{Dataset: 1, Status: pair[0]},
		Path: fmt.Sprintf("%s/%d", c.name, c.created),
		Size: sizeOf(c.created),
	})
}

func remove(ctx context.Context, c *client, s files.Session) (func(), error) {
	if len(c.rows) == 0 {
		return nil, errNoneLeft
	}
	f := c.rows[len(c.rows)-1]
	n, err := s.Delete(ctx, f.id, f.key)
	if err == nil && n != 1 {
		err = fmt.Errorf("%d files with id %d and %+v, want 1", n, f.id, f.key)
	}
	return func() { c.rows = c.rows[:len(c.rows)-1] }, err
}
