package entcounter

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// barWidth is how many characters of a line the bar itself has.
const barWidth = 30

// ProgressBar returns a [ProgressFunc] that shows how far builds have come: on a
// terminal one line for each counter, which is written over, elsewhere a line for
// every tenth. Errors of the writer are ignored.
func ProgressBar(w io.Writer) ProgressFunc {
	terminal := false
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return newBar(w, terminal, time.Now).show
}

// bar shows builds one after the other.
type bar struct {
	w        io.Writer
	terminal bool
	now      func() time.Time

	counter string
	started time.Time
	first   float64 // what was done when it started
	tenth   int     // that was shown last
}

func newBar(w io.Writer, terminal bool, now func() time.Time) *bar {
	return &bar{w: w, terminal: terminal, now: now}
}

func (b *bar) show(p BuildProgress) {
	part := p.part()
	if b.counter != p.Counter {
		b.counter, b.started, b.first, b.tenth = p.Counter, b.now(), part, -1
	}
	tenth := int(part * 10)
	if !b.terminal && tenth == b.tenth {
		return
	}
	b.tenth = tenth
	filled := int(part * barWidth)
	line := fmt.Sprintf("%s [%s%s] %3d%%  %d of %d scopes", p.Counter,
		strings.Repeat("#", filled), strings.Repeat(".", barWidth-filled), int(part*100), p.Done, p.Scopes)
	if p.Rows > 0 {
		line += fmt.Sprintf(", %d of about %d rows", p.DoneRows, p.Rows)
	}
	line += fmt.Sprintf(", %d keys corrected", p.Keys)
	if left := b.left(part); left != "" {
		line += ", " + left + " left"
	}
	switch {
	case !b.terminal:
		line += "\n"
	case p.Done < p.Scopes:
		line = "\r" + line + "\x1b[K"
	default:
		line = "\r" + line + "\x1b[K\n"
	}
	_, _ = io.WriteString(b.w, line)
}

// left tells how long the rest takes if it goes on as it did so far.
func (b *bar) left(part float64) string {
	elapsed := b.now().Sub(b.started)
	if part <= b.first || part >= 1 || elapsed < time.Second {
		return ""
	}
	left := time.Duration(float64(elapsed) * (1 - part) / (part - b.first))
	return left.Round(time.Second).String()
}

// part tells which part of the build is done, from 0 to 1.
func (p BuildProgress) part() float64 {
	switch {
	case p.Done >= p.Scopes:
		return 1
	case p.Rows > 0:
		return min(max(float64(p.DoneRows)/float64(p.Rows), 0), 0.99)
	}
	return float64(p.Done) / float64(p.Scopes)
}
