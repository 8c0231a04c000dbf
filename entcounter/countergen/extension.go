// Package countergen is the generation-time half of entcounter: an extension of
// ent's code generation that gives every counter declared in a schema its typed
// client, its tables, and the hooks through which each write of ent is counted.
//
// It runs in the program that generates code (ent/entc.go) and nowhere else:
//
//	entc.Generate("./schema", &gen.Config{}, entc.Extensions(countergen.NewExtension()))
package countergen

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"entgo.io/ent/entc"
	"entgo.io/ent/entc/gen"
	"github.com/entcounter/entcounter/entcounter"
)

// Extension generates counters. Make one with [NewExtension].
type Extension struct {
	entc.DefaultExtension
}

// NewExtension returns the extension to pass to [entc.Extensions].
func NewExtension() *Extension { return &Extension{} }

// Hooks implements [entc.Extension].
func (*Extension) Hooks() []gen.Hook { return []gen.Hook{generate} }

// Templates implements [entc.Extension].
func (*Extension) Templates() []*gen.Template { return []*gen.Template{templates} }

var (
	//go:embed templates
	templateFiles embed.FS

	templates = gen.MustParse(gen.NewTemplate("entcounter").
			Funcs(templateFuncs).
			ParseFS(templateFiles, "templates/*.tmpl")).
			SkipIf(func(g *gen.Graph) bool { return planOf(g) == nil })
)

// files that exist only while a counter or sequence is declared, below the target.
var files = []string{
	"entcounter.go",
	"migrate/entcounter.go",
	"internal/sqlgraph/sqlgraph.go",
}

// generate is the hook around ent's generator. It hands ent a graph that is
// extended by one view for each counter, and in which generated code imports
// the counting sqlgraph in place of ent's own.
func generate(next gen.Generator) gen.Generator {
	return gen.GenerateFunc(func(g *gen.Graph) error {
		g, err := withoutViews(g)
		if err != nil {
			return err
		}
		p, err := newPlan(g)
		if err != nil {
			return err
		}
		g.Config.Annotations.Set(entcounter.AnnotationName, p)
		if p == nil {
			importSqlgraph(g.Config, upstream)
			if err := removeFiles(g.Target); err != nil {
				return err
			}
			return next.Generate(g)
		}
		p.warn(os.Stderr)
		if p.Sqlgraph, err = loadSqlgraph(g.Target, g.BuildFlags); err != nil {
			return err
		}
		g, err = p.withViews(g)
		if err != nil {
			return err
		}
		importSqlgraph(g.Config, path.Join(g.Package, "internal/sqlgraph"))
		if err := next.Generate(g); err != nil {
			return err
		}
		return p.dropShortcuts(g.Target)
	})
}

// planOf returns the counters and sequences of a graph that is being generated, or
// nil if it declares none.
func planOf(g *gen.Graph) *plan {
	p, _ := g.Config.Annotations[entcounter.AnnotationName].(*plan)
	return p
}

// removeFiles removes what an earlier run generated for counters that are no
// longer declared. ent itself removes the files of a type.
func removeFiles(target string) error {
	for _, name := range files {
		path := filepath.Join(target, filepath.FromSlash(name))
		if err := os.Remove(path); err != nil {
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			return fmt.Errorf("entcounter: removing generated file: %w", err)
		}
		if dir := filepath.Dir(path); filepath.Base(dir) == "sqlgraph" {
			// Both fail, as they should, when the folder holds anything else.
			_ = os.Remove(dir)
			_ = os.Remove(filepath.Dir(dir))
		}
	}
	return nil
}
