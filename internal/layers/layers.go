// Package layers checks that imports inside the module point downward.
//
// The module is built in layers: the binary and the examples on top, then clusters and the
// runtime, down to the graph, what all of them use, and the internal packages. A package imports what
// lies below it, never what lies above, and never another package of its own
// line. What shares a top-level folder (graph and graph/features) is one room
// and may import within itself. Kinds of devices (compute/cuda) register themselves where they are
// linked: programs and tests import them, libraries do not.
package layers

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Order lists the top-level folders from the highest line to the lowest. The
// folders of one line must not import each other.
var Order = [][]string{
	{"cmd", "examples"},
	{"cluster"},
	{"runtime"},
	{"scheduler"},
	{"training"},
	{"actors"},
	{"messages"},
	{"sampling", "compute"},
	{"graph"},
	{"pool", "clock"},
	{"internal"},
	{"rng"},
}

// Violation is an import that the order forbids, or a folder it does not know.
type Violation struct {
	File   string // slash-separated, relative to the module's root
	Line   int
	Import string // the import path; empty when the folder itself is unknown
	Reason string
}

func (v Violation) String() string {
	if v.Import == "" {
		return fmt.Sprintf("%s: %s", v.File, v.Reason)
	}
	return fmt.Sprintf("%s:%d: imports %s: %s", v.File, v.Line, v.Import, v.Reason)
}

// Check reads every Go file below the root of fsys, tests and files for other
// systems included, and returns what breaks the order, sorted by file; hidden
// folders, testdata and bin, which git ignores, are left out. module is the
// module's path. The error is for files that cannot be read or parsed.
func Check(fsys fs.FS, module string) ([]Violation, error) {
	var found []Violation
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			if name != "." && (name == "bin" || base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") {
			return nil
		}
		vs, err := checkFile(fsys, name, module)
		found = append(found, vs...)
		return err
	})
	return found, err
}

// devices is the folder of a kind of device.
const devices = "compute/cuda/"

func checkFile(fsys fs.FS, name, module string) ([]Violation, error) {
	from, _, nested := strings.Cut(name, "/")
	if !nested {
		return []Violation{{File: name, Reason: "the module's root holds no package; put the file into one of the layers"}}, nil
	}
	fromLine := line(from)
	if fromLine < 0 {
		return []Violation{{File: name, Reason: fmt.Sprintf("folder %s is in no layer; add it to layers.Order", from)}}, nil
	}
	src, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var found []Violation
	for _, imp := range file.Imports {
		target, err := strconv.Unquote(imp.Path.Value)
		if err != nil {
			return nil, err
		}
		rest, inside := strings.CutPrefix(target+"/", module+"/")
		if !inside {
			continue
		}
		to, _, _ := strings.Cut(rest, "/")
		reason := forbidden(from, fromLine, to)
		if strings.HasPrefix(rest, devices) && !strings.HasPrefix(name, devices) && from != "cmd" && from != "examples" && !strings.HasSuffix(name, "_test.go") {
			reason = "programs and tests alone link a kind of device"
		}
		if reason != "" {
			found = append(found, Violation{File: name, Line: fset.Position(imp.Pos()).Line, Import: target, Reason: reason})
		}
	}
	return found, nil
}

// forbidden says why a file in folder from must not import folder to; "": it may.
func forbidden(from string, fromLine int, to string) string {
	toLine := line(to)
	switch {
	case toLine < 0:
		return fmt.Sprintf("folder %q is in no layer", to)
	case to == from && from != "examples":
		return ""
	case toLine == fromLine:
		return fmt.Sprintf("%s and %s are on one line", from, to)
	case toLine < fromLine:
		return fmt.Sprintf("%s lies below %s", from, to)
	}
	return ""
}

func line(folder string) int {
	return slices.IndexFunc(Order, func(l []string) bool { return slices.Contains(l, folder) })
}
