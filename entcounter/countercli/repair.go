package countercli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/entcounter/entcounter/entcounter"
	"github.com/spf13/cobra"
)

const scopeUsage = "`column=value` of the key, the first columns without a gap; may be repeated"

// maxDrifts is how many keys verify keeps in memory, to print them in order.
const maxDrifts = 10_000

func (a *app) verify() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare counters with their rows",
		Long: `Recount the rows of counters, or of a scope, and print each key that differs: what the counter says and
what the rows say, at one moment, while writers go on. It writes nothing and takes no locks.

It reads all rows of the scope. Exit code 3 tells that something differs; rebuild mends it.`,
		Example: `  counters verify
  counters verify --scope dataset_id=7
  counters verify --json | jq '.[].drift[].key'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			selected, scope, err := a.scoped(cmd.Context())
			if err != nil {
				return err
			}
			if limit < 0 {
				return usage("--limit is %d: give a number of keys, or 0 for none", limit)
			}
			var (
				drifting int64
				objects  = []object{}
			)
			for _, h := range selected {
				n, object, err := a.verifyOne(cmd, h, scope, min(limit, maxDrifts))
				if err != nil {
					return err
				}
				drifting += n
				objects = append(objects, object)
			}
			if a.json {
				if err := printJSON(cmd, objects); err != nil {
					return err
				}
			}
			if drifting > 0 {
				return codedError{fmt.Errorf("%s from the rows: rebuild mends that", plural(drifting, "key differs", "keys differ")), ExitDrift}
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, fmt.Sprintf("number of `keys` to print at most, up to %s for each counter", comma(maxDrifts)))
	return a.withScope(cmd, scopeUsage)
}

func (a *app) verifyOne(cmd *cobra.Command, h *entcounter.Handle, scope []any, limit int) (int64, object, error) {
	var (
		drifts  = []entcounter.Drift{}
		n       int64
		started = time.Now()
		what    = "verifying " + target(h, scope)
		p       = startProgress(cmd, what, -1)
	)
	defer p.end()
	for drift, err := range h.Drifts(cmd.Context(), scope) {
		if err != nil {
			return 0, nil, err
		}
		if n++; len(drifts) < limit {
			drifts = append(drifts, drift)
		}
		p.describe("%s: %s", what, plural(n, "key differs", "keys differ"))
	}
	p.end()
	slices.SortFunc(drifts, func(a, b entcounter.Drift) int { return entcounter.CompareKeys(a.Key, b.Key) })
	found := object{
		{"counter", h.Name()},
		{"scope", fields(keyNames(h), scope)},
		{"differing_keys", n},
		{"drift", driftObjects(h, drifts)},
	}
	if a.json {
		return n, found, nil
	}
	took := time.Since(started).Round(time.Millisecond)
	if n == 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "%s is exact (%s)\n", target(h, scope), took)
		return 0, found, nil
	}
	if len(drifts) > 0 {
		printDrift(cmd, h, drifts)
	}
	if n > int64(len(drifts)) {
		note(cmd, "%s more, not printed: see --limit", comma(n-int64(len(drifts))))
	}
	return n, found, nil
}

func driftObjects(h *entcounter.Handle, drifts []entcounter.Drift) []object {
	objects := make([]object, len(drifts))
	for i, d := range drifts {
		objects[i] = object{
			{"key", fields(keyNames(h), d.Key)},
			{"counter", fields(measureNames(h), d.Stored)},
			{"rows", fields(measureNames(h), d.Actual)},
		}
	}
	return objects
}

// target names a counter, or a scope of it.
func target(h *entcounter.Handle, scope []any) string {
	if len(scope) == 0 {
		return h.Name()
	}
	return h.Name() + " " + shorten(key(keyNames(h), scope), 100)
}

func (a *app) rebuild() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Recount rows and correct what differs",
		Long: `Recount the rows of a counter, or of a scope, and correct each key that differs, in one transaction. Writers
and folds go on meanwhile, except on SQLite, which has one writer.

