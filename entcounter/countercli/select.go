package countercli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/entcounter/entcounter/entcounter"
	"github.com/spf13/cobra"
)

// app is what all commands share.
type app struct {
	open     func(context.Context) ([]*entcounter.Handle, error)
	counters []string // --counter
	scope    []string // --scope
	json     bool
	yes      bool
}

// withScope adds the flag --scope to a command.
func (a *app) withScope(cmd *cobra.Command, usage string) *cobra.Command {
	cmd.Flags().StringArrayVar(&a.scope, "scope", nil, usage)
	_ = cmd.RegisterFlagCompletionFunc("scope", a.completeScope)
	return cmd
}

// selected returns the counters that --counter names, or all.
func (a *app) selected(ctx context.Context) ([]*entcounter.Handle, error) {
	all, err := a.open(ctx)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the program has no counters: declare one in the ent schema, and generate the code")
	}
	if len(a.counters) == 0 {
		return all, nil
	}
	var selected []*entcounter.Handle
	for _, name := range a.counters {
		i := slices.IndexFunc(all, func(h *entcounter.Handle) bool { return h.Name() == name })
		if i < 0 {
			mend := "choose one of " + strings.Join(names(all), ", ")
			for _, h := range all {
				if strings.EqualFold(h.Name(), name) {
					mend = "do you mean " + h.Name() + "?"
				}
			}
			return nil, usage("--counter: there is no counter %q: %s", name, mend)
		}
		if !slices.Contains(selected, all[i]) {
			selected = append(selected, all[i])
		}
	}
	return selected, nil
}

// one returns the only counter that is selected.
func (a *app) one(ctx context.Context) (*entcounter.Handle, error) {
	selected, err := a.selected(ctx)
	if err != nil {
		return nil, err
	}
	if len(selected) > 1 {
		return nil, usage("which counter? Give one of %s by --counter", strings.Join(names(selected), ", "))
	}
	return selected[0], nil
}

// scoped returns the selected counters and the scope, of which only one counter can have
// any.
func (a *app) scoped(ctx context.Context) ([]*entcounter.Handle, []any, error) {
	selected, err := a.selected(ctx)
	if err != nil || len(a.scope) == 0 {
		return selected, nil, err
	}
	if len(selected) > 1 {
		return nil, nil, usage("a scope is one of a counter: give one of %s by --counter", strings.Join(names(selected), ", "))
	}
	scope, err := selected[0].Definition().ParseScope(a.scope...)
	if err != nil {
		return nil, nil, usage("--scope: %w", err)
	}
	return selected, scope, nil
}

func names(counters []*entcounter.Handle) []string {
	names := make([]string, len(counters))
	for i, h := range counters {
		names[i] = h.Name()
	}
	return names
}

// completeCounter completes the value of --counter.
func (a *app) completeCounter(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	all, err := a.open(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names(all), cobra.ShellCompDirectiveNoFileComp
}

// completeScope completes the column of --scope, and the value of an enum.
func (a *app) completeScope(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	selected, err := a.selected(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var choices []string
	for _, h := range selected {
		for _, column := range h.Definition().Key {
			if len(column.Values) == 0 {
				choices = append(choices, column.Name+"=")
			}
			for _, value := range column.Values {
				choices = append(choices, column.Name+"="+value)
			}
		}
	}
	slices.Sort(choices)
	return slices.Compact(choices), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
