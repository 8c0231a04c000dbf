package entcounter_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	goBlock    = regexp.MustCompile("(?s)```go\n// ([^\n]+)\n(.*?)```")
	link       = regexp.MustCompile(`\]\(([^)#:]+)\)`)
	folderCell = regexp.MustCompile("(?m)^\\| (`[a-z/]+`(?:, `[a-z/]+`)*) \\|")
)

// What the README and the pages of docs print is what compiles and runs: each piece of Go stands in the
// file that it names, and what they refer to exists.
func TestReadme(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("pages of docs: %v, %v", pages, err)
	}
	for _, page := range append(pages, "README.md") {
		t.Run(page, func(t *testing.T) { testPage(t, page) })
	}
}

func testPage(t *testing.T, page string) {
	readme, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	blocks := goBlock.FindAllStringSubmatch(string(readme), -1)
	if len(blocks) != strings.Count(string(readme), "```go\n") {
		t.Error("a piece of Go does not name its file")
	}
	for _, b := range blocks {
		source, err := os.ReadFile(b[1])
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.Contains(unindented(string(source)), unindented(b[2])) {
			t.Errorf("%s does not contain:\n%s", b[1], b[2])
		}
	}
	var paths []string
	for _, m := range link.FindAllStringSubmatch(string(readme), -1) {
		paths = append(paths, filepath.Join(filepath.Dir(page), m[1]))
	}
	_, layout, _ := strings.Cut(string(readme), "## Layout")
	for _, m := range folderCell.FindAllStringSubmatch(layout, -1) {
		for cell := range strings.SplitSeq(m[1], ", ") {
			paths = append(paths, strings.Trim(cell, "`"))
		}
	}
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

func unindented(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(strings.TrimSpace(line))
		b.WriteByte('\n')
	}
	return b.String()
}
