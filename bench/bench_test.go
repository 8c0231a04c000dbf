package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/entcounter/entcounter/bench/files"
	"github.com/entcounter/entcounter/internal/testdb"
)

func TestMain(m *testing.M) { os.Exit(testdb.Main(m)) }

// allKinds is a load of everything that changes a count.
var allKinds = load{
	name: "all-kinds", doc: "a transaction creates a file, and changes the status of another and deletes it", inTx: true, sums: true, data: deleteData, topUp: true,
	do: func(ctx context.Context, c *client, s files.Session) (func(), error) {
		if len(c.rows) == 0 {
			return nil, errNoneLeft
		}
		if _, err := insert(ctx, c, s); err != nil {
			return nil, err
		}
		f := c.rows[len(c.rows)-1]
		status := c.otherStatus(f.key.Status)
		moved, err := s.Move(ctx, f.id, f.key, status)
		if err != nil {
			return nil, err
		}
		deleted, err := s.Delete(ctx, f.id, files.Key{Dataset: f.key.Dataset, Status: status})
		if err == nil && (moved != 1 || deleted != 1) {
			err = fmt.Errorf("%d moved, %d deleted", moved, deleted)
		}
		return func() { c.rows = c.rows[:len(c.rows)-1] }, err
	},
}

// Every variant counts right on every database, and the whole program runs: it measures, and writes tables and plots.
func TestExact(t *testing.T) {
	loads = append(loads, allKinds)
	t.Cleanup(func() { loads = loads[:len(loads)-1] })
	for _, kind := range testdb.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			out := t.TempDir()
			var stdout, stderr bytes.Buffer
			code := command(t.Context(), []string{
				"-quick", "-databases", string(kind), "-loads", allKinds.name, "-clients", "2", "-duration", "50ms", "-rounds", "1", "-out", out,
			}, &stdout, &stderr)
			require.Equal(t, exitOK, code, stderr.String())
			r, err := readResults[Results](filepath.Join(out, "benchmarks", "results.json"))
			require.NoError(t, err)
			for _, v := range variants {
				if v.readsOnly || v.comparison != "" || v.extension != "" {
					continue
				}
				i := slices.IndexFunc(r.Cells, func(c Cell) bool { return c.Variant == v.name })
				require.GreaterOrEqual(t, i, 0, v.name)
				cell := r.Cells[i]
				require.Positive(t, cell.Operations, v.name)
				require.Positive(t, cell.Latency.P50, v.name)
				if v.name == variantNone {
					require.Nil(t, cell.WrongKeys)
					continue
				}
				require.NotNil(t, cell.WrongKeys, v.name)
				require.Zero(t, *cell.WrongKeys, v.name)
			}
			page, err := os.ReadFile(filepath.Join(out, "benchmarks.md"))
			require.NoError(t, err)
			require.Contains(t, string(page), "| all-kinds | 2 |")
			require.FileExists(t, filepath.Join(out, "benchmarks", string(kind)+"-2.svg"))
		})
	}
}

// A wrong count is found, told, and not carried on to the next measurement.
func TestWrongCountIsFound(t *testing.T) {
	srv, err := newServer(t.Context(), testdb.SQLite, options{})
	require.NoError(t, err)
	defer stop([]*server{srv})
	l := loads[slices.IndexFunc(loads, func(l load) bool { return l.name == "hot-tx" })]
	v := variants[slices.IndexFunc(variants, func(v variant) bool { return v.name == "trigger" })]
	s, err := open(t.Context(), srv, v, l, l.data(quickSizes, 1), 3)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.close()) }()
	_, err = s.db.ExecContext(t.Context(), "UPDATE file_counts SET n = n + 1 WHERE status = 'New'")
	require.NoError(t, err)

	cell, err := s.measure(t.Context(), 1, time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, 1, *cell.WrongKeys)
	require.ErrorContains(t, (&Results{Cells: []Cell{cell}}).wrong(), "sqlite, hot-tx, trigger, 1 client, round 0: 1 keys are counted wrong")

	cell, err = s.measure(t.Context(), 1, time.Millisecond)
	require.NoError(t, err)
	require.Zero(t, *cell.WrongKeys)
}

// What a read of one key takes is told for each variant.
func TestReads(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code := command(t.Context(), []string{"-quick", "-databases", "sqlite", "-loads", "read,folding", "-clients", "1", "-duration", "10ms", "-rounds", "1"}, &stdout, &stderr)
	require.Equal(t, exitOK, code, stderr.String())
	for _, want := range []string{
		"### Rows for one read", "| none | 0 |", "| count | 0 |", // found by an index
		"| read | 1 | 1 | 1 | 1 | 1 | 1 | 1 |", // statements
		"### Folding",
	} {
		require.Contains(t, stdout.String(), want)
	}
}