A rebuild of a whole counter also makes one readable that is new, or declared differently than before. If the
database was built by another declaration, it asks: from then on the program with the other one
cannot read the counter.`,
		Example: `  counters rebuild --scope dataset_id=7
  counters rebuild --counter File
  counters rebuild --yes`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			selected, scope, err := a.scoped(cmd.Context())
			if err != nil {
				return err
			}
			if len(scope) == 0 {
				if err := a.confirmDeclaration(cmd, selected); err != nil {
					return err
				}
			}
			return a.rebuildEach(cmd, selected, scope)
		},
	}
	return a.withYes(a.withScope(cmd, scopeUsage))
}

func (a *app) rebuildEach(cmd *cobra.Command, counters []*entcounter.Handle, scope []any) error {
	return a.correctEach(cmd, counters, scope, func(h *entcounter.Handle) (int, error) {
		p := startProgress(cmd, "rebuilding "+target(h, scope), -1)
		defer p.end()
		rebuilt, err := h.Rebuild(cmd.Context(), scope)
		return rebuilt.Keys, err
	})
}

func (a *app) buildEach(cmd *cobra.Command, counters []*entcounter.Handle, restart bool) error {
	return a.correctEach(cmd, counters, nil, func(h *entcounter.Handle) (int, error) {
		var (
			p    *progress
			done int
		)
		built, err := h.Build(cmd.Context(), entcounter.BuildOptions{Restart: restart, Progress: func(b entcounter.BuildProgress) {
			if p == nil {
				p = startProgress(cmd, "building "+h.Name(), int64(b.Scopes))
			}
			p.add(int64(b.Done - done))
			done = b.Done
		}})
		if p != nil {
			p.end()
		}
		return built.Keys, err
	})
}

// correctEach reports how many keys were corrected in each counter.
func (a *app) correctEach(cmd *cobra.Command, counters []*entcounter.Handle, scope []any, correct func(*entcounter.Handle) (int, error)) error {
	objects := []object{}
	for _, h := range counters {
		started := time.Now()
		keys, err := correct(h)
		if err != nil {
			return err
		}
		took := time.Since(started).Round(time.Millisecond)
		objects = append(objects, object{
			{"counter", h.Name()}, {"scope", fields(keyNames(h), scope)}, {"corrected_keys", keys}, {"seconds", took.Seconds()},
		})
		if !a.json {
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s corrected (%s)\n", target(h, scope), plural(int64(keys), "key", "keys"), took)
		}
	}
	if a.json {
		return printJSON(cmd, objects)
	}
	return nil
}

// confirmDeclaration asks before a counter is taken over from a program that declares
// it differently.
func (a *app) confirmDeclaration(cmd *cobra.Command, counters []*entcounter.Handle) error {
	for _, h := range counters {
		health, err := h.Health(cmd.Context())
		if err != nil {
			return err
		}
		if errors.Is(health.Built, entcounter.ErrDeclarationChanged) {
			err := a.confirm(cmd, fmt.Sprintf("Counter %s was built by another declaration than this program's. If a program with that one still runs, it cannot read the counter any more.\nBuild it by this program's declaration?", h.Name()))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *app) build() *cobra.Command {
	restart := false
	cmd := &cobra.Command{
		Use:   "build",
		Short: "Build the counters that cannot be read yet",
		Long: `Build the counters that reads refuse: those whose rows were there before them, and those that another
declaration has built. The others are left alone. Writers go on meanwhile. A build that was interrupted goes on
where it was; --restart begins it anew, which it needs if a program that does not count has written since.`,
		Example: `  counters build
  counters build --counter File --yes`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			selected, err := a.selected(cmd.Context())
			if err != nil {
				return err
			}
			unbuilt, err := unreadable(cmd.Context(), selected)
			if err != nil {
				return err
			}
			if len(unbuilt) == 0 {
				note(cmd, "all counters are built")
			}
			if err := a.confirmDeclaration(cmd, unbuilt); err != nil {
				return err
			}
			return a.buildEach(cmd, unbuilt, restart)
		},
	}
	cmd.Flags().BoolVar(&restart, "restart", false, "begin an interrupted build anew")
	return a.withYes(cmd)
}

// unreadable returns the counters that have to be built.
func unreadable(ctx context.Context, counters []*entcounter.Handle) ([]*entcounter.Handle, error) {
	var found []*entcounter.Handle
	for _, h := range counters {
		err := h.Check(ctx)
		switch {
		case errors.Is(err, entcounter.ErrNotBuilt), errors.Is(err, entcounter.ErrDeclarationChanged):
			found = append(found, h)
		case err != nil:
			return nil, err
		}
	}
	return found, nil
}

func (a *app) fold() *cobra.Command {
	batch := entcounter.DefaultFoldBatch
	cmd := &cobra.Command{
		Use:   "fold",
		Short: "Fold the journals away, once",
		Long: `Move the rows of the journals into the counter rows until none are left, as a worker does all the time. Counts
