// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCleanRemovesRecords expects that no file of the plugin, agent and guard is left.
func TestCleanRemovesRecords(t *testing.T) {
	t.Parallel()
	settings := Settings{Root: t.TempDir(), RunDir: "/run/capture-cni"}
	for _, path := range []string{settings.GuardDirectory() + "/web", settings.at("/run/capture-cni/adds/1.json")} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := (&Node{settings: settings}).inDirectory(settings.RunDir, removeRecords); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(settings.at("/run/capture-cni")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
