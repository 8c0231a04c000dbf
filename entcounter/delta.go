package entcounter

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// ErrOverflow is returned when a sum leaves the range of BIGINT, or the delta of a key
// in one transaction that of ±(2⁶³−1). Nothing of the key is written; a fold goes on with
// the other keys.
var ErrOverflow = errors.New("entcounter: value out of the range of BIGINT")

// Delta is a signed change of every measure of one key.
type Delta struct {
	// Key values in the order of Definition.Key.
	Key []any
	// Measures in the order of Definition.Measures.
	Measures []int64
}

// deltaCells are scan targets for a key and its measures.
type deltaCells struct {
	def      *Definition
	key      []any
	measures []int64
}

func newDeltaCells(d *Definition) *deltaCells {
	c := &deltaCells{def: d, measures: make([]int64, len(d.Measures))}
	for _, col := range d.Key {
		c.key = append(c.key, scanTarget(col))
	}
	return c
}

// targets are those of the key columns, and then those of the measures.
func (c *deltaCells) targets() []any {
	dest := slices.Clone(c.key)
	for i := range c.measures {
		dest = append(dest, (*Amount)(&c.measures[i]))
	}
	return dest
}

// delta is what was scanned. Without a row, the values of its key are nil.
func (c *deltaCells) delta() (Delta, error) {
	key, err := c.def.scannedKey(c.key)
	return Delta{Key: key, Measures: c.measures}, err
}

// changes collects deltas by counter and key. The zero value is ready to use.
type changes struct {
	byCounter map[*Definition]map[string]*Delta
	buf       []byte
}

// add adds times × measures to a key. The key is kept, the measures are not.
func (c *changes) add(d *Definition, key []any, measures []int64, times int64) error {
	if c.byCounter == nil {
		c.byCounter = make(map[*Definition]map[string]*Delta)
	}
	deltas := c.byCounter[d]
	if deltas == nil {
		deltas = make(map[string]*Delta)
		c.byCounter[d] = deltas
	}
	c.buf = appendKey(c.buf[:0], key)
	delta := deltas[string(c.buf)]
	if delta == nil {
		delta = &Delta{Key: key, Measures: make([]int64, len(d.Measures))}
		deltas[string(c.buf)] = delta
	}
	for i, m := range measures {
		product, ok := mulInt64(m, times)
		if ok {
			delta.Measures[i], ok = addInt64(delta.Measures[i], product)
		}
		// What is added must be possible to take back: −2⁶³ has no opposite.
		if !ok || delta.Measures[i] == math.MinInt64 {
			return overflowError(d, key, i)
		}
	}
	return nil
}

// addAll adds deltas of one counter.
func (c *changes) addAll(d *Definition, deltas []Delta) error {
	for _, delta := range deltas {
		if err := c.add(d, delta.Key, delta.Measures, 1); err != nil {
			return err
		}
	}
	return nil
}

// merge adds all of other's deltas.
func (c *changes) merge(other *changes) error {
	for d, deltas := range other.byCounter {
		for _, delta := range deltas {
			if err := c.add(d, delta.Key, delta.Measures, 1); err != nil {
				return err
			}
		}
	}
	return nil
}

// counters returns the counters with deltas, by name.
func (c *changes) counters() []*Definition {
	return slices.SortedFunc(maps.Keys(c.byCounter), func(a, b *Definition) int { return strings.Compare(a.Name, b.Name) })
}

// drain returns the deltas of one counter that are not zero, ordered by key,
// and forgets them.
func (c *changes) drain(d *Definition) []Delta {
	deltas := c.byCounter[d]
	delete(c.byCounter, d)
	type entry struct {
		key   string
		delta *Delta
	}
	entries := make([]entry, 0, len(deltas))
	for key, delta := range deltas {
		if !isZero(delta.Measures) {
			entries = append(entries, entry{key, delta})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	drained := make([]Delta, len(entries))
	for i, e := range entries {
		drained[i] = *e.delta
	}
	return drained
}

func isZero(measures []int64) bool {
	return !slices.ContainsFunc(measures, func(m int64) bool { return m != 0 })
}

func overflowError(d *Definition, key []any, measure int) error {
	return fmt.Errorf("%w: counter %s, key %s, measure %s", ErrOverflow, d.Name, formatKey(d.Key, key), d.Measures[measure].Name)
}

func addInt64(a, b int64) (int64, bool) {
	sum := a + b
	return sum, (sum > a) == (b > 0)
}

func mulInt64(a, b int64) (int64, bool) {
	if a == 0 || b == 0 {
		return 0, true
	}
	p := a * b
	// MinInt64 × -1 wraps onto itself and survives the division.
	return p, p/b == a && cmp.Compare(p, 0) == cmp.Compare(a, 0)*cmp.Compare(b, 0)
}
