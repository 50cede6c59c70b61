// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// TestDirectories has the directories of several platforms. The installed plugin
// accepts the credentials there, and none from elsewhere.
func TestDirectories(t *testing.T) {
	for _, platform := range []struct{ name, binDir, stateDir, runDir string }{
		{"the chart's own paths", "/opt/cni/bin", "/srv/mesh/state", "/srv/mesh/run"},
		{"k3s", "/var/lib/rancher/k3s/data/cni", "/var/lib/rancher/k3s/agent/capture-cni", "/run/k3s/capture-cni"},
		{"MicroK8s behind a link", "/var/snap/microk8s/current/opt/cni/bin", "/var/snap/microk8s/current/capture-cni", "/var/snap/microk8s/common/run/capture-cni"},
	} {
		t.Run(platform.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			lab.Check(t, os.MkdirAll(n.Dir+"/var/snap/microk8s/2094", 0o755))
			lab.Check(t, os.Symlink("2094", n.Dir+"/var/snap/microk8s/current"))
			n.BinDir, n.StateDir, n.RunDir = n.Dir+platform.binDir, n.Dir+platform.stateDir, n.Dir+platform.runDir
			lab.Check(t, os.MkdirAll(n.BinDir, 0o755))
			n.Start(t, "--mode", "insert").Ready(t)
			n.PutPod("web", true)
			host := machine.Sandbox(t)
			if out, err := n.Call("ADD", "web", host.Path(), "5s"); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			elsewhere := t.TempDir()
			for _, name := range []string{"kubeconfig", "token", "ca.crt"} {
				content, err := os.ReadFile(filepath.Join(n.StateDir, name))
				lab.Check(t, err)
				lab.Check(t, os.WriteFile(filepath.Join(elsewhere, name), content, 0o600))
			}
			n.StateDir = elsewhere
			if out, err := n.Call("ADD", "web", host.Path(), "5s"); err == nil || !strings.Contains(out, "expected kubeconfig in") {
				t.Errorf("credentials from elsewhere: %v: %s", err, out)
			}
		})
	}
}

// TestListOfDirectories keeps the directories that the node's image lists, finds
// missing ones, and removes the list with the plugin.
func TestListOfDirectories(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	list := filepath.Join(n.BinDir, config.DirectoriesFile)
	lab.Check(t, os.WriteFile(list, []byte("/srv/baked\n"), 0o644))
	a := n.StartReady(t, "--mode", "insert")
	content, err := os.ReadFile(list)
	lab.Check(t, err)
	listed, err := config.ParseDirectories(content)
	lab.Check(t, err)
	if got, want := strings.Join(listed, " "), "/srv/baked "+n.StateDir+" "+n.RunDir; got != want {
		t.Errorf("listed %s, want %s", got, want)
	}
	info, err := os.Stat(list)
	lab.Check(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the list has mode %o", info.Mode().Perm())
	}
	a.Stop(t)
	lab.Check(t, os.WriteFile(list, []byte("/srv/baked\n"), 0o600))
	if out, err := n.Command("verify", "--mode", "insert"); err == nil || !strings.Contains(out, "does not list "+n.StateDir) {
		t.Errorf("verify: %v: %s", err, out)
	}
	if out, err := n.Command("uninstall", "--purge"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if left := files(t, n.BinDir); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// TestDefaultDirectories expects no list for the default directories.
func TestDefaultDirectories(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	root := n.Dir + "/root"
	lab.Check(t, os.MkdirAll(root+n.NetDir, 0o755))
	lab.Check(t, os.MkdirAll(root+n.BinDir, 0o755))
	lab.Check(t, os.WriteFile(filepath.Join(root+n.NetDir, machine.PrimaryName), []byte(machine.Kindnet), 0o644))
	n.StateDir, n.RunDir = config.StateDirectory, config.RunDirectory
	n.Start(t, "--mode", "insert", "--root", root).Ready(t)
	if left := files(t, root+n.BinDir); len(left) != 2 {
		t.Errorf("got the files %q, want the plugin and capture-cni-lookup alone", slices.Collect(maps.Keys(left)))
	}
}
