package entcounter_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	block      = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```")
	goSource   = regexp.MustCompile(`(?s)^// ([^\n]+)\n(.*)$`)
	link       = regexp.MustCompile(`\[([^\]]*)\]\(([^)\s]+)\)`)
	heading    = regexp.MustCompile(`(?m)^#+ (.+)$`)
	testName   = regexp.MustCompile(`\bTest[A-Z]\w*`)
	notInSlugs = regexp.MustCompile(`[^\p{L}\p{N}\s_-]`)
	cell       = regexp.MustCompile("(?m)^\\| ((?:`[^`|]+`(?:, )?)+) \\|")
)

// documents are all of them, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	documents := make(map[string]string)
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			text, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			documents[filepath.ToSlash(p)] = string(text)
		}
	}
	if len(documents) < 10 {
		t.Fatalf("only %d documents", len(documents))
	}
	return documents
}

// What the documents print is what compiles and runs: each piece of Go stands in the file that it names.
func TestDocumentedCode(t *testing.T) {
	for name, text := range documents(t) {
		for _, b := range block.FindAllStringSubmatch(text, -1) {
			if b[1] != "go" {
				continue
			}
			piece := goSource.FindStringSubmatch(b[2])
			if piece == nil {
				t.Errorf("%s: a piece of Go does not name its file:\n%s", name, b[2])
				continue
			}
			source, err := os.ReadFile(piece[1])
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if !strings.Contains(unindented(string(source)), unindented(piece[2])) {
				t.Errorf("%s: %s does not contain:\n%s", name, piece[1], piece[2])
			}
		}
		if strings.Count(text, "```")%2 != 0 {
			t.Errorf("%s: a block has no end", name)
		}
	}
}

// Links lead to files that are there, to headings that they have, and to tests that they hold.
func TestDocumentedLinks(t *testing.T) {
	all := documents(t)
	for name, text := range all {
		for _, l := range link.FindAllStringSubmatch(block.ReplaceAllString(text, ""), -1) {
			title, target := l[1], l[2]
			if strings.Contains(target, "://") {
				continue
			}
			file, anchor, anchored := strings.Cut(target, "#")
			if file == "" {
				file = name
			} else {
				file = path.Join(path.Dir(name), file)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if anchored && !slices.Contains(anchors(all[file]), anchor) {
				t.Errorf("%s: %s has no heading for #%s", name, file, anchor)
			}
			if !strings.HasSuffix(file, ".go") {
				continue
			}
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, test := range testName.FindAllString(title, -1) {
				if !strings.Contains(string(source), "\nfunc "+test+"(") {
					t.Errorf("%s: %s has no %s", name, file, test)
				}
			}
		}
	}
}

// anchors are those of a document's headings.
func anchors(text string) []string {
	var all []string
	for _, h := range heading.FindAllStringSubmatch(block.ReplaceAllString(text, ""), -1) {
		slug := strings.ReplaceAll(notInSlugs.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")
		all = append(all, slug)
	}
	return all
}

// Every page is in the index.
func TestIndexOfDocuments(t *testing.T) {
	all := documents(t)
	for name := range all {
		page, ok := strings.CutPrefix(name, "docs/")
		if ok && page != "README.md" && !strings.Contains(all["docs/README.md"], "]("+page+")") {
			t.Errorf("docs/README.md does not list %s", page)
		}
	}
}

// The architecture names each folder with Go code but generated ones, and each file of the runtime, and nothing that is not there.
func TestArchitecture(t *testing.T) {
	text := documents(t)["ARCHITECTURE.md"]
	_, folders, _ := strings.Cut(text, "## Where things are")
	folders, files, _ := strings.Cut(folders, "## `entcounter`")
	files, _, _ = strings.Cut(files, "\n## ")
	named := func(table, below string) []string {
		var names []string
		for _, m := range cell.FindAllStringSubmatch(table, -1) {
			for name := range strings.SplitSeq(m[1], ", ") {
				name = path.Join(below, strings.Trim(name, "`"))
				if _, err := os.Stat(name); err != nil {
					t.Error(err)
				}
				names = append(names, name)
			}
		}
		return names
	}
	inFolders, inFiles := named(folders, ""), named(files, "entcounter")
	err := fs.WalkDir(os.DirFS("."), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if name := d.Name(); name != "." && (strings.HasPrefix(name, ".") || name == "testdata") {
				return fs.SkipDir
			}
			return nil
		case path.Ext(p) != ".go" || path.Dir(p) == ".":
			return nil
		}
		if path.Dir(p) == "entcounter" && !strings.HasSuffix(p, "_test.go") && !slices.Contains(inFiles, p) {
			t.Errorf("ARCHITECTURE.md does not name %s", p)
		}
		covers := func(folder string) bool {
			rest, ok := strings.CutPrefix(path.Dir(p), folder)
			// What belongs to a folder that is named: its schema, generated code, and helpers of its tests.
			below := folder == "ent" || folder == "bench" || strings.HasPrefix(folder, "examples/") || strings.HasPrefix(folder, "internal/")
			return ok && (rest == "" || below && strings.HasPrefix(rest, "/"))
		}
		if !slices.ContainsFunc(inFolders, covers) {
			t.Errorf("ARCHITECTURE.md does not name the folder of %s", p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
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
