package layers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// What a package shows to other modules mentions no type that they cannot name:
// none of internal, in a function, a variable, a field, a method or the type of
// one, however deep.
func TestExportedNamesNoInternalType(t *testing.T) {
	// From source, without bodies: what go list -export asks for is compiled, in a minute of processors.
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap", "./...")
	cmd.Dir, cmd.Stderr = "../..", os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // files without C
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	from := sources{}
	var public []string
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &source{}
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		from[p.ImportPath] = p
		if shown(p.ImportPath) {
			public = append(public, p.ImportPath)
		}
	}
	if !slices.Contains(public, module+"/runtime") || slices.Contains(public, module+"/cmd/gnnactor") {
		t.Fatalf("the packages that other modules import are said to be %s", public)
	}
	for _, path := range public {
		pkg, err := from.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mentions(pkg) {
			t.Error(m + ": other modules cannot name it")
		}
	}
}

// sources imports packages by their files' declarations, each once.
type sources map[string]*source

type source struct {
	ImportPath, Dir string
	GoFiles         []string
	ImportMap       map[string]string // of imports, what they mean where it is another path
	pkg             *types.Package
}

func (s sources) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	p := s[path]
	if p == nil {
		return nil, fmt.Errorf("go list does not know %s", path)
	}
	if p.pkg != nil {
		return p.pkg, nil
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	conf := types.Config{IgnoreFuncBodies: true, Sizes: types.SizesFor("gc", runtime.GOARCH), Importer: importerFunc(func(path string) (*types.Package, error) {
		if other, ok := p.ImportMap[path]; ok {
			path = other
		}
		return s.Import(path)
	})}
	var err error
	p.pkg, err = conf.Check(path, fset, files, nil)
	return p.pkg, err
}

type importerFunc func(path string) (*types.Package, error)

func (f importerFunc) Import(path string) (*types.Package, error) { return f(path) }

// shown reports whether other modules import the package.
func shown(path string) bool {
	rest, ok := strings.CutPrefix(path, module+"/")
	top, _, _ := strings.Cut(rest, "/")
	return ok && !hidden(path) && top != "cmd" && top != "examples"
}

// hidden reports whether the package is one that only this module, or a part of it,
// may import.
func hidden(path string) bool {
	return strings.HasPrefix(path, module+"/") && strings.Contains(path, "/internal/")
}

// mentions returns where what pkg exports mentions hidden types.
func mentions(pkg *types.Package) (found []string) {
	seen := map[types.Type]bool{}
	var walk func(where string, t types.Type)
	members := func(where string, t types.Type) { // exported methods and what the type is made of
		methods := types.NewMethodSet(types.NewPointer(t))
		for i := range methods.Len() {
			if m := methods.At(i).Obj(); m.Exported() {
				walk(where+"."+m.Name(), m.Type())
			}
		}
		walk(where, t.Underlying())
	}
	named := func(where string, name *types.TypeName, args *types.TypeList, t types.Type) {
		for i := range args.Len() {
			walk(where, args.At(i))
		}
		switch {
		case name.Pkg() == nil:
		case hidden(name.Pkg().Path()):
			found = append(found, fmt.Sprintf("%s.%s mentions %s.%s", pkg.Path(), where, name.Pkg().Path(), name.Name()))
		case !name.Exported() && name.Pkg() == pkg && !seen[t]:
			seen[t] = true
			members(where, t)
		}
	}
	tuple := func(where string, t *types.Tuple) {
		for v := range t.Variables() {
			walk(where, v.Type())
		}
	}
	walk = func(where string, t types.Type) {
		switch t := t.(type) {
		case *types.Alias:
			named(where, t.Obj(), t.TypeArgs(), t)
		case *types.Named:
			named(where, t.Obj(), t.TypeArgs(), t)
		case *types.TypeParam:
			walk(where, t.Constraint())
		case *types.Map:
			walk(where, t.Key())
			walk(where, t.Elem())
		case interface{ Elem() types.Type }: // pointers, slices, arrays, channels
			walk(where, t.Elem())
		case *types.Signature:
			for p := range t.TypeParams().TypeParams() {
				walk(where, p)
			}
			tuple(where, t.Params())
			tuple(where, t.Results())
		case *types.Struct:
			for f := range t.Fields() {
				if f.Exported() || f.Embedded() {
					walk(where+"."+f.Name(), f.Type())
				}
			}
		case *types.Interface:
			for m := range t.ExplicitMethods() {
				if m.Exported() {
					walk(where+"."+m.Name(), m.Type())
				}
			}
			for e := range t.EmbeddedTypes() {
				walk(where, e)
			}
		case *types.Union:
			for term := range t.Terms() {
				walk(where, term.Type())
			}
		}
	}
	for _, name := range pkg.Scope().Names() {
		switch o := pkg.Scope().Lookup(name).(type) {
		case *types.TypeName:
			if !o.Exported() {
				continue
			}
			if a, ok := o.Type().(*types.Alias); ok {
				walk(name, a.Rhs())
				continue
			}
			if n, ok := o.Type().(*types.Named); ok {
				for p := range n.TypeParams().TypeParams() {
					walk(name, p)
				}
			}
			members(name, o.Type())
		default:
			if o.Exported() {
				walk(name, o.Type())
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func TestMentions(t *testing.T) {
	secret := types.NewPackage(module+"/internal/secret", "secret")
	k := types.NewNamed(types.NewTypeName(0, secret, "K", nil), types.Typ[types.Int], nil)
	secret.Scope().Insert(k.Obj())
	secret.MarkComplete()
	for source, want := range map[string]int{
		"func F(secret.K)":                                       1,
		"func F() (int, []*secret.K)":                            1,
		"func F(func(map[secret.K]int, chan secret.K))":          1,
		"func f(secret.K)":                                       0,
		"var V [2]secret.K":                                      1,
		"const C secret.K = 1":                                   1,
		"type T struct{ A secret.K; b secret.K }":                1,
		"type T struct{ a secret.K }; type U T":                  0,
		"type T struct{ secret.K }":                              1,
		"type T struct{ t }; type t struct{ A secret.K }":        1,
		"type T struct{ t }; type t int; func (t) M(secret.K){}": 2, // of T, and of t in it
		"type T int; func (*T) M(secret.K) {}":                   1,
		"type T int; func (*T) m(secret.K) {}":                   0,
		"type T interface{ M(secret.K) }":                        1,
		"type T interface{ m(secret.K) }":                        0,
		"type T[E interface{ string | secret.K }] struct{ A E }": 2, // of T and of T.A
		"type T = secret.K":                                      1,
		"type T secret.K":                                        0,
		"type G[E any] struct{}; var V G[secret.K]":              1,
		"type t struct{ A secret.K }; func F() *t":               1,
		"type t struct{ Next *t; a secret.K }; func F() *t":      0,
	} {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, "a.go", "package a\nimport \""+module+"/internal/secret\"\nvar _ secret.K\n"+source, 0)
		if err != nil {
			t.Fatal(err)
		}
		conf := types.Config{IgnoreFuncBodies: true, Importer: importerFunc(func(string) (*types.Package, error) { return secret, nil })}
		pkg, err := conf.Check(module+"/a", fset, []*ast.File{f}, nil)
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		if found := mentions(pkg); len(found) != want {
			t.Errorf("%s: found %q, want %d", source, found, want)
		}
	}
}
