// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// mutant is one change of a package: code that is left out, or an operator in place of
// another one.
type mutant struct {
	kind     string
	position token.Position
	function string // the package and the function or variable that it is in
	text     string // the first line of the code that changes
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", m.position.Filename, m.position.Line, m.position.Column, m.name())
}

// name identifies a mutant without its line, so that it stays valid while the code moves.
func (m mutant) name() string { return m.function + " | " + m.kind + ": " + m.text }

// instrumented is a package whose mutants are chosen at run time, so that it is compiled
// once.
type instrumented struct {
	mutants []mutant
	files   map[string][]byte // by name
}

// edit puts text in place of some bytes of a file, or of none.
type edit struct {
	at, end int
	text    string
}

// instrumenter makes the mutants of one file.
type instrumenter struct {
	*instrumented
	source *source
	file   sourceFile
	edits  []edit

	addressed map[ast.Expr]bool // literals whose address is taken: they can't be arguments
}

func instrument(s *source) instrumented {
	all := instrumented{files: map[string][]byte{}}
	for _, file := range s.files {
		in := &instrumenter{instrumented: &all, source: s, file: file, addressed: map[ast.Expr]bool{}}
		ast.Inspect(file.syntax, in.visit)
		all.files[file.name] = in.apply()
	}
	return all
}

// apply returns the file with all edits. Of two at one byte, the one that was made first
// comes first: the outer expression is visited before the inner one. Closing text is made
// by wrap in the opposite order.
func (in *instrumenter) apply() []byte {
	slices.SortStableFunc(in.edits, func(a, b edit) int { return cmp.Compare(a.at, b.at) })
	var out bytes.Buffer
	last := 0
	for _, e := range in.edits {
		out.Write(in.file.text[last:e.at])
		out.WriteString(e.text)
		last = e.end
	}
	out.Write(in.file.text[last:])
	return out.Bytes()
}

func (in *instrumenter) offset(at token.Pos) int { return in.source.set.Position(at).Offset }

func (in *instrumenter) text(n ast.Node) string {
	return string(in.file.text[in.offset(n.Pos()):in.offset(n.End())])
}

// add records a mutant and returns its number.
func (in *instrumenter) add(kind string, n ast.Node) int { return in.addAt(kind, n, n.Pos()) }

func (in *instrumenter) addAt(kind string, n ast.Node, at token.Pos) int {
	text, _, _ := strings.Cut(in.text(n), "\n")
	in.mutants = append(in.mutants, mutant{kind, in.source.set.Position(at), in.source.name() + "." + in.function(n), text})
	return len(in.mutants) // 0 is none
}

// function returns the name of the function or variable that a node is in.
func (in *instrumenter) function(n ast.Node) string {
	for _, declared := range in.file.syntax.Decls {
		if n.Pos() < declared.Pos() || n.Pos() >= declared.End() {
			continue
		}
		switch d := declared.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				return d.Name.Name
			}
			receiver, _, _ := strings.Cut(strings.TrimPrefix(in.text(d.Recv.List[0].Type), "*"), "[")
			return receiver + "." + d.Name.Name
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && n.Pos() < v.End() {
					return v.Names[0].Name
				}
			}
		}
	}
	return ""
}

// wrap writes text around a node. Where two nodes end at one byte, the inner one's text has
// to come first, and the inner one is wrapped later.
func (in *instrumenter) wrap(n ast.Node, before, after string) {
	in.edits = append(in.edits, edit{in.offset(n.Pos()), in.offset(n.Pos()), before})
	in.edits = slices.Insert(in.edits, 0, edit{in.offset(n.End()), in.offset(n.End()), after})
}

// replace writes text in place of an operator.
func (in *instrumenter) replace(at token.Pos, operator token.Token, text string) {
	in.edits = append(in.edits, edit{in.offset(at), in.offset(at) + len(operator.String()), text})
}

// visit makes the mutants of one node. Constants, types and the lengths of arrays have none.
func (in *instrumenter) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok == token.VAR
	case *ast.ArrayType:
		return false
	case *ast.BlockStmt:
		in.statements(n.List)
	case *ast.CaseClause:
		in.statements(n.Body)
	case *ast.CommClause:
		in.statements(n.Body)
	case *ast.IfStmt:
		in.wrap(n.Cond, fmt.Sprintf("!mutated(%d) && (", in.add("branch", n.Cond)), ")")
	case *ast.SwitchStmt:
		in.cases(n)
	case *ast.BinaryExpr:
		in.operands(n)
		in.operator(n)
	case *ast.UnaryExpr:
		in.addressed[n.X] = n.Op == token.AND
		in.negative(n)
	case *ast.IncDecStmt:
		in.increment(n)
	case *ast.CompositeLit:
		in.literal(n)
	}
	return true
}

// typeName returns a type as this file can write it, if it can.
func (in *instrumenter) typeName(t types.Type) (name string, printable bool) {
	printable = true
	name = types.TypeString(t, func(p *types.Package) string {
		if p == in.source.types {
			return ""
		}
		for _, imported := range in.file.syntax.Imports {
			if strings.Trim(imported.Path.Value, `"`) == p.Path() {
				if imported.Name != nil {
					return imported.Name.Name
				}
				return p.Name()
			}
		}
		printable = false
		return "?"
	})
	return name, printable && !strings.Contains(name, "untyped")
}
