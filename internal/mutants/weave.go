package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// chosen is the environment variable that says which mutant of a woven binary runs.
const chosen = "GNNACTOR_MUTANT"

// weave builds the tests once for all mutants that are in functions: each is a copy of
// its function, which the function calls if the mutant's number is chosen. One that is
// elsewhere is left for a build of its own, and one that is done is not needed.
func (k *kit) weave(mutants []mutant, done map[string]string) error {
	k.binary = filepath.Join(k.temp, "woven"+strconv.Itoa(k.woven))
	files := make(map[string][]byte)
	for i := range mutants {
		m := &mutants[i]
		if done[m.id] != "" {
			continue
		}
		src, err := os.ReadFile(filepath.Join(k.root, m.file))
		if err != nil {
			return err
		}
		files[m.file] = src
		if !builds(m, src) {
			m.number = -1
		} else if m.inFunction {
			m.number, m.binary = i+1, k.binary
		}
	}
	k.woven++
	for {
		replace := make(map[string]string)
		write := func(file, text string) error {
			at := filepath.Join(k.temp, "woven_"+filepath.Base(file))
			replace[filepath.Join(k.root, file)] = at
			return os.WriteFile(at, []byte(text), 0o600)
		}
		name := ""
		for file, src := range files {
			text, of, err := weaveFile(file, src, mutants)
			if err != nil {
				return err
			}
			name = of
			if err := write(file, text); err != nil {
				return err
			}
		}
		if name != "" {
			number := fmt.Sprintf("package %s\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\n"+
				"var mutantNumber = func() int { n, _ := strconv.Atoi(os.Getenv(%q)); return n }()\n", name, chosen)
			if err := write(filepath.Join(k.pkg, "zz_mutant_number.go"), number); err != nil {
				return err
			}
		}
		overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
		if err != nil {
			return err
		}
		list := k.binary + ".json"
		if err := os.WriteFile(list, overlay, 0o600); err != nil {
			return err
		}
		out, err := k.build(k.binary, "-gcflags=-e", "-overlay", list)
		if err == nil {
			return nil
		}
		bad := wovenLine.FindAllSubmatch(out, -1)
		for _, match := range bad {
			n, _ := strconv.Atoi(string(match[1]))
			mutants[n-1].number, mutants[n-1].binary = -1, ""
		}
		if len(bad) == 0 {
			return fmt.Errorf("the tests with all mutants: %w\n%s", err, out)
		}
	}
}

// wovenLine finds the mutants in which the compiler found errors.
var wovenLine = regexp.MustCompile(`(?m)^\S*mutant(\d+)\.go:\d+`)

// builds reports whether a mutant is a file of Go that uses what it imports.
func builds(m *mutant, src []byte) bool {
	before, err1 := uses(src)
	after, err2 := uses(m.apply(src))
	if err1 != nil || err2 != nil {
		return false
	}
	for name := range before {
		if !after[name] {
			return false
		}
	}
	return true
}

// uses returns the imports that a file uses, by name.
func uses(src []byte) (map[string]bool, error) {
	tree, err := parser.ParseFile(token.NewFileSet(), "", src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	imports := make(map[string]bool)
	for _, i := range tree.Imports {
		name, _ := strconv.Unquote(i.Path.Value)
		if version.MatchString(path.Base(name)) {
			name = path.Dir(name)
		}
		if name = path.Base(name); i.Name != nil {
			name = i.Name.Name
		}
		imports[name] = true
	}
	used := make(map[string]bool)
	ast.Inspect(tree, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && imports[x.Name] {
				used[x.Name] = true
			}
		}
		return true
	})
	return used, nil
}

var version = regexp.MustCompile(`^v\d+$`)

// edit replaces bytes of a file.
type edit struct {
	begin, end int
	text       string
}

// weaveFile returns a file's source with the copies of those of all mutants that are
// numbered and its own, and the name of its package.
func weaveFile(file string, src []byte, all []mutant) (text, pkg string, err error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution)
	if err != nil {
		return "", "", err
	}
	offset := func(p token.Pos) int { return fset.Position(p).Offset }
	var edits []edit
	var copies strings.Builder
	for _, decl := range tree.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		begin, end := offset(f.Pos()), offset(f.End())
		var cases strings.Builder
		for i := range all {
			if m := &all[i]; m.file == file && m.number > 0 && m.begin >= begin && m.end <= end {
				name := fmt.Sprintf("%s_mutant%d", f.Name.Name, m.number)
				fmt.Fprintf(&cases, " case %d: %s;", m.number, call(f, name))
				own := mutant{begin: m.begin - offset(f.Name.End()), end: m.end - offset(f.Name.End()), text: m.text}
				fmt.Fprintf(&copies, "\n//line mutant%d.go:1\n%s%s%s\n", m.number, src[begin:offset(f.Name.Pos())], name, own.apply(src[offset(f.Name.End()):end]))
			}
		}
		if cases.Len() == 0 {
			continue
		}
		for i, p := range parameters(f) { // so that the call can name them
			switch {
			case p.name == nil:
				edits = append(edits, edit{offset(p.typ), offset(p.typ), given(i) + " "})
			case p.name.Name == "_":
				edits = append(edits, edit{offset(p.name.Pos()), offset(p.name.End()), given(i)})
			}
		}
		body := offset(f.Body.Lbrace) + 1
		edits = append(edits, edit{body, body, " switch mutantNumber {" + cases.String() + " };"})
	}
	slices.SortFunc(edits, func(a, b edit) int { return b.begin - a.begin })
	for _, e := range edits {
		src = slices.Concat(src[:e.begin], []byte(e.text), src[e.end:])
	}
	return string(src) + copies.String(), tree.Name.Name, nil
}

// parameter is a receiver or parameter: its name, nil if it has none, and where its type is.
type parameter struct {
	name     *ast.Ident
	typ      token.Pos
	variadic bool
}

// parameters returns those of a function, the receiver first.
func parameters(f *ast.FuncDecl) (all []parameter) {
	for _, list := range []*ast.FieldList{f.Recv, f.Type.Params} {
		if list == nil {
			continue
		}
		for _, field := range list.List {
			_, variadic := field.Type.(*ast.Ellipsis)
			for _, name := range field.Names {
				all = append(all, parameter{name, field.Type.Pos(), variadic})
			}
			if len(field.Names) == 0 {
				all = append(all, parameter{nil, field.Type.Pos(), variadic})
			}
		}
	}
	return all
}

func given(i int) string { return fmt.Sprintf("given%d_", i) }

// call returns the statement by which a function ends with what another of its kind does.
func call(f *ast.FuncDecl, name string) string {
	var args []string
	for i, p := range parameters(f) {
		arg := given(i)
		if p.name != nil && p.name.Name != "_" {
			arg = p.name.Name
		}
		if p.variadic {
			arg += "..."
		}
		args = append(args, arg)
	}
	switch {
	case f.Recv != nil:
		name, args = args[0]+"."+name, args[1:]
	case f.Type.TypeParams != nil:
		var types []string
		for _, field := range f.Type.TypeParams.List {
			for _, t := range field.Names {
				types = append(types, t.Name)
			}
		}
		name += "[" + strings.Join(types, ", ") + "]"
	}
	made := name + "(" + strings.Join(args, ", ") + ")"
	if f.Type.Results == nil || len(f.Type.Results.List) == 0 {
		return made + "; return"
	}
	return "return " + made
}
