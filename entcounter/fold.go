package entcounter

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"entgo.io/ent/dialect"
)

// DefaultFoldBatch is how many journal rows a fold claims at most unless it is
// told otherwise. Larger ones gain little and hold locks for longer.
const DefaultFoldBatch = 5000

// idChunk is how many ids one statement names. MySQL gives up on using an index
// for much longer lists (range_optimizer_max_mem_size).
const idChunk = 5000

// Folded is what a fold has done.
type Folded struct {
	// Rows moved out of the journal.
	Rows int
	// Keys whose counter row they were added to.
	Keys int
	// Deepest is how many rows the key with most of them had.
	Deepest int
	// Full tells that the fold claimed as many rows as it may: fold again.
	Full bool
	// Lag is how old the oldest journal row was when a fold that moved any began, by the
	// database's clock.
	Lag time.Duration
}

// FoldOption changes how one fold is done.
type FoldOption func(*foldConfig)

type foldConfig struct {
	part  journalPart
	level stdsql.IsolationLevel
	// polite folds give way: they return ErrPaused or ErrFoldedElsewhere.
	polite bool

	// For tests, which show what goes wrong without what the fold takes care of:
	// deleteClaim deletes what was claimed, rather than what was summed, and observe
	// is told how many rows were.
	deleteClaim bool
	observe     func(claimed, summed int)
}

// WithBatch sets how many journal rows the fold claims at most, in place of
// [DefaultFoldBatch].
func WithBatch(n int) FoldOption {
	return func(c *foldConfig) { c.part.batch = n }
}

// journalPart is the part of a journal that a fold takes: the oldest rows, but for
// those of some keys, or all rows of one key.
type journalPart struct {
	batch   int // 0 is no limit
	without [][]any
	only    []any
}

// where writes the condition of the part, if it has one.
func (p journalPart) where(w *writer, d *Definition) {
	if p.only != nil {
		w.sql(" WHERE ").equals(d.keyNames(), p.only)
	}
	for i, key := range p.without {
		if i == 0 {
			w.sql(" WHERE ")
		} else {
			w.sql(" AND ")
		}
		w.sql("NOT (").equals(d.keyNames(), key).sql(")")
	}
}

// oldest writes the condition, the order and the limit of the part.
func (p journalPart) oldest(w *writer, d *Definition) *writer {
	p.where(w, d)
	w.sql(" ORDER BY ").ident(ColumnJournalID)
	if p.batch > 0 {
		w.sql(" LIMIT ", strconv.Itoa(p.batch))
	}
	return w
}

// politely makes a fold give way to an operator who has paused the counter, and to
// another fold.
func politely(c *foldConfig) { c.polite = true }

// Fold moves committed journal rows, the oldest first, into the counter rows.
// What a read returns is the same before, during and after.
//
// It is one transaction at READ COMMITTED. It first writes the counter's fold row
// in counter_locks, so folds of a counter run one after the other, then locks
// records of the journal, no gaps, and skips those that are locked: a writer never
// waits for it (ADR, Folding). Then it adds to the counter rows, which nothing
// else writes while the lock is held. What it sums and deletes are the same rows,
// named by id:
//
//   - On MySQL and MariaDB those of the claimed rows that a plain read shows after
//     the claim. On MariaDB the locks of a transaction are free an instant before
//     its commit is visible, and a claim can return a row that a plain read does
//     not show; that row is left for the next fold.
//   - On PostgreSQL the rows that one DELETE … RETURNING takes away.
//   - On SQLite, which has one writer, the oldest rows as read under the lock.
//
// A fold that loses a race is run again, and gives up without an error if it loses
// all the time: another fold does its work, or the next one will. A key whose sum
// leaves the range of BIGINT keeps its journal rows, and is named in an
// [ErrOverflow]; the others are folded. A server that lacks SKIP LOCKED gets
// [ErrNoSkipLocked].
func (c *Handle) Fold(ctx context.Context, opts ...FoldOption) (folded Folded, err error) {
	cfg := foldConfig{part: journalPart{batch: DefaultFoldBatch}, level: stdsql.LevelReadCommitted}
	for _, opt := range opts {
		opt(&cfg)
	}
	if cfg.part.batch < 1 {
		return Folded{}, c.wrap("folding", fmt.Errorf("batch of %d rows", cfg.part.batch))
	}
	if inTransaction(c.drv) {
		return Folded{}, c.wrap("folding", ErrInTransaction)
	}
	c.markLater(ctx)
	// An idle counter costs one read, in place of a write that must reach the disk.
	state, err := c.look(ctx)
	if err == nil && cfg.polite && state.paused {
		err = ErrPaused
	}
	if err != nil || state.idle {
		return Folded{}, c.wrap("folding", err)
	}
	ctx, done := c.trace(ctx, "fold", 0)
	defer func() { done(Outcome{Rows: folded.Rows, Keys: folded.Keys, Err: err}) }()
	folded, err = c.fold(ctx, cfg)
	if overflows(err) {
		folded, err = c.foldAround(ctx, cfg, err)
	}
	if folded.Rows > 0 {
		folded.Lag = state.lag
	}
	return folded, c.wrap("folding", err)
}

