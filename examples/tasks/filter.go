package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/examples/tasks/ent"
	"github.com/entcounter/entcounter/examples/tasks/ent/daycounters"
	"github.com/entcounter/entcounter/examples/tasks/ent/daytaskcounters"
	"github.com/entcounter/entcounter/examples/tasks/ent/predicate"
	"github.com/entcounter/entcounter/examples/tasks/ent/task"
	"github.com/entcounter/entcounter/examples/tasks/ent/taskcounters"
)

// statuses are all that there are.
var statuses = []task.Status{task.StatusNew, task.StatusInProgr, task.StatusWaiting, task.StatusDone, task.StatusCancelled}

// unassigned is how an assignee is called in a filter that is none.
const unassigned = 0

// filter is what the grid shows: tasks that meet all of the conditions that are set, and are not deleted.
type filter struct {
	statuses  []task.Status
	groups    []int
	assignees []int  // or unassigned
	from, to  string // first and last day of creation, in UTC; both or none
}

// condition is a part of a filter as it is written.
type condition struct {
	Name string `json:"name"`
	Op   string `json:"op"`
	Val  any    `json:"val"`
}

// exampleFilter shows how a filter is written.
const exampleFilter = `[{"name": "status", "op": "in", "val": ["new", "in-progr"]}, {"name": "created_at", "op": "between", "val": ["2026-11-01", "2026-11-30"]}]`

// String writes the filter as JSON.
func (f filter) String() string {
	conditions := []condition{}
	add := func(name, op string, val any, set bool) {
		if set {
			conditions = append(conditions, condition{name, op, val})
		}
	}
	add("status", "in", f.statuses, len(f.statuses) > 0)
	add("group", "in", f.groups, len(f.groups) > 0)
	add("assignee", "in", f.assignees, len(f.assignees) > 0)
	add("created_at", "between", []string{f.from, f.to}, f.from != "")
	text, err := json.Marshal(conditions)
	if err != nil {
		return err.Error() // of strings and integers there is none
	}
	return string(text)
}

