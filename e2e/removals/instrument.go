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

// removal is one place whose code a run of the tests leaves out.
type removal struct {
	kind     string
	position token.Position
	text     string // the first line of what is left out
}

func (r removal) String() string {
	return fmt.Sprintf("%s:%d:%d: %s: %s", r.position.Filename, r.position.Line, r.position.Column, r.kind, r.text)
}

// instrumented is a package whose removals are chosen at run time, so that it is compiled
// once.
type instrumented struct {
	removals []removal
	files    map[string][]byte // by name
}

// edit is text that is inserted before a byte of a file.
type edit struct {
	at   int
	text string
}

// instrumenter makes the removals of one file.
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
		last = e.at
	}
	out.Write(in.file.text[last:])
	return out.Bytes()
}

func (in *instrumenter) offset(at token.Pos) int { return in.source.set.Position(at).Offset }

// add records a removal and returns its number.
func (in *instrumenter) add(kind string, n ast.Node) int {
	text := string(in.file.text[in.offset(n.Pos()):in.offset(n.End())])
	text, _, _ = strings.Cut(text, "\n")
	in.removals = append(in.removals, removal{kind, in.source.set.Position(n.Pos()), text})
	return len(in.removals) // 0 is none
}

// wrap writes text around a node. Where two nodes end at one byte, the inner one's text has
// to come first, and the inner one is wrapped later.
func (in *instrumenter) wrap(n ast.Node, before, after string) {
	in.edits = append(in.edits, edit{in.offset(n.Pos()), before})
	in.edits = slices.Insert(in.edits, 0, edit{in.offset(n.End()), after})
}

// visit makes the removals of one node. Declarations of constants have none.
func (in *instrumenter) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok == token.VAR
	case *ast.BlockStmt:
		in.statements(n.List)
	case *ast.CaseClause:
		in.statements(n.Body)
	case *ast.CommClause:
		in.statements(n.Body)
	case *ast.IfStmt:
		in.wrap(n.Cond, fmt.Sprintf("!removed(%d) && (", in.add("branch", n.Cond)), ")")
	case *ast.SwitchStmt:
		in.cases(n)
	case *ast.BinaryExpr:
		in.operands(n)
	case *ast.UnaryExpr:
		in.addressed[n.X] = n.Op == token.AND
	case *ast.CompositeLit:
		in.literal(n)
	}
	return true
}

// statements makes removals of those that can be left out and still compile.
func (in *instrumenter) statements(list []ast.Stmt) {
	for _, statement := range list {
		switch s := statement.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); !ok || isNamed(call.Fun, "panic") { // panic ends a function
				continue
			}
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE || slices.ContainsFunc(s.Lhs, func(e ast.Expr) bool { return isNamed(e, "_") }) {
				continue
			}
		case *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt, *ast.IncDecStmt:
		default:
			continue
		}
		in.wrap(statement, fmt.Sprintf("if !removed(%d) { ", in.add("statement", statement)), " }")
	}
}

func isNamed(e ast.Expr, name string) bool {
	identifier, ok := e.(*ast.Ident)
	return ok && identifier.Name == name
}

// cases makes removals of the values of a switch. One without a tag has conditions.
func (in *instrumenter) cases(s *ast.SwitchStmt) {
	for _, clause := range s.Body.List {
		for _, value := range clause.(*ast.CaseClause).List {
			if s.Tag == nil {
				in.wrap(value, fmt.Sprintf("!removed(%d) && (", in.add("case", value)), ")")
				continue
			}
			basic, ok := in.source.info.TypeOf(s.Tag).Underlying().(*types.Basic)
			name, printable := in.typeName(in.source.info.TypeOf(s.Tag))
			if !ok || !printable || basic.Info()&(types.IsString|types.IsInteger) == 0 {
				continue
			}
			function := "otherText"
			if basic.Info()&types.IsInteger != 0 {
				function = "otherNumber"
			}
			in.wrap(value, fmt.Sprintf("%s[%s](%d, ", function, name, in.add("case", value)), ")")
		}
	}
}

// operands makes removals of what && and || join.
func (in *instrumenter) operands(b *ast.BinaryExpr) {
	if b.Op != token.LAND && b.Op != token.LOR || in.source.info.Types[b].Value != nil {
		return
	}
	for _, operand := range []ast.Expr{b.X, b.Y} {
		if inner, ok := operand.(*ast.BinaryExpr); ok && inner.Op == b.Op {
			continue // its own operands are removed
		}
		format := "(removed(%d) || "
		if b.Op == token.LOR {
			format = "(!removed(%d) && "
		}
		in.wrap(operand, fmt.Sprintf(format, in.add("operand", operand)), ")")
	}
}

// literal makes removals of elements of lists and maps, and of fields.
func (in *instrumenter) literal(l *ast.CompositeLit) {
	if (l.Type == nil || in.addressed[l]) && !in.isStruct(l) || len(l.Elts) == 0 {
		return
	}
	switch in.source.info.TypeOf(l).Underlying().(type) {
	case *types.Slice:
		if _, keyed := l.Elts[0].(*ast.KeyValueExpr); keyed {
			return
		}
		first := in.add("element", l.Elts[0])
		for _, element := range l.Elts[1:] {
			in.add("element", element)
		}
		in.wrap(l, fmt.Sprintf("without(%d, ", first), ")")
	case *types.Map:
		first, keys := 0, []string(nil)
		for i, element := range l.Elts {
			number := in.add("entry", element)
			if i == 0 {
				first = number
			}
			key := element.(*ast.KeyValueExpr).Key
			if c, ok := key.(*ast.CompositeLit); ok && c.Type == nil {
				in.removals = in.removals[:first-1]
				return
			}
			keys = append(keys, string(in.file.text[in.offset(key.Pos()):in.offset(key.End())]))
		}
		in.wrap(l, fmt.Sprintf("withoutKey(%d, ", first), ", "+strings.ReplaceAll(strings.Join(keys, ", "), "\n", " ")+")")
	case *types.Struct:
		for _, element := range l.Elts {
			if field, ok := element.(*ast.KeyValueExpr); ok {
				in.field(l, field)
			}
		}
	}
}

func (in *instrumenter) isStruct(l *ast.CompositeLit) bool {
	_, ok := in.source.info.TypeOf(l).Underlying().(*types.Struct)
	return ok
}

// field makes a removal of a field's value, unless that is the zero value.
func (in *instrumenter) field(l *ast.CompositeLit, field *ast.KeyValueExpr) {
	structure := in.source.info.TypeOf(l).Underlying().(*types.Struct)
	var wanted types.Type
	for i := range structure.NumFields() {
		if isNamed(field.Key, structure.Field(i).Name()) {
			wanted = structure.Field(i).Type()
		}
	}
	value := in.source.info.Types[field.Value]
	name, printable := "", false
	if wanted != nil {
		name, printable = in.typeName(wanted)
	}
	if literal, ok := field.Value.(*ast.CompositeLit); !printable || value.IsNil() || ok && len(literal.Elts) == 0 ||
		value.Value != nil && slices.Contains([]string{"0", "false", `""`}, value.Value.ExactString()) {
		return
	}
	in.wrap(field.Value, fmt.Sprintf("orZero[%s](%d, ", name, in.add("field", field)), ")")
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
