// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRemoveReports leaves nothing of what plugin, agent and guard kept.
func TestRemoveReports(t *testing.T) {
	t.Parallel()
	settings := Settings{Root: t.TempDir(), RunDir: "/run/capture-cni"}
	for _, path := range []string{settings.GuardMemory() + "/web", settings.at("/run/capture-cni/adds/1.json")} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := (&Node{settings: settings}).removeReports(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(settings.at("/run/capture-cni")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
