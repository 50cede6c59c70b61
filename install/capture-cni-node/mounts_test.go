// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/node"
)

// TestDeletedMounts names each of the agent's directories that was deleted behind its mount,
// as the node sees it.
func TestDeletedMounts(t *testing.T) {
	t.Parallel()
	o := &options{Settings: node.DefaultSettings(machine.New(t, nil))}
	o.TmpfilesDir = "/etc/tmpfiles.d"
	o.BinDirs = []string{"/opt/cni/bin", "/usr/lib/cni"}
	o.sockets = []string{o.At("/run/containerd/containerd.sock")}
	all := []string{o.NetDir, o.StateDir, o.RunDir, o.TmpfilesDir, "/opt/cni/bin", "/usr/lib/cni", "/run/containerd"}
	for _, directory := range all {
		if err := os.MkdirAll(o.At(directory), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := o.untilDeleted(o.agentMounts()...)(ended); err != nil {
		t.Errorf("nothing is deleted: %v", err)
	}
	for _, directory := range all {
		t.Run(strings.ReplaceAll(directory, "/", "_"), func(t *testing.T) {
			restore := showDeleted(t, o.At(directory))
			err := o.untilDeleted(o.agentMounts()...)(ended)
			if err == nil || !strings.HasPrefix(err.Error(), directory+" was deleted on the node") {
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
