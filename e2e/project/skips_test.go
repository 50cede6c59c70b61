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
	if !strings.Contains(read(t, "Makefile"), " -v ./e2e/ages ./e2e/kernels ") {
		t.Error("make test does not print the tests that SkipGone skips")
	}
}
