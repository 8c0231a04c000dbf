package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/ent/filecounters"
	"github.com/entcounter/entcounter/examples/internal/console"
	"github.com/entcounter/entcounter/examples/internal/database"
	"github.com/entcounter/entcounter/internal/testdb"
)

var seed = flag.Uint64("seed", 0, "seed of the random tests; 0 means a new one")

func random(t *testing.T) *rand.Rand {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed %d", s)
	return rand.New(rand.NewPCG(s, s))
}

// newApp returns a run on a database, whose output goes to the test's log when it fails.
func newApp(t *testing.T, db *testdb.Database, root string) *app {
	t.Helper()
	src, err := database.Parse(db.DSN, "files")
	if err != nil {
		t.Fatal(err)
	}
	client, _, err := open(t.Context(), src, 4+spareConnections)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	root, err = rootOf(root)
	if err != nil {
		t.Fatal(err)
	}
	return &app{
		options: options{workers: 4, batch: 7, read: 10},
		root:    root,
		disk:    osDisk{},
		client:  client,
		console: console.New(t.Output()),
	}
}

// again returns a further run on the same database and tree.
func again(a *app) *app {
	return &app{options: a.options, root: a.root, disk: a.disk, client: a.client, console: a.console}
}

// mustRun runs to the end.
func mustRun(t *testing.T, a *app) string {
	t.Helper()
	var out bytes.Buffer
	if code := a.run(t.Context(), &out); code != exitOK {
		t.Fatalf("exit code %d\n%s", code, &out)
	}
	return out.String()
}

func write(t *testing.T, path string, size int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, size), 0o644); err != nil {
		t.Fatal(err)
	}
}

// oddNames are those that a file system takes and a database may not.
var oddNames = []string{
	" leading", "trailing ", "trailing  ", "new\nline", "tab\t", "bell\a", "\x1b[31mred\x1b[0m",
	`back\slash`, `\xff`, "\xff", "\xff\xfe\xfd", "latin1-\xe9", "half-\xe4\xb8",
	"quote'", `double"quote`, "back`tick", "per%cent", "under_score", "$1", "?", "*", "-rf", "#", ";",
	"CASE", "case", "é", "e\u0301", "世界", "🙂", "\u202eevil", "\u0085", "\ufffd", "\ufeffbom",
	strings.Repeat("x", 255), strings.Repeat("\xfe", 255), strings.Repeat("\n", 254) + "a", strings.Repeat("\n", 254) + "b",
	strings.Repeat("🙂", 63),
}

// tree makes a tree of files in which names, sizes and depths differ, and returns its root.
func tree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, "at the root"), 1)
	for i, name := range oddNames {
		path := filepath.Join(root, "odd", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, i), 0o644); err != nil {
			t.Logf("%q: %v", name, err) // not a name that this file system takes
			continue
		}
		write(t, filepath.Join(root, "odd folders", name, "file"), 100+i)
	}
	deep := filepath.Join(root, "deep")
	for i := range 14 {
		deep = filepath.Join(deep, strings.Repeat("d", 40)+fmt.Sprint(i))
		write(t, filepath.Join(deep, "file"), i)
	}
	for i := range 100 {
		write(t, filepath.Join(root, "large", fmt.Sprintf("%03d", i)), i)
	}
	if err := os.MkdirAll(filepath.Join(root, "empty", "empty too"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"link to file": "at the root", "link to folder": "large", "loop": ".", "dangling": "nowhere",
	} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Log(err)
		}
	}
	return root
}

// onDisk returns the size of each regular file, by the names that the database should have.
func onDisk(t *testing.T, root string) map[string]int64 {
	t.Helper()
	sizes := make(map[string]int64)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			sizes[encode(path, maxDataset)+"//"] = 0
		}
		if d.Type().IsRegular() {
			info, err := d.Info()
			if err != nil {
				return err
			}
			sizes[encode(filepath.Dir(path), maxDataset)+"//"+encode(d.Name(), maxPath)] = info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sizes
}

