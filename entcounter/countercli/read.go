package countercli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/entcounter/entcounter/entcounter"
	"github.com/spf13/cobra"
)

// selection is what read and top let one choose.
type selection struct {
	by      []string
	total   bool
	measure string
	limit   int
}

func (a *app) read() *cobra.Command {
	var s selection
	cmd := &cobra.Command{
		Use:   "read",
		Short: "Read counts, exactly",
		Long: `Read the counts of a counter's keys, in the order of the key. They are exact at this moment, whatever
is folded.

--scope may give any columns of the key here. The first ones are read by index; without them, all of
the counter is.`,
		Example: `  counters read --scope dataset_id=7
  counters read --scope dataset_id=7 --scope status=New
  counters read --scope dataset_id=7 --total
  counters read --by status`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.list(cmd, s) },
	}
	cmd.Flags().StringSliceVar(&s.by, "by", nil, "add up the keys that agree in these `columns` (default: all columns of the key)")
	cmd.Flags().BoolVar(&s.total, "total", false, "add up everything")
	cmd.Flags().IntVar(&s.limit, "limit", 100, "number of `rows` to print at most; 0 for all")
	return a.withScope(cmd, "`column=value` of the key; may be repeated")
}

func (a *app) top() *cobra.Command {
	var s selection
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the keys with most of a measure",
		Long: `Show the keys with most of a measure, the greatest first. --measure pending shows the keys of which a read
has most to add from the journal, and --measure updated_at those that changed last.

It reads all keys of the counter, or those that --scope leaves.`,
		Example: `  counters top
  counters top --measure bytes --by dataset_id --limit 20
  counters top --scope status=Failed --by dataset_id`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := a.one(cmd.Context())
			if err != nil {
				return err
			}
			if s.measure == "" {
				s.measure = measureNames(h)[0]
			}
			orders := append(measureNames(h), entcounter.ColumnPending, entcounter.ColumnUpdatedAt)
			if !slices.Contains(orders, s.measure) {
				return usage("--measure: counter %s has no %q: choose one of %s", h.Name(), s.measure, strings.Join(orders, ", "))
			}
			return a.list(cmd, s)
		},
	}
	cmd.Flags().StringVar(&s.measure, "measure", "", "`name` of the measure (default: the first one)")
	cmd.Flags().StringSliceVar(&s.by, "by", nil, "add up the keys that agree in these `columns` (default: all columns of the key)")
	cmd.Flags().IntVar(&s.limit, "limit", 10, "number of `rows` to print at most; 0 for all")
	return a.withScope(cmd, "`column=value` of the key; may be repeated")
}

// list reads and prints rows.
func (a *app) list(cmd *cobra.Command, s selection) error {
	h, err := a.one(cmd.Context())
	if err != nil {
		return err
	}
	filter, err := h.Definition().ParseFilter(a.scope...)
	if err != nil {
		return usage("--scope: %w", err)
	}
	by := keyNames(h)
	switch {
	case s.total && len(s.by) > 0:
		return usage("--total adds up everything: leave --by out")
	case s.total:
		by = []string{}
	case len(s.by) > 0:
		all := by
		by = nil
		for _, name := range s.by {
			if !slices.Contains(all, name) {
				return usage("--by: %q is no key column of counter %s: it has %s", name, h.Name(), strings.Join(all, ", "))
			}
			if !slices.Contains(by, name) {
				by = append(by, name)
			}
		}
	}
	if s.limit < 0 {
		return usage("--limit is %d: give a number of rows, or 0 for all", s.limit)
	}
	selection := entcounter.Selection{Filter: filter, By: by, Order: s.measure}
	if s.limit > 0 && !s.total {
		selection.Limit = s.limit + 1 // to know whether there are more
	}
	rows, err := h.Rows(cmd.Context(), selection)
	if err != nil {
		return err
	}
	more := s.limit > 0 && len(rows) > s.limit
	if more {
		rows = rows[:s.limit]
	}
	// A key without rows reads as zero, here as in Go.
	if len(rows) == 0 && len(by) == len(keyNames(h)) && !slices.Contains(filter, nil) {
		note(cmd, "nothing is counted under this key")
		rows = []entcounter.Row{{Key: filter, Measures: make([]int64, len(measureNames(h)))}}
	}
	if a.json {
		return printJSON(cmd, rowObjects(h, by, rows))
	}
	printRows(cmd, h, by, rows)
	if more {
		note(cmd, "there are more: --limit 0 prints all")
	}
	if len(rows) == 0 {
		note(cmd, "no keys")
	}
	return nil
}

func printRows(cmd *cobra.Command, h *entcounter.Handle, by []string, rows []entcounter.Row) {
	head := append(columnsOf(h, by), number(append(measureNames(h), entcounter.ColumnPending)...)...)
	t := table{head: append(head, text("updated (utc)")...)}
	for _, row := range rows {
		cells := values(row.Key)
		for _, m := range row.Measures {
			cells = append(cells, comma(m))
		}
		t.add(append(cells, comma(row.Pending), instant(row.UpdatedAt))...)
	}
	t.print(cmd.OutOrStdout())
}

// columnsOf heads the columns of a key, or of a part of one.
func columnsOf(h *entcounter.Handle, names []string) []column {
	head := text(names...)
	for i, name := range names {
		for _, c := range h.Definition().Key {
			head[i].number = head[i].number || c.Name == name && c.Type.Integer()
		}
	}
	return head
}

func values(key []any) []string {
	cells := make([]string, len(key))
	for i, v := range key {
		cells[i] = shorten(value(v), 60)
	}
	return cells
}

func rowObjects(h *entcounter.Handle, by []string, rows []entcounter.Row) []object {
	objects := make([]object, len(rows))
	for i, row := range rows {
		objects[i] = slices.Concat(fields(by, row.Key), fields(measureNames(h), row.Measures), object{
			{entcounter.ColumnPending, row.Pending},
			{entcounter.ColumnUpdatedAt, timeOrNull(row.UpdatedAt)},
		})
	}
	return objects
}

// printDrift prints keys that differ, one line for each measure that does.
func printDrift(cmd *cobra.Command, h *entcounter.Handle, drifts []entcounter.Drift) {
	t := table{head: slices.Concat(columnsOf(h, keyNames(h)), text("measure"), number("counter", "rows", "difference"))}
	for _, d := range drifts {
		for i, name := range measureNames(h) {
			if d.Stored[i] != d.Actual[i] {
				t.add(append(values(d.Key), name, comma(d.Stored[i]), comma(d.Actual[i]), difference(d.Stored[i], d.Actual[i]))...)
			}
		}
	}
	t.print(cmd.OutOrStdout())
}

// difference writes how much a counter says too much or too little.
func difference(stored, actual int64) string {
	n := stored - actual
	if (n < 0) != (stored < actual) {
		return "beyond BIGINT"
	}
	return fmt.Sprintf("%s%s", map[bool]string{true: "+"}[n > 0], comma(n))
}
