package countercli

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	entsql "entgo.io/ent/dialect/sql"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/testdb"
)

var update = flag.Bool("update", false, "write the files in testdata anew")

func TestMain(m *testing.M) { os.Exit(testdb.Main(m)) }

// result is what a command has left.
type result struct {
	stdout, stderr string
	code           int
}

// run runs a command line in this process, with an answer to questions.
func run(ctx context.Context, counters []*entcounter.Handle, answer string, args ...string) result {
	cmd := Command(func(context.Context) ([]*entcounter.Handle, error) { return counters, nil })
	var stdout, stderr bytes.Buffer
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetIn(strings.NewReader(answer))
	cmd.SetArgs(args)
	code := Execute(ctx, cmd)
	return result{stdout.String(), stderr.String(), code}
}

// shell runs command lines and keeps a transcript of them.
type shell struct {
	*testing.T
	counters   []*entcounter.Handle
	transcript strings.Builder
}

func (s *shell) say(format string, args ...any) { fmt.Fprintf(&s.transcript, format+"\n", args...) }

// do runs a command line: words between spaces.
func (s *shell) do(line string) {
	r := run(s.Context(), s.counters, "", strings.Fields(line)...)
	s.say("$ counters %s", line)
	s.transcript.WriteString(r.stdout)
	for errline := range strings.Lines(r.stderr) {
		s.transcript.WriteString("! " + errline)
	}
	if r.code != ExitOK {
		s.say("[%d]", r.code)
	}
	s.say("")
}

