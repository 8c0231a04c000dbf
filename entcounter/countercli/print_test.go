package countercli

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/entcounter/entcounter/entcounter"
)

func TestTable(t *testing.T) {
	table := table{head: append(text("name"), append(number("count"), text("rest")...)...)}
	table.add("a", "1", "x")
	table.add("世界", "1,000,000", "")
	table.add("e\u0301", "-5", "last")
	want := strings.TrimPrefix(`
NAME      COUNT  REST
a             1  x
世界  1,000,000
E            -5  last
`, "\n")
	want = strings.Replace(want, "\nE", "\ne\u0301", 1)
	if got := strings.Join(table.lines(), "\n") + "\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// Keys are data of users: nothing of them reaches a terminal as a command.
func TestValuesAreHarmless(t *testing.T) {
	for v, want := range map[any]string{
		"plain":                "plain",
		"two words":            "two words",
		"":                     `""`,
		" edge ":               `" edge "`,
		"\x1b[2J":              `"\x1b[2J"`,
		"line\nbreak":          `"line\nbreak"`,
		"\u202eevil":           `"\u202eevil"`,
		"\xff":                 `"\xff"`,
		`quote"`:               `"quote\""`,
		"世界":                   "世界",
		int64(-7):              "-7",
		true:                   "true",
		uint64(math.MaxUint64): "18446744073709551615",
	} {
		if got := value(v); got != want {
			t.Errorf("%q: %s, want %s", v, got, want)
		}
	}
	if got := value([]byte{0, 255}); got != "00ff" {
		t.Error(got)
	}
	if got := key([]string{"a", "b"}, []any{int64(1), "x y"}); got != "a=1 b=x y" {
		t.Error(got)
	}
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "-", -time.Second: "-", time.Millisecond: "0s", 1234 * time.Millisecond: "1.2s", 59 * time.Second: "59s",
		61 * time.Second: "1m1s", 3 * time.Hour: "3h0m", 47*time.Hour + 59*time.Minute: "47h59m", 1000 * 24 * time.Hour: "1,000d",
	} {
		if got := age(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}

func TestSmallThings(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", -1000: "-1,000", 1234567: "1,234,567", math.MinInt64: "-9,223,372,036,854,775,808"} {
		if got := comma(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	if got := spark([]int64{0, 1, 5, 10}); got != "▁▂▅█" {
		t.Error(got)
	}
	if got := spark([]int64{0, 0}); got != "▁▁" {
		t.Error(got)
	}
	if got := cut("abcdef", 4); got != "abc…" {
		t.Error(got)
	}
	if got := shorten("abcdefghij", 7); got != "abc…hij" {
		t.Error(got)
	}
	if got := difference(math.MinInt64, 1); got != "beyond BIGINT" {
		t.Error(got)
	}
	if got := difference(2, 5) + difference(5, 2); got != "-3+3" {
		t.Error(got)
	}
	b, err := json.Marshal(append(fields([]string{"z", "a"}, []any{[]byte{1}, "<b>"}), member{"t", timeOrNull(time.Time{})}))
	if err != nil || string(b) != `{"z":"01","a":"\u003cb\u003e","t":null}` {
		t.Errorf("%s %v", b, err)
	}
	if b, err := json.Marshal(object{}); err != nil || string(b) != "{}" {
		t.Errorf("%s %v", b, err)
	}
}

func TestStates(t *testing.T) {
	for name, h := range map[string]entcounter.Health{
		"ok":         {},
		"paused":     {Paused: true},
		"behind":     {Journal: 11, Paused: true},
		"negative":   {Negative: 1, NegativeKey: []any{int64(3), "New"}, Journal: 11},
		"not built":  {Built: entcounter.ErrNotBuilt, Negative: 1},
		"redeclared": {Built: entcounter.ErrDeclarationChanged},
	} {
		if got := (limits{rows: 10, age: time.Minute}).stateOf(h); got.name != name || (got.advice == "") != (name == "ok") {
			t.Errorf("%+v, want %s", got, name)
		}
	}
}
