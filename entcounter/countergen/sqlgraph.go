package countergen

import (
	"fmt"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// upstream is the package that the generated drop-in stands in for.
const upstream = "entgo.io/ent/dialect/sql/sqlgraph"

// exports is what ent's sqlgraph exports, in the version that the user's module
// uses, as the drop-in package declares it.
type exports struct {
	// Imports that generic declarations need.
	Imports []string
	Consts  []string
	Vars    []string
	Types   []string
	Funcs   []string
	// Generic functions, which cannot be assigned to a variable.
	Generic []string
}

// counted are the functions of ent's sqlgraph in which every read and write of
// generated code ends, with their signatures. The drop-in package declares them
// with the counting ones.
var counted = map[string]string{
	"CreateNode":  "func(context.Context, dialect.Driver, *CreateSpec) error",
	"BatchCreate": "func(context.Context, dialect.Driver, *BatchCreateSpec) error",
	"UpdateNode":  "func(context.Context, dialect.Driver, *UpdateSpec) error",
	"UpdateNodes": "func(context.Context, dialect.Driver, *UpdateSpec) (int, error)",
	"DeleteNodes": "func(context.Context, dialect.Driver, *DeleteSpec) (int, error)",
	"QueryNodes":  "func(context.Context, dialect.Driver, *QuerySpec) error",
	"CountNodes":  "func(context.Context, dialect.Driver, *QuerySpec) (int, error)",
}

// loadSqlgraph finds ent's sqlgraph from the module that code is generated into.
func loadSqlgraph(target string, buildFlags []string) (*exports, error) {
	pkgs, err := packages.Load(&packages.Config{
		Mode:       packages.NeedName | packages.NeedTypes,
		Dir:        existing(target),
		BuildFlags: buildFlags,
	}, upstream)
	if err != nil {
		return nil, fmt.Errorf("entcounter: loading %s: %w", upstream, err)
	}
	if len(pkgs) != 1 {
		return nil, fmt.Errorf("entcounter: loading %s: found %d packages", upstream, len(pkgs))
	}
	if errs := pkgs[0].Errors; len(errs) > 0 {
		return nil, fmt.Errorf("entcounter: loading %s: %w", upstream, errs[0])
	}
	return exportsOf(pkgs[0].Types)
}

// existing returns the innermost folder of a path that exists already.
func existing(dir string) string {
	for {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return dir
		}
		dir = parent
	}
}

// exportsOf lists the exported names of ent's sqlgraph. It fails if a function
// that counting relies on is not what it was, rather than let writes go
// uncounted.
func exportsOf(pkg *types.Package) (*exports, error) {
	e := &exports{}
	qualify := func(p *types.Package) string {
		if p == pkg {
			return ""
		}
		if !slices.Contains(e.Imports, p.Path()) {
			e.Imports = append(e.Imports, p.Path())
		}
		return p.Name()
	}
	for _, name := range pkg.Scope().Names() { // sorted
		object := pkg.Scope().Lookup(name)
		if !object.Exported() {
			continue
		}
		switch object := object.(type) {
		case *types.Const:
			e.Consts = append(e.Consts, name)
		case *types.Var:
			e.Vars = append(e.Vars, name)
		case *types.TypeName:
			e.Types = append(e.Types, typeAlias(object, qualify))
		case *types.Func:
			signature := object.Signature()
			if want, ok := counted[name]; ok {
				if got := bareSignature(pkg, signature); got != want {
					return nil, fmt.Errorf("entcounter: %s.%s of this version of ent is %s, not %s: use a version of entcounter made for it", upstream, name, got, want)
				}
				continue
			}
			if signature.TypeParams().Len() > 0 {
				e.Generic = append(e.Generic, genericFunc(object, qualify))
				continue
			}
			e.Funcs = append(e.Funcs, name)
		}
	}
	for name := range counted {
		if _, ok := pkg.Scope().Lookup(name).(*types.Func); !ok {
			return nil, fmt.Errorf("entcounter: this version of ent has no function %s.%s: use a version of entcounter made for it", upstream, name)
		}
	}
	return e, nil
}

// bareSignature writes a signature without the names of its parameters.
func bareSignature(pkg *types.Package, s *types.Signature) string {
	bare := func(t *types.Tuple) *types.Tuple {
		vars := make([]*types.Var, t.Len())
		for i := range vars {
			vars[i] = types.NewParam(0, nil, "", t.At(i).Type())
		}
		return types.NewTuple(vars...)
	}
	s = types.NewSignatureType(nil, nil, nil, bare(s.Params()), bare(s.Results()), s.Variadic())
	return types.TypeString(s, func(p *types.Package) string {
		if p == pkg {
			return ""
		}
		return p.Name()
	})
}

// typeAlias declares an alias for a type, generic or not.
func typeAlias(object *types.TypeName, qualify types.Qualifier) string {
	var params *types.TypeParamList
	switch t := object.Type().(type) {
	case *types.Named:
		params = t.TypeParams()
	case *types.Alias:
		params = t.TypeParams()
	}
	declared, used := typeParams(params, qualify)
	return fmt.Sprintf("%s%s = sqlgraph.%[1]s%[3]s", object.Name(), declared, used)
}

// genericFunc declares a function that calls the generic one of its name.
func genericFunc(object *types.Func, qualify types.Qualifier) string {
	s := object.Signature()
	declared, used := typeParams(s.TypeParams(), qualify)
	params := make([]string, s.Params().Len())
	args := make([]string, len(params))
	for i := range params {
		t := s.Params().At(i).Type()
		args[i] = fmt.Sprintf("p%d", i)
		params[i] = args[i] + " " + types.TypeString(t, qualify)
		if s.Variadic() && i == len(params)-1 {
			params[i] = args[i] + " ..." + types.TypeString(t.(*types.Slice).Elem(), qualify)
			args[i] += "..."
		}
	}
	results := make([]string, s.Results().Len())
	for i := range results {
		results[i] = types.TypeString(s.Results().At(i).Type(), qualify)
	}
	call := fmt.Sprintf("sqlgraph.%s%s(%s)", object.Name(), used, strings.Join(args, ", "))
	if len(results) > 0 {
		call = "return " + call
	}
	return fmt.Sprintf("// %s calls ent's.\nfunc %[1]s%s(%s) (%s) { %s }",
		object.Name(), declared, strings.Join(params, ", "), strings.Join(results, ", "), call)
}

// typeParams writes type parameters as they are declared and as they are used.
func typeParams(list *types.TypeParamList, qualify types.Qualifier) (declared, used string) {
	if list.Len() == 0 {
		return "", ""
	}
	var decls, uses []string
	for p := range list.TypeParams() {
		decls = append(decls, p.Obj().Name()+" "+types.TypeString(p.Constraint(), qualify))
		uses = append(uses, p.Obj().Name())
	}
	return "[" + strings.Join(decls, ", ") + "]", "[" + strings.Join(uses, ", ") + "]"
}