// parseFilter reads what String writes. Times of creation are rounded down to their days.
func parseFilter(text string) (f filter, err error) {
	var conditions []struct {
		Name string          `json:"name"`
		Op   string          `json:"op"`
		Val  json.RawMessage `json:"val"`
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&conditions); err != nil {
		return f, fmt.Errorf("it is no list of conditions: %w: write it as %s", err, exampleFilter)
	}
	seen := make(map[string]bool)
	for _, c := range conditions {
		ops := map[string]string{"status": "in", "group": "in", "assignee": "in", "created_at": "between"}
		switch op, known := ops[c.Name]; {
		case !known:
			return f, fmt.Errorf("there is no filter %q: there are status, group, assignee and created_at", c.Name)
		case seen[c.Name]:
			return f, fmt.Errorf("%s is there twice", c.Name)
		case c.Op != op:
			return f, fmt.Errorf("%s has no operator %q: it has %q", c.Name, c.Op, op)
		}
		seen[c.Name] = true
		switch c.Name {
		case "status":
			err = values(c.Val, &f.statuses)
			for _, s := range f.statuses {
				if err = errors.Join(err, task.StatusValidator(s)); err != nil {
					err = fmt.Errorf("%q is none of %v", s, statuses)
					break
				}
			}
		case "group":
			err = values(c.Val, &f.groups)
		case "assignee":
			err = values(c.Val, &f.assignees)
		case "created_at":
			f.from, f.to, err = days(c.Val)
		}
		if err != nil {
			return f, fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return f, nil
}

// values reads a list that is not empty.
func values[T any](text json.RawMessage, list *[]T) error {
	if err := json.Unmarshal(text, list); err != nil {
		return fmt.Errorf("%s is no list of values: %w", text, err)
	}
	if len(*list) == 0 {
		return errors.New("the list is empty: leave the condition out")
	}
	return nil
}

// days reads two days or times.
func days(text json.RawMessage) (from, to string, err error) {
	var list []string
	if err := values(text, &list); err != nil {
		return "", "", err
	}
	if len(list) != 2 {
		return "", "", fmt.Errorf("%s has %d values, and needs two", text, len(list))
	}
	for i, s := range list {
		t, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t, err = time.Parse(time.DateOnly, s)
		}
		if err != nil {
			return "", "", fmt.Errorf("%q is no day such as 2026-11-30 and no time such as 2026-11-30T12:00:00Z", s)
		}
		list[i] = entcounter.Day.Of(t)
	}
	return list[0], list[1], nil
}

// counter is the counter that answers the filter: the smallest one that has its columns.
func (f filter) counter() string {
	switch {
	case f.from == "":
		return "Task"
	case len(f.groups) == 0 && len(f.assignees) == 0:
		return "Day"
	default:
		return "DayTask"
	}
}

// stored is the number of tasks as the counters tell it. It is one statement.
func (f filter) stored(ctx context.Context, tx *ent.Tx) (int64, error) {
	switch f.counter() {
	case "Task":
		q := tx.TaskCounters.Query()
		if len(f.statuses) > 0 {
			q.Where(taskcounters.StatusIn(f.statuses...))
		}
		if len(f.groups) > 0 {
			q.Where(taskcounters.GroupIDIn(f.groups...))
		}
		if len(f.assignees) > 0 {
			q.Where(taskcounters.AssigneeIDIn(f.assignees...))
		}
		total, err := q.Total(ctx)
		return total.Count, err
	case "Day":
		q := tx.DayCounters.Query().Where(daycounters.CreatedDayGTE(f.from), daycounters.CreatedDayLTE(f.to))
		if len(f.statuses) > 0 {
			q.Where(daycounters.StatusIn(f.statuses...))
		}
		total, err := q.Total(ctx)
		return total.Count, err
	}
	q := tx.DayTaskCounters.Query().Where(daytaskcounters.CreatedDayGTE(f.from), daytaskcounters.CreatedDayLTE(f.to))
	if len(f.statuses) > 0 {
		q.Where(daytaskcounters.StatusIn(f.statuses...))
	}
	if len(f.groups) > 0 {
		q.Where(daytaskcounters.GroupIDIn(f.groups...))
	}
	if len(f.assignees) > 0 {
		q.Where(daytaskcounters.AssigneeIDIn(f.assignees...))
	}
	total, err := q.Total(ctx)
	return total.Count, err
}

// scanned is the number of tasks as COUNT(*) tells it.
func (f filter) scanned(ctx context.Context, tx *ent.Tx) (int64, error) {
	q := tx.Task.Query().Where(task.DeletedAtIsNil())
	if len(f.statuses) > 0 {
		q.Where(task.StatusIn(f.statuses...))
	}
	if len(f.groups) > 0 {
		q.Where(task.GroupIDIn(f.groups...))
	}
	if len(f.assignees) > 0 {
		any := []predicate.Task{task.AssigneeIDIn(f.assignees...)}
		if slices.Contains(f.assignees, unassigned) {
			any = append(any, task.AssigneeIDIsNil())
		}
		q.Where(task.Or(any...))
	}
	if f.from != "" {
		from, err := entcounter.Day.Start(f.from)
		if err != nil {
			return 0, err
		}
		to, err := entcounter.Day.Start(f.to)
		if err != nil {
			return 0, err
		}
		q.Where(task.CreatedAtGTE(from), task.CreatedAtLT(to.AddDate(0, 0, 1)))
	}
	n, err := q.Count(ctx)
	return int64(n), err
}

// random is a filter of one to four conditions, none of which is empty.
func (a *app) random() filter {
	var f filter
	for {
		if rand.IntN(2) == 0 {
			f.statuses = pick(statuses, 1+rand.IntN(3))
		}
		if rand.IntN(2) == 0 {
			f.groups = pick(a.groups, 1+rand.IntN(3))
		}
		if rand.IntN(2) == 0 {
			f.assignees = pick(append([]int{unassigned}, a.users...), 1+rand.IntN(4))
		}
		if rand.IntN(2) == 0 {
			first := rand.IntN(period)
			f.from = entcounter.Day.Of(now().AddDate(0, 0, -first))
			f.to = entcounter.Day.Of(now().AddDate(0, 0, -rand.IntN(first+1)))
		}
		if f.String() != (filter{}).String() {
			return f
		}
	}
}

// pick returns n of a list, in the list's order, or all.
func pick[T any](list []T, n int) []T {
	n = min(n, len(list))
	places := rand.Perm(len(list))[:n]
	slices.Sort(places)
	picked := make([]T, n)
	for i, p := range places {
		picked[i] = list[p]
	}
	return picked
}
