package main

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestEncode(t *testing.T) {
	for _, test := range []struct{ name, want string }{
		{"plain.go", "plain.go"},
		{"dir/sub dir/é 世界 🙂.txt", "dir/sub dir/é 世界 🙂.txt"},
		{"ends in a space ", `ends in a space\x20`},
		{"two  ", `two \x20`},
		{"line\nbreak\ttab", `line\x0abreak\x09tab`},
		{`back\slash`, `back\x5cslash`},
		{"latin1 \xe9.txt", `latin1 \xe9.txt`},
		{"\xff\xfe", `\xff\xfe`},
		{"half a rune \xe4\xb8", `half a rune \xe4\xb8`},
		{"next line \u0085", `next line \xc2\x85`},
		{"replacement \ufffd", "replacement \ufffd"},
		{"%_'\"`$", "%_'\"`$"},
	} {
		got := encode(test.name, maxPath)
		if got != test.want {
			t.Errorf("encode(%q) = %s, want %s", test.name, got, test.want)
		}
		if back, ok := decode(got); !ok || back != test.name {
			t.Errorf("decode(%s) = %q, %v, want %q", got, back, ok, test.name)
		}
	}
}

func TestAbbreviate(t *testing.T) {
	root := "/srv/data"
	long := root + "/" + strings.Repeat("\xff", 100) + strings.Repeat("long/", 60)
	seen := make(map[string]bool)
	for _, end := range []string{"a", "b", "a ", "A"} {
		got := encode(long+end, maxDataset)
		if len(got) > maxDataset || len(got) < maxDataset-8 {
			t.Errorf("%d bytes: %s", len(got), got)
		}
		if _, ok := decode(got); ok {
			t.Errorf("%s was decoded", got)
		}
		if !within(root, got) {
			t.Errorf("%s is not within %s", got, root)
		}
		if seen[got] {
			t.Errorf("%s is the name of two folders", got)
		}
		seen[got] = true
	}
	if name := strings.Repeat("x", maxPath); encode(name, maxPath) != name {
		t.Error("a name that just fits is abbreviated")
	}
}

func TestWithin(t *testing.T) {
	for _, test := range []struct {
		root, path string
		want       bool
	}{
		{"/a/b", "/a/b", true},
		{"/a/b", "/a/b/c", true},
		{"/a/b", "/a/bc", false},
		{"/a/b", "/a", false},
		{"/a/b ", "/a/b ", true},
		{"/a/b ", "/a/b /c", true},
		{"/", "/", true},
		{"/", "/a", true},
	} {
		if got := within(test.root, encode(test.path, maxDataset)); got != test.want {
			t.Errorf("within(%q, %q) = %v", test.root, test.path, got)
		}
	}
}

// Whatever a file is called, its name in the database is text that fits, and leads back to it.
func FuzzEncode(f *testing.F) {
	f.Add("plain.go", 700)
	f.Add("\xff \\x20 ", 40)
	f.Add(strings.Repeat("é", 200), 255)
	f.Add(strings.Repeat("\n", 64), 255)
	f.Fuzz(checkEncode)
}

func checkEncode(t *testing.T, name string, limit int) {
	if limit < abbreviationLength || limit > 4096 {
		t.Skip()
	}
	got := encode(name, limit)
	if !utf8.ValidString(got) || len(got) > limit || strings.HasSuffix(got, " ") {
		t.Errorf("encode(%q, %d) = %q", name, limit, got)
	}
	back, ok := decode(got)
	if ok && back != name {
		t.Errorf("decode(encode(%q)) = %q", name, back)
	}
	if !ok && !strings.Contains(got, abbreviation) {
		t.Errorf("encode(%q) = %q cannot be decoded", name, got)
	}
}
