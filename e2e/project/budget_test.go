// SPDX-License-Identifier: Apache-2.0

package project

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// budget is the ceiling of an area: statements of its Go files without tests, or words of
// its documents.
type budget struct {
	Statements int `json:"statements,omitempty"`
	Words      int `json:"words,omitempty"`
}

// TestBudget holds each area below its ceiling in budget.json. A ceiling rises only in a
// commit of its own, which says what was removed first, and why the rest can't be smaller.
func TestBudget(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("budget.json")
	if err != nil {
		t.Fatal(err)
	}
	var ceilings map[string]budget
	if err := json.Unmarshal(content, &ceilings); err != nil {
		t.Fatal(err)
	}
	found := map[string]budget{}
	for _, area := range []string{"config", "plugin", "install", "deploy", "e2e"} {
		found[area] = budget{Statements: statements(t, area)}
	}
	found["documents"] = budget{Words: words(t)}
	for area, has := range found {
		may := ceilings[area]
		if has.Statements > may.Statements || has.Words > may.Words {
			t.Errorf("%s has %+v: expected at most %+v", area, has, may)
		}
		t.Logf("%s has %+v of %+v", area, has, may)
	}
	if len(ceilings) != len(found) {
		t.Errorf("budget.json has %d areas, want %d", len(ceilings), len(found))
	}
}

// statements counts the statements of an area's Go files, without tests. Blocks are none.
func statements(t *testing.T, area string) (count int) {
	t.Helper()
	walk(t, area, func(path string) {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.BlockStmt, *ast.EmptyStmt:
			case ast.Stmt:
				count++
			}
			return true
		})
	})
	return count
}

// words counts the words of all documents but the changelog.
func words(t *testing.T) (count int) {
	t.Helper()
	walk(t, "", func(path string) {
		if filepath.Ext(path) != ".md" || filepath.Base(path) == "CHANGELOG.md" {
			return
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		count += len(strings.Fields(notWords.ReplaceAllString(string(content), " ")))
	})
	return count
}

// notWords are the lines of tables, which must not make a document shorter without blanks at them.
var notWords = regexp.MustCompile(`\||---*`)

// walk calls visit for the files of a directory that belong to the project.
func walk(t *testing.T, directory string, visit func(path string)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, directory), func(path string, entry fs.DirEntry, err error) error {
		switch name := filepath.Base(path); {
		case err != nil:
			return err
		case entry.IsDir() && (name == "bin" || name == "dist" || name == "testdata" || name != ".." && strings.HasPrefix(name, ".")):
			return filepath.SkipDir
		case !entry.IsDir():
			visit(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
