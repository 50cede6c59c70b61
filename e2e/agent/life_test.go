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
)

const plain = `{"cniVersion": "0.3.1", "name": "kindnet", "type": "ptp"}` + "\n"

// TestModes installs in every mode with every kind of primary, checks what a
// runtime would call, and uninstalls, which restores every byte.
func TestModes(t *testing.T) {
	for _, test := range []struct{ mode, primary, content, want string }{
		{"insert", primaryName, kindnet, "ptp portmap capture-cni"},
		{"owned", primaryName, kindnet, "ptp portmap capture-cni"},
		{"owned", "10-kindnet.conf", plain, "ptp capture-cni"},
		{"dropin", primaryName, kindnet, "ptp portmap capture-cni"},
		{"auto", primaryName, kindnet, "ptp portmap capture-cni"},
		{"auto", "10-kindnet.conf", plain, "ptp capture-cni"},
	} {
		t.Run(test.mode+" on "+test.primary, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			lab.Check(t, os.Remove(filepath.Join(n.netDir, primaryName)))
			n.write(t, test.primary, test.content)
			before := files(t, n.netDir)
			a := n.start(t, "--mode", test.mode)
			a.ready(t)
			if got, err := n.loadedTypes(); err != nil || got != test.want {
				t.Errorf("a runtime would call %q, want %q (%v)", got, test.want, err)
			}
			if out, err := n.command("verify", "--mode", test.mode); err != nil {
				t.Errorf("verify: %v: %s", err, out)
			}
			n.expectRootOnly(t)
			if filepath.Ext(test.primary) == ".conf" && files(t, n.netDir)["/"+test.primary] != test.content {
				t.Errorf("the plain configuration is not as its owner wrote it: %q", files(t, n.netDir))
			}
			installed := files(t, n.dir)
			a.stop(t)
			if diff := cmp.Diff(installed, files(t, n.dir)); diff != "" {
				t.Errorf("the end of the agent changed the node:\n%s", diff)
			}
			again := n.start(t, "--mode", test.mode)
			again.ready(t)
			if diff := cmp.Diff(installed, files(t, n.dir)); diff != "" {
				t.Errorf("a second agent changed the node:\n%s", diff)
			}
			again.stop(t)
			for range 2 {
				if out, err := n.command("uninstall", "--purge"); err != nil {
					t.Fatalf("uninstall: %v: %s", err, out)
				}
				if diff := cmp.Diff(before, files(t, n.netDir)); diff != "" {
					t.Errorf("uninstall left:\n%s", diff)
				}
			}
			if left := files(t, n.binDir); len(left) > 0 {
				t.Errorf("uninstall --purge left %q", left)
			}
			if out, err := n.command("verify", "--mode", test.mode); err == nil {
				t.Errorf("verify finds no fault on a clean node: %s", out)
			}
		})
	}
}

