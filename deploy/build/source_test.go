// SPDX-License-Identifier: Apache-2.0

package build

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestSourceArchive runs make build in a copy of the sources that is no git checkout, as
// those of an archive: each program reports the chart's version.
func TestSourceArchive(t *testing.T) {
	lab.RequireTime(t)
	copied, bin := t.TempDir(), t.TempDir()
	for _, name := range []string{"config", "plugin", "install", "deploy"} {
		lab.Check(t, os.CopyFS(filepath.Join(copied, name), os.DirFS(filepath.Join("../..", name))))
	}
	for _, name := range []string{"Makefile", "go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join("../..", name))
		lab.Check(t, err)
		lab.Check(t, os.WriteFile(filepath.Join(copied, name), content, 0o600))
	}
	chart, err := os.ReadFile(filepath.Join(copied, "deploy/chart/Chart.yaml"))
	lab.Check(t, err)
	want := "v" + string(regexp.MustCompile(`(?m)^appVersion: (.+)$`).FindSubmatch(chart)[1])
	if out, err := exec.CommandContext(t.Context(), "make", "-C", copied, "build", "BIN="+bin).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"capture-cni", "capture-cni-lookup", "capture-cni-node", "kubectl-capture_cni"} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(bin, name), "--version").Output()
		if words := strings.Fields(string(out)); err != nil || len(words) == 0 || words[len(words)-1] != want {
			t.Errorf("%s --version: %q, %v; want %s", name, out, err, want)
		}
	}
}
