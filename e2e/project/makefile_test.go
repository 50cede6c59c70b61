// SPDX-License-Identifier: Apache-2.0

package project

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestReleaseNeedsHistory builds an earlier release where git lacks its commit, as
// in a shallow clone: the error says what to do. Without git there is none.
func TestReleaseNeedsHistory(t *testing.T) {
	t.Parallel()
	makefile, err := filepath.Abs(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	sources := t.TempDir()
	build := func() (string, error) {
		out, err := exec.CommandContext(t.Context(), "make", "-C", sources, "-f", makefile, "bin/parts/"+lab.EarlierVersions[0]).CombinedOutput()
		return string(out), err
	}
	if out, err := build(); err != nil || !strings.Contains(out, "tests of two versions are skipped") {
		t.Errorf("sources that are no checkout: %v: %s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), "git", "init", "--quiet", sources).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := build(); err == nil || !strings.Contains(out, "run git fetch --unshallow") {
		t.Errorf("a shallow clone: %v: %s", err, out)
	}
}
