package countercli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/entcounter/entcounter/entcounter"
	"github.com/spf13/cobra"
)

// limits are what --max-rows and --max-age allow; 0 is no limit.
type limits struct {
	rows    int64
	age     time.Duration
	program string // in front of the commands that it advises
}

// state is one word for how a counter does, and what follows from it.
type state struct {
	name string
	// advice says what is wrong and what to do, and is empty if nothing is.
	advice string
	code   int
}

func (l limits) stateOf(h entcounter.Health) state {
	command := func(name string) string { return l.program + " " + name + " --counter " + h.Counter }
	switch {
	case errors.Is(h.Built, entcounter.ErrDeclarationChanged):
		return state{"redeclared", "it was built by another declaration, and reads refuse it. If this program is the newer one: " + command("build"), ExitNotReady}
	case h.Built != nil:
		return state{"not built", "its rows were there first, and reads refuse it: " + command("build"), ExitNotReady}
	case h.Negative > 0:
		return state{"negative", fmt.Sprintf("%s below zero, which no count can be, (%s) first. Find what else is wrong: %s, and mend it: %s",
			plural(h.Negative, "key is", "keys are"), strings.Join(values(h.NegativeKey), ", "), command("verify"), command("rebuild")), ExitDrift}
	case l.rows > 0 && h.Journal > l.rows:
		return state{"behind", fmt.Sprintf("%s in the journal, %s allowed. Reads are exact, and slower. Is a worker running? Once: %s",
			plural(h.Journal, "row", "rows"), comma(l.rows), command("fold")), ExitNotReady}
	case l.age > 0 && h.Oldest > l.age:
		return state{"behind", fmt.Sprintf("the oldest row of the journal is %s old, %s allowed. Reads are exact, and slower. Is a worker running? Once: %s",
			age(h.Oldest), age(l.age), command("fold")), ExitNotReady}
	case h.Paused:
		return state{"paused", "workers leave it alone: " + command("resume"), ExitOK}
	}
	return state{"ok", "", ExitOK}
}

func (a *app) status() *cobra.Command {
	var l limits
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the counters do",
		Long: `Show how the counters do: whether they can be read, how much of the journal is not folded yet
and how old it is, which key has most of it, and whether a count is below zero, which proves
that something has written past ent.

Reads are exact whatever the journal has. A long one makes them slower.`,
		Example: `  counters status
  counters status --json
  counters status --max-rows 100000 --max-age 1m || alert`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			selected, err := a.selected(cmd.Context())
			if err != nil {
				return err
			}
			healths, err := healthOf(cmd.Context(), selected)
			if err != nil {
				return err
			}
			l.program = cmd.Parent().CommandPath()
			return a.printStatus(cmd, l, healths)
		},
	}
	cmd.Flags().Int64Var(&l.rows, "max-rows", 0, "exit with 4 if a journal has more `rows`")
	cmd.Flags().DurationVar(&l.age, "max-age", 0, "exit with 4 if a journal has an older row, such as 1m")
	return cmd
}

func healthOf(ctx context.Context, counters []*entcounter.Handle) ([]entcounter.Health, error) {
	healths := make([]entcounter.Health, len(counters))
	for i, h := range counters {
		var err error
		if healths[i], err = h.Health(ctx); err != nil {
			return nil, err
		}
	}
	return healths, nil
}

func (a *app) printStatus(cmd *cobra.Command, l limits, healths []entcounter.Health) error {
	var (
		objects = []object{}
		t       = table{head: append(text("counter", "state"), number("keys", "journal", "oldest", "folded/s")...)}
		worst   state
		advice  []string
	)
	t.head = append(t.head, text("last fold", "deepest key")...)
	for _, h := range healths {
		s := l.stateOf(h)
		objects = append(objects, healthObject(h, s))
		deepest := "-"
		if h.DeepestKey != nil {
			deepest = fmt.Sprintf("%s (%s)", shorten(key(h.Columns, h.DeepestKey), 60), plural(h.Deepest, "row", "rows"))
		}
		t.add(h.Counter, s.name, atMost(h.Keys, entcounter.HealthKeys), comma(h.Journal), age(h.Oldest),
			comma(int64(h.FoldedPerSecond)), instant(h.LastFold), deepest)
		if s.advice != "" {
			advice = append(advice, fmt.Sprintf("%s: %s", h.Counter, s.advice))
		}
		// Drift is worse than waiting.
		if worst.code == ExitOK || s.code == ExitDrift {
			worst = s
		}
	}
	if a.json {
		if err := printJSON(cmd, objects); err != nil {
			return err
		}
	} else {
		t.print(cmd.OutOrStdout())
		for _, line := range advice {
			fmt.Fprintf(cmd.OutOrStdout(), "\n%s\n", line)
		}
	}
	if worst.code == ExitOK {
		return nil
	}
	return codedError{errors.New("not all counters are well"), worst.code}
}

// atMost writes a number that was counted up to a bound.
func atMost(n, bound int64) string {
	if n >= bound {
		return comma(bound) + "+"
	}
	return comma(n)
}

func healthObject(h entcounter.Health, s state) object {
	unbuilt := any(nil)
	if h.Built != nil {
		unbuilt = h.Built.Error()
	}
	keyOrNull := func(values []any) any {
		if values == nil {
			return nil
		}
		return fields(h.Columns, values)
	}
	return object{
		{"counter", h.Counter},
		{"state", s.name},
		{"advice", s.advice},
		{"keys", h.Keys},
		{"journal_rows", h.Journal},
		{"oldest_seconds", h.Oldest.Seconds()},
		{"deepest_key", keyOrNull(h.DeepestKey)},
		{"deepest_rows", h.Deepest},
		{"last_fold", timeOrNull(h.LastFold)},
		{"folded_rows", h.Folded},
		{"folded_per_second", h.FoldedPerSecond},
		{"last_build", timeOrNull(h.LastBuild)},
		{"not_readable", unbuilt},
		{"paused", h.Paused},
		{"negative_keys", h.Negative},
		{"negative_key", keyOrNull(h.NegativeKey)},
		{"history_length", h.HistoryLength},
		{"dead_rows", h.DeadRows},
	}
}
