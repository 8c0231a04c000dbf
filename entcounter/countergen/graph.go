package countergen

import (
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/entc/gen"
	"entgo.io/ent/entc/load"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
	"github.com/entcounter/entcounter/entcounter"
)

// viewAnnotation marks the views that this extension has added to a graph.
const viewAnnotation = "EntCounterView"

// declaredTypes are the names that the view's package declares beside ent's.
var declaredTypes = []string{"Key", "Scope", "ScopeOf", "Measures", "Totals", "Drift", "Delta"}

// withoutViews returns the graph without views of an earlier run, which ent's
// schema snapshot brings back.
func withoutViews(g *gen.Graph) (*gen.Graph, error) {
	schemas := slices.DeleteFunc(slices.Clone(g.Schemas), func(s *load.Schema) bool {
		_, ok := s.Annotations[viewAnnotation]
		return ok
	})
	if len(schemas) == len(g.Schemas) {
		return g, nil
	}
	return newGraph(g.Config, schemas)
}

func newGraph(c *gen.Config, schemas []*load.Schema) (*gen.Graph, error) {
	g, err := gen.NewGraph(c, schemas...)
	if err != nil {
		return nil, fmt.Errorf("entcounter: extending the graph: %w", err)
	}
	return g, nil
}

// withViews returns the graph extended by a view for each counter. The views
// come first: ent's client template needs a type that is no view to be last.
func (p *plan) withViews(g *gen.Graph) (*gen.Graph, error) {
	schemas := make([]*load.Schema, 0, len(p.Counters)+len(g.Schemas))
	for _, c := range p.Counters {
		view, err := c.view(g)
		if err != nil {
			return nil, err
		}
		schemas = append(schemas, view)
	}
	g, err := newGraph(g.Config, append(schemas, g.Schemas...))
	if err != nil {
		return nil, err
	}
	for i, c := range p.Counters {
		c.View = g.Nodes[i]
		c.useEnumTypes()
		if err := c.checkIdentifiers(); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// view describes the counter to ent as a view: a type that can be queried and
// not written.
func (c *counter) view(g *gen.Graph) (*load.Schema, error) {
	schemaOf := func(t *gen.Type) *load.Schema {
		i := slices.IndexFunc(g.Schemas, func(s *load.Schema) bool { return s.Name == t.Name })
		if i < 0 {
			return nil
		}
		return g.Schemas[i]
	}
	owner := schemaOf(c.Owner())
	if owner == nil {
		return nil, c.errorf("schema of the type not found")
	}
	view := &load.Schema{
		Name: c.Type,
		Pos:  owner.Pos,
		View: true,
		Annotations: map[string]any{
			viewAnnotation: true,
			// The tables behind the view are made by the generated migrate package;
			// a database view of this name must not be.
			entsql.Annotation{}.Name():           entsql.Skip(),
			(&schema.CommentAnnotation{}).Name(): schema.CommentAnnotation{Text: c.comment()},
		},
	}
	view.Config.Table = c.Definition.Table
	for _, k := range c.Key {
		f := &load.Field{Name: k.Name, StorageKey: k.Column.Name, Tag: jsonTag(k.Name)}
		view.Fields = append(view.Fields, f)
		if k.Field == nil {
			f.Info = &field.TypeInfo{Type: k.fresh}
			for _, v := range k.Column.Enums {
				f.Enums = append(f.Enums, struct{ N, V string }{v, v})
			}
			continue
		}
		counted := &load.Field{Info: k.Field.Type}
		if s := schemaOf(k.Owner); s != nil {
			if j := slices.IndexFunc(s.Fields, func(f *load.Field) bool { return f.Name == k.Field.Name }); j >= 0 {
				counted = s.Fields[j]
			}
		}
		info := *counted.Info
		if k.Field.IsEnum() && !k.Field.HasGoType() {
			// Keeps ent from declaring the enum once more. useEnumTypes finishes it.
			info.RType = &field.RType{Kind: reflect.String}
		}
		f.Info, f.Size, f.Enums = &info, counted.Size, counted.Enums
		f.Sensitive, f.Comment = counted.Sensitive, counted.Comment
		if f.Sensitive {
			f.Tag = ""
		}
	}
	int64Type := func() *field.TypeInfo { return &field.TypeInfo{Type: field.TypeInt64} }
	for _, m := range c.Measures {
		comment := fmt.Sprintf("Number of %s rows.", c.Rows())
		if m.Summed != nil {
			comment = fmt.Sprintf("Sum of the %q field over the %s rows.", m.Field, c.Rows())
		}
		view.Fields = append(view.Fields, &load.Field{
			Name: m.Name, Info: int64Type(), Tag: jsonTag(m.Name), Comment: comment,
		})
	}
	view.Fields = append(view.Fields,
		&load.Field{
			Name:    entcounter.ColumnUpdatedAt,
			Info:    &field.TypeInfo{Type: field.TypeTime, PkgPath: "time"},
			Tag:     jsonTag(entcounter.ColumnUpdatedAt),
			Comment: "Time of the newest change, by the database's clock; zero if there was none.",
		},
		&load.Field{
			Name:    entcounter.ColumnPending,
			Info:    int64Type(),
			Tag:     jsonTag(entcounter.ColumnPending),
			Comment: "Number of journal rows that this read added to what is folded.",
		},
	)
	return view, nil
}

// jsonTag keeps a field in JSON when it is zero, as a count may well be.
func jsonTag(name string) string { return fmt.Sprintf("json:%q", name) }

func (c *counter) comment() string {
	return fmt.Sprintf("%s holds the counts of %s rows with one %s.\nIts numbers are exact, whatever has or has not been folded.",
		c.Type, c.Rows(), c.KeyText())
}

// KeyText lists the key fields for people.
func (c *counter) KeyText() string { return enumerate(c.keyNames()) }

// MeasureText lists the measures for people.
func (c *counter) MeasureText() string {
	names := make([]string, len(c.Measures))
	for i, m := range c.Measures {
		names[i] = m.Name
	}
	return enumerate(names)
}

func enumerate(names []string) string {
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return names[0]
}

// useEnumTypes makes enum fields of the view use the Go type that ent declares
// for the counted type. It runs after ent has built the graph: ent would take
// the name of the type's package for one of the user's and rename the package.
func (c *counter) useEnumTypes() {
	for i, k := range c.Key {
		if k.Field == nil || !k.Field.IsEnum() || k.Field.HasGoType() {
			continue
		}
		t, name := c.View.Fields[i].Type, pascal(k.Field.Name)
		t.PkgPath = path.Join(k.Owner.Config.Package, k.Owner.PackageDir())
		t.PkgName = k.Owner.Package()
		t.Ident = t.PkgName + "." + name
		t.RType.Name, t.RType.Ident, t.RType.PkgPath = name, t.Ident, t.PkgPath
	}
}

// importSqlgraph makes generated code import the given package as sqlgraph. The
// storage driver is shared by everyone in the process, so it is copied.
func importSqlgraph(c *gen.Config, importPath string) {
	storage := *c.Storage
	storage.Imports = slices.Clone(storage.Imports)
	for i, p := range storage.Imports {
		if path.Base(p) == "sqlgraph" {
			storage.Imports[i] = importPath
		}
	}
	c.Storage = &storage
}

// hasNoShortcut reports whether a field of this Go name gets no equality
// predicate named like the field alone: the name is taken by ent, or by a type
// that the view's package declares. The predicate with the suffix EQ is there.
func hasNoShortcut(name string) bool {
	return slices.Contains(declaredTypes, name) ||
		slices.Contains([]string{"Label", "OrderOption", "Hooks", "Policy", "Table", "FieldID"}, name)
}

// dropShortcuts removes the equality predicates whose names are taken by types
// of the view's package, as ent itself does for names that it uses.
func (p *plan) dropShortcuts(target string) error {
	for _, c := range p.Counters {
		var taken []string
		for _, f := range c.View.Fields {
			if slices.Contains(declaredTypes, f.StructField()) && !f.IsEnum() {
				taken = append(taken, f.StructField())
			}
		}
		if len(taken) == 0 {
			continue
		}
		if err := dropFuncs(filepath.Join(target, c.View.PackageDir(), "where.go"), taken); err != nil {
			return err
		}
	}
	return nil
}

// dropFuncs removes functions with their comments from a Go file.
func dropFuncs(file string, names []string) error {
	src, err := os.ReadFile(file)
	if err == nil {
		src, err = withoutFuncs(src, names)
	}
	if err == nil {
		err = os.WriteFile(file, src, 0o644)
	}
	if err != nil {
		return fmt.Errorf("entcounter: completing the generated predicates: %w", err)
	}
	return nil
}

func withoutFuncs(src []byte, names []string) ([]byte, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", src, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	for _, d := range slices.Backward(file.Decls) {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Recv != nil || !slices.Contains(names, fn.Name.Name) {
			continue
		}
		start, end := fn.Pos(), fn.End()
		if fn.Doc != nil {
			start = fn.Doc.Pos()
		}
		src = slices.Delete(src, fset.Position(start).Offset, fset.Position(end).Offset)
	}
	return format.Source(src)
}
