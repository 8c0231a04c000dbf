package entcountertest

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	"entgo.io/ent"

	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/entcounter/internal/activity"
)

// GuardedClient is a generated client.
type GuardedClient interface {
	Client
	Use(hooks ...ent.Hook)
}

// Guard compares all counters with a recount now, after each mutation that the
// client makes, in a transaction or outside, and when the test ends. A key that
// differs fails the test, which goes on: the error names the counter and the key,
// what is counted and what is recounted, the mutation after which it was found, and
// where the counters were right the last time.
//
//	client := enttest.Open(t, dialect.SQLite, dsn)
//	t.Cleanup(func() { client.Close() })
//	entcountertest.Guard(t, client)
//
// Close the client, and end the transaction that it may be bound to, by t.Cleanup
// before Guard is called, and not by defer: what happens after the last mutation is
// found at the end of the test only.
//
// A change that is not made by the client is found after the mutation that follows
// it. In a transaction, changes are compared as the transaction sees them, its
// pending deltas being written first. One of MySQL or MariaDB at REPEATABLE READ
// beside which others commit is compared when it is over ([entcounter.ErrOldSnapshot]).
//
// Each comparison reads all counted rows: guard tests with few. The client's hooks
// cannot be taken back, but do nothing once the test is over. Those that were added to
// the client before run outside of Guard's.
func Guard[C GuardedClient](t testing.TB, client C) {
	t.Helper()
	g := &guard{t: t, ent: reflect.Indirect(reflect.ValueOf(client)).Type().PkgPath()}
	drifts, err := compare(t.Context(), client)
	switch {
	case err != nil:
		t.Fatalf("entcountertest: the counters cannot be compared with a recount before the test: create the tables first, and rebuild counters over rows that are there already: %v", err)
	case len(drifts) > 0:
		t.Fatalf("entcountertest: counters differ from a recount before the test:%s\n%s", list(drifts), advice)
	}
	g.right = "when the test began"
	client.Use(func(next ent.Mutator) ent.Mutator {
		return ent.MutateFunc(func(ctx context.Context, m ent.Mutation) (ent.Value, error) {
			number, ok := g.begin()
			if !ok {
				return next.Mutate(ctx, m)
			}
			value, err := next.Mutate(ctx, m)
			at := event{name: fmt.Sprintf("after mutation %d, %s.%s%s", number, m.Type(), strings.TrimPrefix(m.Op().String(), "Op"), g.caller())}
			// All rows of a bulk are written at once, and the mutations of the others
			// then end one after the other.
			if m.Op() == ent.OpCreate && g.isChecked() {
				return value, err
			}
			// What failed in a transaction may have ended it, and is rolled back with it.
			bound, ok := m.(interface{ Client() C })
			if !ok {
				g.failf("entcountertest: %s: %T has no Client() %T: guard the client that makes the mutations", at.name, m, client)
				return value, err
			}
			inside := bound.Client()
			at.failed, at.transaction = err != nil, isTransaction(inside)
			g.check(ctx, inside, at)
			return value, err
		})
	})
	t.Cleanup(func() {
		t.Helper()
		g.check(context.Background(), client, event{name: "when the test ended", last: true})
		g.end()
	})
}

// event is when counters are compared.
type event struct {
	name string
	// failed tells that a mutation has returned an error.
	failed bool
	// transaction tells that it was in a transaction.
	transaction bool
	// last tells that the test is over.
	last bool
}

// guard is one test's.
type guard struct {
	t   testing.TB
	ent string // path of the generated package

	mu        sync.Mutex
	mutations int
	over      bool
	checked   int64             // activity before the last comparison
	right     string            // when the counters were right the last time
	suspected string            // when they seemed wrong in an old snapshot
	reported  map[string]string // by how much a key was off, as said
}

// begin numbers a mutation. It is not ok after the test.
func (g *guard) begin() (int, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return 0, false
	}
	g.mutations++
	return g.mutations, true
}

func (g *guard) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
}

// isChecked reports whether the counters were compared after the last write.
func (g *guard) isChecked() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.checked == activity.Writes()
}

// failf fails the test, unless it is over.
func (g *guard) failf(format string, args ...any) {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.over {
		g.t.Errorf(format, args...)
	}
}

// check compares the counters, as a client sees them.
func (g *guard) check(ctx context.Context, client Client, at event) {
	g.t.Helper()
	if at.failed && at.transaction {
		return
	}
	writes := activity.Writes()
	drifts, err := compare(ctx, client)
	if errors.Is(err, entcounter.ErrOldSnapshot) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.suspected == "" {
			g.suspected = at.name
		}
		return
	}
	if at.last && isClosed(err) {
		g.failf("entcountertest: when the test ended, the client was closed, or its transaction over, so that what came after the last mutation could not be compared: close it by t.Cleanup, called before Guard, instead of defer: %v", err)
		return
	}
	if at.transaction && errors.Is(err, entcounter.ErrTransactionFailed) {
		return // its Commit is refused
	}
	if err != nil {
		g.failf("entcountertest: %s, the counters could not be compared with a recount: %v", at.name, err)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.checked = writes
	var news []entcounter.Drift
	reported := make(map[string]string, len(drifts))
	for _, drift := range drifts {
		key := fmt.Sprint(drift.Counter, drift.Key)
		reported[key] = fmt.Sprint(difference(drift))
		if g.reported[key] != reported[key] {
			news = append(news, drift)
		}
	}
	g.reported = reported
	suspected := ""
	if !at.transaction {
		suspected, g.suspected = g.suspected, ""
	}
	if len(news) == 0 {
		if len(drifts) == 0 {
			g.right = at.name
		}
		return
	}
	if suspected != "" {
		suspected = ", and first seen, in an old snapshot, " + suspected
	}
	if !g.over {
		g.t.Errorf("entcountertest: counters differ from a recount %s; they were right the last time %s%s:%s\n%s", at.name, g.right, suspected, list(news), advice)
	}
}

// isTransaction reports whether a client is bound to a transaction.
func isTransaction(client Client) bool {
	counters := client.Counters()
	return len(counters) > 0 && counters[0].InTransaction()
}

// difference is what each measure is off by: the same as long as no further change
// goes uncounted.
func difference(d entcounter.Drift) []int64 {
	off := make([]int64, len(d.Stored))
	for i := range off {
		off[i] = d.Stored[i] - d.Actual[i]
	}
	return off
}

// isClosed reports whether a client cannot be asked any more.
func isClosed(err error) bool {
	return errors.Is(err, stdsql.ErrTxDone) || errors.Is(err, stdsql.ErrConnDone) || err != nil && strings.Contains(err.Error(), "sql: database is closed")
}

// caller tells where the code outside of ent is that made a mutation.
func (g *guard) caller() string {
	const depth = 256
	var pcs [depth]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		switch {
		case strings.HasPrefix(frame.Function, g.ent+"."),
			strings.HasPrefix(frame.Function, "entgo.io/ent"),
			strings.HasPrefix(frame.Function, reflect.TypeFor[guard]().PkgPath()+"."):
		case frame.File != "":
			return fmt.Sprintf(" (%s:%d)", filepath.Base(frame.File), frame.Line)
		}
		if !more {
			return ""
		}
	}
}
