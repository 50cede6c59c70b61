// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/settings"
)

// TestCleanRemovesRecords expects that no file of the plugin, agent and guard is left.
func TestCleanRemovesRecords(t *testing.T) {
	t.Parallel()
	wanted := settings.Node{Root: t.TempDir(), RunDir: "/run/capture-cni"}
	for _, path := range []string{wanted.GuardDirectory() + "/web", wanted.At("/run/capture-cni/adds/1.json")} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := (&Node{Settings: wanted}).within(wanted.RunDir, removeRecords); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(wanted.At("/run/capture-cni")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestCleanKeepsTheOrder has a removal fail: what the plugin needs stays while the runtime
// may still call it.
func TestCleanKeepsTheOrder(t *testing.T) {
	t.Parallel()
	const (
		entry       = "/etc/cni/net.d/10-ptp.conflist"
		credentials = "/var/lib/capture-cni/kubeconfig"
		fallback    = "/run/capture-cni/token"
		adds        = "/run/capture-cni/adds/1"
		plugin      = "/opt/cni/bin/capture-cni"
		owner       = "/var/lib/capture-cni/owner"
		boot        = "/etc/tmpfiles.d/capture-cni.conf"
	)
	all := []string{entry, credentials, fallback, adds, plugin, owner, boot}
	for obstacle, stays := range map[string][]string{
		"":          nil,
		boot:        {entry, credentials, fallback, adds, plugin, owner},
		entry:       {credentials, fallback, adds, plugin, owner},
		credentials: {adds, plugin, owner},
	} {
		files := map[string]string{}
		for _, path := range all {
			files[path] = "{}"
		}
		files[entry] = strings.Replace(machine.PtpList, "}]", "}, "+`{"type":"capture-cni"}`+"]", 1)
		wanted := settings.Default(machine.New(t, files))
		wanted.TmpfilesDir = "/etc/tmpfiles.d"
		if obstacle != "" { // a directory that is not empty can't be removed, nor read as a list
			path := wanted.At(obstacle)
			if obstacle == entry {
				path = wanted.At("/etc/cni/net.d/podnet/capture-cni.conf")
			}
			_ = os.Remove(path)
			if err := os.MkdirAll(path+"/in-the-way", 0o755); err != nil {
				t.Fatal(err)
			}
		}
		err := (&Node{Settings: wanted}).Clean(true)
		if (err == nil) != (obstacle == "") {
			t.Errorf("%q in the way: %v", obstacle, err)
		}
		for _, path := range all {
			if path == obstacle {
				continue
			}
			text, err := os.ReadFile(wanted.At(path))
			left := err == nil && (path != entry || strings.Contains(string(text), conflist.PluginType))
			if want := slices.Contains(stays, path); left != want && (want || obstacle == "") {
				t.Errorf("%q in the way: %s is left: %t", obstacle, path, left)
			}
		}
	}
}

// TestCleanKeepsThePlugin expects the plugin to stay: the runtime calls it to delete pods.
func TestCleanKeepsThePlugin(t *testing.T) {
	t.Parallel()
	const plugin = "/opt/cni/bin/capture-cni"
	for _, purge := range []bool{false, true} {
		wanted := settings.Default(machine.New(t, map[string]string{plugin: "", "/var/lib/capture-cni/owner": ""}))
		if err := (&Node{Settings: wanted}).Clean(purge); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(wanted.At(plugin)); (err == nil) == purge {
			t.Errorf("purge %t: the plugin: %v", purge, err)
		}
	}
}
