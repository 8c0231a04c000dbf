package countergen

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"

	"entgo.io/ent/entc/gen"
)

// laterSqlgraph is what a later version of ent may export.
const laterSqlgraph = `
package sqlgraph

import (
	"context"
	"io"
	dialect "fake/dialect"
)

type (
	CreateSpec      struct{}
	BatchCreateSpec struct{}
	UpdateSpec      struct{}
	DeleteSpec      struct{}
	QuerySpec       struct{}
	hidden          struct{}
	Pair[K comparable, V io.Reader] struct { Key K; Value V }
	Spec = QuerySpec
	List[T any] = []T
)

const Max = 3

var Default = &QuerySpec{}

func CreateNode(ctx context.Context, drv dialect.Driver, spec *CreateSpec) error { return nil }
func BatchCreate(ctx context.Context, drv dialect.Driver, spec *BatchCreateSpec) error { return nil }
func UpdateNode(ctx context.Context, drv dialect.Driver, spec *UpdateSpec) error { return nil }
func UpdateNodes(ctx context.Context, drv dialect.Driver, spec *UpdateSpec) (int, error) { return 0, nil }
func DeleteNodes(ctx context.Context, drv dialect.Driver, spec *DeleteSpec) (int, error) { return 0, nil }
func QueryNodes(ctx context.Context, drv dialect.Driver, spec *QuerySpec) error { return nil }
func CountNodes(ctx context.Context, drv dialect.Driver, spec *QuerySpec) (n int, err error) { return 0, nil }

func From(table string) *QuerySpec { return nil }
func Each[T any](w io.Writer, f func(T) error, values ...T) (int, error) { return 0, nil }
func Make[K comparable, V io.Reader](p *Pair[K, V]) { }
`

// fakeImporter knows the packages of the test beside the standard library.
type fakeImporter map[string]*types.Package

func (f fakeImporter) Import(path string) (*types.Package, error) {
	if p, ok := f[path]; ok {
		return p, nil
	}
	return importer.Default().Import(path)
}

// check type-checks the source of a package.
func (f fakeImporter) check(path, src string) (*types.Package, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "src.go", src, 0)
	if err != nil {
		return nil, err
	}
	return (&types.Config{Importer: f}).Check(path, fset, []*ast.File{file}, nil)
}

func newFakeImporter(t *testing.T, sqlgraphSource string) fakeImporter {
	t.Helper()
	f := fakeImporter{}
	for path, src := range map[string]string{
		"fake/dialect": "package dialect; type Driver interface{ Dialect() string }",
	} {
		pkg, err := f.check(path, src)
		if err != nil {
			t.Fatal(err)
		}
		f[path] = pkg
	}
	pkg, err := f.check(upstream, sqlgraphSource)
	if err != nil {
		t.Fatal(err)
	}
	f[upstream] = pkg
	return f
}

// All that a version of ent exports is there in the drop-in, generic or not.
func TestExports(t *testing.T) {
	packages := newFakeImporter(t, laterSqlgraph)
	e, err := exportsOf(packages[upstream])
	if err != nil {
		t.Fatal(err)
	}
	var src strings.Builder
	fmt.Fprintf(&src, "package sqlgraph\nimport %q\n", upstream)
	for _, path := range e.Imports {
		fmt.Fprintf(&src, "import %q\n", path)
	}
	for _, decl := range e.Types {
		fmt.Fprintf(&src, "type %s\n", decl)
	}
	for _, name := range e.Consts {
		fmt.Fprintf(&src, "const %s = sqlgraph.%[1]s\n", name)
	}
	for _, name := range append(slices.Clone(e.Vars), e.Funcs...) {
		fmt.Fprintf(&src, "var %s = sqlgraph.%[1]s\n", name)
	}
	for _, decl := range e.Generic {
		fmt.Fprintln(&src, decl)
	}
	dropIn, err := packages.check("fake/ent/internal/sqlgraph", src.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, src.String())
	}
	for _, name := range packages[upstream].Scope().Names() {
		_, replaced := counted[name]
		if found := dropIn.Scope().Lookup(name) != nil; found != (token.IsExported(name) && !replaced) {
			t.Errorf("the drop-in has %s: %t", name, found)
		}
	}
}

// A version of ent whose writes go another way is refused.
func TestChangedSqlgraph(t *testing.T) {
	tests := map[string]struct{ old, new, want string }{
		"signature": {
			"func UpdateNodes(ctx context.Context, drv dialect.Driver, spec *UpdateSpec) (int, error) { return 0, nil }",
			"func UpdateNodes(ctx context.Context, drv dialect.Driver, spec *UpdateSpec, deep bool) (int, error) { return 0, nil }",
			"sqlgraph.UpdateNodes of this version of ent is func(context.Context, dialect.Driver, *UpdateSpec, bool) (int, error), not func(context.Context, dialect.Driver, *UpdateSpec) (int, error)",
		},
		"missing": {"func DeleteNodes", "func RemoveNodes", "has no function entgo.io/ent/dialect/sql/sqlgraph.DeleteNodes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			packages := newFakeImporter(t, strings.Replace(laterSqlgraph, tt.old, tt.new, 1))
			_, err := exportsOf(packages[upstream])
			if err == nil || !strings.HasPrefix(err.Error(), "entcounter: ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// Views of an earlier run, which ent's schema snapshot brings back, are left out.
func TestWithoutViews(t *testing.T) {
	g := columnGraph().load(t, "Plain")
	p, err := newPlan(g)
	if err != nil {
		t.Fatal(err)
	}
	with, err := p.withViews(g)
	if err != nil {
		t.Fatal(err)
	}
	if len(with.Nodes) != 3 || with.Nodes[0].Name != "PlainCounters" || !with.Nodes[0].IsView() || with.Nodes[2].Name != "Plain" {
		t.Errorf("nodes with views: %v", with.Nodes)
	}
	without, err := withoutViews(with)
	if err != nil {
		t.Fatal(err)
	}
	if len(without.Nodes) != 1 || without.Nodes[0].Name != "Plain" {
		t.Errorf("nodes without views: %v", without.Nodes)
	}
}

// The storage driver that all users of ent in the process share stays as it is.
func TestImportSqlgraph(t *testing.T) {
	shared, err := gen.NewStorage("sql")
	if err != nil {
		t.Fatal(err)
	}
	c := &gen.Config{Storage: shared}
	importSqlgraph(c, "example.com/app/ent/internal/sqlgraph")
	if !slices.Contains(c.Storage.Imports, "example.com/app/ent/internal/sqlgraph") || slices.Contains(c.Storage.Imports, upstream) {
		t.Errorf("imports are %v", c.Storage.Imports)
	}
	if !slices.Contains(shared.Imports, upstream) {
		t.Errorf("imports of the shared driver are %v", shared.Imports)
	}
	importSqlgraph(c, upstream)
	if !slices.Equal(c.Storage.Imports, shared.Imports) {
		t.Errorf("imports are %v", c.Storage.Imports)
	}
}

func TestDropFuncs(t *testing.T) {
	src := []byte("package p\n\n// A is kept.\nfunc A() {}\n\n// B goes.\n// All of it.\nfunc B() { A() }\n\nfunc C() {}\n")
	want, err := format.Source([]byte("package p\n\n// A is kept.\nfunc A() {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := withoutFuncs(src, []string{"C", "B"})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got %q, not %q", got, want)
	}
}
