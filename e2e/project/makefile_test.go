// SPDX-License-Identifier: Apache-2.0

package project

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestEarlierReleaseNeedsHistory builds the earlier release where git lacks its commit, as
// in a shallow clone: the error says what to do.
func TestEarlierReleaseNeedsHistory(t *testing.T) {
	t.Parallel()
	makefile, err := filepath.Abs(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	clone := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "git", "init", "--quiet", clone).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), "make", "-C", clone, "-f", makefile, "bin/parts/"+lab.EarlierVersion).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "run git fetch --unshallow") {
		t.Errorf("%v: %s", err, out)
	}
}
