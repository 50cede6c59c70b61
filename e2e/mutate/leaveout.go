// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// statements makes mutants of those that can be left out and still compile.
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
		in.wrap(statement, fmt.Sprintf("if !mutated(%d) { ", in.add("statement", statement)), " }")
	}
}

func isNamed(e ast.Expr, name string) bool {
	identifier, ok := e.(*ast.Ident)
	return ok && identifier.Name == name
}

// cases makes mutants of the values of a switch. One without a tag has conditions.
func (in *instrumenter) cases(s *ast.SwitchStmt) {
	for _, clause := range s.Body.List {
		for _, value := range clause.(*ast.CaseClause).List {
			if s.Tag == nil {
				in.wrap(value, fmt.Sprintf("!mutated(%d) && (", in.add("case", value)), ")")
				continue
			}
			basic, ok := in.source.info.TypeOf(s.Tag).Underlying().(*types.Basic)
			name, printable := in.typeName(in.source.info.TypeOf(s.Tag))
			if !ok || !printable || basic.Info()&(types.IsString|types.IsInteger) == 0 {
				continue
			}
			function := "mutatedOtherText"
			if basic.Info()&types.IsInteger != 0 {
				function = "mutatedOtherNumber"
			}
			in.wrap(value, fmt.Sprintf("%s[%s](%d, ", function, name, in.add("case", value)), ")")
		}
	}
}

// operands makes mutants of the operands of && and ||.
func (in *instrumenter) operands(b *ast.BinaryExpr) {
	if b.Op != token.LAND && b.Op != token.LOR || in.source.info.Types[b].Value != nil {
		return
	}
	for _, operand := range []ast.Expr{b.X, b.Y} {
		if inner, ok := operand.(*ast.BinaryExpr); ok && inner.Op == b.Op {
			continue // its own operands are left out
		}
		format := "(mutated(%d) || "
		if b.Op == token.LOR {
			format = "(!mutated(%d) && "
		}
		in.wrap(operand, fmt.Sprintf(format, in.add("operand", operand)), ")")
	}
}

// literal makes mutants of elements of lists and maps, and of fields.
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
		in.wrap(l, fmt.Sprintf("mutatedWithout(%d, ", first), ")")
	case *types.Map:
		first, keys := 0, []string(nil)
		for i, element := range l.Elts {
			number := in.add("entry", element)
			if i == 0 {
				first = number
			}
			key := element.(*ast.KeyValueExpr).Key
			if c, ok := key.(*ast.CompositeLit); ok && c.Type == nil {
				in.mutants = in.mutants[:first-1]
				return
			}
			keys = append(keys, in.text(key))
		}
		in.wrap(l, fmt.Sprintf("mutatedWithoutKey(%d, ", first), ", "+strings.ReplaceAll(strings.Join(keys, ", "), "\n", " ")+")")
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

// field makes a mutant of a field's value, unless that is the zero value.
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
	if _, err := types.Eval(in.source.set, in.source.types, l.Pos(), "(func() "+name+")(nil)"); err != nil { // a variable has the type's name
		return
	}
	in.wrap(field.Value, fmt.Sprintf("mutatedOrZero[%s](%d, ", name, in.add("field", field)), ")")
}