// inDatabase returns the same of the rows, and the number of files in each status.
func inDatabase(t *testing.T, client *ent.Client) (map[string]int64, map[file.Status]int) {
	t.Helper()
	sizes := make(map[string]int64)
	status := make(map[file.Status]int)
	for _, d := range client.Dataset.Query().WithFiles().AllX(t.Context()) {
		sizes[d.Name+"//"] = 0
		for _, f := range d.Edges.Files {
			sizes[d.Name+"//"+f.Path] = f.Size
			status[f.Status]++
		}
	}
	return sizes, status
}

// mustAgree compares rows with files, and counters with rows.
func mustAgree(t *testing.T, a *app) map[file.Status]int {
	t.Helper()
	want := onDisk(t, a.root)
	got, status := inDatabase(t, a.client)
	if !maps.Equal(got, want) {
		for name, size := range want {
			if s, ok := got[name]; !ok || s != size {
				t.Errorf("%q: size %d in the database (%v), %d on disk", name, s, ok, size)
			}
		}
		for name := range got {
			if _, ok := want[name]; !ok {
				t.Errorf("%q is in the database only", name)
			}
		}
	}
	mustBeExact(t, a)
	return status
}

func mustBeExact(t *testing.T, a *app) {
	t.Helper()
	for drift, err := range a.client.FileCounters.Verify(t.Context(), filecounters.Scope{}) {
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("drift: %+v", drift)
	}
}

func TestCatalogueAndTransfer(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		root := tree(t)
		a := newApp(t, db, root)
		files := int64(0)
		for name := range onDisk(t, a.root) {
			if !strings.HasSuffix(name, "//") {
				files++
			}
		}

		out := mustRun(t, a)
		status := mustAgree(t, a)
		if got := a.done.copied.Load(); got != files || int64(status[file.StatusCopied]) != files {
			t.Errorf("%d copied, rows: %v, want all %d", got, status, files)
		}
		if !strings.Contains(out, "every count and every sum is right") {
			t.Errorf("the report does not say that it is exact:\n%s", out)
		}

		// The same again changes nothing.
		before, err := a.client.FileCounters.Backlog(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b := again(a)
		mustRun(t, b)
		mustAgree(t, b)
		if n := b.done.created.Load() + b.done.changed.Load() + b.done.gone.Load() + b.done.copied.Load(); n != 0 {
			t.Errorf("a second run changed %d rows", n)
		}
		after, err := b.client.FileCounters.Backlog(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if b.done.folded.Load()+after.Rows > before.Rows {
			t.Errorf("a second run wrote journal rows: %d before, %d folded, %d after", before.Rows, b.done.folded.Load(), after.Rows)
		}

		// The tree changes.
		write(t, filepath.Join(root, "large", "007"), 7000)
		write(t, filepath.Join(root, "large", "new"), 1)
		write(t, filepath.Join(root, "new folder", "new"), 2)
		for _, path := range []string{"large/010", "large/099", "odd/new\nline", "odd/" + strings.Repeat("\xfe", 255), "at the root"} {
			if err := os.Remove(filepath.Join(root, path)); err != nil {
				t.Fatal(err)
			}
		}
		for _, path := range []string{"odd folders/\xff", "empty", "deep/" + strings.Repeat("d", 40) + "0"} {
			if err := os.RemoveAll(filepath.Join(root, path)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Rename(filepath.Join(root, "odd folders", "CASE"), filepath.Join(root, "moved")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../moved", filepath.Join(root, "odd folders", "CASE")); err != nil {
			t.Fatal(err)
		}
		c := again(a)
		mustRun(t, c)
		status = mustAgree(t, c)
		if len(status) != 1 || c.done.copied.Load() != 4 || c.done.changed.Load() != 1 || c.done.created.Load() != 3 {
			t.Errorf("%v, %d copied, %d changed, %d created", status, c.done.copied.Load(), c.done.changed.Load(), c.done.created.Load())
		}
	})
}

// faultyDisk fails where it is told to. Permissions do not: root may read everything.
type faultyDisk struct {
	disk
	mu   sync.Mutex
	open map[string]error // by base name
	read map[string]error
}

func (d *faultyDisk) Open(path string) (fs.ReadDirFile, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	base := filepath.Base(path)
	if err := d.open[base]; err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f, err := d.disk.Open(path)
	if err == nil && d.read[base] != nil {
		f = faultyFile{f, &fs.PathError{Op: "read", Path: path, Err: d.read[base]}}
	}
	return f, err
}

type faultyFile struct {
	fs.ReadDirFile
	err error
}

func (f faultyFile) Read([]byte) (int, error) { return 0, f.err }

// ReadDir fails after some entries.
func (f faultyFile) ReadDir(n int) ([]fs.DirEntry, error) {
	entries, err := f.ReadDirFile.ReadDir(min(n, 5))
	if err != nil {
		return entries, err
	}
	return entries, f.err
}

func TestUnreadable(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		root := tree(t)
		var log bytes.Buffer
		a := newApp(t, db, root)
		a.console = console.New(&log)
		faulty := &faultyDisk{
			disk: osDisk{},
			open: map[string]error{"odd folders": fs.ErrPermission, "042": fs.ErrPermission},
			read: map[string]error{"odd": errors.New("input/output error"), "at the root": errors.New("input/output error")},
		}
		a.disk = faulty
		out := mustRun(t, a)
		if got := a.done.failed.Load(); got != 2 {
			t.Errorf("%d failed, want 2", got)
		}
		if got := a.done.skipped.Load(); got != 2 {
			t.Errorf("%d skipped, want 2", got)
		}
		for _, want := range []string{
			"odd folders: permission denied", "042: permission denied", "odd: input/output error", "at the root: input/output error",
		} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("no message %q in:\n%s", want, &log)
			}
		}
		if !strings.Contains(out, "2 skipped") || !strings.Contains(out, "2 failed") {
			t.Errorf("the report does not tell them:\n%s", out)
		}
		mustBeExact(t, a)

		// What can be read again is made good.
		b := again(a)
		b.disk = osDisk{}
		mustRun(t, b)
		if status := mustAgree(t, b); len(status) != 1 {
			t.Errorf("status: %v", status)
		}

		// What cannot be read any more is not taken for gone.
		rows := b.client.File.Query().CountX(t.Context())
		c := again(a)
		mustRun(t, c)
		if got := c.client.File.Query().CountX(t.Context()); got != rows {
			t.Errorf("%d rows after folders became unreadable, %d before", got, rows)
		}
	})
}

