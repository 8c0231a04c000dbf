package entcounter

import (
	"cmp"
	"context"
	"crypto/sha256"
	stdsql "database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"entgo.io/ent/dialect"
)

// DefaultScopeRows is how many rows one step of a build counts at most, as far as
// the counter can be divided, unless it is told otherwise.
const DefaultScopeRows = 20_000

// BuildOptions say how a counter is built. The zero value is a good choice.
type BuildOptions struct {
	// ScopeRows is how many counted rows a scope of the build has at most, unless they
	// all have one key. Default: [DefaultScopeRows].
	ScopeRows int
	// Restart forgets how far an interrupted build has come. It is needed if counted
	// rows were written by something that does not count, such as an instance of an
	// older program, after that build had begun.
	Restart bool
	// Progress is called when the build begins and after each of its scopes, by the
	// goroutine that builds. Default: nothing.
	Progress ProgressFunc
}

// ProgressFunc is told how far a build has come.
type ProgressFunc func(BuildProgress)

// BuildProgress tells how far a build has come.
type BuildProgress struct {
	// Counter that is built.
	Counter string
	// Scopes of the build, and how many of them are done, by whichever process.
	Scopes, Done int
	// Rows that are counted in these scopes, and in those that are done: estimates from
	// when the build began. Both are 0 for a counter that cannot be divided.
	Rows, DoneRows int64
	// Keys that this call has corrected.
	Keys int
	// Resumed tells that the build had been begun before, and Done is not from this
	// call alone.
	Resumed bool
}

var (
	// errOvertaken is returned when a correction was derived from a snapshot that does
	// not show another correction.
	errOvertaken = errors.New("another rebuild came in between")
	// errScopeDone is returned when a scope of a build is done already.
	errScopeDone = errors.New("the scope is built")
	// errPlanned is returned when a build is under way already.
	errPlanned = errors.New("a build is under way")
)

// Build counts the rows of the counted tables into a counter that was added to a
// table in use or is differently declared than before, scope by scope, while writers
// and folds go on, and then marks it as built. Until then reads return
// [ErrNotBuilt] or [ErrDeclarationChanged]. On a counter that is built, it mends
// what differs, as [Handle.Rebuild] does, and reads go on.
//
// All that writes to the counted tables must count by now: run it after the last
// instance of a program that does not know the counter has stopped.
//
// The counter is divided by its first key columns, as far as an index of each
// counted table begins with them; keys over edges, periods and columns with NullAs
// are not divided by. A scope is some values of such a column, of about ScopeRows
// rows. It takes two steps:
//
//   - One plain statement at READ COMMITTED reads for each key what is missing: recount − counter
//     row − journal. It takes no lock, on SQLite either.
//   - A short transaction at READ COMMITTED journals that. It first writes the counter's
//     rebuild row in counter_locks, and makes sure that no other correction of the scope has
//     been committed that the statement did not see. If one has, the first step is done again.
//
// That what is missing is still the same is no coincidence: a writer commits its
// change and its delta together, and a fold moves what it deletes, so nothing but
// another correction can change the difference. For the same reason a key that
// comes into being during the build needs no build: its difference is zero.
//
// The scopes that are left are rows of counter_locks. A build that was interrupted, by
// whatever, goes on with them when Build is called again, and several builds at once share them.
func (c *Handle) Build(ctx context.Context, options BuildOptions) (BuildProgress, error) {
	if inTransaction(c.drv) {
		return BuildProgress{}, c.wrap("building", ErrInTransaction)
	}
	if options.ScopeRows < 0 {
		return BuildProgress{}, c.wrap("building", fmt.Errorf("scopes of %d rows", options.ScopeRows))
	}
	options.ScopeRows = cmp.Or(options.ScopeRows, DefaultScopeRows)
	sum := sha256.Sum256([]byte(c.def.declaration()))
	b := &build{Handle: c, options: options, declaration: hex.EncodeToString(sum[:]), progress: BuildProgress{Counter: c.def.Name}}
	if err := b.run(ctx); err != nil {
		return b.progress, c.wrap("building", err)
	}
	builtKeyOf(c.drv, c.def).remember(true)
	return b.progress, nil
}

// build is one call of Build.
type build struct {
	*Handle
	options     BuildOptions
	declaration string // its hash
	progress    BuildProgress
}

// buildPlan is what the build row of counter_locks has for a declaration. Its version
// is the number of scopes that are done.
type buildPlan struct {
	// ID begins the names of the scopes' rows.
	ID string `json:"id"`
	// Declaration that the counter is built by: its hash.
	Declaration string `json:"declaration"`
	Scopes      int    `json:"scopes"`
	Rows        int64  `json:"rows"`
}

