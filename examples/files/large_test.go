//go:build unix

package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/entcounter/entcounter/internal/testdb"
)

var large = flag.Int("large", 2000, "number of files of TestLarge")

// maxMemory of a run, whatever the number of files.
const maxMemory = 150 << 20

// A large tree takes time and no memory. With -large 200000 this is the measurement of it:
//
//	go test ./examples/files -run TestLarge -v -large 200000
func TestLarge(t *testing.T) {
	root := t.TempDir()
	for i := range *large {
		folder := "one large folder" // has a quarter of all
		if i%4 > 0 {
			folder = fmt.Sprintf("%02d/%d", i/10%100, i/60)
		}
		path := filepath.Join(root, folder, fmt.Sprintf("file %d", i))
		f, err := os.Create(path)
		if os.IsNotExist(err) {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			f, err = os.Create(path)
		}
		if err == nil {
			err = f.Truncate(int64(i % 5 * 1_000_000)) // takes no room
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	db := testdb.New(t, testdb.SQLite)
	a := newApp(t, db, root)
	measure := func(name string) {
		started := time.Now()
		cmd, out := process(t, "-dsn", db.DSN, "-dir", root)
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		memory := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
		if runtime.GOOS == "linux" {
			memory <<= 10
		}
		t.Logf("%s: %d files, %.1f s, %d MiB at most", name, *large, time.Since(started).Seconds(), memory>>20)
		for line := range strings.Lines(out.String()) {
			if prefix, _, _ := strings.Cut(line, " "); strings.Contains("catalogue transfer journal exact", prefix) && !strings.Contains(line, "New") {
				t.Log(strings.TrimSpace(line))
			}
		}
		if memory > maxMemory {
			t.Errorf("%s: %d MiB of memory, more than %d", name, memory>>20, maxMemory>>20)
		}
		mustBeExact(t, a)
	}
	if _, err := build(); err != nil {
		t.Fatal(err)
	}
	measure("first run")
	measure("second run")
	if err := os.RemoveAll(filepath.Join(root, "one large folder")); err != nil {
		t.Fatal(err)
	}
	measure("after the largest folder is gone")
	if n := a.client.File.Query().CountX(t.Context()); n != *large-(*large+3)/4 {
		t.Errorf("%d rows", n)
	}
}
