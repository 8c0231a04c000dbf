package countergen

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// checkReads makes sure that declared reads are over fields of the key.
func (c *counter) checkReads() error {
	key := c.keyNames()
	for _, read := range c.Reads() {
		if len(read) == 0 {
			return c.errorf("a declared read has no fields: list the fields of the key that it fixes")
		}
		for i, name := range read {
			if !slices.Contains(key, name) {
				return c.errorf("field %q of a declared read is not part of the key (%s): add it to the key, or leave it out", name, strings.Join(key, ", "))
			}
			if slices.Contains(read[:i], name) {
				return c.errorf("field %q of a declared read is listed twice: remove one of the two", name)
			}
		}
	}
	return nil
}

// warnings tells what is not wrong about a counter, and slow: each declared read
// that is no range of an index, and each read index that the key makes needless.
func (c *counter) warnings() []string {
	var all []string
	warn := func(format string, args ...any) {
		text := fmt.Sprintf("entcounter: type %s: counter %q: warning: %s", c.Owner().Name, c.Name, fmt.Sprintf(format, args...))
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	key := c.keyNames()
	for _, read := range c.Reads() {
		indexes := append([][]string{key}, c.ReadIndexes()...)
		if !slices.ContainsFunc(indexes, func(index []string) bool { return beginsWith(index, read) }) {
			warn("reads by %s have no index that begins with these fields, and scan %s and %s: put them first in the key, or add entcounter.ReadIndex(%s)",
				enumerate(read), c.Definition.Table, c.Definition.Journal, quoted(read))
		}
	}
	for _, index := range c.ReadIndexes() {
		if slices.Equal(index, key[:min(len(index), len(key))]) {
			warn("the read index (%s) is the beginning of the key, which has an index: remove it, every index on the journal is paid on every write", strings.Join(index, ", "))
		}
	}
	return all
}

// beginsWith reports whether an index begins with the fields of a read, in any
// order: a read fixes each of them.
func beginsWith(index, read []string) bool {
	return len(index) >= len(read) && !slices.ContainsFunc(index[:len(read)], func(name string) bool { return !slices.Contains(read, name) })
}

func quoted(names []string) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(texts, ", ")
}

// warn writes the warnings of all counters.
func (p *plan) warn(w io.Writer) {
	for _, c := range p.Counters {
		for _, text := range c.warnings() {
			fmt.Fprintln(w, text)
		}
	}
}