var update = flag.Bool("update", false, "write what is rendered as what is wanted")

// Tables and plots of given results are what they were, and the results are kept beside them.
func TestRender(t *testing.T) {
	const golden = "testdata/golden"
	out := t.TempDir()
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitFailed, command(t.Context(), []string{"-render", "testdata/results.json", "-out", out}, &stdout, &stderr))
	require.Equal(t, "bench: mariadb, hot-tx, hook, 2 clients, round 2: 1 keys are counted wrong\n", stderr.String())
	kept := filepath.Join(out, "benchmarks", "results.json")
	want, err := readResults[Results]("testdata/results.json")
	require.NoError(t, err)
	got, err := readResults[Results](kept)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.NoError(t, os.Remove(kept))
	if *update {
		require.NoError(t, os.RemoveAll(golden))
		require.NoError(t, os.CopyFS(golden, os.DirFS(out)))
	}
	wanted, made := contents(t, golden), contents(t, out)
	require.Equal(t, slices.Sorted(maps.Keys(wanted)), slices.Sorted(maps.Keys(made)))
	for name := range wanted {
		require.True(t, wanted[name] == made[name], "%s differs: run with -update, and look how", name)
	}
}

// contents returns the text of each file below a folder, by its path there.
func contents(t *testing.T, dir string) map[string]string {
	texts := make(map[string]string)
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(os.DirFS(dir), path)
		texts[path] = string(text)
		return err
	}))
	return texts
}

// What people write around the results stays.
func TestPageIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "benchmarks.md")
	require.NoError(t, os.WriteFile(path, []byte("before\n"+benchmarks.begin+"\nold\n"+endMark+"\nafter\n"), 0o644))
	require.NoError(t, benchmarks.insert(path, "new\n"))
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "before\n"+benchmarks.begin+"\nnew\n"+endMark+"\nafter\n", string(page))

	require.NoError(t, os.WriteFile(path, []byte("no marks"), 0o644))
	require.ErrorContains(t, benchmarks.insert(path, "new\n"), "are missing, between which the results go")
}

func TestWrongCalls(t *testing.T) {
	for args, want := range map[string]string{
		"-databases oracle":             `-databases: there is no "oracle": give some of sqlite,mariadb,mysql,postgres`,
		"-variants hok":                 `-variants: there is no "hok": give some of none,entcounter,hook`,
		"-loads hot,":                   `-loads: there is no "": give some of hot-tx,hot`,
		"-clients 1,x":                  `-clients: "x" is not a number from 1 to 300`,
		"-clients 0":                    `-clients: "0" is not a number from 1 to 300`,
		"-rounds 0":                     "-rounds is 0: at least one is needed",
		"-duration 0s":                  "-duration is 0s: give a time such as 2s",
		"-variants ivm":                 "-variants: ivm needs PostgreSQL 18 with pg_ivm: give -postgres18 too",
		"-postgres18 -databases sqlite": "-postgres18: postgres is not among -databases sqlite",
		"-growth -loads read":           "-growth has neither loads nor variants to choose",
		"-growth -parts key":            `-parts: there is no "key": give some of depth,keys,writes,folds,rows`,
		"-growth -rows 9999":            "-rows is 9999: give 10000 at least",
		"-rows 20000":                   "-rows and -parts are for -growth: give that too",
		"quick":                         `unexpected argument "quick"`,
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, exitUsage, command(t.Context(), strings.Fields(args), &stdout, &stderr), args)
		require.Contains(t, stderr.String(), want, args)
	}
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitOK, command(t.Context(), []string{"-h"}, &stdout, &stderr))
	require.Contains(t, stderr.String(), "go run ./bench -quick")
	require.Equal(t, exitFailed, command(t.Context(), []string{"-render", "bench_test.go"}, &stdout, &stderr))
	require.Contains(t, stderr.String(), "bench_test.go holds no results of this program")
}

func TestSpread(t *testing.T) {
	require.Equal(t, spread{}, spreadOf(nil))
	require.Equal(t, spread{median: 2.5, low: 1, high: 4, n: 4}, spreadOf([]float64{4, 1, 3, 2}))
	var latencies []time.Duration
	for i := range 1000 {
		latencies = append(latencies, time.Duration(1000-i)*time.Microsecond)
	}
	require.Equal(t, Latency{P50: 500, P99: 990, P999: 999}, percentiles(latencies))
	require.Equal(t, Latency{}, percentiles(nil))
}
