// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestUnmeasured expects each package of the product that is left out to exist, and to be proved by a
// package that has tests, and all others to be in the run.
func TestUnmeasured(t *testing.T) {
	list, err := parseUnmeasured(unmeasuredList)
	lab.Check(t, err)
	project, err := lab.Project(t.Context())
	lab.Check(t, err)
	command := exec.CommandContext(t.Context(), "go", append([]string{"list"}, product...)...)
	command.Dir = project
	out, err := command.Output()
	lab.Check(t, err)
	var sources []*source
	for _, path := range strings.Fields(string(out)) {
		if files, _ := filepath.Glob(filepath.Join(project, (&source{path: path}).name(), "*.go")); slices.ContainsFunc(files, isProduct) {
			sources = append(sources, &source{path: path})
		}
	}
	all := len(sources)
	if run := measured(sources, list); all-len(run) != len(list) || len(run) < 30 {
		t.Errorf("%d of %d packages are in the run, and %d are left out: a package that is left out is none of the product", len(run), all, len(list))
	}
	for _, u := range list {
		if tests, _ := filepath.Glob(filepath.Join(project, u.provedBy, "*_test.go")); len(tests) == 0 {
			t.Errorf("%s: %s has no tests", u.name, u.provedBy)
		}
	}
	for _, text := range []string{"a | b\n", "a |  | c\n", "b | x | y\na | x | y\n", "a | x | y\na | x | y\n"} {
		if _, err := parseUnmeasured(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func isProduct(file string) bool { return !strings.HasSuffix(file, "_test.go") }
