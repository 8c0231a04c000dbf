package countercli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/entcounter/entcounter/entcounter"
	"github.com/rivo/uniseg"
	"github.com/spf13/cobra"
)

// table is lines of cells under a head.
type table struct {
	head []column
	rows [][]string
}

// column is the head of a column; numbers are aligned to the right.
type column struct {
	name   string
	number bool
}

func text(names ...string) []column   { return columns(names, false) }
func number(names ...string) []column { return columns(names, true) }

func columns(names []string, number bool) []column {
	columns := make([]column, len(names))
	for i, name := range names {
		columns[i] = column{strings.ToUpper(name), number}
	}
	return columns
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// lines returns the table, in lines without trailing spaces.
func (t *table) lines() []string {
	width := make([]int, len(t.head))
	for i, c := range t.head {
		width[i] = uniseg.StringWidth(c.name)
		for _, row := range t.rows {
			width[i] = max(width[i], uniseg.StringWidth(row[i]))
		}
	}
	line := func(cell func(i int) string) string {
		var b strings.Builder
		for i, c := range t.head {
			s := cell(i)
			space := strings.Repeat(" ", width[i]-uniseg.StringWidth(s))
			if i > 0 {
				b.WriteString("  ")
			}
			if c.number {
				s, space = space, s
			}
			b.WriteString(s)
			b.WriteString(space)
		}
		return strings.TrimRight(b.String(), " ")
	}
	lines := []string{line(func(i int) string { return t.head[i].name })}
	for _, row := range t.rows {
		lines = append(lines, line(func(i int) string { return row[i] }))
	}
	return lines
}

func (t *table) print(w io.Writer) {
	for _, line := range t.lines() {
		fmt.Fprintln(w, line)
	}
}

// value writes the value of a key column for a terminal: what is empty, is not
// printable or begins or ends with a space is quoted.
func value(v any) string {
	s := entcounter.FormatValue(v)
	if quoted := strconv.QuoteToGraphic(s); s == "" || strings.TrimSpace(s) != s || quoted[1:len(quoted)-1] != s {
		return quoted
	}
	return s
}

// key writes a key, or a part of one, as column=value.
func key(names []string, values []any) string {
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = names[i] + "=" + value(v)
	}
	return strings.Join(parts, " ")
}

// shorten cuts a text to a width, in its middle.
func shorten(s string, width int) string {
	if uniseg.StringWidth(s) <= width {
		return s
	}
	r := []rune(s)
	half := (width - 1) / 2
	return string(r[:min(half, len(r))]) + "…" + string(r[max(len(r)-half, 0):])
}

func keyNames(h *entcounter.Handle) []string {
	var names []string
	for _, c := range h.Definition().Key {
		names = append(names, c.Name)
	}
	return names
}

func measureNames(h *entcounter.Handle) []string {
	var names []string
	for _, m := range h.Definition().Measures {
		names = append(names, m.Name)
	}
	return names
}

// comma writes a number with separators.
func comma(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// plural writes a number of things.
func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return comma(n) + " " + many
}

// instant writes a time, to the second in UTC.
func instant(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.DateTime)
}

// age writes a duration, coarser the longer it is.
func age(d time.Duration) string {
	switch {
	case d <= 0:
		return "-"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < 48*time.Hour:
		s := d.Round(time.Second).String()
		if d >= time.Hour {
			s, _, _ = strings.Cut(d.Round(time.Minute).String(), "m")
			s += "m"
		}
		return s
	}
	return comma(int64(d/(24*time.Hour))) + "d"
}

// object is a JSON object whose fields keep their order.
type object []member

type member struct {
	name  string
	value any
}

// MarshalJSON writes the fields.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for i, m := range o {
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		b.WriteByte("{,"[min(i, 1)])
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	if len(o) == 0 {
		b.WriteByte('{')
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// fields makes an object of names and values.
func fields[T any](names []string, values []T) object {
	o := make(object, len(values))
	for i, v := range values {
		var plain any = v
		if b, ok := plain.([]byte); ok {
			plain = entcounter.FormatValue(b)
		}
		o[i] = member{names[i], plain}
	}
	return o
}

// timeOrNull is a time in JSON, null where there is none.
func timeOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC()
}

// printJSON writes a value, indented, on standard output.
func printJSON(cmd *cobra.Command, v any) error {
	e := json.NewEncoder(cmd.OutOrStdout())
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// note writes a line on standard error.
func note(cmd *cobra.Command, format string, args ...any) {
	fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...)
}