// fold folds a part of the journal, in one transaction.
func (c *Handle) fold(ctx context.Context, cfg foldConfig) (Folded, error) {
	var folded Folded
	locks := []string{lockFold}
	if cfg.polite {
		locks = nil
	}
	err := c.transact(ctx, cfg.level, false, func(tx dialect.Tx) (err error) {
		if cfg.polite {
			if err := c.lockFree(ctx, tx, lockFold); err != nil {
				return err
			}
		}
		started := time.Now()
		switch s := c.sql.(type) {
		case foldsAtOnce:
			folded, err = c.foldAtOnce(ctx, tx, s, cfg)
		case foldsBySteps:
			folded, err = c.foldBySteps(ctx, tx, s, cfg)
		}
		folded.Full = cfg.part.batch > 0 && (folded.Full || folded.Rows == cfg.part.batch)
		if err != nil || folded.Rows == 0 {
			return err
		}
		w := newWriter(c.sql)
		writeFolded(w, c.sql, c.def.Name, folded.Rows, time.Since(started))
		return exec(ctx, tx, w)
	}, locks...)
	var interrupted *interruptedError
	if errors.As(err, &interrupted) {
		return Folded{}, nil
	}
	if err != nil {
		return Folded{}, err
	}
	return folded, nil
}

// How many keys a fold goes around at most: a number of times so many.
const (
	unfitKeys   = 100
	unfitRounds = 3
)

// foldAround folds what it can after a sum was out of range: the other keys, and then
// each key by itself. All rows of a key may have a sum that fits though the oldest
// ones have not.
func (c *Handle) foldAround(ctx context.Context, cfg foldConfig, cause error) (Folded, error) {
	var folded Folded
	for range unfitRounds {
		unfit, err := c.unfit(ctx, cfg.part)
		if err != nil || len(unfit) == 0 {
			return Folded{}, errors.Join(cause, err)
		}
		for _, u := range unfit {
			cfg.part.without = append(cfg.part.without, u.key)
		}
		if folded, cause = c.fold(ctx, cfg); !overflows(cause) {
			break
		}
	}
	if cause != nil {
		return Folded{}, cause
	}
	var errs []error
	for _, key := range cfg.part.without {
		alone := cfg
		alone.part = journalPart{only: key}
		one, err := c.foldAlone(ctx, alone)
		folded.Rows += one.Rows
		folded.Keys += one.Keys
		folded.Deepest = max(folded.Deepest, one.Deepest)
		errs = append(errs, err)
	}
	return folded, errors.Join(errs...)
}

// foldAlone folds all rows of one key, if their sum is in range.
func (c *Handle) foldAlone(ctx context.Context, cfg foldConfig) (Folded, error) {
	unfit, err := c.unfit(ctx, cfg.part)
	if err != nil {
		return Folded{}, err
	}
	for _, u := range unfit {
		if u.measure >= 0 {
			return Folded{}, overflowError(c.def, u.key, u.measure)
		}
	}
	return c.fold(ctx, cfg)
}