// expectRootOnly expects credentials that only root can read.
func (n *node) expectRootOnly(t *testing.T) {
	t.Helper()
	for _, name := range []string{"kubeconfig", "token", "ca.crt"} {
		info, err := os.Stat(filepath.Join(n.stateDir, name))
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
	a := n.start(t, "--mode", "multus")
	a.ready(t)
	content := files(t, n.netDir)["/capture-cni.conf"]
	if !strings.Contains(content, `"name": "capture-cni"`) || strings.Contains(content, "capabilities") {
		t.Errorf("got %s", content)
	}
	if files(t, n.netDir)["/"+primaryName] != kindnet {
		t.Error("the primary's list was changed")
	}
	a.stop(t)
	if out, err := n.command("uninstall"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if left := files(t, n.netDir); len(left) != 1 {
		t.Errorf("left %q", left)
	}
}

// TestWaiting starts the agent before the primary plugin has been installed: it
// waits, and /readyz says for what.
func TestWaiting(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	lab.Check(t, os.Remove(filepath.Join(n.netDir, primaryName)))
	a := n.start(t, "--mode", "insert")
	if body := a.ready(t, http.StatusServiceUnavailable); !strings.Contains(body, "entry") && !strings.Contains(body, "has not checked") {
		t.Errorf("got %s", body)
	}
	for _, half := range []string{"", `{"cniVersion": "0.3.1", "name": "kind`} {
		n.write(t, primaryName, half)
		lab.Eventually(t, func() error {
			return expectReadyz(a, "is not complete")
		})
		if got := files(t, n.netDir)["/"+primaryName]; got != half {
			t.Fatalf("a file that was half written was changed to %q", got)
		}
	}
	n.write(t, primaryName, kindnet)
	a.ready(t)
}

func expectReadyz(a *agent, text string) error {
	_, body := a.get("/readyz")
	if !strings.Contains(body, text) {
		return &unexpected{text, body}
	}
	return nil
}

type unexpected struct{ want, got string }

func (u *unexpected) Error() string { return "got " + u.got + ", want " + u.want }

// TestUnfit has lists in which our entry would break every pod: the agent refuses them.
func TestUnfit(t *testing.T) {
	t.Parallel()
	for version, text := range map[string]string{
		"":                        "has no cniVersion",
		`"cniVersion": "0.2.0",`:  "has cniVersion 0.2.0",
		`"cniVersion": "99.0.0",`: "has cniVersion 99.0.0",
	} {
		n := newNode(t)
		list := `{` + version + ` "name": "old", "plugins": [{"type": "bridge"}]}`
		n.write(t, primaryName, list)
		a := n.start(t, "--mode", "insert")
		lab.Eventually(t, func() error { return expectReadyz(a, text) })
		if got := files(t, n.netDir)["/"+primaryName]; got != list {
			t.Errorf("the list was changed to %s", got)
		}
		if out, err := n.command("preflight", "--mode", "insert"); err == nil || !strings.Contains(out, text) {
			t.Errorf("preflight: %v: %s", err, out)
		}
	}
}

// TestHandover starts a second agent of the same release, which waits for the
// first to end, and one of another release, which waits for the uninstall.
func TestHandover(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	first := n.start(t, "--mode", "insert")
	first.ready(t)
	second := n.start(t, "--mode", "insert")
	lab.Eventually(t, func() error { return expectReadyz(second, "still runs on the node") })
	first.stop(t)
	second.ready(t)
	other := n.start(t, "--mode", "insert", "--owner", "another")
	lab.Eventually(t, func() error { return expectReadyz(other, `belongs to release "capture-cni"`) })
	second.stop(t)
	if out, err := n.command("uninstall"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	other.ready(t)
}

// TestAbsent cleans the node, and is ready then. The agent refuses where it can't
// know whether captured pods run.
func TestAbsent(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	before := files(t, n.netDir)
	a := n.start(t, "--mode", "insert")
	a.ready(t)
	a.stop(t)
	refusing := n.start(t, "--mode", "insert", "--state", "absent")
	lab.Eventually(t, func() error { return expectReadyz(refusing, "with --cri-socket none") })
	if got, err := n.loadedTypes(); err != nil || !strings.Contains(got, "capture-cni") {
		t.Errorf("the refusing agent cleaned the node: %q (%v)", got, err)
	}
	lab.Eventually(t, func() error { return n.ask(t) }) // pods start meanwhile
	n.write(t, primaryName, kindnet)
	n.expectEntrySoon(t, refusing)
	refusing.stop(t)
	forced := n.start(t, "--mode", "insert", "--state", "absent", "--force", "--token-on-node=false") // which calls no plugin for its own pod
	forced.ready(t)
	lab.Check(t, expectReadyz(forced, "note: left on the node, so that the runtime can delete the pods that were started with the plugin: "+n.binDir+"/capture-cni"))
	if diff := cmp.Diff(before, files(t, n.netDir)); diff != "" {
		t.Errorf("left:\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(n.binDir, "capture-cni")); err != nil {
		t.Errorf("the plugin is gone, which the DEL of running pods may need: %v", err)
	}
}

// TestTwoDirectories has two directories of plugins: the agent writes no entry
// before the plugin is in both.
func TestTwoDirectories(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	second := filepath.Join(n.dir, "bin2")
	a := n.start(t, "--mode", "insert", "--bin-dir", second)
	lab.Eventually(t, func() error { return expectReadyz(a, second) })
	if got := files(t, n.netDir)["/"+primaryName]; got != kindnet {
		t.Errorf("the entry was written before the plugin was in both directories: %s", got)
	}
	a.stop(t)
	lab.Check(t, os.Mkdir(second, 0o755))
	n.start(t, "--mode", "insert", "--bin-dir", second).ready(t)
	if first, other := files(t, n.binDir)["/capture-cni"], files(t, second)["/capture-cni"]; first == "" || first != other {
		t.Error("the two directories hold different plugins")
	}
}

// TestRoot mounts the node's file system elsewhere, as in a container: files for
// the plugin and the runtime contain the node's own paths.
func TestRoot(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	root := n.dir
	n.netDir, n.binDir, n.stateDir, n.runDir = "/net.d", "/bin", "/state", "/run"
	a := n.start(t, "--mode", "insert", "--root", root)
	a.ready(t)
	if list := files(t, root+"/net.d")["/"+primaryName]; !strings.Contains(list, `"kubeconfig": "/state/kubeconfig"`) {
		t.Errorf("the entry is in %s", list)
	}
	if kubeconfig := files(t, root+"/state")["/kubeconfig"]; !strings.Contains(kubeconfig, "tokenFile: /state/token") || strings.Contains(kubeconfig, root) {
		t.Errorf("the kubeconfig is %s", kubeconfig)
	}
	if out, err := n.command("verify", "--mode", "insert", "--root", root); err != nil {
		t.Errorf("verify: %v: %s", err, out)
	}
	a.stop(t)
	if out, err := n.command("uninstall", "--purge", "--root", root); err != nil || len(files(t, root+"/bin")) > 0 {
		t.Errorf("uninstall: %v: %s", err, out)
	}
}