// buildScope is a row of counter_locks with a scope to be built: the number of
// its rows for a version, the region for a declaration.
type buildScope struct {
	operation string
	sizedRegion
}

// scopePrefix begins the operations of the scopes' rows, and of no others.
const scopePrefix = "s"

func (b *build) run(ctx context.Context) error {
	plan, scopes, err := b.pending(ctx)
	if err != nil {
		return err
	}
	b.progress.Resumed = plan != nil && plan.Declaration == b.declaration && !b.options.Restart
	if !b.progress.Resumed {
		if err := b.plan(ctx, plan); err != nil && !errors.Is(err, errPlanned) {
			return err
		}
		if plan, scopes, err = b.pending(ctx); err != nil {
			return err
		}
	}
	for plan != nil {
		switch {
		case plan.Declaration != b.declaration:
			return errors.New("another program builds it at the same time, by another declaration")
		case len(scopes) == 0:
			return fmt.Errorf("the scopes of the build are missing in %s: build it with Restart", LockTable)
		}
		b.report(plan, scopes)
		// Builds that run at once begin at different scopes.
		first := rand.N(len(scopes))
		for _, s := range slices.Concat(scopes[first:], scopes[:first]) {
			if err := b.build(ctx, plan, s); err != nil {
				return err
			}
			b.progress.Done++
			b.progress.DoneRows += s.rows
			b.tell()
		}
		if plan, scopes, err = b.pending(ctx); err != nil {
			return err
		}
	}
	// The plan is gone: this call, another build or a rebuild has done the rest.
	found, err := b.builtBy(ctx)
	if err == nil && found != b.def.declaration() {
		err = fmt.Errorf("%w, at the same time: there %q, here %q", ErrDeclarationChanged, found, b.def.declaration())
	}
	return err
}

// report tells how far the build has come.
func (b *build) report(plan *buildPlan, scopes []buildScope) {
	p := &b.progress
	p.Scopes, p.Done, p.Rows, p.DoneRows = plan.Scopes, plan.Scopes-len(scopes), plan.Rows, plan.Rows
	for _, s := range scopes {
		p.DoneRows -= s.rows
	}
	b.tell()
}

func (b *build) tell() {
	if b.options.Progress != nil {
		b.options.Progress(b.progress)
	}
}

// pending reads the plan and the scopes that are left of it; nil if there is none.
func (b *build) pending(ctx context.Context) (plan *buildPlan, scopes []buildScope, err error) {
	w := newWriter(b.sql)
	w.sql("SELECT ").idents("operation", "version", columnDeclaration).sql(" FROM ").ident(LockTable).sql(" WHERE ").
		equals([]string{"counter_name"}, []any{b.def.Name}).sql(" AND (").ident("operation").sql(" = ").arg(lockBuild).
		sql(" OR ").ident("operation").sql(" LIKE ").arg(scopePrefix + "%.%").sql(") ORDER BY ").ident("operation")
	err = b.plainly(ctx, func(ex dialect.ExecQuerier) error {
		return query(ctx, ex, w, func(scan func(...any) error) error {
			var (
				operation, text string
				version         int64
			)
			if err := scan(&operation, &version, &text); err != nil {
				return err
			}
			if operation == lockBuild {
				plan = new(buildPlan)
				return json.Unmarshal([]byte(text), plan)
			}
			if plan == nil || plan.Declaration != b.declaration || !strings.HasPrefix(operation, plan.ID) {
				return nil // left over from another plan
			}
			r, err := b.def.region(text)
			scopes = append(scopes, buildScope{operation, sizedRegion{r, version}})
			return err
		})
	})
	return plan, scopes, err
}

// plan divides the counter and notes the scopes, in place of those of an older plan.
// It is one transaction at READ COMMITTED, after the reads, and takes the rebuild
// lock like a correction: builds by the older plan then see that they are overtaken.
//
// The reads may be of different moments, and older than the transaction: what is in
// none of the scopes differed in nothing then, and so does now.
func (b *build) plan(ctx context.Context, older *buildPlan) error {
	regions, err := b.divide(ctx, int64(b.options.ScopeRows))
	if err != nil {
		return err
	}
	var version int64
	err = b.transact(ctx, stdsql.LevelReadCommitted, true, func(tx dialect.Tx) (err error) {
		if version, err = b.correctionVersion(ctx, tx); err != nil {
			return err
		}
		_, current, err := b.currentPlan(ctx, tx)
		if err != nil {
			return err
		}
		if current != nil {
			if current.Declaration == b.declaration && (older == nil || current.ID != older.ID) {
				return errPlanned
			}
			if err := b.deleteLockRow(ctx, tx, lockBuild); err != nil {
				return err
			}
		}
		if len(regions) == 0 {
			return b.setBuilt(ctx, tx, version)
		}
		if err := b.writePlan(ctx, tx, version, regions); err != nil {
			return err
		}
		return b.setRebuilt(ctx, tx, version, "")
	}, lockRebuild)
	if err != nil {
		return err
	}
	return b.clear(ctx, version)
}