// unfit is a key with a sum that is out of range: that of the journal's part, or, in a
// measure, that of the counter row and the part.
type unfit struct {
	key     []any
	measure int // -1 if only the part's own is out of range
}

// unfit finds keys with sums that are out of range. What it reads may change before it
// is used, which costs a fold another try.
func (c *Handle) unfit(ctx context.Context, part journalPart) ([]unfit, error) {
	var (
		d      = c.def
		w      = newWriter(c.sql)
		key    = numbered("k", len(d.Key))
		totals = numbered("m", len(d.Measures))
		parts  = numbered("d", len(d.Measures))
	)
	half := func(table string, measures []string, taken bool) {
		for i, name := range d.keyNames() {
			w.ident(name).sql(" AS ").ident(key[i]).sql(", ")
		}
		for i, name := range measures {
			if i > 0 {
				w.sql(", ")
			}
			w.ident(name).sql(" AS ").ident(totals[i]).sql(", ")
			if taken {
				w.ident(name)
			} else {
				w.sql("0")
			}
			w.sql(" AS ").ident(parts[i])
		}
		w.sql(" FROM ").ident(table)
	}
	w.sql("SELECT ").idents(key...)
	for _, name := range totals {
		w.sql(", CASE WHEN ", c.sql.outOfRange(w.quote(name)), " THEN 1 ELSE 0 END")
	}
	w.sql(" FROM (SELECT ")
	half(d.Table, d.measureNames(), false)
	journalPart{only: part.only}.where(w, d)
	w.sql(" UNION ALL SELECT * FROM (SELECT ")
	half(d.Journal, d.deltaNames(), true)
	part.oldest(w, d).sql(") AS ").ident("part").sql(") AS ").ident("t").sql(" GROUP BY ").idents(key...).sql(" HAVING ")
	for i, name := range slices.Concat(totals, parts) {
		if i > 0 {
			w.sql(" OR ")
		}
		w.sql(c.sql.outOfRange(w.quote(name)))
	}
	w.sql(" LIMIT ", strconv.Itoa(unfitKeys))
	var found []unfit
	err := query(ctx, c.drv, w, func(scan func(...any) error) error {
		u := unfit{measure: -1}
		var dest []any
		for _, col := range d.Key {
			dest = append(dest, scanTarget(col))
		}
		flags := make([]int, len(d.Measures))
		for i := range flags {
			dest = append(dest, &flags[i])
		}
		if err := scan(dest...); err != nil {
			return err
		}
		u.measure = slices.Index(flags, 1)
		var err error
		u.key, err = d.scannedKey(dest[:len(d.Key)])
		found = append(found, u)
		return err
	})
	return found, err
}

// foldState is what a plain read shows before a fold.
type foldState struct {
	idle   bool          // the journal is empty
	lag    time.Duration // the age of its oldest row
	paused bool
}

func (c *Handle) look(ctx context.Context) (foldState, error) {
	w := newWriter(c.sql)
	w.sql("SELECT (SELECT ", c.sql.age(w.quote(ColumnInsertedAt)), " FROM ").ident(c.def.Journal).sql(" ORDER BY ").ident(ColumnJournalID).
		sql(" LIMIT 1), (SELECT 1 FROM ").ident(LockTable).sql(" WHERE ").
		equals([]string{"counter_name", "operation"}, []any{c.def.Name, markPaused}).sql(")")
	var age, paused stdsql.NullInt64
	err := queryRow(ctx, c.drv, w, &age, &paused)
	return foldState{idle: !age.Valid, lag: max(time.Duration(age.Int64)*time.Microsecond, 0), paused: paused.Valid}, err
}