// A file that changes between catalogue and copy fails, and the next run gets it right.
func TestChangedMeanwhile(t *testing.T) {
	root := tree(t)
	a := newApp(t, testdb.New(t, testdb.SQLite), root)
	if err := a.catalogue(t.Context()); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "large", "001"), 1000)
	for _, path := range []string{"large/002", "large/003"} {
		if err := os.Remove(filepath.Join(root, path)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "large", "003"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := a.transfer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := a.done.failed.Load(); got != 3 {
		t.Errorf("%d failed, want 3", got)
	}
	mustBeExact(t, a)
	b := again(a)
	mustRun(t, b)
	if status := mustAgree(t, b); len(status) != 1 {
		t.Errorf("status: %v", status)
	}
}

// interruptingDisk ends a run some time after a number of operations.
type interruptingDisk struct {
	disk
	left  atomic.Int64
	after time.Duration
	end   func()
}

func (d *interruptingDisk) Open(path string) (fs.ReadDirFile, error) {
	if d.left.Add(-1) == 0 {
		time.AfterFunc(d.after, d.end)
	}
	return d.disk.Open(path)
}

// Wherever a run is interrupted, counts are exact, and a further run goes on.
func TestInterrupt(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		const rounds = 10
		rnd := random(t)
		a := newApp(t, db, tree(t))
		counting := &interruptingDisk{disk: osDisk{}}
		a.disk = counting
		mustRun(t, a)
		whole := -counting.left.Load()

		interrupted, left := 0, make(map[file.Status]int)
		for i := range rounds {
			if i == 0 || rnd.IntN(2) == 0 {
				a.client.Dataset.Delete().ExecX(t.Context())
				mustBeExact(t, a)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ending := &interruptingDisk{disk: osDisk{}, after: time.Duration(rnd.IntN(5000)) * time.Microsecond, end: cancel}
			ending.left.Store(1 + rnd.Int64N(whole))
			b := again(a)
			b.disk = ending
			var out bytes.Buffer
			code := b.run(ctx, &out)
			cancel()
			switch code {
			case exitOK: // there was less left to do
			case exitInterrupted:
				interrupted++
				if !strings.Contains(out.String(), "every count and every sum is right") {
					t.Errorf("an interrupted run does not say that it is exact:\n%s", &out)
				}
			default:
				t.Fatalf("exit code %d\n%s", code, &out)
			}
			mustBeExact(t, a)
			_, status := inDatabase(t, a.client)
			for s, n := range status {
				left[s] += n
			}
		}
		t.Logf("%d of %d runs were interrupted; files they left: %v", interrupted, rounds, left)
		if interrupted == 0 {
			t.Error("no run was interrupted")
		}
		mustRun(t, again(a))
		if status := mustAgree(t, a); len(status) != 1 {
			t.Errorf("status: %v", status)
		}
	})
}

