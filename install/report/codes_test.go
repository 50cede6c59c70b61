// SPDX-License-Identifier: Apache-2.0

package report

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestCodes walks all codes: each constant has one meaning, of whole sentences of at most 15 words
// that need no other cell, and codes are words that need no quotes. Only the cause may be missing.
func TestCodes(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[a-z]+([-_ ][a-z0-9]+)*$`) // the spaces are in the states of pods since 0.1
	refers := regexp.MustCompile(`(?i)^(it|its|they|their|this|that|these|those)\b`)
	files, err := filepath.Glob("codes_*s*.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := map[Code]bool{}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
				if value, ok := spec.Values[0].(*ast.BasicLit); ok {
					code, _ := strconv.Unquote(value.Value)
					declared[Code(code)] = true
				}
			}
			return true
		})
	}
	for _, code := range Codes() {
		if !declared[code.Code] || !form.MatchString(string(code.Code)) {
			t.Errorf("%q is not the value of a constant, is there twice, or is no word", code.Code)
		}
		delete(declared, code.Code)
		for _, cell := range []string{code.Means, code.Cause, code.Advice} {
			if words := len(strings.Fields(cell)); words > 15 || strings.Contains(cell, "|") {
				t.Errorf("%s: a cell of %d words: %q", code.Code, words, cell)
			}
		}
		if refers.MatchString(code.Means) || refers.MatchString(code.Cause) || refers.MatchString(code.Advice) {
			t.Errorf("%s: a cell begins with a word that refers to another cell", code.Code)
		}
		if !strings.HasSuffix(code.Means, ".") || code.Cause != "" && !strings.HasSuffix(code.Cause, ".") || code.Advice == "" {
			t.Errorf("%s: %q and %q are no sentences, or the next step %q is missing", code.Code, code.Means, code.Cause, code.Advice)
		}
	}
	for code := range declared {
		t.Errorf("%s has no meaning", code)
	}
}

// TestCodeOfAdd knows each reason for which an ADD fails.
func TestCodeOfAdd(t *testing.T) {
	t.Parallel()
	for reason, want := range map[capture.Reason]Code{
		capture.ReasonInput: AddInput, capture.ReasonConfiguration: AddConfiguration, capture.ReasonLookup: AddLookup, capture.ReasonAnnotations: AddAnnotations,
		capture.ReasonRefused: AddRefused, capture.ReasonGone: AddGone, capture.ReasonKernel: AddKernel, "": AddFailed, "later": AddFailed,
	} {
		if got := CodeOfAdd(reason); got != want {
			t.Errorf("%q: %s, want %s", reason, got, want)
		}
	}
}
