package main

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"io"

	"github.com/entcounter/entcounter/examples/signup/ent"
	"github.com/entcounter/entcounter/examples/signup/ent/user"
	"github.com/entcounter/entcounter/examples/signup/ent/usercounters"
)

// plans in the order of the report.
var plans = []user.Plan{user.PlanFree, user.PlanPaid}

// measures of some users.
type measures struct{ users, changes int64 }

// check is what the counter tells, and what counting the users tells.
type check struct {
	counted, actual map[user.Plan]measures
	total           measures // as the counter tells it in one read
}

// newCheck reads the counter and the users in one snapshot.
func newCheck(ctx context.Context, client *ent.Client) (*check, error) {
	tx, err := client.BeginTx(ctx, &stdsql.TxOptions{Isolation: stdsql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	c := &check{counted: make(map[user.Plan]measures), actual: make(map[user.Plan]measures)}
	rows, err := tx.UserCounters.Query().All(ctx)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		c.counted[row.Plan] = measures{row.Users, row.Changes}
	}
	total, err := tx.UserCounters.Total(ctx, usercounters.Scope{})
	if err != nil {
		return nil, err
	}
	c.total = measures{total.Users, total.Changes}
	var actual []struct {
		Plan    user.Plan `sql:"plan"`
		Users   int64     `sql:"users"`
		Changes int64     `sql:"changes"`
	}
	err = tx.User.Query().GroupBy(user.FieldPlan).
		Aggregate(ent.As(ent.Count(), "users"), ent.As(ent.Sum(user.FieldChanges), "changes")).
		Scan(ctx, &actual)
	if err != nil {
		return nil, err
	}
	for _, row := range actual {
		c.actual[row.Plan] = measures{row.Users, row.Changes}
	}
	return c, nil
}

// print writes the report, and tells whether the counter is exact.
func (c *check) print(w io.Writer) (exact bool) {
	exact = true
	var sum measures
	row := func(name string, counted, actual measures) {
		fmt.Fprintf(w, "%-10s %10d %10d %10d %12d\n", name, counted.users, actual.users, counted.changes, actual.changes)
		exact = exact && counted == actual
	}
	fmt.Fprintf(w, "\n%-10s %10s %10s %10s %12s\n", "plan", "users", "COUNT(*)", "changes", "SUM(changes)")
	for _, plan := range plans {
		row(string(plan), c.counted[plan], c.actual[plan])
		sum.users += c.actual[plan].users
		sum.changes += c.actual[plan].changes
	}
	row("all", c.total, sum)
	if exact {
		fmt.Fprintf(w, "\nexact      the counter is right\n")
	} else {
		fmt.Fprintf(w, "\nWRONG      the counter differs from the users\n")
	}
	return exact
}

// agrees tells whether there are as many users as the processes say.
func (c *check) agrees(w io.Writer, before int, did done) bool {
	if want := int64(before + did.Inserted - did.Deleted); c.total.users != want {
		fmt.Fprintf(w, "WRONG      %d users before, %d inserted, %d deleted: there should be %d\n", before, did.Inserted, did.Deleted, want)
		return false
	}
	fmt.Fprintf(w, "agreed     %d users before, %d inserted, %d deleted\n", before, did.Inserted, did.Deleted)
	return true
}
