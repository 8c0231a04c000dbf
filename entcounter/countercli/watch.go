package countercli

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/entcounter/entcounter/entcounter"
	"github.com/rivo/uniseg"
	"github.com/spf13/cobra"
)

// sparkWidth is how many samples of a journal's depth watch draws.
const sparkWidth = 20

func (a *app) watch() *cobra.Command {
	var (
		interval = 2 * time.Second
		count    int
	)
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Show how the counters do, again and again",
		Long: `Show how the counters do, again and again until it is interrupted: the depth of each journal now and over the
last samples, the age of its oldest row, and how many rows a second were journalled and folded since the sample
before. On a terminal the table stays in its place.`,
		Example: `  counters watch
  counters watch --interval 10s --json >> counters.log`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < 100*time.Millisecond {
				return usage("--interval is %s: give 100ms or more", interval)
			}
			if count < 0 {
				return usage("--count is %d: give a number of samples, or 0 for no end", count)
			}
			selected, err := a.selected(cmd.Context())
			if err != nil {
				return err
			}
			w := &watcher{app: a, cmd: cmd, terminal: !a.json && isTerminal(cmd.OutOrStdout()), last: make(map[string]sample)}
			return w.run(selected, interval, count)
		},
	}
	cmd.Flags().DurationVar(&interval, "interval", interval, "time between samples")
	cmd.Flags().IntVar(&count, "count", 0, "number of `samples` to end after; 0 for no end")
	return cmd
}

// watcher shows samples.
type watcher struct {
	app      *app
	cmd      *cobra.Command
	terminal bool
	last     map[string]sample
}

// sample is what was seen of a counter.
type sample struct {
	at     time.Time
	health entcounter.Health
	depths []int64 // the last ones, this one included
}

// rates returns how many rows a second were journalled and folded since another sample.
func (s sample) rates(before sample) (journalled, folded float64) {
	seconds := s.at.Sub(before.at).Seconds()
	if before.at.IsZero() || seconds <= 0 {
		return 0, 0
	}
	moved := s.health.Folded - before.health.Folded
	return max(float64(moved+s.health.Journal-before.health.Journal)/seconds, 0), float64(moved) / seconds
}

// Control sequences of terminals.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearToEnd  = "\x1b[J"
	clearToEOL  = "\x1b[K"
)

func (w *watcher) run(counters []*entcounter.Handle, interval time.Duration, count int) error {
	out, ctx := w.cmd.OutOrStdout(), w.cmd.Context()
	if w.terminal {
		fmt.Fprint(out, enterScreen)
		defer fmt.Fprint(out, leaveScreen)
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for n := 1; ; n++ {
		healths, err := healthOf(ctx, counters)
		if ctx.Err() != nil { // an interrupt is how it is meant to end
			return nil
		}
		if err != nil {
			return err
		}
		if err := w.show(healths); err != nil {
			return err
		}
		if n == count {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

func (w *watcher) show(healths []entcounter.Health) error {
	now := time.Now()
	t := table{head: append(text("counter", "state"), number("journal")...)}
	t.head = append(append(t.head, text("")...), number("oldest", "journalled/s", "folded/s", "negative")...)
	t.head = append(t.head, text("deepest key")...)
	objects := []object{}
	for _, h := range healths {
		before := w.last[h.Counter]
		s := sample{now, h, append(before.depths[max(len(before.depths)-sparkWidth+1, 0):], h.Journal)}
		w.last[h.Counter] = s
		var (
			state              = limits{program: w.cmd.Parent().CommandPath()}.stateOf(h)
			journalled, folded = s.rates(before)
			deepest            = "-"
			negative           = comma(h.Negative)
		)
		if h.DeepestKey != nil {
			deepest = fmt.Sprintf("%s (%s)", key(h.Columns, h.DeepestKey), comma(h.Deepest))
		}
		if h.Negative < 0 {
			negative = "?"
		}
		t.add(h.Counter, state.name, comma(h.Journal), spark(s.depths), age(h.Oldest), comma(int64(journalled)), comma(int64(folded)), negative, deepest)
		objects = append(objects, append(healthObject(h, state), member{"journalled_rows_per_second", journalled}, member{"folded_rows_per_second", folded}))
	}
	if w.app.json { // a line for each sample
		line, err := json.Marshal(object{{"at", now.UTC()}, {"counters", objects}})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w.cmd.OutOrStdout(), "%s\n", line)
		return err
	}
	return w.draw(now, t.lines())
}

// draw shows lines in place of the last ones, or below these.
func (w *watcher) draw(now time.Time, lines []string) error {
	out := w.cmd.OutOrStdout()
	title := now.UTC().Format(time.DateTime) + " UTC"
	if !w.terminal {
		_, err := fmt.Fprintf(out, "%s\n%s\n\n", title, strings.Join(lines, "\n"))
		return err
	}
	width, height := windowSize(out)
	lines = append([]string{title + "   interrupt to end", ""}, lines...)
	var b strings.Builder
	b.WriteString(home)
	for i, line := range lines[:min(len(lines), height)] {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(cut(line, width) + clearToEOL)
	}
	b.WriteString(clearToEnd)
	_, err := fmt.Fprint(out, b.String())
	return err
}

// cut returns the beginning of a line.
func cut(line string, width int) string {
	if uniseg.StringWidth(line) <= width {
		return line
	}
	var b strings.Builder
	for g, used := uniseg.NewGraphemes(line), 1; g.Next(); {
		if used += g.Width(); used > width {
			break
		}
		b.WriteString(g.Str())
	}
	return b.String() + "…"
}

// spark draws numbers as bars, the greatest of them as the highest.
func spark(numbers []int64) string {
	const bars = "▁▂▃▄▅▆▇█"
	high := int64(1)
	for _, n := range numbers {
		high = max(high, n)
	}
	var b strings.Builder
	for _, n := range numbers {
		b.WriteRune([]rune(bars)[int(float64(n)/float64(high)*7+0.5)])
	}
	return b.String()
}
