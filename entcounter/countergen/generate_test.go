package countergen

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root returns the directory of this module.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// command runs a program and returns what it prints. Modules come from the
// module cache: nothing is downloaded.
func command(t *testing.T, dir string, name string, args ...string) string {
	t.Helper()
	stdout, _ := outputs(t, dir, name, args...)
	return stdout
}

// outputs also returns what the program prints as errors.
func outputs(t *testing.T, dir string, name string, args ...string) (string, string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod -buildvcs=false", "GOPROXY=off", "GOWORK=off")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String(), stderr.String()
}

// copyTree copies the files of a directory that keep accepts, by their path below
// it.
func copyTree(t *testing.T, to, from string, keep func(name string) bool) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil || !keep(filepath.ToSlash(name)) {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o755); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), content, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// contents returns the Go files below a directory by name.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		files[filepath.ToSlash(name)] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// compare reports the files that differ.
func compare(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	names := maps.Clone(got)
	maps.Copy(names, want)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		switch {
		case got[name] == want[name]:
		case got[name] == "":
			t.Errorf("%s: %s is not generated", what, name)
		case want[name] == "":
			t.Errorf("%s: %s is generated anew", what, name)
		default:
			t.Errorf("%s: %s differs", what, name)
		}
	}
}

// The committed client is what the committed extension generates, from nothing,
// and generating again changes nothing.
func TestGeneratedCode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	copyTree(t, dir, root(t), func(name string) bool {
		switch top, _, _ := strings.Cut(name, "/"); top {
		case "go.mod", "go.sum", "schema":
			return true
		case "ent":
			return name == "ent/entc.go" || name == "ent/generate.go"
		case "entcounter":
			return !strings.Contains(name, "testdata/") && !strings.HasSuffix(name, "_test.go")
		default:
			return false
		}
	})
	command(t, dir, "go", "generate", "./ent")
	generated := contents(t, filepath.Join(dir, "ent"))
	compare(t, "committed code is stale, run go generate ./ent", generated, contents(t, filepath.Join(root(t), "ent")))
	command(t, dir, "go", "generate", "./ent")
	compare(t, "generating twice", contents(t, filepath.Join(dir, "ent")), generated)
}

// newApp makes a module of a user's that uses this one.
func newApp(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	copyTree(t, dir, "testdata/app", func(string) bool { return true })
	mod, err := os.ReadFile(filepath.Join(root(t), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	// The versions are those of this module, which are in the module cache.
	mod = regexp.MustCompile(`(?m)^module .*$`).ReplaceAll(mod, []byte("module example.com/app"))
	mod = append(mod, "\nrequire github.com/entcounter/entcounter v0.0.0\n\nreplace github.com/entcounter/entcounter => "+root(t)+"\n"...)
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), mod, 0o644); err != nil {
		t.Fatal(err)
	}
	copyTree(t, dir, root(t), func(name string) bool { return name == "go.sum" })
	return dir
}

// Another module can use the extension, with odd names and types, and with all
// of ent's features or with none.
func TestOtherModule(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a module")
	}
	t.Parallel()
	dir := newApp(t)
	entDir := filepath.Join(dir, "ent")
	_, warnings := outputs(t, entDir, "go", "run", "entc.go")
	if strings.Count(warnings, "entcounter: ") != 1 || !strings.Contains(warnings, `type Paint: counter "Paint": warning: reads by level have no index`) {
		t.Errorf("generation warns: %s", warnings)
	}
	command(t, dir, "go", "build", "./...")
	command(t, entDir, "go", "run", "entc.go", "all")
	generated := contents(t, entDir)
	command(t, dir, "go", "vet", "./...")
	command(t, dir, "go", "test", "./...")
	command(t, entDir, "go", "run", "entc.go", "all")
	compare(t, "generating twice", contents(t, entDir), generated)

	// Without counters, ent's own code is left.
	schema := filepath.Join(dir, "schema", "schema.go")
	src, err := os.ReadFile(schema)
	if err != nil {
		t.Fatal(err)
	}
	src = bytes.ReplaceAll(src, []byte("entcounter.Counter("), []byte("counter("))
	src = append(src, "\nfunc counter(name string, _ ...entcounter.Option) schema.Annotation { return schema.Comment(name) }\n"...)
	if err := os.WriteFile(schema, src, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "app_test.go")); err != nil {
		t.Fatal(err)
	}
	command(t, entDir, "go", "run", "entc.go")
	command(t, dir, "go", "vet", "./...")
	for name, content := range contents(t, entDir) {
		if name != "entc.go" && strings.Contains(content, "entcounter") {
			t.Errorf("%s is left of the counters", name)
		}
	}
}

// What runs in a user's binary links nothing that generates code.
func TestImports(t *testing.T) {
	deps := command(t, root(t), "go", "list", "-deps", "./entcounter", "./ent/...")
	for dep := range strings.FieldsSeq(deps) {
		if strings.HasPrefix(dep, "entgo.io/ent/entc") || strings.HasPrefix(dep, "golang.org/x/tools") || strings.HasSuffix(dep, "/countergen") {
			t.Errorf("the runtime depends on %s", dep)
		}
		if strings.Contains(dep, "prometheus") || strings.Contains(dep, "opentelemetry") {
			t.Errorf("the runtime depends on %s, which only who uses it should link", dep)
		}
	}
}
