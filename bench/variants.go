package main

import (
	"context"
	stdsql "database/sql"
	"errors"
	"strconv"
	"strings"

	"entgo.io/ent/dialect"

	"github.com/entcounter/entcounter/bench/files"
)

// A variant is one way to know how many files each key has.
type variant struct {
	name string
	doc  string
	// make returns the way for a dialect, which also keeps the sum of the sizes if it is told to.
	make func(dialectName string, sums bool) way
	// comparison names the only load that the variant is for, if it is not for all.
	comparison string
	// readsOnly: its writes are those of the variant none.
	readsOnly bool
	// extension of PostgreSQL that it needs.
	extension string
}

// The variant that most ratios are relative to, and the ones whose p99 the load folding compares.
const (
	variantNone    = "none"
	variantStill   = "entcounter-still"
	variantLooping = "entcounter-looping"
)

var variants = []variant{
	{name: variantNone, doc: "no counter at all", make: func(string, bool) way { return bare{} }},
	{name: "entcounter", doc: "entcounter, with a worker that folds at its own pace", make: func(_ string, sums bool) way {
		return counted{sums: sums, folding: foldingByWorker}
	}},
	{name: "hook", doc: "an ent hook updates counter rows in place, the old key first", make: func(d string, sums bool) way {
		return inPlace{counterTable{d, sums, 1}, false}
	}},
	{name: "hook-sorted", doc: "an ent hook updates counter rows in place, in the order of the keys", make: func(d string, sums bool) way {
		return inPlace{counterTable{d, sums, 1}, true}
	}},
	{name: "slots", doc: "an ent hook updates one of 16 counter rows for each key, chosen at random, in the order of the keys", make: func(d string, sums bool) way {
		return inPlace{counterTable{d, sums, 16}, true}
	}},
	{name: "trigger", doc: "database triggers update counter rows; in PostgreSQL once for a statement and sorted", make: func(d string, sums bool) way {
		return triggers{counterTable{d, sums, 1}}
	}},
	{name: "count", doc: "COUNT(*) when it is read", readsOnly: true, make: func(d string, sums bool) way {
		return recounts{dialect: d, sums: sums}
	}},
	{name: "ivm", doc: "an incrementally maintained view, by pg_ivm", extension: "pg_ivm", make: func(d string, sums bool) way {
		return view{counterTable{d, sums, 1}}
	}},
	{name: variantStill, doc: "entcounter, nothing folds", comparison: "folding", make: func(_ string, sums bool) way {
		return counted{sums: sums, folding: foldingNever}
	}},
	{name: variantLooping, doc: "entcounter, one fold after the other", comparison: "folding", make: func(_ string, sums bool) way {
		return counted{sums: sums, folding: foldingInLoop}
	}},
}

// way is what a variant does on one database.
type way interface {
	// connect returns a client whose changes are counted.
	connect(drv dialect.Driver) files.Client
	// create creates what counting needs beside the tables of the files.
	create(ctx context.Context, s files.Session) error
	// recount counts files that were written by SQL.
	recount(ctx context.Context, c files.Client) error
	// read reads the count of the key that a file has.
	read(ctx context.Context, s files.Session, f row) (files.Count, error)
	// readAll reads the counts of all keys. It returns nil where none are kept.
	readAll(ctx context.Context, c files.Client) (map[files.Key]files.Count, error)
	// alone tells that a change and its count are one statement, or that the way itself makes them one
	// transaction. Otherwise the application has to.
	alone() bool
}

// row is a file as a client knows it.
type row struct {
	id  int
	key files.Key
}

// rebind writes the placeholders of a dialect in place of question marks.
func rebind(dialectName, query string) string {
	if dialectName != dialect.Postgres {
		return query
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(query, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString("$" + strconv.Itoa(n))
		query = after
	}
}

// queryer is a database, a transaction or a client.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*stdsql.Rows, error)
}

// eachRow calls scan with each row of a query.
func eachRow(ctx context.Context, q queryer, scan func(*stdsql.Rows) error, query string, args ...any) (err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// countsBy returns the result of a query for the dataset, status, number of files and sum of sizes of keys.
func countsBy(ctx context.Context, q queryer, query string) (map[files.Key]files.Count, error) {
	counts := make(map[files.Key]files.Count)
	err := eachRow(ctx, q, func(rows *stdsql.Rows) error {
		var (
			k files.Key
			n files.Count
		)
		if err := rows.Scan(&k.Dataset, &k.Status, &n.Files, &n.Bytes); err != nil {
			return err
		}
		counts[k] = n
		return nil
	}, query)
	return counts, err
}

// countOf returns the result of a query for the number of files and the sum of sizes of one key.
func countOf(ctx context.Context, q queryer, query string, args ...any) (n files.Count, err error) {
	err = eachRow(ctx, q, func(rows *stdsql.Rows) error { return rows.Scan(&n.Files, &n.Bytes) }, query, args...)
	return n, err
}
