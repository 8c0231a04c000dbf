package entcounter

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
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
	// Full tells that the fold claimed as many rows as it may: fold again.
	Full bool
}

// FoldOption changes how one fold is done.
type FoldOption func(*foldConfig)

type foldConfig struct {
	batch int
	level stdsql.IsolationLevel

	// For tests, which show what goes wrong without what the fold takes care of:
	// deleteClaim deletes what was claimed, rather than what was summed, and observe
	// is told how many rows were.
	deleteClaim bool
	observe     func(claimed, summed int)
}

// WithBatch sets how many journal rows the fold claims at most, in place of
// [DefaultFoldBatch].
func WithBatch(n int) FoldOption {
	return func(c *foldConfig) { c.batch = n }
}

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
// all the time: another fold does its work, or the next one will. A
// sum that leaves the range of BIGINT is an [ErrOverflow] that names the key, and
// the journal keeps its rows. A server that lacks SKIP LOCKED gets
// [ErrNoSkipLocked].
func (c *Handle) Fold(ctx context.Context, opts ...FoldOption) (Folded, error) {
	cfg := foldConfig{batch: DefaultFoldBatch, level: stdsql.LevelReadCommitted}
	for _, opt := range opts {
		opt(&cfg)
	}
	if cfg.batch < 1 {
		return Folded{}, c.wrap("folding", fmt.Errorf("batch of %d rows", cfg.batch))
	}
	if inTransaction(c.drv) {
		return Folded{}, c.wrap("folding", ErrInTransaction)
	}
	c.markLater(ctx)
	// An idle counter costs one read, in place of a write that must reach the disk.
	if idle, err := c.idle(ctx); err != nil || idle {
		return Folded{}, c.wrap("folding", err)
	}
	var folded Folded
	err := c.transact(ctx, cfg.level, false, func(tx dialect.Tx) (err error) {
		started := time.Now()
		switch s := c.sql.(type) {
		case foldsAtOnce:
			folded, err = c.foldAtOnce(ctx, tx, s, cfg)
		case foldsBySteps:
			folded, err = c.foldBySteps(ctx, tx, s, cfg)
		}
		folded.Full = folded.Full || folded.Rows == cfg.batch
		if err != nil || folded.Rows == 0 {
			return err
		}
		w := newWriter(c.sql)
		writeFolded(w, c.sql, c.def.Name, folded.Rows, time.Since(started))
		return exec(ctx, tx, w)
	}, lockFold)
	var interrupted *interruptedError
	switch {
	case err == nil:
		return folded, nil
	case errors.As(err, &interrupted):
		return Folded{}, nil
	case overflows(err) && !errors.Is(err, ErrOverflow):
		err = c.nameOverflow(ctx, cfg, err)
	}
	return Folded{}, c.wrap("folding", err)
}

// idle reports whether the journal is empty, by a plain read.
func (c *Handle) idle(ctx context.Context) (bool, error) {
	w := newWriter(c.sql)
	w.sql("SELECT 1 FROM ").ident(c.def.Journal).sql(" LIMIT 1")
	var one int
	err := queryRow(ctx, c.drv, w, &one)
	if errors.Is(err, stdsql.ErrNoRows) {
		return true, nil
	}
	return false, err
}

func (c *Handle) foldAtOnce(ctx context.Context, tx dialect.Tx, s foldsAtOnce, cfg foldConfig) (folded Folded, err error) {
	w := newWriter(s)
	s.fold(w, c.def, cfg.batch)
	err = queryRow(ctx, tx, w, &folded.Rows, &folded.Keys)
	return folded, err
}

// foldBySteps claims, reads, sums, adds and deletes.
func (c *Handle) foldBySteps(ctx context.Context, tx dialect.Tx, s foldsBySteps, cfg foldConfig) (Folded, error) {
	var claimed []int64
	w := newWriter(s)
	if s.claim(w, c.def, cfg.batch); w.Len() > 0 {
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
	sums, ids, err := c.sumJournal(ctx, tx, s, claimed, cfg.batch)
	if err != nil {
		return Folded{}, err
	}
	folded := Folded{Rows: len(ids), Keys: len(sums), Full: len(claimed) == cfg.batch}
	for rows := range slices.Chunk(sums, maxParameters/len(c.def.counterColumns())) {
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
// to be claimed the oldest ones. It returns the sums in a fixed order of the keys
// and the ids of the rows in them.
func (c *Handle) sumJournal(ctx context.Context, tx dialect.Tx, s foldsBySteps, claimed []int64, batch int) ([]foldedRow, []int64, error) {
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
		s.readJournal(w, c.def, chunk, batch)
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
	rows, err := sums.rows()
	return rows, ids, err
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
	for i, m := range s.measures {
		found.measures[i].add(m)
	}
	return found, nil
}

// rows returns the sums in a fixed order of the keys, or an error that names one
// that is out of range.
func (s *sums) rows() ([]foldedRow, error) {
	rows := make([]foldedRow, 0, len(s.byKey))
	for _, key := range slices.Sorted(maps.Keys(s.byKey)) {
		sum := s.byKey[key]
		row := foldedRow{key: sum.key, measures: make([]int64, len(sum.measures)), updatedAt: sum.updatedAt}
		for i, m := range sum.measures {
			var ok bool
			if row.measures[i], ok = m.int64(); !ok {
				return nil, overflowError(s.def, sum.key, i)
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// int128 is a sum of int64s, in two's complement.
type int128 struct{ hi, lo uint64 }

func (s *int128) add(v int64) {
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, uint64(v), 0)
	s.hi, _ = bits.Add64(s.hi, uint64(v>>63), carry)
}

func (s int128) int64() (int64, bool) {
	v := int64(s.lo)
	return v, s.hi == uint64(v>>63)
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

// nameOverflow finds the key whose sum does not fit, after a statement over many
// keys has failed. It reads outside of the transaction that failed, and what it
// reads only goes into the message.
func (c *Handle) nameOverflow(ctx context.Context, cfg foldConfig, cause error) error {
	d, sums := c.def, newSums(c.def)
	journal := newWriter(c.sql)
	journal.sql("SELECT ").idents(slices.Concat(d.keyNames(), d.deltaNames())...).sql(" FROM ").ident(d.Journal).
		sql(" ORDER BY ").ident(ColumnJournalID).sql(" LIMIT ", strconv.Itoa(cfg.batch))
	counters := newWriter(c.sql)
	key := strings.Join(quoteAll(counters, d.keyNames()), ", ")
	counters.sql("SELECT ").idents(slices.Concat(d.keyNames(), d.measureNames())...).sql(" FROM ").ident(d.Table).
		sql(" WHERE (", key, ") IN (SELECT ", key, " FROM ").ident(d.Journal).sql(")")
	for _, w := range []*writer{journal, counters} {
		err := query(ctx, c.drv, w, func(scan func(...any) error) error {
			_, err := sums.scan(scan, nil, nil)
			return err
		})
		if err != nil {
			return fmt.Errorf("%w: %w", ErrOverflow, cause)
		}
	}
	if _, err := sums.rows(); err != nil {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return fmt.Errorf("%w: %w", ErrOverflow, cause)
}

func quoteAll(w *writer, names []string) []string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = w.quote(name)
	}
	return quoted
}
