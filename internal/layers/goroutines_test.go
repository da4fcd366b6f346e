package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// elsewhere are the goroutines, by file, of packages that read graphs or features
// which touch neither, or do so in calls that have a Guard of their own. Whoever adds
// one looks whether it reads what may lie in a mapped file, and if so runs it under
// graph.Guard or pool.Recovered.
var elsewhere = map[string]struct {
	goroutines int
	why        string
}{
	"actors/pipeline.go":               {1, "asks actors to stop"},
	"cluster/trainers/audit.go":        {3, "audits call the run's sampler under pool.Recovered; others ask nodes"},
	"cluster/trainers/gather.go":       {1, "exchange bytes with other nodes"},
	"cluster/trainers/judge.go":        {2, "write and act on a verdict"},
	"cluster/leave.go":                 {1, "waits for the node"},
	"cluster/over.go":                  {1, "watches the members, the store and the clock"},
	"cluster/kinds.go":                 {2, "ask other nodes"},
	"cluster/node.go":                  {4, "follow the table of members, and move samplers"},
	"cluster/sampling.go":              {1, "asks other nodes"},
	"cluster/parts/exchange.go":        {1, "asks other nodes"},
	"cluster/parts/spread.go":          {1, "looks whether members died"},
	"cluster/samplers/asking.go":       {2, "ask other nodes"},
	"cluster/samplers/samplers.go":     {1, "draws under pool.Recovered"},
	"cluster/shard/keeper.go":          {2, "move shards by Map.cut and Copy"},
	"cluster/shard/store.go":           {1, "asks other nodes"},
	"cluster/trainers/follow.go":       {1, "writes to the store of members"},
	"cluster/trainers/replicate.go":    {1, "asks other nodes"},
	"cluster/trainers/ssp.go":          {2, "wait for the group, and look whether members died"},
	"cluster/trainers/sum.go":          {4, "exchange sums with other nodes"},
	"cluster/trainers/team.go":         {1, "waits for the group"},
	"cluster/trainers/trainers.go":     {2, "look at the members, and connect to them"},
	"cmd/gnnactor/main.go":             {1, "waits for signals"},
	"graph/importer/idruns.go":         {1, "sort what no mapping holds"},
	"graph/importer/table.go":          {2, "read and split text, which no mapping holds"},
	"graph/features/disk.go":           {1, "its jobs are run by pool.Recovered"},
	"training/checkpoint/replicate.go": {1, "copies checkpoints"},
	"runtime/bounded.go":               {1, "waits for the actors"},
	"runtime/loop.go":                  {1, "waits for audits"},
	"runtime/verify.go":                {1, "Check reads files"},
	"training/until.go":                {1, "waits for a group, or a node"},
	"sampling/ready.go":                {2, "Prepared.NewSampler's has a Guard; the plan is the caller's"},
}

// Every goroutine that may touch mapped memory does so under a Guard: a fault in
// another one ends the program.
func TestGoroutinesAreGuarded(t *testing.T) {
	root := os.DirFS("../..")
	files := map[string]*ast.File{}
	reads := map[string]bool{} // packages that know graphs
	fset := token.NewFileSet()
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		top, _, _ := strings.Cut(name, "/")
		switch base := path.Base(name); {
		case d.IsDir() && name != "." && (line(top) < 0 || top == "examples" || top == "internal" || base == "testdata"):
			return fs.SkipDir
		case d.IsDir(), !strings.HasSuffix(base, ".go"), strings.HasSuffix(base, "_test.go"):
			return nil
		}
		src, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(fset, name, src, 0)
		if err != nil {
			return err
		}
		files[name] = f
		if top == "graph" {
			reads[path.Dir(name)] = true
		}
		for _, i := range f.Imports {
			p, _ := strconv.Unquote(i.Path.Value)
			for _, room := range []string{"graph", "sampling", "compute"} {
				if p == module+"/"+room || strings.HasPrefix(p, module+"/"+room+"/") {
					reads[path.Dir(name)] = true
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for name, f := range files {
		if reads[path.Dir(name)] {
			if n := unguarded(f); n > 0 {
				found[name] = n
			}
		}
	}
	if len(found) == 0 {
		t.Fatal("no goroutine was found")
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if known := elsewhere[name].goroutines; found[name] != known {
			t.Errorf("%s starts %d goroutines without graph.Guard or pool.Recovered, and %d were looked at: see layers.elsewhere", name, found[name], known)
		}
	}
	for name := range elsewhere {
		if found[name] == 0 {
			t.Errorf("%s starts no such goroutine any more: take it out of layers.elsewhere", name)
		}
	}
}

// unguarded counts the goroutines that f starts, by a go statement or a method Go of
// one argument, in whose own text there is no Guard. A pool's Go takes two, and
// guards.
func unguarded(f *ast.File) (n int) {
	guarded := func(body ast.Node) (yes bool) {
		ast.Inspect(body, func(x ast.Node) bool {
			if id, ok := x.(*ast.Ident); ok && (id.Name == "Guard" || id.Name == "GuardOutside" || id.Name == "Recovered") {
				yes = true
			}
			return !yes
		})
		return yes
	}
	ast.Inspect(f, func(x ast.Node) bool {
		switch x := x.(type) {
		case *ast.GoStmt:
			if !guarded(x.Call) {
				n++
			}
		case *ast.CallExpr:
			if s, ok := x.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Go" && len(x.Args) == 1 && !guarded(x.Args[0]) {
				n++
			}
		}
		return true
	})
	return n
}

func TestUnguarded(t *testing.T) {
	for body, want := range map[string]int{
		"go f()":                         1,
		"go func() { for { f() } }()":    1,
		"go func() { graph.Guard(f) }()": 0,
		"wg.Go(f)":                       1,
		"wg.Go(func() { done(pool.Recovered(f)) })": 0,
		"pool.Go(f, done)":                          0,
		"wg.Go(func() { go f() })":                  2,
		"f(); graph.Guard(f)":                       0,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "a.go", "package a\nfunc b() { "+body+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if n := unguarded(f); n != want {
			t.Errorf("%s: %d goroutines, want %d", body, n, want)
		}
	}
}
