// SPDX-License-Identifier: Apache-2.0

package project

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSkipsFail expects that tests skip by the lab's functions alone: Lacks fails them
// under `make test`, which prints what SkipGone says.
func TestSkipsFail(t *testing.T) {
	skip := regexp.MustCompile(`[.]Skip(f|Now)?[(]`)
	var skipping []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && entry.Name() == "bin" {
			return fs.SkipDir
		}
		name := strings.TrimPrefix(path, root+"/")
		if strings.HasSuffix(name, ".go") && skip.MatchString(read(t, name)) {
			skipping = append(skipping, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"e2e/lab/require.go"}; !slices.Equal(skipping, want) {
		t.Errorf("tests are skipped by %q, want %q", skipping, want)
	}
	if !strings.Contains(read(t, "Makefile"), "\nfull ci $(if $(filter 0,$(shell id -u)),test): export CI := true\n") {
		t.Error("as root, make test, make ci or make full does not set CI=true")
	}
	if !strings.Contains(read(t, "Makefile"), "-v ./e2e/ages\n") {
		t.Error("make test-ages does not print the tests that SkipGone skips")
	}
}

// TestNeedsParts expects the Makefile to leave out, and to run later, the tests whose names
// say that they need programs of other projects.
func TestNeedsParts(t *testing.T) {
	t.Parallel()
	inLab := regexp.MustCompile("needsParts = regexp.MustCompile\\(`(.*)`\\)").FindStringSubmatch(read(t, "e2e/lab/part.go"))
	inMakefile := regexp.MustCompile(`(?m)^NEEDSPARTS := (.*)$`).FindStringSubmatch(read(t, "Makefile"))
	if inLab == nil || inMakefile == nil || inLab[1] != inMakefile[1] {
		t.Errorf("tests that need parts are called %q in e2e/lab and %q in the Makefile", inLab, inMakefile)
	}
}

// withoutParts are the tests that need another project, but no program that make parts builds.
var withoutParts = map[string]string{
	"e2e/traffic.TestOracleIstiosCases": "reads Istio's sources",
	"e2e/mutate.TestOracleGremlins":     "builds gremlins",
}

// TestPartsAreNeeded expects each test whose name says that it needs such programs to get one
// by lab.Part, by itself or by functions of its package: make test leaves out no other test.
// Part itself checks that no other test needs one.
func TestPartsAreNeeded(t *testing.T) {
	t.Parallel()
	names := map[string]map[string][]string{} // of packages and their functions, what these name
	walk(t, ".", func(path string) {
		if filepath.Ext(path) != ".go" {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		functions := names[filepath.Dir(path)]
		if functions == nil {
			functions = map[string][]string{}
			names[filepath.Dir(path)] = functions
		}
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(function, func(node ast.Node) bool {
				switch node := node.(type) {
				case *ast.SelectorExpr:
					if used, ok := node.X.(*ast.Ident); ok && used.Name == "lab" {
						functions[function.Name.Name] = append(functions[function.Name.Name], "lab."+node.Sel.Name)
					}
				case *ast.Ident:
					functions[function.Name.Name] = append(functions[function.Name.Name], node.Name)
				}
				return true
			})
		}
	})
	tests := 0
	for pkg, functions := range names {
		for name := range functions {
			if !strings.HasPrefix(name, "TestOracle") && !strings.HasPrefix(name, "TestEarlier") {
				continue
			}
			tests++
			reached := []string{name}
			for i := 0; i < len(reached); i++ {
				for _, next := range functions[reached[i]] {
					if !slices.Contains(reached, next) {
						reached = append(reached, next)
					}
				}
			}
			test := strings.TrimPrefix(pkg, root+"/") + "." + name
			if needs := slices.Contains(reached, "lab.Part") || slices.Contains(reached, "lab.StartEnvoy"); needs == (withoutParts[test] != "") {
				t.Errorf("%s calls lab.Part: %v: if it needs no program of another project, make test must not leave it out", test, needs)
			}
		}
	}
	if tests < 15 {
		t.Errorf("only %d tests need programs of other projects", tests)
	}
}

// cacheable are the packages whose tests start a program, and pass again if nothing changed
// that go test sees: it caches their results.
var cacheable = map[string]string{
	"install/node":       "cp, of Go's own program",
	"install/report":     "a shell splits a line",
	"plugin/capture-cni": "the test itself",
	"e2e/lab":            "true",
	"e2e/project":        "make verify runs it without the cache",
}

// TestCacheSeesPrograms expects other packages that start programs to call a function of the
// lab which keeps go test from caching their results.
func TestCacheSeesPrograms(t *testing.T) {
	t.Parallel()
	starts, uncached := map[string]bool{}, map[string]bool{}
	calls := regexp.MustCompile(`\blab\.(Require|StartHost|Part|Project|Programs|Lacks)`)
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, root+"/")
		if err != nil || !strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "bin/") {
			return err
		}
		content, directory := read(t, name), filepath.Dir(name)
		starts[directory] = starts[directory] || strings.Contains(content, "\"os/exec\"")
		uncached[directory] = uncached[directory] || calls.MatchString(content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for directory := range starts {
		if starts[directory] && !uncached[directory] && cacheable[directory] == "" && !strings.HasPrefix(directory, "e2e/cluster") {
			t.Errorf("the tests of %s start programs, and call none of the lab's functions that keep go test from caching their results", directory)
		}
	}
}

// TestSmokeExists finds each test that make ci runs on a cluster: go test passes where a
// name matches nothing.
func TestSmokeExists(t *testing.T) {
	t.Parallel()
	names := regexp.MustCompile(`(?m)^SMOKE +:= \^\((.*)\)\$\$$`).FindStringSubmatch(read(t, "Makefile"))
	if names == nil {
		t.Fatal("the Makefile has no list SMOKE")
	}
	for name := range strings.SplitSeq(names[1], "|") {
		if expectTest("e2e/cluster/pods", name) != nil && expectTest("e2e/cluster/agents", name) != nil {
			t.Errorf("make ci runs %s on a cluster, and neither pods nor agents has it", name)
		}
	}
}
