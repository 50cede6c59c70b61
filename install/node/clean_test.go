// SPDX-License-Identifier: Apache-2.0

package node

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/backend"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/credentials"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// TestCleanRemovesRecords expects that no file of the plugin, agent and guard is left.
func TestCleanRemovesRecords(t *testing.T) {
	t.Parallel()
	wanted := DefaultSettings(t.TempDir())
	const run = "/run/capture-cni/"
	for _, path := range []string{
		wanted.GuardDirectory() + "/web", wanted.At(run + "adds/1.json"), wanted.At(record.Spool(run+"x") + "/1"),
		wanted.At(run + config.AgentSocketName), wanted.At(run + config.SocketsName + "/pods.sock"), wanted.At(run + backend.DirectoryName + "/1"),
	} {
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
	if err := os.WriteFile(wanted.GuardDirectory(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&Node{Settings: wanted}).Clean(false); err == nil {
		t.Error("no error of a file in a directory's place")
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
		wanted := DefaultSettings(machine.New(t, files))
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
		wanted := DefaultSettings(machine.New(t, map[string]string{plugin: "", "/var/lib/capture-cni/owner": ""}))
		if err := (&Node{Settings: wanted}).Clean(purge); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(wanted.At(plugin)); (err == nil) == purge {
			t.Errorf("purge %t: the plugin: %v", purge, err)
		}
		left := (&Node{Settings: wanted}).Left()
		if len(left) == 1 == purge || len(left) > 1 || !purge && !strings.HasSuffix(left[0].Reason, "that were started with the plugin: "+plugin) {
			t.Errorf("purge %t: noted %q", purge, left)
		}
	}
}

// TestCleanLeavesNothing has an agent take the node, write whatever it can, and clean it,
// twice: its directories are empty, and another release may take the node.
func TestCleanLeavesNothing(t *testing.T) { //nolint:paralleltest // another test's child has the lock until it calls exec
	all := map[string]string{
		"/etc/cni/net.d/10-ptp.conflist":          machine.PtpList,
		"/var/lib/capture-cni/.capture-cni-tmp-1": "", "/run/capture-cni/" + config.AgentSocketName: "",
		"/opt/cni/bin/capture-cni": "", "/opt/cni/bin/capture-cni-lookup": "", "/opt/cni/bin/" + config.DirectoriesFile: "",
	}
	for _, directory := range []string{"/var/lib/capture-cni/", "/run/capture-cni/"} {
		for _, name := range credentials.Names() {
			all[directory+name] = "{}"
		}
	}
	good := []string{lastGood(conflist.PluginType), lastGood(config.LookupProgram)}
	for _, name := range append(good, ownerName, holderName, placedName) {
		all["/var/lib/capture-cni/"+name] = ""
	}
	wanted := DefaultSettings(machine.New(t, all))
	for range 2 {
		if err := New(wanted, nil, nil, slog.New(slog.DiscardHandler)).Clean(true); err != nil {
			t.Fatal(err)
		}
		for _, directory := range []string{wanted.StateDir, wanted.RunDir, wanted.BinDirs[0]} {
			if left, err := os.ReadDir(wanted.At(directory)); err != nil || len(left) > 0 {
				t.Errorf("left in %s: %v, %v", directory, left, err)
			}
		}
		n := New(wanted, nil, nil, slog.New(slog.DiscardHandler))
		if err := n.CheckRemovable(t.Context(), false); err != nil {
			t.Errorf("a clean node: %v", err)
		}
		lock, err := n.Claim()
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Close(); err != nil {
			t.Error(err)
		}
		wanted.Owner = "another-release"
		if err := New(wanted, nil, nil, slog.New(slog.DiscardHandler)).Clean(true); err != nil {
			t.Error(err)
		}
	}
}

// TestClaimLeavesNothing waits for a node that another agent holds, or another release owns:
// each attempt leaves no descriptor.
func TestClaimLeavesNothing(t *testing.T) {
	wanted := DefaultSettings(machine.New(t, map[string]string{"/etc/cni/net.d/10-ptp.conflist": machine.PtpList}))
	holder := New(wanted, nil, nil, slog.New(slog.DiscardHandler))
	lock, err := holder.Claim()
	if err != nil {
		t.Fatal(err)
	}
	descriptors := func() int {
		open, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(open)
	}
	for _, owner := range []string{wanted.Owner, "another-release"} {
		wanted.Owner = owner
		waiting, before := New(wanted, nil, nil, slog.New(slog.DiscardHandler)), descriptors()
		for range 100 {
			if lock, err := waiting.Claim(); err == nil {
				_ = lock.Close()
				t.Fatal("two agents hold the node")
			}
		}
		if more := descriptors() - before; more > 10 {
			t.Errorf("as release %s: %d descriptors more after 100 attempts", owner, more)
		}
	}
	if err := lock.Close(); err != nil {
		t.Error(err)
	}
	if _, err := holder.Claim(); err != nil {
		t.Errorf("after the other agent: %v", err)
	}
}