do not change by it, and writers do not wait for it. A paused counter is folded too.`,
		Example: `  counters fold
  counters fold --counter File --batch 1000`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			selected, err := a.selected(cmd.Context())
			if err != nil {
				return err
			}
			if batch < 1 {
				return usage("--batch is %d: give a number of rows", batch)
			}
			objects := []object{}
			for _, h := range selected {
				rows, took, err := foldAll(cmd, h, batch)
				if err != nil {
					return err
				}
				objects = append(objects, object{{"counter", h.Name()}, {"folded_rows", rows}, {"seconds", took.Seconds()}})
				if !a.json {
					fmt.Fprintf(cmd.OutOrStdout(), "%s: %s folded (%s)\n", h.Name(), plural(rows, "row", "rows"), took)
				}
			}
			if a.json {
				return printJSON(cmd, objects)
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&batch, "batch", batch, "number of `rows` that one transaction folds")
	return cmd
}

// foldAll folds until a fold finds no full batch any more.
func foldAll(cmd *cobra.Command, h *entcounter.Handle, batch int) (rows int64, took time.Duration, err error) {
	started := time.Now()
	backlog, err := h.Backlog(cmd.Context())
	if err != nil {
		return 0, 0, err
	}
	p := startProgress(cmd, "folding "+h.Name(), backlog.Rows)
	defer p.end()
	for {
		folded, err := h.Fold(cmd.Context(), entcounter.WithBatch(batch))
		if err != nil {
			return 0, 0, err
		}
		rows += int64(folded.Rows)
		p.add(int64(folded.Rows))
		if !folded.Full {
			return rows, time.Since(started).Round(time.Millisecond), nil
		}
	}
}

func (a *app) pause() *cobra.Command {
	return a.each(&cobra.Command{
		Use:   "pause",
		Short: "Make workers leave counters alone",
		Long: `Make the workers of all processes leave counters alone until they are resumed. Reads stay exact, and get
slower as the journal grows.`,
		Example: "  counters pause --counter File",
	}, "paused", (*entcounter.Handle).Pause)
}

func (a *app) resume() *cobra.Command {
	return a.each(&cobra.Command{
		Use:     "resume",
		Short:   "Let workers fold paused counters again",
		Example: "  counters resume",
	}, "resumed", (*entcounter.Handle).Resume)
}

// each makes a command do something with each counter.
func (a *app) each(cmd *cobra.Command, done string, do func(*entcounter.Handle, context.Context) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		selected, err := a.selected(cmd.Context())
		if err != nil {
			return err
		}
		objects := []object{}
		for _, h := range selected {
			if err := do(h, cmd.Context()); err != nil {
				return err
			}
			objects = append(objects, object{{"counter", h.Name()}, {"done", done}})
			if !a.json {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", h.Name(), done)
			}
		}
		if a.json {
			return printJSON(cmd, objects)
		}
		return nil
	}
	return cmd
}

func (a *app) deleteScope() *cobra.Command {
	var rowsRemain bool
	cmd := &cobra.Command{
		Use:   "delete-scope",
		Short: "Delete the counts of a scope whose rows are gone",
		Long: `Delete the counter and journal rows of a scope, after its rows have been deleted by SQL that ent did not see. Nothing
may write to the scope any more. It asks first, and refuses as long as there are rows
to count in the scope.`,
		Example: `  counters delete-scope --scope dataset_id=7
  counters delete-scope --scope dataset_id=7 --yes`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			selected, scope, err := a.scoped(cmd.Context())
			if err != nil {
				return err
			}
			if len(scope) == 0 {
				return usage("which scope? Give the first columns of the key by --scope column=value")
			}
			return a.deleteOne(cmd, selected[0], scope, rowsRemain)
		},
	}
	cmd.Flags().BoolVar(&rowsRemain, "rows-remain", false, "delete although there are rows: they are deleted later, without being counted")
	return a.withYes(a.withScope(cmd, scopeUsage))
}

func (a *app) deleteOne(cmd *cobra.Command, h *entcounter.Handle, scope []any, rowsRemain bool) error {
	names := measureNames(h)
	actual, err := h.Recount(cmd.Context(), scope)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(actual, func(n int64) bool { return n != 0 }) && !rowsRemain {
		return fmt.Errorf("%s has rows, of %s: delete them first, or say --rows-remain if they go later without being counted. Nothing was done",
			target(h, scope), key(names, anys(actual)))
	}
	rows, err := h.Rows(cmd.Context(), entcounter.Selection{Filter: scope, By: []string{}})
	if err != nil {
		return err
	}
	stored := make([]int64, len(names))
	for _, row := range rows {
		stored = row.Measures
	}
	if err := a.confirm(cmd, fmt.Sprintf("Delete the counts of %s, which say %s?", target(h, scope), key(names, anys(stored)))); err != nil {
		return err
	}
	if err := h.DeleteScope(cmd.Context(), scope); err != nil {
		return err
	}
	if a.json {
		return printJSON(cmd, object{{"counter", h.Name()}, {"scope", fields(keyNames(h), scope)}, {"deleted", fields(names, stored)}})
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: deleted %s\n", target(h, scope), key(names, anys(stored)))
	return nil
}

func anys(numbers []int64) []any {
	values := make([]any, len(numbers))
	for i, n := range numbers {
		values[i] = n
	}
	return values
}