// writePlan inserts the rows of a plan. The version of the correction makes its id.
func (b *build) writePlan(ctx context.Context, tx dialect.Tx, version int64, regions []sizedRegion) error {
	type row struct {
		operation string
		version   int64
		text      string
	}
	plan := buildPlan{ID: scopePrefix + strconv.FormatInt(version, 36) + ".", Declaration: b.declaration, Scopes: len(regions)}
	rows := make([]row, 1, 1+len(regions))
	for i, r := range regions {
		text, _ := r.encode()
		rows = append(rows, row{plan.ID + strconv.FormatInt(int64(i), 36), r.rows, text})
		plan.Rows += r.rows
	}
	text, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	rows[0] = row{lockBuild, 0, string(text)}
	for chunk := range slices.Chunk(rows, 1000) {
		w := newWriter(b.sql)
		w.sql("INSERT INTO ").ident(LockTable).sql(" (").idents("counter_name", "operation", "version", columnDeclaration).sql(") VALUES ")
		for i, r := range chunk {
			if i > 0 {
				w.sql(", ")
			}
			w.sql("(").arg(b.def.Name).sql(", ").arg(r.operation).sql(", ").arg(r.version).sql(", ").arg(r.text).sql(")")
		}
		if err := exec(ctx, tx, w); err != nil {
			return err
		}
	}
	return nil
}

// clear deletes scopes of plans that were replaced by that of the given version. Each
// is a statement of its own: one that names several may lock all rows on MySQL and
// MariaDB.
func (b *build) clear(ctx context.Context, version int64) error {
	var left []string
	w := newWriter(b.sql)
	w.sql("SELECT ").ident("operation").sql(" FROM ").ident(LockTable).sql(" WHERE ").
		equals([]string{"counter_name"}, []any{b.def.Name}).sql(" AND ").ident("operation").sql(" LIKE ").arg(scopePrefix + "%.%")
	err := query(ctx, b.drv, w, func(scan func(...any) error) error {
		var operation string
		if err := scan(&operation); err != nil {
			return err
		}
		id, _, _ := strings.Cut(operation[len(scopePrefix):], ".")
		if n, err := strconv.ParseInt(id, 36, 64); err == nil && n < version {
			left = append(left, operation)
		}
		return nil
	})
	for _, operation := range left {
		if err == nil {
			err = b.deleteLockRow(ctx, b.drv, operation)
		}
	}
	return err
}

// maxOvertaken is how often a scope is read again because of other corrections,
// before they are kept off meanwhile.
const maxOvertaken = 3

// build builds a scope of a plan, unless that is done or the plan is not followed
// any more.
func (b *build) build(ctx context.Context, plan *buildPlan, s buildScope) error {
	var previous map[string]struct{}
	for overtaken := 0; ; {
		if _, text, err := b.lockRow(ctx, b.drv, s.operation); err != nil || text == "" {
			return err
		}
		if overtaken >= maxOvertaken {
			return b.buildAlone(ctx, plan, s)
		}
		deltas, keys, seen, err := b.missing(ctx, s.region, previous)
		if err != nil {
			return err
		}
		last := len(deltas) < b.rebuildChunk
		err = b.transact(ctx, stdsql.LevelReadCommitted, true, func(tx dialect.Tx) error {
			version, err := b.correctionVersion(ctx, tx)
			if err != nil {
				return err
			}
			done, err := b.follows(ctx, tx, plan, s)
			if err != nil {
				return err
			}
			// Other scopes of the plan are no matter, and no other corrections may have been.
			if len(deltas) > 0 && version-1-seen.corrections != done-seen.done {
				return errOvertaken
			}
			if err := insertJournal(ctx, tx, b.sql.name(), b.def, deltas); err != nil {
				return err
			}
			if !last {
				return b.setRebuilt(ctx, tx, version, "")
			}
			return b.finish(ctx, tx, plan, s, version, done+1)
		}, lockRebuild)
		switch {
		case errors.Is(err, errScopeDone):
			return nil
		case errors.Is(err, errOvertaken):
			overtaken++
			continue
		case err != nil:
			return err
		}
		b.progress.Keys += len(deltas)
		if last {
			return nil
		}
		previous = keys
	}
}

