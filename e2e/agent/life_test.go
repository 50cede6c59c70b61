// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

const plain = `{"cniVersion": "0.3.1", "name": "kindnet", "type": "ptp"}` + "\n"

// TestModes installs in every mode with every kind of primary, checks what a
// runtime would call, and uninstalls, which restores every byte.
func TestModes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ mode, primary, content, want string }{
		{"insert", machine.PrimaryName, machine.Kindnet, "ptp portmap capture-cni"},
		{"owned", machine.PrimaryName, machine.Kindnet, "ptp portmap capture-cni"},
		{"owned", "10-kindnet.conf", plain, "ptp capture-cni"},
		{"dropin", machine.PrimaryName, machine.Kindnet, "ptp portmap capture-cni"},
		{"auto", machine.PrimaryName, machine.Kindnet, "ptp portmap capture-cni"},
		{"auto", "10-kindnet.conf", plain, "ptp capture-cni"},
	} {
		t.Run(test.mode+" on "+test.primary, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			lab.Check(t, os.Remove(filepath.Join(n.NetDir, machine.PrimaryName)))
			n.Write(t, test.primary, test.content)
			before := files(t, n.NetDir)
			a := n.StartReady(t, "--mode", test.mode)
			if got, err := n.LoadedTypes(); err != nil || got != test.want {
				t.Errorf("a runtime would call %q, want %q (%v)", got, test.want, err)
			}
			if out, err := n.Command("verify", "--mode", test.mode); err != nil {
				t.Errorf("verify: %v: %s", err, out)
			}
			n.expectRootOnly(t)
			if filepath.Ext(test.primary) == ".conf" && files(t, n.NetDir)["/"+test.primary] != test.content {
				t.Errorf("the plain configuration is not as its owner wrote it: %q", files(t, n.NetDir))
			}
			installed := files(t, n.Dir)
			a.Stop(t)
			if diff := cmp.Diff(installed, files(t, n.Dir)); diff != "" {
				t.Errorf("the end of the agent changed the node:\n%s", diff)
			}
			again := n.StartReady(t, "--mode", test.mode)
			if diff := cmp.Diff(installed, files(t, n.Dir)); diff != "" {
				t.Errorf("a second agent changed the node:\n%s", diff)
			}
			again.Stop(t)
			for range 2 {
				if out, err := n.Command("uninstall", "--purge"); err != nil {
					t.Fatalf("uninstall: %v: %s", err, out)
				}
				if diff := cmp.Diff(before, files(t, n.NetDir)); diff != "" {
					t.Errorf("uninstall left:\n%s", diff)
				}
			}
			if left := files(t, n.BinDir); len(left) > 0 {
				t.Errorf("uninstall --purge left %q", left)
			}
			if out, err := n.Command("verify", "--mode", test.mode); err == nil {
				t.Errorf("verify finds no fault on a clean node: %s", out)
			}
		})
	}
}

// expectRootOnly expects credentials that only root can read.
func (n *node) expectRootOnly(t *testing.T) {
	t.Helper()
	for _, name := range []string{"kubeconfig", "token", "ca.crt"} {
		info, err := os.Stat(filepath.Join(n.StateDir, name))
		lab.Check(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o", name, info.Mode().Perm())
		}
	}
}

