// Platforms says where the tree, tests with it, does not fit on other platforms: it reads
// all packages as those do and checks types, which takes a small part of compiling them.
//
//	go run ./internal/platforms linux/arm64 darwin/arm64
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	log.SetFlags(0)
	root, err := filepath.Abs(".")
	if err != nil {
		log.Fatal(err)
	}
	bad := false
	for _, target := range os.Args[1:] {
		errs, err := check(root, target)
		if err != nil {
			log.Fatalf("%s: %v", target, err)
		}
		for _, e := range errs {
			log.Printf("%s: %v", target, e)
			bad = true
		}
	}
	if bad {
		os.Exit(1)
	}
}

// check returns what is wrong with the packages at root for a target, system/architecture.
func check(root, target string) (errs []packages.Error, err error) {
	system, architecture, _ := strings.Cut(target, "/")
	all, err := packages.Load(&packages.Config{
		Mode:  packages.NeedName | packages.NeedImports | packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax,
		Dir:   root,
		Env:   append(os.Environ(), "GOOS="+system, "GOARCH="+architecture, "CGO_ENABLED=0"),
		Tests: true,
		ParseFile: func(files *token.FileSet, name string, src []byte) (*ast.File, error) {
			f, err := parser.ParseFile(files, name, src, parser.SkipObjectResolution)
			// Of what others wrote, declarations are enough; main is what go test makes.
			if f != nil && f.Name.Name != "main" && !strings.HasPrefix(name, root+string(filepath.Separator)) {
				for _, d := range f.Decls {
					if d, ok := d.(*ast.FuncDecl); ok {
						d.Body = nil
					}
				}
			}
			return f, err
		},
	}, "./...")
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there are no packages in %s", root)
	}
	for _, p := range all {
		errs = append(errs, p.Errors...)
	}
	return errs, nil
}
