// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/install/report"
)

// TestReport expects an archive that only its owner can read, even if no agent answers. It expects no
// partial archive, and another file is not overwritten.
func TestReport(t *testing.T) { //nolint:paralleltest // it changes its directory, where an archive without a name is
	t.Chdir(t.TempDir())
	c := newCluster(t)
	c.addNode("node-1", 0, state(&report.Pods{}))
	path := filepath.Join(t.TempDir(), "report.tar.gz")
	out, progress, status := c.run(t, "report", "--file", path)
	if status != 0 || out != path+"\n" || !strings.Contains(progress, "1 of 1 nodes: node-1") {
		t.Errorf("status %d: %s%s", status, out, progress)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() == 0 {
		t.Errorf("%+v, %v", info, err)
	}
	if _, errors, status := c.run(t, "report", "--file", path); status != 2 || !strings.Contains(errors, "file exists") {
		t.Errorf("over an older archive: status %d, %s", status, errors)
	}
	other := filepath.Join(t.TempDir(), "other.tar.gz")
	if _, errors, status := c.run(t, "report", "--file", other, "--nodes", "none"); status != 2 || !strings.Contains(errors, `node "none"`) {
		t.Errorf("of an unknown node: status %d, %s", status, errors)
	}
	if _, err := os.Stat(other); !os.IsNotExist(err) {
		t.Errorf("half of an archive is left: %v", err)
	}
	out, _, status = c.run(t, "report")
	if _, err := os.Stat(strings.TrimSpace(out)); err != nil || status != 0 || !regexp.MustCompile(`^capture-cni-\d{8}T\d{6}Z\.tar\.gz\n$`).MatchString(out) {
		t.Errorf("without a name: status %d: %s, %v", status, out, err)
	}
}
