// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// hourLines bounds the files of the hour.
const hourLines = 1900

// TestHour builds the plugin so that each function says its file when it is called, runs one
// ADD, and expects the first of ARCHITECTURE.md's files to be called in their order.
func TestHour(t *testing.T) {
	t.Parallel()
	const project = "../.."
	document, err := os.ReadFile(filepath.Join(project, "ARCHITECTURE.md"))
	lab.Check(t, err)
	_, hour, _ := strings.Cut(string(document), "\n## The first hour\n")
	hour, _, _ = strings.Cut(hour, "\n## ")
	var listed []string
	files, lines := 0, 0
	for _, match := range regexp.MustCompile("(?m)^[0-9]+\\. `([^`]+\\.go)`").FindAllStringSubmatch(hour, -1) {
		content, err := os.ReadFile(filepath.Join(project, match[1]))
		lab.Check(t, err)
		files, lines = files+1, lines+strings.Count(string(content), "\n")
		if strings.Contains(string(content), "\nfunc ") { // intent.go declares types alone
			listed = append(listed, match[1])
		}
	}
	if files != 14 || lines > hourLines {
		t.Errorf("%d files of %d lines: want 14 of at most %d", files, lines, hourLines)
	}
	n := newNode(t)
	c := call{netns: sandbox(t).Path(), stdin: n.conf(""), plugin: buildTelling(t, project, "plugin/capture-cni"), env: []string{"CAPTURE_CNI_DIR=" + filepath.Dir(n.kubeconfig)}}
	got := c.run(t)
	got.succeeds(t)
	_, calls, _ := strings.Cut(got.stderr, "called: plugin/capture-cni/main.go") // without those that initialize packages
	called := []string{"plugin/capture-cni/main.go"}
	for _, match := range regexp.MustCompile(`(?m)^called: (\S+)$`).FindAllStringSubmatch(calls, -1) {
		if !slices.Contains(called, match[1]) {
			called = append(called, match[1])
		}
	}
	inOrder := slices.DeleteFunc(slices.Clone(called), func(file string) bool { return !slices.Contains(listed, file) })
	if !slices.Equal(inOrder, listed) {
		t.Errorf("an ADD calls %s, and the document lists\n%s; all that it calls:\n%s", strings.Join(inOrder, "\n"), strings.Join(listed, "\n"), strings.Join(called, "\n"))
	}
}

// buildTelling builds a program whose functions each say their file on stderr.
func buildTelling(t *testing.T, project, program string) (path string) {
	t.Helper()
	changed := map[string][]byte{}
	for _, directory := range []string{"config", "plugin"} {
		lab.Check(t, filepath.WalkDir(filepath.Join(project, directory), func(path string, entry os.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			name, err := filepath.Rel(project, path)
			if err != nil {
				return err
			}
			original, err := filepath.Abs(path)
			if err != nil {
				return err
			}
			changed[original], err = tell(path, name)
			return err
		}))
	}
	scratch := t.TempDir()
	path = filepath.Join(scratch, "plugin")
	lab.Check(t, errors.Join(
		lab.BuildChanged(t.Context(), path, "github.com/capture-cni/capture-cni/"+program, changed),
		os.Symlink(filepath.Join(bin, "capture-cni-lookup"), filepath.Join(scratch, "capture-cni-lookup"))))
	return path
}

// tell returns a file with a line at the beginning of each function.
func tell(path, name string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, content, 0)
	if err != nil {
		return nil, err
	}
	told := 0
	for _, declared := range file.Decls {
		if function, ok := declared.(*ast.FuncDecl); ok && function.Body != nil {
			at := int(function.Body.Lbrace) + told // positions begin at 1
			line := fmt.Sprintf("println(%q);", "called: "+name)
			content = slices.Insert(content, at, []byte(line)...)
			told += len(line)
		}
	}
	return content, nil
}
