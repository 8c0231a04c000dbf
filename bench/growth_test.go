package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/entcounter/entcounter/internal/testdb"
)

// All that grows is measured on every database, and written as tables and plots; and written again the same.
func TestGrowth(t *testing.T) {
	for _, kind := range testdb.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel() // most of it is waiting for disks
			out := t.TempDir()
			var stdout, stderr bytes.Buffer
			code := command(t.Context(), []string{
				"-growth", "-quick", "-databases", string(kind), "-rows", "10000", "-clients", "2", "-duration", "2ms", "-rounds", "1", "-out", out,
			}, &stdout, &stderr)
			require.Equal(t, exitOK, code, stderr.String())
			kept := filepath.Join(out, "growth", "results.json")
			g, err := readResults[Growth](kept)
			require.NoError(t, err)
			require.Empty(t, g.Failures)
			for _, want := range []struct {
				part     string
				sizes    []int64
				subjects []string
			}{
				{partDepth, []int64{0, 10, 100}, []string{readBare, readQuiet, readDeep}},
				{partKeys, []int64{100, 1000}, []string{readBare, readKey, readPage, readScope, readAll}},
				{partFolds, foldBatches, []string{"1 key", "100 keys"}},
				{partRows, []int64{100, 1000, 10_000}, []string{doBuild, doVerify, doRebuild, doRebuildWrong, doFold}},
			} {
				for _, subject := range want.subjects {
					require.Subset(t, g.sizesOf(string(kind), want.part, subject), want.sizes, "%s, %s", want.part, subject)
				}
			}
			for _, where := range []string{writeTx, writeAlone} {
				for _, one := range grown {
					i := slices.IndexFunc(g.Points, func(p Point) bool { return p.Subject == where+" "+one.shape })
					require.GreaterOrEqual(t, i, 0, one.shape)
					p := g.Points[i]
					require.Positive(t, p.Operations, one.shape)
					// Each transition is two journal rows of each counter, also those before what is recorded.
					require.GreaterOrEqual(t, p.Rows, 2*one.counters*int64(p.Operations), one.shape)
					require.Zero(t, p.Rows%max(2*one.counters, 1), one.shape)
				}
			}
			for _, p := range g.Points {
				require.Positive(t, p.Seconds, p.Place)
				if p.Part == partRows && p.Memory != nil {
					require.Positive(t, p.Memory.Process, p.Place)
				}
			}
			for _, r := range g.Reads {
				if r.Subject == readDeep && r.Size == 100 {
					require.Greater(t, max(r.Rows, r.Steps), r.Size) // each journal row is read
				}
			}
			page, err := os.ReadFile(filepath.Join(out, "growth.md"))
			require.NoError(t, err)
			for _, part := range growthParts {
				require.Contains(t, string(page), part.doc[1:], part.name)
			}
			require.Contains(t, string(page), "All counts were right.")
			require.Contains(t, string(page), "| "+string(kind)+" | 10,000 |")
			for _, name := range []string{"depth-deep.svg", "keys-all.svg", "writes-counters.svg", "folds-many.svg", "rows-build.svg"} {
				require.FileExists(t, filepath.Join(out, "growth", name))
			}

			again := t.TempDir()
			require.Equal(t, exitOK, command(t.Context(), []string{"-growth", "-render", kept, "-out", again}, &stdout, &stderr), stderr.String())
			require.Equal(t, contents(t, out), contents(t, again))
		})
	}
}

// A run that is interrupted keeps what it has, and says so.
func TestGrowthInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := t.TempDir()
	var stderr bytes.Buffer
	log := writerFunc(func(text []byte) (int, error) {
		if strings.Contains(string(text), "sqlite keys: begins") {
			cancel()
		}
		return stderr.Write(text)
	})
	code := command(ctx, []string{
		"-growth", "-databases", "sqlite", "-parts", "depth,keys,rows", "-rows", "10000", "-duration", "1ms", "-rounds", "1", "-out", out,
	}, io.Discard, log)
	require.Equal(t, exitFailed, code)
	require.Contains(t, stderr.String(), "bench: sqlite, keys: interrupted")
	page, err := os.ReadFile(filepath.Join(out, "growth.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), "- sqlite, keys: interrupted")
	require.Contains(t, string(page), "## Reads by the depth of the journal")
	require.NotContains(t, string(page), "counted rows |")
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(text []byte) (int, error) { return f(text) }

// What is wrong is found by what reads it, and by what compares.
func TestGrowthFindsWrongCounts(t *testing.T) {
	ctx := t.Context()
	srv, err := newServer(ctx, testdb.SQLite, options{})
	require.NoError(t, err)
	defer stop([]*server{srv})
	s, err := openStore(ctx, srv, entryTables, 2)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.close()) }()
	require.NoError(t, s.addFolded(ctx, 0, 20))
	require.NoError(t, check(ctx, s.entries()))
	require.NoError(t, allRead(20).read(ctx, s.client))

	require.NoError(t, s.exec(ctx, "UPDATE entry_counters SET count = 2 WHERE folder = 1 AND status = 3"))
	require.ErrorContains(t, check(ctx, s.entries()), "wrong count: counter Entry, key")
	require.ErrorContains(t, allRead(20).read(ctx, s.client), "wrong count: all has 21 with 0 journal rows, want 20 with 0")
	require.ErrorContains(t, s.addFolded(ctx, 20, 30), "a build has corrected 1 keys, want none")
}