var (
	moment   = regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?`)
	duration = regexp.MustCompile(`\b\d+(\.\d+)?(µs|ms|s)\b`)
	speed    = regexp.MustCompile(`(_per_second"|seconds"): ?[0-9.e+-]+`)
	garbage  = regexp.MustCompile(`("history_length"|"dead_rows"): -?\d+`)
	// The table of status: age, speed and time of the last fold, and with these the widths of all columns.
	statusHead = regexp.MustCompile(`(?m)^COUNTER .*$`)
	statusLine = regexp.MustCompile(`(?m)^(\w+) +([a-z ]+?) +(\d+) +(\d+) +\S+ +[\d,]+ +(TIME|never) +`)
	// Of several keys with as many rows, each database has another that comes first.
	deepestKey  = regexp.MustCompile(`\S+ status=\w+ (\(\d+ rows?\))`)
	deepestJSON = regexp.MustCompile(`("deepest_key": \{)[^}]*`)
)

// steady takes out of a transcript what differs from run to run and from database to
// database.
func steady(s string) string {
	s = moment.ReplaceAllString(s, "TIME")
	s = duration.ReplaceAllString(s, "DURATION")
	s = speed.ReplaceAllString(s, "$1: N")
	s = garbage.ReplaceAllString(s, "$1: N")
	s = statusHead.ReplaceAllStringFunc(s, func(head string) string { return strings.Join(strings.Fields(head), "  ") })
	s = deepestJSON.ReplaceAllString(deepestKey.ReplaceAllString(s, "KEY $1"), "$1")
	return statusLine.ReplaceAllString(s, "$1  $2  $3  $4  AGE  SPEED  $5  ")
}

// golden compares a text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what is printed (-update writes it):\n%s", path, firstDifference(string(want), got))
	}
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d\n  want %q\n  got  %q", i+1, w[i], g[i])
		}
	}
	return fmt.Sprintf("%d lines wanted, %d printed", len(w), len(g))
}

// newClient returns a client on a database with two datasets of files.
func newClient(t *testing.T, db *testdb.Database) *ent.Client {
	t.Helper()
	ctx := t.Context()
	client := ent.NewClient(ent.Driver(entsql.OpenDB(db.Dialect, db.DB(t))))
	if err := client.Schema.Create(ctx); err != nil {
		t.Fatal(err)
	}
	for d, statuses := range [][]file.Status{
		{file.StatusNew, file.StatusNew, file.StatusNew, file.StatusCopied, file.StatusFailed},
		{file.StatusCopied, file.StatusCopied},
	} {
		id := client.Dataset.Create().SetName(fmt.Sprint("dataset ", d+1)).SaveX(ctx).ID
		if id != d+1 {
			t.Fatalf("dataset %d has id %d", d+1, id)
		}
		var creates []*ent.FileCreate
		for i, status := range statuses {
			creates = append(creates, client.File.Create().SetDatasetID(id).SetPath(fmt.Sprint(i)).SetSize(int64(1000*(i+1))).SetStatus(status))
		}
		client.File.CreateBulk(creates...).SaveX(ctx)
	}
	return client
}

// One session is the same on all databases, to the letter.
func TestSession(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		client := newClient(t, db)
		s := &shell{T: t, counters: client.Counters()}
		sql := func(query string) {
			s.say("sql> %s\n", query)
			if _, err := client.ExecContext(t.Context(), query); err != nil {
				t.Fatal(err)
			}
		}
		all := func(lines ...string) {
			for _, line := range lines {
				s.do(line)
			}
		}
		all("status", "read", "read --json", "read --scope dataset_id=1", "read --scope dataset_id=1 --scope status=New",
			"read --scope dataset_id=99 --scope status=New", "read --scope dataset_id=99", "read --scope status=Copied",
			"read --by status", "read --total", "read --total --json", "read --limit 2",
			"top", "top --measure bytes --by dataset_id", "top --measure pending --limit 1 --json", "top --scope status=Copied --limit 1",
			"verify", "verify --json", "fold", "status", "read --scope dataset_id=1")

		s.say("## What went past ent is found and mended.\n")
		sql("UPDATE files SET status = 'Copied', size = 7 WHERE dataset_id = 1 AND status = 'New'")
		all("verify", "verify --json", "verify --scope dataset_id=2", "verify --limit 0", "rebuild --scope dataset_id=2",
			"rebuild --scope dataset_id=1", "verify", "rebuild --json")

		s.say("## A count below zero is seen without counting.\n")
		sql("UPDATE file_counters SET count = count - 100 WHERE dataset_id = 2 AND status = 'Copied'")
		all("status", "status --json", "rebuild", "status")

		s.say("## Pause, limits.\n")
		client.File.Update().SetStatus(file.StatusNew).ExecX(t.Context())
		all("pause", "status", "status --max-rows 1", "status --max-age 1ns", "fold --json", "resume --json", "status --max-rows 1 --max-age 1h")

		s.say("## A scope is deleted when its rows are gone, and only then.\n")
		all("delete-scope", "delete-scope --scope dataset_id=2", "delete-scope --scope dataset_id=2 --yes")
		sql("DELETE FROM files WHERE dataset_id = 2")
		all("delete-scope --scope dataset_id=2", "delete-scope --scope dataset_id=2 --yes", "verify", "read",
			"delete-scope --scope dataset_id=1 --rows-remain --yes --json", "verify", "rebuild")

		s.say("## What is wrong with a command line is said.\n")
		all("vrify", "verify File", "verify --scop dataset_id=1", "status --counter file", "status --counter Directory",
			"verify --scope dataset_id", "verify --scope dataset=1", "verify --scope dataset_id=one", "verify --scope dataset_id=99999999999999999999",
			"verify --scope status=New", "verify --scope dataset_id=1 --scope status=new", "verify --scope dataset_id=1 --scope status=Gone",
			"verify --scope dataset_id=1 --scope dataset_id=2", "read --by size", "read --by status --total", "top --measure size", "read --limit -1",
			"fold --batch 0", "watch --interval 1ms", "watch --count -1", "verify --limit -1")
		golden(t, "session.txt", steady(s.transcript.String()))
	})
}

// Help is printed without a look at the counters.
func TestHelp(t *testing.T) {
	s := &shell{T: t}
	root := Command(nil)
	s.do("--help")
	for _, cmd := range root.Commands() {
		s.do(cmd.Name() + " --help")
	}
	golden(t, "help.txt", s.transcript.String())
}

// Each example of the help names commands and flags that exist.
func TestExamples(t *testing.T) {
	root := Command(nil)
	for _, cmd := range root.Commands() {
		if cmd.Example == "" || cmd.Short == "" || cmd.Long == "" && cmd.Name() != "resume" {
			t.Errorf("%s lacks a description or an example", cmd.Name())
		}
		for line := range strings.Lines(cmd.Example) {
			words := strings.Fields(line)
			for i, word := range words {
				if word == "|" || word == "||" || word == ">>" {
					words = words[:i]
					break
				}
			}
			if words[0] != "counters" {
				t.Errorf("%q", line)
				continue
			}
			found, flags, err := root.Find(words[1:])
			if err == nil {
				err = found.ParseFlags(flags)
			}
			if err != nil || found.Name() != cmd.Name() {
				t.Errorf("%q: %v", line, err)
			}
		}
	}
}

// A counter that another declaration has built is taken over only when told so.
func TestBuild(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		ctx := t.Context()
		client := newClient(t, db)
		if r := run(ctx, client.Counters(), "", "build"); r != (result{"", "all counters are built\n", ExitOK}) {
			t.Error(r)
		}
		if _, err := client.ExecContext(ctx, "UPDATE counter_locks SET declaration = 'another' WHERE operation = 'rebuilt'"); err != nil {
			t.Fatal(err)
		}
		// Another process, which does not know yet that the counter is built.
		counters := func() []*entcounter.Handle {
			return ent.NewClient(ent.Driver(entsql.OpenDB(db.Dialect, db.DB(t)))).Counters()
		}
		check := func(args string, answer string, code int, want ...string) {
			t.Helper()
			r := run(ctx, counters(), answer, strings.Fields(args)...)
			if r.code != code {
				t.Errorf("%s: exit code %d, want %d\n%s%s", args, r.code, code, r.stdout, r.stderr)
			}
			for _, text := range want {
				if !strings.Contains(r.stdout+r.stderr, text) {
					t.Errorf("%s does not say %q:\n%s%s", args, text, r.stdout, r.stderr)
				}
			}
		}
		check("status", "", ExitNotReady, "redeclared", "build --counter File")
		check("read", "", ExitError, "another declaration")
		check("build", "", ExitUsage, "cannot read the counter any more", "--yes")
		check("rebuild", "", ExitUsage, "--yes")
		onTerminal(t)
		check("build", "no\n", ExitError, "[y/N]", "nothing was done")
		check("build", "", ExitError, "nothing was done")
		check("status", "", ExitNotReady, "redeclared")
		check("build", "y\n", ExitOK, "keys corrected")
		check("status", "", ExitOK, "ok")
		check("read", "", ExitOK, "3,000")
	})
}

// onTerminal makes all streams terminals until the test ends.
func onTerminal(t *testing.T) {
	was := isTerminal
	isTerminal = func(any) bool { return true }
	t.Cleanup(func() { isTerminal = was })
}

// On a terminal, work shows how far it is and takes that away; elsewhere it shows nothing.
func TestProgress(t *testing.T) {
	client := newClient(t, testdb.New(t, testdb.SQLite))
	ctx := t.Context()
	for _, command := range []string{"fold", "verify", "rebuild"} {
		if r := run(ctx, client.Counters(), "", command); strings.ContainsAny(r.stdout+r.stderr, "\r\x1b") {
			t.Errorf("%s: %#v", command, r)
		}
	}
	client.File.Update().SetStatus(file.StatusNew).ExecX(ctx)
	onTerminal(t)
	for command, want := range map[string]string{"fold": "folding File", "verify": "verifying File", "rebuild": "rebuilding File"} {
		r := run(ctx, client.Counters(), "", command)
		if r.code != ExitOK || !strings.Contains(r.stderr, want) || !strings.Contains(r.stderr, "\r") {
			t.Errorf("%s: %#v", command, r)
		}
		if strings.ContainsAny(r.stdout, "\r\x1b") {
			t.Errorf("%s mixes progress with its output: %q", command, r.stdout)
		}
	}
	if r := run(ctx, client.Counters(), "", "fold", "--batch", "1"); r.code != ExitOK {
		t.Error(r)
	}
}

// A watch shows what happens between its samples.
func TestWatch(t *testing.T) {
	client := newClient(t, testdb.New(t, testdb.SQLite))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	cmd := Command(func(context.Context) ([]*entcounter.Handle, error) { return client.Counters(), nil })
	cmd.SetOut(w)
	cmd.SetErr(t.Output())
	cmd.SetArgs([]string{"watch", "--json", "--interval", "100ms"})
	code := make(chan int, 1)
	go func() {
		code <- Execute(ctx, cmd)
		_ = w.Close()
	}()
	type sample struct {
		At       time.Time
		Counters []struct {
			Counter     string
			Journal     int64   `json:"journal_rows"`
			Journalled  float64 `json:"journalled_rows_per_second"`
			FoldedSince float64 `json:"folded_rows_per_second"`
		}
	}
	decoder := json.NewDecoder(r)
	next := func() (s sample) {
		t.Helper()
		if err := decoder.Decode(&s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	until := func(what string, holds func(sample) bool) {
		t.Helper()
		for range 50 {
			if holds(next()) {
				return
			}
		}
		t.Errorf("not seen: %s", what)
	}
	until("the journal", func(s sample) bool { return s.Counters[0].Counter == "File" && s.Counters[0].Journal == 4 })
	client.File.Update().SetStatus(file.StatusFailed).ExecX(ctx)
	until("new rows", func(s sample) bool { return s.Counters[0].Journal > 4 && s.Counters[0].Journalled > 0 })
	if _, err := client.FileCounters.Fold(ctx); err != nil {
		t.Fatal(err)
	}
	until("the fold", func(s sample) bool { return s.Counters[0].Journal == 0 && s.Counters[0].FoldedSince > 0 })
	cancel()
	go func() { _, _ = io.Copy(io.Discard, r) }()
	if got := <-code; got != ExitOK {
		t.Errorf("exit code %d", got)
	}

	// On a terminal it redraws in place, and leaves the screen as it was.
	if r := run(t.Context(), client.Counters(), "", "watch", "--count", "2", "--interval", "100ms"); strings.Contains(r.stdout, "\x1b") || strings.Count(r.stdout, "COUNTER") != 2 {
		t.Errorf("%#v", r)
	}
	onTerminal(t)
	got := run(t.Context(), client.Counters(), "", "watch", "--count", "2", "--interval", "100ms").stdout
	if !strings.HasPrefix(got, enterScreen+home) || !strings.HasSuffix(got, leaveScreen) || strings.Count(got, home) != 2 {
		t.Errorf("%q", got)
	}
}

// An interrupted command says so by its exit code.
func TestInterrupt(t *testing.T) {
	client := newClient(t, testdb.New(t, testdb.SQLite))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, command := range []string{"status", "verify", "rebuild", "fold"} {
		if r := run(ctx, client.Counters(), "", command); r.code != ExitInterrupted || !strings.Contains(r.stderr, "interrupted") {
			t.Errorf("%s: %#v", command, r)
		}
	}
}
