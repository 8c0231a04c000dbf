package entcounter

import (
	"context"
	stdsql "database/sql"
	"database/sql/driver"
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"entgo.io/ent/dialect/sql"
)

func TestPlainSelects(t *testing.T) {
	for query, want := range map[string]bool{
		"SELECT `a` FROM `b`":                               true,
		" (SELECT 1) UNION ALL (SELECT 2)":                  true,
		"SELECT `blocked`, 'for ' FROM \"lock for update\"": true,
		"SELECT * FROM t WHERE id = $1":                     true,
		"SELECT * FROM t FOR UPDATE":                        false,
		"select * from t for share skip locked":             false,
		"SELECT * FROM t LOCK IN SHARE MODE":                false,
		"SELECT pg_advisory_xact_lock(1)":                   false,
		"SELECT 'it\\'s' FROM t FOR UPDATE":                 false,
		"SELECT $$'$$ FROM t FOR UPDATE":                    false,
		"SELECT 'open":                                      false,
		"WITH x AS (DELETE FROM t RETURNING 1) SELECT 1":    false,
		"INSERT INTO t SELECT 1":                            false,
	} {
		if got := isPlainSelect(query); got != want {
			t.Errorf("%q: plain is %v", query, got)
		}
	}
}

func TestDifferentArgumentsHaveDifferentTexts(t *testing.T) {
	var (
		at    = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
		other = at.In(time.FixedZone("other", 3600))
		one   = 1
	)
	lists := [][]any{
		{}, {nil}, {nil, nil}, {1}, {-1}, {"1"}, {[]byte("1")}, {1.0}, {true}, {false}, {"true"},
		{"a", "b"}, {"ab"}, {"a", "", "b"}, {"", "ab"}, {math.NaN()}, {math.Inf(1)}, {0.0}, {math.Copysign(0, -1)},
		{at}, {at.Add(1)}, {other}, {at.String()}, {int64(1 << 40)},
	}
	seen := make(map[string]int)
	for i, list := range lists {
		text, ok := encodeArgs(list)
		if !ok {
			t.Errorf("%v is not known", list)
		}
		if j, ok := seen[text]; ok {
			t.Errorf("%v and %v have one text", list, lists[j])
		}
		seen[text] = i
	}
	same, _ := encodeArgs([]any{1})
	if text, ok := encodeArgs([]any{&one}); !ok || text != same {
		t.Errorf("a pointer is not what it points to: %q %v", text, ok)
	}
	one = 2 // the same pointer is another argument now
	if text, _ := encodeArgs([]any{&one}); text == same {
		t.Error("a pointer is taken for its address")
	}
	for _, unknown := range []any{uint64(math.MaxUint64), struct{}{}, []string{"a"}, failing{}} {
		if text, ok := encodeArgs([]any{unknown}); ok {
			t.Errorf("%v has the text %q", unknown, text)
		}
	}
}

type failing struct{}

func (failing) Value() (driver.Value, error) { return nil, errors.New("no value") }

// Remembered rows are scanned as those of a driver are, and are nobody's to change.
func TestReplay(t *testing.T) {
	at := time.Now()
	a := &answer{
		columns: []string{"i", "s", "b", "f", "t", "n"},
		rows:    [][]driver.Value{{int64(7), "text", []byte("12"), 1.5, at, nil}},
	}
	for range 2 {
		rows, err := a.replay()
		if err != nil {
			t.Fatal(err)
		}
		var (
			i    stdsql.NullInt64
			s    []byte
			b    any
			n    int
			f    string
			when stdsql.NullTime
			null stdsql.NullString
		)
		if columns, err := rows.Columns(); err != nil || !reflect.DeepEqual(columns, a.columns) {
			t.Fatal(columns, err)
		}
		if !rows.Next() {
			t.Fatal("no row")
		}
		if err := rows.Scan(&i, &s, &b, &f, &when, &null); err != nil {
			t.Fatal(err)
		}
		if i.Int64 != 7 || string(s) != "text" || string(b.([]byte)) != "12" || f != "1.5" || !when.Time.Equal(at) || null.Valid {
			t.Error(i, s, b, f, when, null)
		}
		var raw stdsql.RawBytes
		if err := rows.Scan(&i, &s, &raw, &f, &when, &null); err != nil {
			t.Fatal(err)
		}
		raw[0], b.([]byte)[0] = 'x', 'x'
		if err := rows.Scan(&i, &s, &n, &f, &when, &null); err == nil {
			t.Error("a scan of changed bytes succeeds")
		}
		if rows.Next() {
			t.Error("a second row")
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Error(err)
		}
		if string(a.rows[0][2].([]byte)) != "12" {
			t.Error("the answer was changed")
		}
	}
}

func TestSessionVars(t *testing.T) {
	ctx := t.Context()
	if vars := sessionVars(ctx); vars != "" {
		t.Error(vars)
	}
	a := sessionVars(sql.WithVar(ctx, "tenant", "a"))
	if b := sessionVars(sql.WithVar(ctx, "tenant", "b")); a == "" || a == b {
		t.Error(a, b)
	}
	if again := sessionVars(sql.WithVar(ctx, "tenant", "a")); again != a {
		t.Error(a, again)
	}
}

// What fails for one, or panics, is asked again by the others.
func TestMemoAfterFailures(t *testing.T) {
	var (
		m     memo
		q     = question{query: "SELECT 1"}
		begun = make(chan struct{})
		fail  = make(chan struct{})
		asked = make(chan error)
	)
	go func() {
		_, err := m.ask(t.Context(), q, func(*answer) error {
			close(begun)
			<-fail
			return errors.New("the first one's")
		})
		asked <- err
	}()
	<-begun
	go func() {
		a, err := m.ask(t.Context(), q, func(a *answer) error {
			a.columns = []string{"second"}
			return nil
		})
		if err == nil && a.columns[0] != "second" {
			err = errors.New("not the second one's answer")
		}
		asked <- err
	}()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.ask(ended, q, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(fail)
	first, second := <-asked, <-asked
	if first == nil {
		first, second = second, first
	}
	if first == nil || second != nil {
		t.Error(first, second)
	}
	m.forget()
	func() {
		defer func() { _ = recover() }()
		_, _ = m.ask(t.Context(), q, func(*answer) error { panic("in a driver") })
	}()
	if _, err := m.ask(t.Context(), q, func(*answer) error { return nil }); err != nil {
		t.Error(err)
	}
}

// A read that the database answers late, after others began and ended, is not followed
// by what one of those has seen before it.
func TestMemoSuperseded(t *testing.T) {
	var (
		m     memo
		q     = question{query: "SELECT 1"}
		begun = make(chan struct{})
		late  = make(chan struct{})
		got   = make(chan string)
	)
	ask := func(name string, wait func()) string {
		a, err := m.ask(t.Context(), q, func(a *answer) error {
			wait()
			a.columns = []string{name}
			return nil
		})
		if err != nil {
			t.Error(err)
			return ""
		}
		return a.columns[0]
	}
	go func() {
		got <- ask("late", func() {
			close(begun)
			<-late
		})
	}()
	<-begun
	m.forget()
	atOnce := func() {}
	for range 2 {
		if name := ask("early", atOnce); name != "early" {
			t.Fatal(name)
		}
	}
	close(late)
	if name := <-got; name != "late" {
		t.Fatal(name)
	}
	for range 2 {
		if name := ask("last", atOnce); name != "last" {
			t.Errorf("after the late answer comes that of the %s one", name)
		}
	}
}
