package entcounter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"entgo.io/ent/dialect"
)

// ErrOldSnapshot is returned by [Handle.Drifts] in a transaction that does not see
// what others have committed since it began to read, and of whose rows it may have
// changed some: InnoDB at REPEATABLE READ shows those as they are now, and neither
// the other changes nor their deltas. What differs then cannot be told from what is
// wrong. Compare after the transaction.
var ErrOldSnapshot = errors.New("entcounter: the transaction sees an old snapshot beside its own changes, in which counts and rows need not agree: compare them after the transaction")

// Drift is a key of a counter that differs from a recount.
type Drift struct {
	// Counter is the name that the counter was declared with.
	Counter string
	// Columns are the names of the key columns, and Key their values: int64, uint64
	// above its range, string, bool, []byte or time.Time.
	Columns []string
	Key     []any
	// Measures are their names, Stored what the counter says and Actual what counting
	// the rows says, in the same order.
	Measures       []string
	Stored, Actual []int64
}

// String tells the key, and each measure that differs.
func (d Drift) String() string {
	columns := make([]Column, len(d.Columns))
	for i, name := range d.Columns {
		columns[i].Name = name
	}
	var differ []string
	for i, name := range d.Measures {
		if d.Stored[i] != d.Actual[i] {
			differ = append(differ, name+" counted "+strconv.FormatInt(d.Stored[i], 10)+", recounted "+strconv.FormatInt(d.Actual[i], 10))
		}
	}
	return "counter " + d.Counter + ", key " + formatKey(columns, d.Key) + ": " + strings.Join(differ, "; ")
}

// Drifts is [Handle.Verify] without generated types: it recounts a scope and yields
// each key that differs, and at last an error, if there is one. In a transaction of
// a user's it can be [ErrOldSnapshot].
func (c *Handle) Drifts(ctx context.Context, scope []any) iter.Seq2[Drift, error] {
	return func(yield func(Drift, error) bool) {
		verify := c.drifts
		if _, user := binding(c.drv); user != nil && c.sql.name() == dialect.MySQL {
			verify = c.surely
		}
		stopped := errors.New("stopped")
		err := verify(ctx, scope, func(d Drift) error {
			if !yield(d, nil) {
				return stopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, stopped) {
			yield(Drift{}, err)
		}
	}
}

// drifts calls visit with each key that differs.
func (c *Handle) drifts(ctx context.Context, scope []any, visit func(Drift) error) error {
	d := c.def
	return c.Verify(ctx, scope, func(scan func(...any) error) error {
		var (
			n     = len(d.Measures)
			drift = Drift{Counter: d.Name, Columns: d.keyNames(), Measures: d.measureNames(), Stored: make([]int64, n), Actual: make([]int64, n)}
			key   = make([]any, len(d.Key))
		)
		for i, column := range d.Key {
			key[i] = scanTarget(column)
		}
		dest := slices.Clone(key)
		for _, measures := range [][]int64{drift.Stored, drift.Actual} {
			for i := range measures {
				dest = append(dest, &measures[i])
			}
		}
		if err := scan(dest...); err != nil {
			return err
		}
		var err error
		if drift.Key, err = d.scannedKey(key); err != nil {
			return err
		}
		return visit(drift)
	})
}

// visibleWithin is how long a commit in MariaDB may take to be seen by plain reads
// after its locks are free.
const visibleWithin = 50 * time.Millisecond

// surely is drifts in a user's transaction on InnoDB. There a row that the
// transaction has changed is one that a locking read has found, while counts are
// read plainly: what differs is looked at again once each commit must be visible,
// and not reported if the transaction's snapshot lacks any.
func (c *Handle) surely(ctx context.Context, scope []any, visit func(Drift) error) error {
	var found []Drift
	collect := func(d Drift) error {
		found = append(found, d)
		return nil
	}
	if err := c.drifts(ctx, scope, collect); err != nil || len(found) == 0 {
		return err
	}
	if err := sleep(ctx, visibleWithin); err != nil {
		return err
	}
	found = nil
	if err := c.drifts(ctx, scope, collect); err != nil || len(found) == 0 {
		return err
	}
	current, err := c.isCurrent(ctx)
	if err == nil && !current {
		err = ErrOldSnapshot
	}
	if err != nil {
		return c.wrap("verifying", err)
	}
	for _, d := range found {
		if err := visit(d); err != nil {
			return err
		}
	}
	return nil
}

// outsidePatience is how long a transaction waits for a connection beside its own.
const outsidePatience = time.Second

// isCurrent reports whether a user's transaction sees all that has been committed
// to the counter: each journal row that is seen outside, and the last fold.
func (c *Handle) isCurrent(ctx context.Context) (bool, error) {
	_, user := binding(c.drv)
	patient, cancel := context.WithTimeout(ctx, outsidePatience)
	defer cancel()
	outside, err := New(c.def, user.CounterDriver()).committed(patient)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return false, nil // the pool has no further connection
	}
	if err != nil {
		return false, err
	}
	inside, err := c.committed(ctx)
	if err != nil {
		return false, err
	}
	for row := range outside {
		if _, ok := inside[row]; !ok {
			return false, nil
		}
	}
	return true, nil
}

// committed returns what tells the states of a counter apart: the ids of its
// journal rows and the versions of its lock rows.
func (c *Handle) committed(ctx context.Context) (map[string]struct{}, error) {
	state := make(map[string]struct{})
	w := newWriter(c.sql)
	w.sql("SELECT 'journal', ").ident(ColumnJournalID).sql(" FROM ").ident(c.def.Journal).
		sql(" UNION ALL SELECT ").ident("operation").sql(", ").ident("version").sql(" FROM ").ident(LockTable).sql(" WHERE ").
		equals([]string{"counter_name"}, []any{c.def.Name})
	err := query(ctx, c.drv, w, func(scan func(...any) error) error {
		var (
			kind   string
			number int64
		)
		if err := scan(&kind, &number); err != nil {
			return err
		}
		state[fmt.Sprint(kind, " ", number)] = struct{}{}
		return nil
	})
	return state, err
}
