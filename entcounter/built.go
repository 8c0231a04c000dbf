package entcounter

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
	"weak"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
)

var (
	// ErrNotBuilt is returned by reads of a counter whose counted rows were there
	// before it and have not been counted yet: run Rebuild for all of the counter once.
	ErrNotBuilt = errors.New("entcounter: the counter has not been built")

	// ErrDeclarationChanged is returned by reads of a counter that was built by
	// another declaration than the running program's. If the program is the newer
	// one, run Rebuild for all of the counter once.
	ErrDeclarationChanged = errors.New("entcounter: the counter was built by another declaration")
)

// adoptRows is how many counted rows a counter without a build has at most, for it
// to be compared with a recount then and there. A new application never needs a
// build, and neither do tests.
const adoptRows = 10_000

// declarationLen is the size of the column that keeps a declaration.
const declarationLen = 2000

// declaration says what the counter counts, in SQL: it is the same exactly if the
// counts are. One that is too long for the column ends in a hash.
func (d *Definition) declaration() string {
	var parts []string
	for _, src := range d.Sources {
		w := newWriter(sqliteSQL{})
		w.counts(sqliteSQL{}, src, d.keyNames(), d.measureNames(), "")
		text := w.String()
		for _, arg := range w.args {
			value := fmt.Sprint(arg)
			if _, ok := arg.(string); ok {
				value = strconv.Quote(value)
			}
			text = strings.Replace(text, "?", value, 1)
		}
		parts = append(parts, text)
	}
	text := strings.ReplaceAll(strings.Join(parts, " UNION ALL "), "`", "")
	if len(text) > declarationLen {
		sum := sha256.Sum256([]byte(text))
		hash := " … #" + hex.EncodeToString(sum[:8])
		text = text[:declarationLen-len(hash)] + hash
	}
	return strings.ToValidUTF8(text, "")
}

// built remembers which counters are known to be built, by database: true if the
// database says so too.
var built sync.Map

type builtKey struct {
	database   any
	definition *Definition
}

// builtKeyOf returns the key of a counter on the database of a driver.
func builtKeyOf(drv dialect.Driver, d *Definition) builtKey {
	for {
		switch wrapped := drv.(type) {
		case *dialect.DebugDriver:
			drv = wrapped.Driver
			continue
		case counterTx:
			drv = wrapped.CounterDriver()
			continue
		case *entsql.Driver:
			if db, ok := wrapped.ExecQuerier.(*sql.DB); ok {
				return builtKey{weak.Make(db), d}
			}
		}
		return builtKey{drv, d}
	}
}

func (k builtKey) remember(marked bool) {
	if _, known := built.Swap(k, marked); known {
		return
	}
	if p, ok := k.database.(weak.Pointer[sql.DB]); ok {
		if db := p.Value(); db != nil {
			runtime.AddCleanup(db, func(k builtKey) { built.Delete(k) }, k)
		}
	}
}

// Check reports whether the counter can be read: nil, [ErrNotBuilt],
// [ErrDeclarationChanged], or an error of the database's. A program may call it when
// it starts; reads do it on their own, once for each counter and database.
//
// A counter over a few rows that nobody has built is compared with a recount, and
// rebuilt if that differs.
func (c *Handle) Check(ctx context.Context) error {
	if c.def.assumeBuilt {
		return nil
	}
	key := builtKeyOf(c.drv, c.def)
	if _, ok := built.Load(key); ok {
		return nil
	}
	declared := c.def.declaration()
	found, err := c.builtBy(ctx)
	switch {
	case err != nil:
		return c.wrap("checking", err)
	case found == declared:
		key.remember(true)
		return nil
	case found != "":
		return c.wrap("reading", fmt.Errorf("%w: there %q, here %q", ErrDeclarationChanged, found, declared))
	}
	few, err := c.fewRows(ctx)
	if err != nil {
		return c.wrap("checking", err)
	}
	if !few {
		return c.wrap("reading", ErrNotBuilt)
	}
	return c.adopt(ctx, key)
}

// builtBy returns the declaration that the counter was built by, or nothing.
func (c *Handle) builtBy(ctx context.Context) (string, error) {
	w := newWriter(c.sql)
	w.sql("SELECT ").ident(columnDeclaration).sql(" FROM ").ident(LockTable).sql(" WHERE ").
		equals([]string{"counter_name", "operation"}, []any{c.def.Name, lockRebuilt})
	var declaration string
	err := queryRow(ctx, c.drv, w, &declaration)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return declaration, err
}

// fewRows reports whether the counted tables have few rows.
func (c *Handle) fewRows(ctx context.Context) (bool, error) {
	rows := 0
	for _, src := range c.def.Sources {
		w := newWriter(c.sql)
		w.sql("SELECT COUNT(*) FROM (SELECT 1 FROM ").ident(src.Table).sql(" LIMIT ", strconv.Itoa(adoptRows+1), ") AS ").ident("t")
		var n int
		if err := queryRow(ctx, c.drv, w, &n); err != nil {
			return false, err
		}
		rows += n
	}
	return rows <= adoptRows, nil
}

// adopt compares a counter over a few rows with a recount. One that is exact is
// marked as built, if that is possible at once: whoever only reads may not be allowed
// to, or another may write.
func (c *Handle) adopt(ctx context.Context, key builtKey) error {
	differs := errors.New("differs")
	err := c.Verify(ctx, nil, func(func(...any) error) error { return differs })
	switch {
	case err == nil && inTransaction(c.drv):
		return nil
	case err == nil:
		key.remember(c.mark(ctx))
		return nil
	case !errors.Is(err, differs):
		return err
	case inTransaction(c.drv):
		return c.wrap("reading", ErrNotBuilt)
	}
	_, err = c.Rebuild(ctx, nil)
	return err
}

// markPatience is how long a read waits at most to note what it has found out.
const markPatience = 200 * time.Millisecond

// markLater notes that the counter is built where a read has found that out and could
// not note it. A fold does it: it may write, and its caller does not wait for it.
func (c *Handle) markLater(ctx context.Context) {
	key := builtKeyOf(c.drv, c.def)
	if marked, known := built.Load(key); known && marked == false && c.mark(ctx) {
		key.remember(true)
	}
}

// mark notes that the counter is built, and reports whether it could.
func (c *Handle) mark(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, markPatience)
	defer cancel()
	w := newWriter(c.sql)
	c.sql.createLocks(w, c.def.Name)
	if err := exec(ctx, c.drv, w); err != nil {
		return false
	}
	w = newWriter(c.sql)
	w.sql("UPDATE ").ident(LockTable).sql(" SET ").ident(columnDeclaration).sql(" = ").arg(c.def.declaration()).sql(", ").
		ident(columnDoneAt).sql(" = ", c.sql.now(), " WHERE ").
		equals([]string{"counter_name", "operation", columnDeclaration}, []any{c.def.Name, lockRebuilt, ""})
	return exec(ctx, c.drv, w) == nil
}
