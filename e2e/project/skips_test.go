// SPDX-License-Identifier: Apache-2.0

package project

import (
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
	if !strings.Contains(read(t, "Makefile"), "\ntest full: export CI := true\n") {
		t.Error("make test or make full does not set CI=true")
	}
	if !strings.Contains(read(t, "Makefile"), "e2e/$* -count=1 -timeout 60m -v .\n") {
		t.Error("make test does not print the tests that SkipGone skips")
	}
}

// TestSmokeExists finds each test that make test runs on a cluster: go test passes where a
// name matches nothing.
func TestSmokeExists(t *testing.T) {
	t.Parallel()
	names := regexp.MustCompile(`(?m)^SMOKE +:= \^\((.*)\)\$\$$`).FindStringSubmatch(read(t, "Makefile"))
	if names == nil {
		t.Fatal("the Makefile has no list SMOKE")
	}
	for name := range strings.SplitSeq(names[1], "|") {
		if expectTest("e2e/cluster/pods", name) != nil && expectTest("e2e/cluster/agents", name) != nil {
			t.Errorf("make test runs %s on a cluster, and neither pods nor agents has it", name)
		}
	}
}
