// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// foreignMessages are messages of other programs that the documents quote, with the program.
var foreignMessages = map[string]string{
	`failed to find plugin "capture-cni"`:                        "libcni",
	`failed to find plugin "istio-cni"`:                          "libcni",
	`node requested token not bound to a pod`:                    "API server",
	`unable to validate against any security context constraint`: "OpenShift",
	`cannot find a network-attachment-definition (istio-cni)`:    "Multus",
	`no ServiceAccount with the name "capture-cni" found`:        "Helm",
}

var (
	dynamic   = regexp.MustCompile(`"[^"]*"|/[\w./-]+|\b[0-9]+(\.[0-9]+)?(ms|s|m|h)?\b`) // what a message may fill in
	verb      = regexp.MustCompile(`%[-+#]?[0-9.*]*[a-zA-Z]`)
	noMessage = regexp.MustCompile(`^(--|[{"]|(/?capture-cni-node|kubectl|helm|make|oc|cp|mv|systemctl|run|meta|capabilities:) ?)`)
	logLine   = regexp.MustCompile(`\bmsg=("[^"]*"|\S+)`)
	reason    = regexp.MustCompile("`(Capture[A-Z][A-Za-z]+)`")
)

// TestQuotedMessages looks up each message that a document quotes in the sources: code spans
// of three words and more, messages of log lines, and reasons of Events. What a literal
// leaves to its verbs, a message may fill with a quote, a path or a number.
func TestQuotedMessages(t *testing.T) {
	literals := sourceLiterals(t)
	documents := guideTexts(t)
	references, err := filepath.Glob("reference/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(references, "README.md", "../README.md") {
		documents[path] = regexp.MustCompile(`(?s)<!-- (\w+) -->.*<!-- /\w+ -->`).ReplaceAllString(read(t, path), "") // tables of the code
	}
	alerts := read(t, alertRules)
	count, foreign := 0, map[string]bool{}
	expect := func(path, message string) {
		count++
		if !slices.ContainsFunc(literals, matcher(message)) {
			t.Errorf("%s quotes %q: no program of ours writes that", path, message)
		}
	}
	for path, text := range documents {
		for _, span := range spans(text) {
			switch {
			case foreignMessages[span] != "":
				foreign[span] = true
			case strings.Count(span, " ") >= 2 && !noMessage.MatchString(span):
				expect(path, span)
			}
		}
		for _, match := range logLine.FindAllStringSubmatch(text, -1) {
			if count++; !slices.Contains(literals, strings.Trim(match[1], `"`)) {
				t.Errorf("%s quotes a log line with %s: no program of ours logs that", path, match[0])
			}
		}
		for _, match := range reason.FindAllStringSubmatch(text, -1) {
			if count++; !strings.Contains(alerts, "alert: "+match[1]+"\n") && !slices.Contains(literals, match[1]) {
				t.Errorf("%s names %s: it is neither an alert nor an Event of ours", path, match[1])
			}
		}
	}
	expectSome(t, count)
	for message, program := range foreignMessages {
		if !foreign[message] {
			t.Errorf("no document quotes %q of %s any more", message, program)
		}
	}
}

// matcher returns a function that reports whether a literal, with anything in the place of
// its verbs, contains a message.
func matcher(message string) func(literal string) bool {
	var parts []string
	for part := range strings.SplitSeq(message, "…") {
		at := 0
		for _, filled := range dynamic.FindAllStringIndex(part, -1) {
			text := part[filled[0]:filled[1]]
			parts = append(parts, regexp.QuoteMeta(part[at:filled[0]]), `(?:`+regexp.QuoteMeta(text)+`|\x00)`)
			at = filled[1]
		}
		parts = append(parts, regexp.QuoteMeta(part[at:]), ".*")
	}
	pattern := regexp.MustCompile("(?s)" + strings.Join(parts[:len(parts)-1], ""))
	return pattern.MatchString
}

// sourceLiterals returns the texts of our programs, concatenated as in their sources, with
// a NUL for each verb and each operand that is no literal.
func sourceLiterals(t *testing.T) (literals []string) {
	t.Helper()
	for _, directory := range []string{"../config", "../plugin", "../install", "fleet", "kubectl-capture_cni", "precheck", "capturetest"} {
		err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				expr, ok := n.(ast.Expr)
				if !ok {
					return true
				}
				text, isText := literalText(expr)
				if isText {
					literals = append(literals, text)
				}
				return !isText
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return literals
}

func literalText(expr ast.Expr) (text string, ok bool) {
	switch e := expr.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(e.Value)
		return verb.ReplaceAllString(text, "\x00"), err == nil
	case *ast.BinaryExpr:
		left, isLeft := literalText(e.X)
		right, isRight := literalText(e.Y)
		if e.Op != token.ADD || !isLeft && !isRight {
			return "", false
		}
		if !isLeft {
			left = "\x00"
		}
		if !isRight {
			right = "\x00"
		}
		return left + right, true
	}
	return "", false
}
