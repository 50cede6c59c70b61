// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// chain is a node whose Multus has an auxiliary chain. Multus and the test's runtime load
// it in the same way: as the directory that is named after the network.
type chain struct {
	*node
	directory, tmpfiles string
}

func newChain(t *testing.T) chain {
	t.Helper()
	n := newNode(t)
	n.PreparePods(t)
	return n.chain(t)
}

// chain makes the chain's directories.
func (n *node) chain(t *testing.T) chain {
	t.Helper()
	c := chain{n, n.NetDir + "/kindnet", n.Dir + "/tmpfiles.d"}
	lab.Check(t, os.MkdirAll(c.directory, 0o755))
	lab.Check(t, os.MkdirAll(c.tmpfiles, 0o755))
	return c
}

func (c chain) args(more ...string) []string {
	return append([]string{"--mode", "multus-chain", "--net-dir", c.directory, "--tmpfiles-dir", c.tmpfiles}, more...)
}

// boot empties /run and runs the node's systemd-tmpfiles. No agent runs.
func (c chain) boot(t *testing.T) {
	t.Helper()
	lab.Check(t, os.RemoveAll(c.directory))
	lab.Check(t, os.RemoveAll(c.RunDir))
	lines, err := filepath.Glob(c.tmpfiles + "/*.conf")
	lab.Check(t, err)
	for _, file := range lines {
		if out, err := exec.Command("systemd-tmpfiles", "--create", "--remove", "--boot", file).CombinedOutput(); err != nil {
			t.Fatalf("systemd-tmpfiles: %v: %s", err, out)
		}
	}
}

// TestMultusChain installs into the chain and boots the node: systemd-tmpfiles makes the
// entry anew, so that pods are captured before an agent runs. Then it cleans the node.
func TestMultusChain(t *testing.T) {
	t.Parallel()
	c := newChain(t)
	a := c.StartReady(t, c.args()...)
	lab.Check(t, c.StartAndStop(t, "web"))
	lab.Check(t, c.StartAndStop(t, "plain"))
	if files(t, c.NetDir)["/"+machine.PrimaryName] != machine.Kindnet {
		t.Error("the primary's list was changed")
	}
	if out, err := c.Command("verify", c.args()...); err != nil {
		t.Errorf("verify: %v: %s", err, out)
	}
	installed := files(t, c.directory)
	lab.Check(t, a.Process.Kill())
	_ = a.Wait()
	c.boot(t)
	booted := files(t, c.directory)
	if len(booted) != 1 || booted["/capture-cni-chain.conf"] != installed["/capture-cni-chain.conf"] {
		t.Errorf("after the boot, the chain has %q, before it %q", booted, installed)
	}
	lab.Check(t, c.StartAndStop(t, "web"))
	lab.Check(t, c.StartAndStop(t, "plain"))
	again := c.StartReady(t, c.args()...)
	old, err := c.StartPod(t, "web")
	lab.Check(t, err)
	again.Stop(t)
	if out, err := c.Command("uninstall", c.args()...); err != nil {
		t.Fatalf("uninstall: %v: %s", err, out)
	}
	lab.Check(t, old.Stop(t))
	c.boot(t)
	lab.Check(t, c.startUncaptured(t))
	for _, directory := range []string{c.directory, c.tmpfiles, c.StateDir} {
		if _, err := os.Stat(directory); err != nil {
			continue
		}
		if left := files(t, directory); len(left) != 0 {
			t.Errorf("uninstall left %q in %s", left, directory)
		}
	}
}

// TestMultusChainFaults has the agent name a neighbour's malformed file, with which Multus
// skips the chain, and repair the entry and what makes it anew.
func TestMultusChainFaults(t *testing.T) {
	t.Parallel()
	c := newChain(t)
	a := c.StartReady(t, c.args()...)
	neighbour := filepath.Join(c.directory, "50-other.conf")
	lab.Check(t, os.WriteFile(neighbour, []byte(`{"type": "tuning"`), 0o644))
	if body := a.Ready(t, http.StatusServiceUnavailable); a.ExpectReadyz("50-other.conf, which another program wrote") != nil {
		t.Errorf("/readyz does not name the file: %s", body)
	}
	if out, err := c.Command("verify", c.args()...); err == nil {
		t.Errorf("verify finds no fault: %s", out)
	}
	lab.Check(t, os.Remove(neighbour))
	a.Ready(t)
	lab.Check(t, os.Rename(c.directory, c.directory+".old"))
	lab.Check(t, os.Mkdir(c.directory, 0o755)) // as Multus' own agent may
	lab.Eventually(t, func() error { return c.StartAndStop(t, "web") })
	a.Stop(t)
	for _, path := range []string{c.directory + "/capture-cni-chain.conf", c.tmpfiles + "/capture-cni.conf", c.StateDir + "/multus-chain.conf"} {
		want, err := os.ReadFile(path)
		lab.Check(t, err)
		lab.Check(t, os.WriteFile(path, []byte("{}"), 0o600))
		if out, err := c.Command("verify", c.args()...); err == nil {
			t.Errorf("verify overlooks a change of %s: %s", path, out)
		}
		c.Start(t, c.args()...).StopOnceReady(t)
		if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
			t.Errorf("%s is %q, %v; want %q", path, got, err, want)
		}
	}
}

// TestMultusChainLeft changes the mode without the flag of the tmpfiles directory: the line
// that is left there makes no entry.
func TestMultusChainLeft(t *testing.T) {
	t.Parallel()
	c := newChain(t)
	c.Start(t, c.args()...).StopOnceReady(t)
	c.StartReady(t, "--mode", "insert")
	c.boot(t)
	if _, err := os.Stat(c.directory + "/capture-cni-chain.conf"); err == nil {
		t.Error("the boot made the entry of the former mode")
	}
}
