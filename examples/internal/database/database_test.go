package database

import (
	"path/filepath"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
)

func TestParse(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	src, err := Parse("", "program")
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(cache, "entcounter", "program.db"); src.Dialect != dialect.SQLite || src.Label != "sqlite:"+want {
		t.Errorf("%+v, want %s", src, want)
	}
	if _, err := Parse("nonsense", "program"); err == nil || !strings.HasPrefix(err.Error(), "-dsn: cannot tell") {
		t.Errorf("%v", err)
	}
}
