package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/ent/filecounters"
)

// console writes messages, and a line of progress that is refreshed on a terminal.
type console struct {
	w        io.Writer
	terminal bool

	mu   sync.Mutex
	line string
}

func newConsole(w io.Writer) *console {
	c := &console{w: w}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		c.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	}
	return c
}

const clearLine = "\r\x1b[K"

// printf writes a message on a line of its own.
func (c *console) printf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.line != "" {
		_, _ = io.WriteString(c.w, clearLine)
	}
	_, _ = fmt.Fprintf(c.w, "%s\n%s", strings.TrimSuffix(fmt.Sprintf(format, args...), "\n"), c.line)
}

// progress replaces the line of progress. An empty one removes it.
func (c *console) progress(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.terminal:
		if len(line) > 79 {
			line = line[:79]
		}
		_, _ = io.WriteString(c.w, clearLine+line)
		c.line = line
	case line != "":
		_, _ = fmt.Fprintln(c.w, line)
	}
}

// watch shows progress, as the counters tell it, until the returned function is called.
func (a *app) watch(ctx context.Context, step string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer a.console.progress("")
		interval := 250 * time.Millisecond
		if !a.console.terminal {
			interval = 2 * time.Second
		}
		for pause := interval; ; {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
			started := time.Now()
			if line, err := a.state(ctx); err == nil { // else the work itself reports it
				a.console.progress(step + "  " + line)
			}
			pause = max(interval, 20*time.Since(started)) // the sum over a large catalogue takes time
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// state sums the counters of all datasets for each status.
func (a *app) state(ctx context.Context) (string, error) {
	var sums []struct {
		Status  file.Status `sql:"status"`
		Count   int64       `sql:"count"`
		Pending int64       `sql:"pending"`
	}
	err := a.client.FileCounters.Query().
		GroupBy(filecounters.FieldStatus).
		Aggregate(
			ent.As(ent.Sum(filecounters.FieldCount), filecounters.FieldCount),
			ent.As(ent.Sum(filecounters.FieldPending), filecounters.FieldPending),
		).
		Scan(ctx, &sums)
	if err != nil {
		return "", err
	}
	var pending int64
	count := make(map[file.Status]int64)
	for _, s := range sums {
		count[s.Status] = s.Count
		pending += s.Pending
	}
	var b strings.Builder
	for _, s := range statuses {
		fmt.Fprintf(&b, "%s %s  ", s, comma(count[s]))
	}
	fmt.Fprintf(&b, "(journal %s)", comma(pending))
	return b.String(), nil
}

// maxSkipped is how many skipped or failed files and folders are named.
const maxSkipped = 20

// skip reports a file or folder that cannot be read.
func (a *app) skip(path string, err error) {
	a.complain(a.done.skipped.Add(1), "skipped", path, err)
}

func (a *app) complain(n int64, what, path string, err error) {
	if n <= maxSkipped {
		a.console.printf("%s %s: %s", what, encode(path, 4096), encode(cause(err).Error(), 4096))
	}
	if n == maxSkipped {
		a.console.printf("%s files are no longer named from here on", what)
	}
}

// cause takes the path away from an error of package os.
func cause(err error) error {
	for {
		switch e := err.(type) {
		case unreadableError:
			err = e.error
		case *os.PathError:
			return e.Err
		default:
			return err
		}
	}
}

// warnings shows what the worker warns of.
type warnings struct{ *console }

func (warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (w warnings) WithAttrs([]slog.Attr) slog.Handler             { return w }
func (w warnings) WithGroup(string) slog.Handler                  { return w }

func (w warnings) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	r.Attrs(func(attr slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", attr.Key, attr.Value)
		return true
	})
	w.printf("%s", b.String())
	return nil
}

// comma writes a number with separators.
func comma(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// fit shortens a name to a number of characters, at its beginning, and replaces what is not
// printable.
func fit(s string, width int) string {
	r := []rune(s)
	for i, c := range r {
		if !unicode.IsPrint(c) {
			r[i] = '?'
		}
	}
	if len(r) > width {
		r = append([]rune{'…'}, r[len(r)-width+1:]...)
	}
	return string(r)
}