// TestMultus writes a configuration of our own next to others, without the
// capability that Multus does not support.
func TestMultus(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a := n.StartReady(t, "--mode", "multus")
	content := files(t, n.NetDir)["/capture-cni.conf"]
	if !strings.Contains(content, `"name": "capture-cni"`) || strings.Contains(content, "capabilities") {
		t.Errorf("got %s", content)
	}
	if files(t, n.NetDir)["/"+machine.PrimaryName] != machine.Kindnet {
		t.Error("the primary's list was changed")
	}
	a.Stop(t)
	if out, err := n.Command("uninstall"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if left := files(t, n.NetDir); len(left) != 1 {
		t.Errorf("left %q", left)
	}
}

// TestWaiting starts the agent before the primary plugin has been installed: it
// waits, and /readyz says for what.
func TestWaiting(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	lab.Check(t, os.Remove(filepath.Join(n.NetDir, machine.PrimaryName)))
	a := n.Start(t, "--mode", "insert")
	if body := a.Ready(t, http.StatusServiceUnavailable); !strings.Contains(body, "entry") && !strings.Contains(body, "has not checked") {
		t.Errorf("got %s", body)
	}
	for _, half := range []string{"", `{"cniVersion": "0.3.1", "name": "kind`} {
		n.Write(t, machine.PrimaryName, half)
		a.WaitForReadyz(t, "is not complete")
		if got := files(t, n.NetDir)["/"+machine.PrimaryName]; got != half {
			t.Fatalf("a file that was half written was changed to %q", got)
		}
	}
	n.Write(t, machine.PrimaryName, machine.Kindnet)
	a.Ready(t)
}

// TestUnfit has lists in which our entry would break every pod: the agent refuses them.
func TestUnfit(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	lab.Check(t, os.Remove(filepath.Join(n.NetDir, machine.PrimaryName)))
	a := n.Start(t, "--mode", "insert")
	for version, text := range map[string]string{
		"":                        "has no cniVersion",
		`"cniVersion": "0.2.0",`:  "has cniVersion 0.2.0",
		`"cniVersion": "99.0.0",`: "has cniVersion 99.0.0",
	} {
		list := `{` + version + ` "name": "old", "plugins": [{"type": "bridge"}]}`
		n.Write(t, machine.PrimaryName, list)
		a.WaitForReadyz(t, text)
		if got := files(t, n.NetDir)["/"+machine.PrimaryName]; got != list {
			t.Errorf("the list was changed to %s", got)
		}
		if out, err := n.Command("preflight", "--mode", "insert"); err == nil || !strings.Contains(out, text) {
			t.Errorf("preflight: %v: %s", err, out)
		}
	}
}

// TestHandover starts a second agent of the same release, which waits for the
// first to end, and one of another release, which waits for the uninstall.
func TestHandover(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	first := n.StartReady(t, "--mode", "insert")
	second := n.Start(t, "--mode", "insert")
	second.WaitForReadyz(t, "still runs on the node")
	first.Stop(t)
	second.Ready(t)
	other := n.Start(t, "--mode", "insert", "--owner", "another")
	other.WaitForReadyz(t, `belongs to release "capture-cni"`)
	second.Stop(t)
	if out, err := n.Command("uninstall"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	other.Ready(t)
}

// TestAbsent cleans the node, and is ready then. The agent refuses where it can't
// know whether meshed pods run.
func TestAbsent(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	before := files(t, n.NetDir)
	n.Start(t, "--mode", "insert").StopOnceReady(t)
	refusing := n.Start(t, "--mode", "insert", "--state", "absent")
	refusing.WaitForReadyz(t, "with --cri-socket none")
	if got, err := n.LoadedTypes(); err != nil || !strings.Contains(got, "capture-cni") {
		t.Errorf("the refusing agent cleaned the node: %q (%v)", got, err)
	}
	lab.Eventually(t, func() error { return n.ask(t) }) // pods start meanwhile
	n.Write(t, machine.PrimaryName, machine.Kindnet)
	n.expectEntrySoon(t, refusing)
	refusing.Stop(t)
	forced := n.Start(t, "--mode", "insert", "--state", "absent", "--force", "--token-on-node=false") // which calls no plugin for its own pod
	forced.Ready(t)
	lab.Check(t, forced.ExpectReadyz("note: left on the node, so that the runtime can delete the pods that were started with the plugin: "+n.BinDir+"/capture-cni"))
	if diff := cmp.Diff(before, files(t, n.NetDir)); diff != "" {
		t.Errorf("left:\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(n.BinDir, "capture-cni")); err != nil {
		t.Errorf("the plugin is gone, which the DEL of running pods may need: %v", err)
	}
}

// TestTwoDirectories has two directories of plugins: the agent writes no entry
// before the plugin is in both.
func TestTwoDirectories(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	second := filepath.Join(n.Dir, "bin2")
	a := n.Start(t, "--mode", "insert", "--bin-dir", second)
	a.WaitForReadyz(t, second)
	if got := files(t, n.NetDir)["/"+machine.PrimaryName]; got != machine.Kindnet {
		t.Errorf("the entry was written before the plugin was in both directories: %s", got)
	}
	a.Stop(t)
	lab.Check(t, os.Mkdir(second, 0o755))
	n.Start(t, "--mode", "insert", "--bin-dir", second).Ready(t)
	if first, other := files(t, n.BinDir)["/capture-cni"], files(t, second)["/capture-cni"]; first == "" || first != other {
		t.Error("the two directories hold different plugins")
	}
}

// TestRoot mounts the node's file system elsewhere, as in a container: files for
// the plugin and the runtime contain the node's own paths.
func TestRoot(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	root := n.Dir
	n.NetDir, n.BinDir, n.StateDir, n.RunDir = "/net.d", "/bin", "/state", "/run"
	a := n.StartReady(t, "--mode", "insert", "--root", root)
	if list := files(t, root+"/net.d")["/"+machine.PrimaryName]; !strings.Contains(list, `"kubeconfig": "/state/kubeconfig"`) {
		t.Errorf("the entry is in %s", list)
	}
	if kubeconfig := files(t, root+"/state")["/kubeconfig"]; !strings.Contains(kubeconfig, "tokenFile: /state/token") || strings.Contains(kubeconfig, root) {
		t.Errorf("the kubeconfig is %s", kubeconfig)
	}
	if out, err := n.Command("verify", "--mode", "insert", "--root", root); err != nil {
		t.Errorf("verify: %v: %s", err, out)
	}
	a.Stop(t)
	if out, err := n.Command("uninstall", "--purge", "--root", root); err != nil || len(files(t, root+"/bin")) > 0 {
		t.Errorf("uninstall: %v: %s", err, out)
	}
}
