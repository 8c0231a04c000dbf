package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/entcounter/entcounter/entcounter/countercli"
	"github.com/entcounter/entcounter/internal/testdb"
)

// Something goes past ent, is found by the command line, and heals.
func TestCounters(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		a := newApp(t, db, tree(t))
		mustRun(t, a)
		counters := func(code int, want string, args ...string) {
			t.Helper()
			var out bytes.Buffer
			got := run(t.Context(), append([]string{"-dsn", db.DSN, "counters"}, args...), &out, &out)
			if got != code || !strings.Contains(out.String(), want) {
				t.Errorf("%q: exit code %d, want %d and %q\n%s", args, got, code, want, &out)
			}
		}
		counters(countercli.ExitOK, "File", "status")
		counters(countercli.ExitOK, "File is exact", "verify")
		if _, err := a.client.ExecContext(t.Context(), "UPDATE files SET status = 'New' WHERE path = '000'"); err != nil {
			t.Fatal(err)
		}
		counters(countercli.ExitDrift, "2 keys differ", "verify")
		counters(countercli.ExitOK, "2 keys corrected", "rebuild")
		counters(countercli.ExitOK, "File is exact", "verify")
		counters(countercli.ExitOK, "New", "read", "--by", "status")
		counters(countercli.ExitUsage, "do you mean verify?", "vrify")
		counters(countercli.ExitOK, "delete-scope", "--help")
	})
}

// The console is there while the program runs, and until it is interrupted.
func TestConsole(t *testing.T) {
	db := testdb.New(t, testdb.SQLite)
	root := tree(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out, w := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"-dsn", db.DSN, "-dir", root, "-console", "127.0.0.1:0"}, w, t.Output())
		_ = w.Close()
	}()
	said := make(chan string, 1)
	go func() {
		text := ""
		buf := make([]byte, 4096)
		for {
			n, err := out.Read(buf)
			text += string(buf[:n])
			if err != nil || strings.Contains(text, "until interrupted") {
				said <- text
				_, _ = io.Copy(io.Discard, out)
				return
			}
		}
	}()
	select {
	case text := <-said:
		m := regexp.MustCompile(`console +(http://127\.0\.0\.1:\d+/) until interrupted`).FindStringSubmatch(text)
		if m == nil || !strings.Contains(text, "every count and every sum is right") {
			t.Fatal(text)
		}
		res, err := http.Get(m[1])
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		page, _ := io.ReadAll(res.Body)
		if res.StatusCode != http.StatusOK || !strings.Contains(string(page), "<title>Files</title>") {
			t.Errorf("%s\n%s", res.Status, page)
		}
	case <-time.After(time.Minute):
		t.Fatal("the program does not come to its end")
	}
	interrupt()
	if got := <-code; got != exitOK {
		t.Errorf("exit code %d", got)
	}
	for _, address := range []string{"8080", ":8080", "0.0.0.0:8080", "example.org:80"} {
		var err bytes.Buffer
		if got := run(t.Context(), []string{"-console", address}, io.Discard, &err); got != exitUsage || !strings.Contains(err.String(), "127.0.0.1:8080") {
			t.Errorf("%s: %d\n%s", address, got, &err)
		}
	}
}
