// SPDX-License-Identifier: Apache-2.0

package project

import (
	"fmt"
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

// Texts that make a command of a word which the program does not know. Punctuation ends a
// command: what follows is prose.
const (
	shellPrograms = `\b(?:capture-cni-node|cat|chroot|crictl|ctr|curl|helm|journalctl|kubectl|nft|nsenter|oc|rm|sudo|systemctl)`
	ofACommand    = ` [^,;:()` + "`" + `\n]*`
)

var (
	formatsCommand = regexp.MustCompile(shellPrograms + ofACommand + `%[-+#0-9.\[\]]*[a-zA-Z]`)
	beginsCommand  = regexp.MustCompile(shellPrograms + ofACommand + `$|\b(?:by|use|with) --[a-z-]+ $`)
)

// TestCommandsAreQuoted finds text in which a word becomes a part of a command anywhere but
// in report.Command, which quotes it: the author of an object in the cluster chooses its words.
func TestCommandsAreQuoted(t *testing.T) {
	t.Parallel()
	files := 0
	for _, area := range []string{"config", "plugin", "install", "deploy"} {
		err := filepath.WalkDir(filepath.Join(root, area), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files++
			positions := token.NewFileSet()
			file, err := parser.ParseFile(positions, path, nil, 0)
			for _, found := range unquotedCommands(file) {
				t.Errorf("%s: %s: build the command by report.Command", positions.Position(found.Pos()), textOf(found))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 200 {
		t.Errorf("%d files were read", files)
	}
}

// TestUnquotedCommands tries the search on expressions of each form.
func TestUnquotedCommands(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]int{
		`fmt.Sprintf("kubectl -n %s logs %s", namespace, name)`:                 1,
		`fmt.Errorf("%w; if it stays: kubectl delete ns %[2]q", a)`:             1,
		`"look at: cat " + path`:                                                1,
		`("kubectl get node " + (name)) + " -o yaml"`:                           1,
		`"kubectl label namespace " + name + " --overwrite " + label + "=x"`:    1,
		`strings.Join([]string{"helm", "-n", namespace}, " ")`:                  1,
		`fmt.Sprintln("kubectl", "get", name)`:                                  1,
		`"run this again with --agent-namespace " + name`:                       1,
		`"run this again with " + report.Command("--agent-namespace", name)`:    0,
		`report.Command("kubectl", "get", "node", name)`:                        0,
		`report.Command("helm", "-n", n) + "; if it fails: " + logs`:            0,
		`"kubectl capture-cni status: " + reason`:                               0,
		`"expected nodes of kubectl capture-cni status -o wide, or " + all`:     0,
		`fmt.Sprintf("expected nodes of kubectl capture-cni status, or %s", x)`: 0,
		`"kubectl capture-cni status" + " --wait"`:                              0,
		`"the plugin of kubectl"`:                                               0,
	} {
		parsed, err := parser.ParseExpr(expression)
		if err != nil {
			t.Fatal(err)
		}
		if found := unquotedCommands(parsed); len(found) != want {
			t.Errorf("%s: %d were found, want %d", expression, len(found), want)
		}
	}
}

// unquotedCommands returns the texts below a node that make a command of words.
func unquotedCommands(in ast.Node) (found []*ast.BasicLit) {
	ast.Inspect(in, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.CallExpr:
			name, _ := node.Fun.(*ast.SelectorExpr)
			isCommand := name != nil && name.Sel.Name == "Command" && fmt.Sprint(name.X) == "report"
			if isCommand {
				for _, word := range node.Args[1:] { // the first one is the program
					found = append(found, unquotedCommands(word)...)
				}
			}
			return !isCommand
		case *ast.BinaryExpr:
			if text := last(node.X); node.Op == token.ADD && text != nil && !isText(node.Y) && beginsCommand.MatchString(textOf(text)) {
				found = append(found, text)
			}
		case *ast.BasicLit:
			if text := textOf(node); formatsCommand.MatchString(text) || slices.Contains([]string{"kubectl", "helm", "oc"}, text) {
				found = append(found, node)
			}
		}
		return true
	})
	return found
}

// last returns the text with which an expression ends, nil if it does not end with one.
func last(expression ast.Expr) *ast.BasicLit {
	switch e := expression.(type) {
	case *ast.ParenExpr:
		return last(e.X)
	case *ast.BinaryExpr:
		return last(e.Y)
	case *ast.BasicLit:
		return e
	}
	return nil
}

func isText(expression ast.Expr) bool {
	_, is := expression.(*ast.BasicLit)
	return is
}

// textOf returns the text of a literal, "" for one that is no string.
func textOf(literal *ast.BasicLit) string {
	text, err := strconv.Unquote(literal.Value)
	if err != nil || literal.Kind != token.STRING {
		return ""
	}
	return text
}
