package layers

import (
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const module = "github.com/gnnactor/gnnactor"

// The module itself keeps the order.
func TestModule(t *testing.T) {
	root := os.DirFS("../..")
	mod, err := fs.ReadFile(root, "go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(mod), "module "+module+"\n") {
		t.Fatalf("go.mod does not declare %s", module)
	}
	vs, err := Check(root, module)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vs {
		t.Error(v)
	}
}

func TestCheck(t *testing.T) {
	src := func(imports ...string) *fstest.MapFile {
		var b strings.Builder
		b.WriteString("//go:build arm64\n\npackage p\n")
		for _, i := range imports {
			b.WriteString("import _ \"" + i + "\"\n")
		}
		return &fstest.MapFile{Data: []byte(b.String())}
	}
	for _, c := range []struct {
		name, file, imports string
		bad                 bool
	}{
		{"down", "runtime/a.go", module + "/graph", false},
		{"far down", "cmd/gnnactor/a.go", module + "/rng", false},
		{"up", "graph/a.go", module + "/sampling", true},
		{"up, in a test", "graph/a_test.go", module + "/sampling", true},
		{"up, from a subfolder", "graph/features/a.go", module + "/runtime", true},
		{"sideways", "compute/cpu/a.go", module + "/sampling/overlap", true},
		{"sideways on top", "cmd/gnnactor/a.go", module + "/examples/slices", true},
		{"between examples", "examples/a/a.go", module + "/examples/b", true},
		{"within one room", "graph/features/a.go", module + "/graph", false},
		{"internal to internal", "internal/a/a.go", module + "/internal/b", false},
		{"internal up", "internal/a/a.go", module + "/graph", true},
		{"a kind of device, in a library", "runtime/a.go", module + "/compute/cuda", true},
		{"a kind of device, beside it", "compute/a.go", module + "/compute/cuda/kernels", true},
		{"a kind of device, in a program", "cmd/gnnactor/a.go", module + "/compute/cuda", false},
		{"a kind of device, in a test", "runtime/a_test.go", module + "/compute/cuda", false},
		{"a kind of device, within", "compute/cuda/a.go", module + "/compute/cuda/kernels", false},
		{"the standard library", "graph/a.go", "runtime", false},
		{"another module with the same prefix", "graph/a.go", module + "x/runtime", false},
		{"the root package", "graph/a.go", module, true},
		{"an unknown folder", "cmd/a.go", module + "/misc", true},
		{"a file in an unknown folder", "misc/a.go", "fmt", true},
		{"a file in the root", "a.go", "fmt", true},
		{"test data", "graph/testdata/a.go", module + "/runtime", false},
		{"what was built", "bin/a/a.go", module + "/runtime", false},
		{"hidden folder", ".cache/a.go", module + "/runtime", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			vs, err := Check(fstest.MapFS{c.file: src("os", c.imports)}, module)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(vs) > 0; got != c.bad {
				t.Errorf("violations %v, want any: %v", vs, c.bad)
			}
		})
	}
}

func TestCheckNamesFileAndLine(t *testing.T) {
	fsys := fstest.MapFS{"graph/a.go": {Data: []byte("package graph\n\nimport (\n\t\"fmt\"\n\t\"" + module + "/actors\"\n)\n")}}
	vs, err := Check(fsys, module)
	if err != nil {
		t.Fatal(err)
	}
	want := "graph/a.go:5: imports " + module + "/actors: graph lies below actors"
	if len(vs) != 1 || vs[0].String() != want {
		t.Errorf("got %v, want %s", vs, want)
	}
}

func TestCheckRefusesWhatItCannotParse(t *testing.T) {
	if _, err := Check(fstest.MapFS{"graph/a.go": {Data: []byte("not go")}}, module); err == nil {
		t.Error("no error")
	}
}

// Order names every room of the design once.
func TestOrder(t *testing.T) {
	all := slices.Concat(Order...)
	slices.Sort(all)
	if c := slices.Compact(slices.Clone(all)); len(c) != len(all) {
		t.Errorf("a folder is listed twice: %v", all)
	}
}