// buildAlone builds a scope as a rebuild does: with the lock taken first.
func (b *build) buildAlone(ctx context.Context, plan *buildPlan, s buildScope) error {
	var keys int
	err := b.transact(ctx, stdsql.LevelRepeatableRead, true, func(tx dialect.Tx) error {
		version, err := b.correctionVersion(ctx, tx)
		if err != nil {
			return err
		}
		done, err := b.follows(ctx, tx, plan, s)
		if err != nil {
			return err
		}
		if keys, err = b.correct(ctx, tx, s.region); err != nil {
			return err
		}
		return b.finish(ctx, tx, plan, s, version, done+1)
	}, lockRebuild)
	if errors.Is(err, errScopeDone) {
		return nil
	}
	if err == nil {
		b.progress.Keys += keys
	}
	return err
}

// snapshotVersions are versions that a snapshot shows: of the rebuilt row, which
// counts corrections, and of the build row, which counts scopes.
type snapshotVersions struct{ corrections, done int64 }

// missing reads what mends a region, some keys of it, and what its snapshot shows of
// the versions. Where nothing is to be mended, these are not told.
func (b *build) missing(ctx context.Context, r region, previous map[string]struct{}) (deltas []Delta, keys map[string]struct{}, seen snapshotVersions, err error) {
	var corrections, done stdsql.NullInt64
	err = b.plainly(ctx, func(ex dialect.ExecQuerier) error {
		deltas, keys, err = b.corrections(ctx, ex, r, differenceAt, previous, &corrections, &done)
		return err
	})
	return deltas, keys, snapshotVersions{corrections.Int64, done.Int64}, err
}

// follows makes sure, under the rebuild lock, that a plan is the current one and has
// the scope yet to be done. It returns how many are done.
func (b *build) follows(ctx context.Context, tx dialect.Tx, plan *buildPlan, s buildScope) (done int64, err error) {
	done, current, err := b.currentPlan(ctx, tx)
	if err != nil {
		return 0, err
	}
	_, text, err := b.lockRow(ctx, tx, s.operation)
	if err == nil && (text == "" || current == nil || current.ID != plan.ID) {
		err = errScopeDone
	}
	return done, err
}

// finish notes that a scope is done. After the last one, the counter is built.
func (b *build) finish(ctx context.Context, tx dialect.Tx, plan *buildPlan, s buildScope, version, done int64) error {
	if err := b.deleteLockRow(ctx, tx, s.operation); err != nil {
		return err
	}
	if done == int64(plan.Scopes) {
		return b.setBuilt(ctx, tx, version)
	}
	w := newWriter(b.sql)
	writeLock(w, b.def.Name, lockBuild)
	if err := exec(ctx, tx, w); err != nil {
		return err
	}
	return b.setRebuilt(ctx, tx, version, "")
}

// currentPlan reads the plan of the build that is under way, nil if none is, and how
// many scopes are done.
func (c *Handle) currentPlan(ctx context.Context, ex dialect.ExecQuerier) (done int64, plan *buildPlan, err error) {
	done, text, err := c.lockRow(ctx, ex, lockBuild)
	if err != nil || text == "" {
		return 0, nil, err
	}
	plan = new(buildPlan)
	return done, plan, json.Unmarshal([]byte(text), plan)
}

// lockRow reads a row of counter_locks that is not there without a text.
func (c *Handle) lockRow(ctx context.Context, ex dialect.ExecQuerier, operation string) (version int64, text string, err error) {
	w := newWriter(c.sql)
	w.sql("SELECT ").idents("version", columnDeclaration).sql(" FROM ").ident(LockTable).sql(" WHERE ").
		equals([]string{"counter_name", "operation"}, []any{c.def.Name, operation})
	if err = queryRow(ctx, ex, w, &version, &text); errors.Is(err, stdsql.ErrNoRows) {
		err = nil
	}
	return version, text, err
}

// deleteLockRow deletes a row of counter_locks.
func (c *Handle) deleteLockRow(ctx context.Context, ex dialect.ExecQuerier, operation string) error {
	w := newWriter(c.sql)
	w.sql("DELETE FROM ").ident(LockTable).sql(" WHERE ").
		equals([]string{"counter_name", "operation"}, []any{c.def.Name, operation})
	return exec(ctx, ex, w)
}