// lockFree writes the lock row of an operation like lock, but does not wait for whoever
// has locked it: that is ErrFoldedElsewhere.
func (c *Handle) lockFree(ctx context.Context, tx dialect.Tx, operation string) error {
	w := newWriter(c.sql)
	if c.sql.tryLock(w, c.def.Name, operation); w.Len() > 0 {
		var one int
		err := queryRow(ctx, tx, w, &one)
		switch {
		case serverErrorOf(err).mysql == mysqlSyntax:
			return c.noSkipLocked(ctx, tx, err)
		case errors.Is(err, stdsql.ErrNoRows):
			w := newWriter(c.sql)
			w.sql("SELECT 1 FROM ").ident(LockTable).sql(" WHERE ").equals([]string{"counter_name", "operation"}, []any{c.def.Name, operation})
			if err := queryRow(ctx, tx, w, &one); errors.Is(err, stdsql.ErrNoRows) {
				return errNoLockRows
			} else if err != nil {
				return err
			}
			return ErrFoldedElsewhere
		case err != nil:
			return err
		}
	}
	return c.lock(ctx, tx, []string{operation})
}

func (c *Handle) foldAtOnce(ctx context.Context, tx dialect.Tx, s foldsAtOnce, cfg foldConfig) (folded Folded, err error) {
	w := newWriter(s)
	s.fold(w, c.def, cfg.part)
	err = queryRow(ctx, tx, w, &folded.Rows, &folded.Keys, &folded.Deepest)
	return folded, err
}

// foldBySteps claims, reads, sums, adds and deletes.
func (c *Handle) foldBySteps(ctx context.Context, tx dialect.Tx, s foldsBySteps, cfg foldConfig) (Folded, error) {
	var claimed []int64
	w := newWriter(s)
	if s.claim(w, c.def, cfg.part); w.Len() > 0 {
		err := query(ctx, tx, w, func(scan func(...any) error) error {
			var id int64
			if err := scan(&id); err != nil {
				return err
			}
			claimed = append(claimed, id)
			return nil
		})
		if serverErrorOf(err).mysql == mysqlSyntax {
			return Folded{}, c.noSkipLocked(ctx, tx, err)
		}
		if err != nil || len(claimed) == 0 {
			return Folded{}, err
		}
	}
	sums, ids, err := c.sumJournal(ctx, tx, s, claimed, cfg.part)
	if err != nil {
		return Folded{}, err
	}
	folded := Folded{Rows: len(ids), Keys: len(sums.byKey), Full: len(claimed) == cfg.part.batch}
	for _, sum := range sums.byKey {
		folded.Deepest = max(folded.Deepest, sum.deltas)
	}
	for rows := range slices.Chunk(sums.rows(), maxParameters/len(c.def.counterColumns())) {
		w := newWriter(s)
		s.upsert(w, c.def, rows)
		if err := exec(ctx, tx, w); err != nil {
			return Folded{}, err
		}
	}
	if cfg.observe != nil {
		cfg.observe(len(claimed), len(ids))
	}
	if cfg.deleteClaim {
		ids = claimed
	}
	for chunk := range slices.Chunk(ids, idChunk) {
		w := newWriter(s)
		s.deleteJournal(w, c.def, chunk)
		n, err := execAffected(ctx, tx, w)
		if err != nil {
			return Folded{}, err
		}
		if n != int64(len(chunk)) {
			return Folded{}, fmt.Errorf("%d of %d folded rows were deleted from %s: something else writes to the journal", n, len(chunk), c.def.Journal)
		}
	}
	return folded, nil
}

// sumJournal adds up journal rows by key: the claimed ones, or where nothing had
// to be claimed the oldest ones. It returns the sums and the ids of the rows in them.
func (c *Handle) sumJournal(ctx context.Context, tx dialect.Tx, s foldsBySteps, claimed []int64, part journalPart) (*sums, []int64, error) {
	var (
		ids  = make([]int64, 0, len(claimed))
		sums = newSums(c.def)
	)
	read := func(chunk []int64) error {
		var (
			id       int64
			inserted string
			w        = newWriter(s)
		)
		s.readJournal(w, c.def, chunk, part)
		return query(ctx, tx, w, func(scan func(...any) error) error {
			sum, err := sums.scan(scan, []any{&id}, []any{&inserted})
			if err != nil {
				return err
			}
			ids = append(ids, id)
			sum.updatedAt = max(sum.updatedAt, inserted)
			return nil
		})
	}
	if claimed == nil {
		if err := read(nil); err != nil {
			return nil, nil, err
		}
	}
	for chunk := range slices.Chunk(claimed, idChunk) {
		if err := read(chunk); err != nil {
			return nil, nil, err
		}
	}
	return sums, ids, nil
}

