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
			lab.Check(t, os.MkdirAll(n.dir+"/var/snap/microk8s/2094", 0o755))
			lab.Check(t, os.Symlink("2094", n.dir+"/var/snap/microk8s/current"))
			n.binDir, n.stateDir, n.runDir = n.dir+platform.binDir, n.dir+platform.stateDir, n.dir+platform.runDir
			lab.Check(t, os.MkdirAll(n.binDir, 0o755))
			n.start(t, "--mode", "insert").ready(t)
			n.pod("web", true)
			host := sandbox(t)
			if out, err := n.call("ADD", "web", host.Path(), "5s"); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			elsewhere := t.TempDir()
			for _, name := range []string{"kubeconfig", "token", "ca.crt"} {
				content, err := os.ReadFile(filepath.Join(n.stateDir, name))
				lab.Check(t, err)
				lab.Check(t, os.WriteFile(filepath.Join(elsewhere, name), content, 0o600))
			}
			n.stateDir = elsewhere
			if out, err := n.call("ADD", "web", host.Path(), "5s"); err == nil || !strings.Contains(out, "expected kubeconfig in") {
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
	list := filepath.Join(n.binDir, config.DirectoriesFile)
	lab.Check(t, os.WriteFile(list, []byte("/srv/baked\n"), 0o644))
	a := n.start(t, "--mode", "insert")
	a.ready(t)
	content, err := os.ReadFile(list)
	lab.Check(t, err)
	listed, err := config.ParseDirectories(content)
	lab.Check(t, err)
	if got, want := strings.Join(listed, " "), "/srv/baked "+n.stateDir+" "+n.runDir; got != want {
		t.Errorf("listed %s, want %s", got, want)
	}
	info, err := os.Stat(list)
	lab.Check(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the list has mode %o", info.Mode().Perm())
	}
	a.stop(t)
	lab.Check(t, os.WriteFile(list, []byte("/srv/baked\n"), 0o600))
	if out, err := n.command("verify", "--mode", "insert"); err == nil || !strings.Contains(out, "does not list "+n.stateDir) {
		t.Errorf("verify: %v: %s", err, out)
	}
	if out, err := n.command("uninstall", "--purge"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if left := files(t, n.binDir); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// TestDefaultDirectories expects no list for the default directories.
func TestDefaultDirectories(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	root := n.dir + "/root"
	lab.Check(t, os.MkdirAll(root+n.netDir, 0o755))
	lab.Check(t, os.MkdirAll(root+n.binDir, 0o755))
	lab.Check(t, os.WriteFile(filepath.Join(root+n.netDir, primaryName), []byte(kindnet), 0o644))
	n.stateDir, n.runDir = config.StateDirectory, config.RunDirectory
	n.start(t, "--mode", "insert", "--root", root).ready(t)
	if left := files(t, root+n.binDir); len(left) != 2 {
		t.Errorf("got the files %q, want the plugin and capture-cni-lookup alone", slices.Collect(maps.Keys(left)))
	}
}
