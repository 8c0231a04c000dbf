// Package entcountertest helps a user's own tests to hold counters against the rows
// that they count.
//
// [Guard] does it after every mutation of a test, so that code which changes counted
// rows behind ent's back, by SQL of its own or through another client, fails the test
// and not production. [RequireExact] does it once, and [RequireCount] reads one key.
package entcountertest

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/entcounter/entcounter/entcounter"
)

// Client is a generated client, or a transaction of one.
type Client interface {
	Counters() []*entcounter.Handle
}

// patience bounds one comparison of all counters.
const patience = 30 * time.Second

// RequireExact compares every key of every counter with a recount, and ends the test
// if any differs. On a transaction, it compares what that sees. Each counter is one
// statement, which reads all counted rows, writes nothing and locks nothing.
func RequireExact(t testing.TB, client Client) {
	t.Helper()
	drifts, err := compare(t.Context(), client)
	switch {
	case err != nil:
		t.Fatalf("entcountertest: the counters cannot be compared with a recount: %v", err)
	case len(drifts) > 0:
		t.Fatalf("entcountertest: counters differ from a recount:%s\n%s", list(drifts), advice)
	}
}

// Counter is the generated client of one counter, such as client.FileCounters or
// tx.FileCounters.
type Counter[K, R any] interface {
	Read(ctx context.Context, key K) (R, error)
}

// RequireCount reads one key and ends the test if its measures are not the wanted
// ones, which are given as the generated type Measures:
//
//	entcountertest.RequireCount(t, client.FileCounters,
//		filecounters.Key{DatasetID: 7, Status: file.StatusCopied},
//		filecounters.Measures{Count: 2, Bytes: 30})
func RequireCount[K, R, M any](t testing.TB, counter Counter[K, R], key K, want M) {
	t.Helper()
	row, err := counter.Read(t.Context(), key)
	if err != nil {
		t.Fatalf("entcountertest: reading %s: %v", fields(key), err)
	}
	got, err := measuresOf[M](row)
	if err != nil {
		t.Fatalf("entcountertest: %v", err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("entcountertest: %s counts %s, want %s", fields(key), fields(got), fields(want))
	}
}

// measuresOf returns the fields of a row that a counter's measures have.
func measuresOf[M any](row any) (M, error) {
	var (
		measures M
		to       = reflect.ValueOf(&measures).Elem()
		from     = reflect.Indirect(reflect.ValueOf(row))
	)
	if to.Kind() != reflect.Struct || to.NumField() == 0 || from.Kind() != reflect.Struct {
		return measures, fmt.Errorf("a %T cannot be compared with a %T: give the Measures of the counter", row, measures)
	}
	for i := range to.NumField() {
		field := from.FieldByName(to.Type().Field(i).Name)
		if !field.IsValid() || field.Type() != to.Field(i).Type() || !to.Field(i).CanSet() {
			return measures, fmt.Errorf("a %T has no %s as a %T has: give the Measures of the same counter", row, to.Type().Field(i).Name, measures)
		}
		to.Field(i).Set(field)
	}
	return measures, nil
}

// fields writes a key or measures as their type and the values by name.
func fields(v any) string {
	return fmt.Sprintf("%T%s", v, strings.TrimPrefix(fmt.Sprintf("%+v", v), "&"))
}

// compare returns the keys of all counters that differ from a recount. A statement
// that others got in the way of is run again.
func compare(ctx context.Context, client Client) ([]entcounter.Drift, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	var all []entcounter.Drift
	for _, c := range client.Counters() {
		drifts, err := compareOne(ctx, c)
		for pause := time.Millisecond; entcounter.Retryable(err) && ctx.Err() == nil; pause = min(2*pause, 100*time.Millisecond) {
			time.Sleep(pause)
			drifts, err = compareOne(ctx, c)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, drifts...)
	}
	return all, nil
}

func compareOne(ctx context.Context, c *entcounter.Handle) ([]entcounter.Drift, error) {
	// A counter that nobody has built or read is built by this, if its rows are few.
	if !c.InTransaction() {
		if err := c.Check(ctx); err != nil {
			return nil, err
		}
	}
	var drifts []entcounter.Drift
	for drift, err := range c.Drifts(ctx, nil) {
		if err != nil {
			return nil, err
		}
		drifts = append(drifts, drift)
	}
	return drifts, nil
}

// advice is what to do about rows that were changed uncounted.
const advice = "Counted is what goes through the generated client. For SQL of your own, call Journal in the same transaction."

// listed is how many keys a failure names.
const listed = 10

// list writes one line for each key that differs.
func list(drifts []entcounter.Drift) string {
	var b strings.Builder
	for i, drift := range drifts {
		if i == listed {
			fmt.Fprintf(&b, "\n\t… and %d more", len(drifts)-listed)
			break
		}
		b.WriteString("\n\t" + drift.String())
	}
	return b.String()
}
