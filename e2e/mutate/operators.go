// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
)

// comparisons has the function that compares as an operator does, or includes or excludes
// equal values when it is mutated.
var comparisons = map[token.Token]string{
	token.LSS: "mutatedLess", token.LEQ: "mutatedLessOrEqual", token.GTR: "mutatedGreater", token.GEQ: "mutatedGreaterOrEqual",
}

// arithmetic has for each operator the one that takes its place, and the function that
// computes either.
var arithmetic = map[token.Token]struct {
	other    token.Token
	function string
}{
	token.ADD: {token.SUB, "mutatedSum"},
	token.SUB: {token.ADD, "mutatedDifference"},
	token.MUL: {token.QUO, "mutatedProduct"},
	token.QUO: {token.MUL, "mutatedQuotient"},
	token.REM: {token.MUL, "mutatedRemainder"},
}

// operator makes mutants of a comparison or a computation: those that gremlins makes.
func (in *instrumenter) operator(b *ast.BinaryExpr) {
	known := in.source.info.Types[b]
	function, ordered := comparisons[b.Op]
	change, computed := arithmetic[b.Op]
	switch {
	case (b.Op == token.EQL || b.Op == token.NEQ || ordered) && known.Value == nil:
		negated := in.addAt("negation", b, b.OpPos)
		if !ordered {
			in.wrap(b, fmt.Sprintf("(mutated(%d) != (", negated), "))")
			return
		}
		in.wrap(b, fmt.Sprintf("(mutated(%d) != %s(%d, ", negated, function, in.addAt("boundary", b, b.OpPos)), "))")
		in.replace(b.OpPos, b.Op, ",")
	case computed && isNumber(known.Type):
		in.compute("arithmetic", b, b.OpPos, fmt.Sprintf("(%s) %s (%s)", in.text(b.X), change.other, in.text(b.Y)), func(name string, n int) {
			in.wrap(b, fmt.Sprintf("%s[%s](%d, ", change.function, name, n), ")")
			in.replace(b.OpPos, b.Op, ",")
		})
	}
}

// negative makes a mutant of a sign.
func (in *instrumenter) negative(u *ast.UnaryExpr) {
	if u.Op != token.SUB && u.Op != token.ADD {
		return
	}
	other := map[token.Token]string{token.SUB: "+", token.ADD: "-"}[u.Op]
	in.compute("negative", u, u.OpPos, other+"("+in.text(u.X)+")", func(name string, n int) {
		in.wrap(u, fmt.Sprintf("mutatedOpposite[%s](%d, ", name, n), ")")
	})
}

// compute makes a mutant of an expression of numbers, unless the compiler would refuse it. A
// constant becomes one of two constants.
func (in *instrumenter) compute(kind string, e ast.Expr, at token.Pos, other string, variable func(name string, n int)) {
	known := in.source.info.Types[e]
	name, printable := in.typeName(known.Type)
	if !printable {
		return
	}
	if _, err := types.Eval(in.source.set, in.source.types, at, name+"("+other+")"); err != nil {
		return
	}
	n := in.addAt(kind, e, at)
	if known.Value != nil {
		in.wrap(e, fmt.Sprintf("mutatedEither[%s](%d, ", name, n), ", "+other+")")
		return
	}
	variable(name, n)
}

// increment makes a mutant of ++ or --.
func (in *instrumenter) increment(s *ast.IncDecStmt) {
	name, printable := in.typeName(in.source.info.TypeOf(s.X))
	if !printable {
		return
	}
	operator := map[token.Token]string{token.INC: "+=", token.DEC: "-="}[s.Tok]
	in.replace(s.TokPos, s.Tok, fmt.Sprintf(" %s mutatedStep[%s](%d)", operator, name, in.addAt("increment", s, s.TokPos)))
}

func isNumber(t types.Type) bool {
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&(types.IsInteger|types.IsFloat) != 0
}
