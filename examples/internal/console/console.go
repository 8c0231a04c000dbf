// Package console is how the examples talk to whoever runs them.
package console

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
)

// Console writes messages, and a line of progress that is refreshed on a terminal.
type Console struct {
	w        io.Writer
	terminal bool

	mu   sync.Mutex
	line string
}

// New returns a console on a writer.
func New(w io.Writer) *Console {
	c := &Console{w: w}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		c.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	}
	return c
}

const clearLine = "\r\x1b[K"

// Printf writes a message on a line of its own.
func (c *Console) Printf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.line != "" {
		_, _ = io.WriteString(c.w, clearLine)
	}
	_, _ = fmt.Fprintf(c.w, "%s\n%s", strings.TrimSuffix(fmt.Sprintf(format, args...), "\n"), c.line)
}

// Progress replaces the line of progress. An empty one removes it.
func (c *Console) Progress(line string) {
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

// Watch shows progress, as state tells it, until the returned function is called. An error of state is not shown: the
// work itself reports it.
func (c *Console) Watch(ctx context.Context, step string, state func(context.Context) (string, error)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer c.Progress("")
		interval := 250 * time.Millisecond
		if !c.terminal {
			interval = 2 * time.Second
		}
		for pause := interval; ; {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
			started := time.Now()
			if line, err := state(ctx); err == nil {
				c.Progress(step + "  " + line)
			}
			pause = max(interval, 20*time.Since(started)) // the sum over a large database takes time
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// Logger shows what a worker warns of.
func (c *Console) Logger() *slog.Logger { return slog.New(warnings{c}) }

type warnings struct{ *Console }

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
	w.Printf("%s", b.String())
	return nil
}

// Comma writes a number with separators.
func Comma(n int64) string {
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

// Fit shortens a name to a number of characters, at its beginning, and replaces what is not
// printable.
func Fit(s string, width int) string {
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