// sums adds up measures by key. What is summed may leave the range of BIGINT on
// the way, as long as it ends there.
type sums struct {
	def      *Definition
	byKey    map[string]*sum
	keys     []any // scan targets
	measures []int64
	buf      []byte
}

type sum struct {
	key       []any
	measures  []int128
	deltas    int
	updatedAt string
}

func newSums(d *Definition) *sums {
	s := &sums{def: d, byKey: make(map[string]*sum), measures: make([]int64, len(d.Measures))}
	for _, col := range d.Key {
		s.keys = append(s.keys, scanTarget(col))
	}
	return s
}

// scan scans a row of the key and the measures, with other columns before and
// after them, adds it to its key's sum and returns that.
func (s *sums) scan(scan func(...any) error, before, after []any) (*sum, error) {
	dest := slices.Concat(before, s.keys)
	for i := range s.measures {
		dest = append(dest, &s.measures[i])
	}
	if err := scan(append(dest, after...)...); err != nil {
		return nil, err
	}
	key, err := s.def.scannedKey(s.keys)
	if err != nil {
		return nil, err
	}
	s.buf = appendKey(s.buf[:0], key)
	found := s.byKey[string(s.buf)]
	if found == nil {
		found = &sum{key: key, measures: make([]int128, len(s.measures))}
		s.byKey[string(s.buf)] = found
	}
	found.deltas++
	for i, m := range s.measures {
		found.measures[i].add(m)
	}
	return found, nil
}

// rows returns the sums in a fixed order of the keys. One that is out of range is in
// two parts, of which the first takes a counter row that the whole fits into nowhere
// out of range.
func (s *sums) rows() []foldedRow {
	rows := make([]foldedRow, 0, len(s.byKey))
	for _, key := range slices.Sorted(maps.Keys(s.byKey)) {
		sum := s.byKey[key]
		for rest := slices.Clone(sum.measures); ; {
			row := foldedRow{key: sum.key, measures: make([]int64, len(rest)), updatedAt: sum.updatedAt}
			for i := range rest {
				row.measures[i] = rest[i].take()
			}
			rows = append(rows, row)
			if !slices.ContainsFunc(rest, func(m int128) bool { return m != int128{} }) {
				break
			}
		}
	}
	return rows
}

// int128 is a sum of int64s, in two's complement.
type int128 struct{ hi, lo uint64 }

func (s *int128) add(v int64) {
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, uint64(v), 0)
	s.hi, _ = bits.Add64(s.hi, uint64(v>>63), carry)
}

// take takes off as much of the sum as an int64 holds, and returns that.
func (s *int128) take() int64 {
	v := int64(s.lo)
	if s.hi == uint64(v>>63) {
		*s = int128{}
		return v
	}
	if v = math.MaxInt64; int64(s.hi) < 0 {
		v = -v
	}
	s.add(-v)
	return v
}

// scannedKey returns the key that was scanned into targets.
func (d *Definition) scannedKey(targets []any) ([]any, error) {
	key := make([]any, len(targets))
	for i, t := range targets {
		v, err := scannedValue(d.Key[i], t)
		if err != nil {
			return nil, err
		}
		key[i] = v
	}
	return key, nil
}

// noSkipLocked says what a syntax error in a claim means. It asks in the same
// transaction, since the pool may have one connection only.
func (c *Handle) noSkipLocked(ctx context.Context, tx dialect.Tx, cause error) error {
	w := newWriter(c.sql)
	w.sql("SELECT VERSION()")
	var version string
	if err := queryRow(ctx, tx, w, &version); err != nil {
		return fmt.Errorf("%w: %w", ErrNoSkipLocked, cause)
	}
	return fmt.Errorf("%w; this one is %s: %w", ErrNoSkipLocked, version, cause)
}

func quoteAll(w *writer, names []string) []string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = w.quote(name)
	}
	return quoted
}
