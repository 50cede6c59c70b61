// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/machine"
)

// TestDeletedMounts names each of the agent's directories that was deleted behind its mount.
func TestDeletedMounts(t *testing.T) {
	t.Parallel()
	settings := Default(machine.New(t, nil))
	settings.TmpfilesDir = "/etc/tmpfiles.d"
	settings.BinDirs = []string{"/opt/cni/bin", "/usr/lib/cni"}
	all := []string{settings.NetDir, settings.StateDir, settings.RunDir, settings.TmpfilesDir, "/opt/cni/bin", "/usr/lib/cni"}
	for _, directory := range all {
		if err := os.MkdirAll(settings.At(directory), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := settings.DeletedMount(); err != nil {
		t.Errorf("nothing is deleted: %v", err)
	}
	for _, directory := range all {
		t.Run(strings.ReplaceAll(directory, "/", "_"), func(t *testing.T) {
			path := settings.At(directory)
			restore := showDeleted(t, path)
			if err := settings.DeletedMount(); err == nil || !strings.HasPrefix(err.Error(), directory+" was deleted on the node") {
				t.Errorf("%s: %v", directory, err)
			}
			restore()
		})
	}
}

// showDeleted makes a path show a directory that was deleted, as a mount does.
func showDeleted(t *testing.T, path string) (restore func()) {
	t.Helper()
	deleted, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = deleted.Close() })
	for _, err := range []error{os.Remove(path), os.Symlink(fmt.Sprintf("/proc/self/fd/%d", deleted.Fd()), path)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		for _, err := range []error{os.Remove(path), os.Mkdir(path, 0o755)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}