// The program notices when a number is wrong.
func TestWrongNumber(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		a := newApp(t, db, tree(t))
		a.batch = 500
		mustRun(t, a)
		for { // make sure of a row to change
			folded, err := a.client.FileCounters.Fold(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if folded.Rows == 0 {
				break
			}
		}
		sql := db.DB(t)
		for _, test := range []struct{ change, mend string }{
			{"bytes = bytes + 1", "bytes = bytes - 1"},
			{"count = count - 1", "count = count + 1"},
		} {
			for i, set := range []string{test.change, test.mend} {
				// One key of a small dataset, which the report does not show.
				id := a.client.File.Query().Order(file.BySize()).FirstX(t.Context()).DatasetID
				query := fmt.Sprintf("UPDATE file_counters SET %s WHERE dataset_id = %d AND status = 'Copied'", set, id)
				if _, err := sql.Exec(query); err != nil {
					t.Fatalf("%s: %v", query, err)
				}
				var out bytes.Buffer
				code := again(a).run(t.Context(), &out)
				if want := []int{exitFailed, exitOK}[i]; code != want {
					t.Errorf("after %q: exit code %d, want %d\n%s", set, code, want, &out)
				}
				if i == 0 && !strings.Contains(out.String(), "WRONG      1 of") {
					t.Errorf("the report does not tell what is wrong:\n%s", &out)
				}
			}
		}
	})
}

// Tables of somebody else are left alone.
func TestForeignTables(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		if _, err := db.DB(t).Exec("CREATE TABLE files (id INTEGER PRIMARY KEY, path VARCHAR(100))"); err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		if code := run(t.Context(), []string{"-dsn", db.DSN, "-dir", t.TempDir()}, io.Discard, &stderr); code != exitFailed {
			t.Errorf("exit code %d", code)
		}
		if !strings.Contains(stderr.String(), `there is a table "files" that is not this program's`) {
			t.Errorf("message: %s", &stderr)
		}
		if _, err := db.DB(t).Exec("SELECT size FROM files"); err == nil {
			t.Error("the table was changed")
		}
	})
}

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args string
		want string
	}{
		{"-workers 0", "-workers is not between"},
		{"-batch 9000", "-batch is not between"},
		{"-read -1", "-read is negative"},
		{"stray", `unexpected argument "stray"`},
		{"-dir /nowhere/at/all", "no such file or directory"},
		{"-dir /dev/null", "is not a directory"},
		{"-dsn nonsense", "cannot tell what database it means"},
		{"-nonsense", "flag provided but not defined"},
	} {
		var stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(test.args), io.Discard, &stderr); code != exitUsage {
			t.Errorf("%s: exit code %d", test.args, code)
		}
		if !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%s: %q is not in:\n%s", test.args, test.want, &stderr)
		}
	}
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"-dsn", "mysql://u:secret@127.0.0.1:1/x"}, io.Discard, &stderr); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	if msg := stderr.String(); !strings.Contains(msg, "connecting to mysql tcp(127.0.0.1:1)/x") || strings.Contains(msg, "secret") {
		t.Errorf("message: %s", msg)
	}
}
