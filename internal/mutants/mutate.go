package main

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// mutant is a source file with one thing changed.
type mutant struct {
	id         string // file, function, line of source and change; the same wherever the line moves to
	file       string
	begin, end int // bytes of the file that are replaced
	text       string
	inFunction bool
	// number chooses it in a binary that has many; 0: it is in none, below: it does not build.
	number int
	binary string
}

// apply returns the file's source with the change made.
func (m *mutant) apply(src []byte) []byte {
	return slices.Concat(src[:m.begin], []byte(m.text), src[m.end:])
}

// swaps says what an operator is replaced by.
var swaps = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL,
	token.AND: token.OR, token.OR: token.AND, token.SHL: token.SHR, token.SHR: token.SHL,
	token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN,
	token.MUL_ASSIGN: token.QUO_ASSIGN, token.QUO_ASSIGN: token.MUL_ASSIGN,
	token.AND_ASSIGN: token.OR_ASSIGN, token.OR_ASSIGN: token.AND_ASSIGN,
	token.SHL_ASSIGN: token.SHR_ASSIGN, token.SHR_ASSIGN: token.SHL_ASSIGN,
	token.INC: token.DEC, token.DEC: token.INC,
}

// mutate returns the mutants of a file, some of which may not build; none of one
// that is generated.
func mutate(file string, src []byte) ([]mutant, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(tree) {
		return nil, err
	}
	var mutants []mutant
	seen := make(map[string]int)
	lines := strings.Split(string(src), "\n")
	for _, decl := range tree.Decls {
		name := "-"
		body := token.NoPos
		if f, ok := decl.(*ast.FuncDecl); ok {
			name = f.Name.Name
			if f.Body != nil {
				body = f.Body.Lbrace
			}
		}
		offset := func(p token.Pos) int { return fset.Position(p).Offset }
		change := func(begin, end int, what, text string) {
			line := strings.TrimSpace(lines[strings.Count(string(src[:begin]), "\n")])
			id := fmt.Sprintf("%s %s: %s: %s", file, name, line, what)
			if seen[id]++; seen[id] > 1 {
				id += fmt.Sprintf(" #%d", seen[id])
			}
			mutants = append(mutants, mutant{id: id, file: file, begin: begin, end: end, text: text, inFunction: body != token.NoPos && begin > offset(body)})
		}
		replace := func(begin, end int, text string) {
			change(begin, end, string(src[begin:end])+" -> "+text, text)
		}
		operator := func(pos token.Pos, op token.Token) {
			if to, ok := swaps[op]; ok {
				replace(offset(pos), offset(pos)+len(op.String()), to.String())
			}
		}
		remove := func(n ast.Node) {
			begin, end := offset(n.Pos()), offset(n.End())
			change(begin, end, "without "+firstLine(src[begin:end]), "")
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GenDecl:
				return n.Tok != token.IMPORT
			case *ast.FuncDecl:
				if hint(n.Name) {
					return false
				}
				if n.Body != nil && len(n.Body.List) > 0 {
					begin := offset(n.Body.Lbrace) + 1
					change(begin, begin, "returns at once", " return"+zeros(n.Type.Results, func(e ast.Expr) string {
						return string(src[offset(e.Pos()):offset(e.End())])
					})+";")
				}
			case *ast.BinaryExpr:
				operator(n.OpPos, n.Op)
			case *ast.UnaryExpr:
				if n.Op == token.NOT || n.Op == token.SUB {
					replace(offset(n.OpPos), offset(n.OpPos)+1, "")
				}
			case *ast.BasicLit:
				if n.Kind == token.INT {
					if x, err := strconv.ParseUint(n.Value, 0, 63); err == nil {
						replace(offset(n.Pos()), offset(n.End()), strconv.FormatUint(x+1, 10))
					}
				}
			case *ast.Ident:
				if n.Name == "true" || n.Name == "false" {
					replace(offset(n.Pos()), offset(n.End()), strconv.FormatBool(n.Name == "false"))
				}
			case *ast.ForStmt:
				return !hints(n.Body)
			case *ast.RangeStmt:
				return !hints(n.Body)
			case *ast.IfStmt:
				if n.Else == nil && hints(n.Body) {
					return false
				}
				begin, end := offset(n.Cond.Pos()), offset(n.Cond.End())
				change(begin, end, "not", "!("+string(src[begin:end])+")")
			case *ast.AssignStmt:
				if n.Tok != token.DEFINE {
					remove(n)
					operator(n.TokPos, n.Tok)
				}
			case *ast.IncDecStmt:
				remove(n)
				operator(n.TokPos, n.Tok)
			case *ast.ExprStmt:
				if hints(n) {
					return false
				}
				remove(n)
			case *ast.DeferStmt:
				remove(n)
			case *ast.BranchStmt:
				if n.Tok != token.GOTO {
					remove(n)
				}
			}
			return true
		})
	}
	return mutants, nil
}

// hint reports whether a function is named as one that asks for memory ahead of
// its use. It changes no result, so nothing about it is a mutant.
func hint(function ast.Expr) bool {
	if s, ok := function.(*ast.SelectorExpr); ok {
		function = s.Sel
	}
	name, ok := function.(*ast.Ident)
	return ok && strings.HasPrefix(name.Name, "prefetch")
}

// hints reports whether a statement does nothing but call such functions.
func hints(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		return ok && hint(call.Fun)
	case *ast.BlockStmt:
		last := len(s.List) - 1
		return last >= 0 && hints(s.List[last]) && !slices.ContainsFunc(s.List[:last], func(s ast.Stmt) bool {
			assign, ok := s.(*ast.AssignStmt)
			return !hints(s) && !(ok && assign.Tok == token.DEFINE)
		})
	case *ast.IfStmt:
		return s.Else == nil && hints(s.Body)
	case *ast.ForStmt:
		return hints(s.Body)
	case *ast.RangeStmt:
		return hints(s.Body)
	}
	return false
}

// zeros returns the results that a function which returns at once returns.
func zeros(results *ast.FieldList, text func(ast.Expr) string) string {
	if results == nil {
		return ""
	}
	var values []string
	for _, f := range results.List {
		for range max(1, len(f.Names)) {
			values = append(values, "*new("+text(f.Type)+")")
		}
	}
	return " " + strings.Join(values, ", ")
}

func firstLine(src []byte) string {
	line, _, _ := strings.Cut(string(src), "\n")
	return strings.TrimSpace(line)
}

// shuffle orders mutants by a hash of the seed and what they are, so that a line
// more or less in a package changes few of those that are drawn.
func shuffle(mutants []mutant, seed uint64) {
	slices.SortFunc(mutants, func(a, b mutant) int { return slices.Compare(rank(a.id, seed), rank(b.id, seed)) })
}

func rank(id string, seed uint64) []byte {
	sum := sha256.Sum256(append(binary.LittleEndian.AppendUint64(nil, seed), id...))
	return sum[:]
}
