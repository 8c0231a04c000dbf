package entcounter

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestInlined(t *testing.T) {
	const query = "INSERT INTO `journal` (`k`, `n`) VALUES (?, ?)"
	id := uuid.MustParse("cfb2056b-26df-58e8-ad0a-80d43bb71002")
	for _, args := range [][]any{
		{"New", int64(-3)}, {nil, 0}, {true, uint8(7)}, {id, int64(math.MinInt64)}, {"a b:c/d@e_f.g-h", false},
	} {
		text, rest := inlined(query, args)
		if strings.Contains(text, "?") || len(rest) != 0 {
			t.Errorf("%v: %s %v", args, text, rest)
		}
	}
	if text, _ := inlined(query, []any{"New", int64(-3)}); text != "INSERT INTO `journal` (`k`, `n`) VALUES ('New', -3)" {
		t.Error(text)
	}
	for _, args := range [][]any{
		{"it's", 1}, {`back\slash`, 1}, {"", 1}, {"é", 1}, {"a\n", 1}, {"a?", 1}, {strings.Repeat("a", 65), 1}, {[]byte("a"), 1}, {1.5, 1}, {time.Now(), 1},
		{uint64(math.MaxUint64), 1}, {struct{}{}, 1}, {"New"}, {"New", 1, 2},
	} {
		if text, rest := inlined(query, args); text != query || !reflect.DeepEqual(rest, args) {
			t.Errorf("%v: %s %v", args, text, rest)
		}
	}
	named := strings.Replace(query, "`k`", "`k?`", 1)
	if text, rest := inlined(named, []any{"New", 1}); text != named || len(rest) != 2 {
		t.Error(text, rest)
	}
}
