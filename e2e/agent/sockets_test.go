// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// sockets returns the agent's sockets, with the name that the guard has for one.
func (n *node) sockets() []string {
	path := n.RunDir + "/agent.sock"
	return []string{path, config.GuardSocket(path), config.PodsSocket(path)}
}

func stat(t *testing.T, paths []string) (found []fs.FileInfo) {
	t.Helper()
	for _, path := range paths {
		info, err := os.Lstat(path)
		lab.Check(t, err)
		found = append(found, info)
	}
	return found
}

// ask returns why the agent's socket does not answer requests of pods.
func (n *node) ask(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return lookup.Agent{Socket: config.PodsSocket(n.RunDir + "/agent.sock")}.Ping(ctx)
}

// TestTwoAgents starts a second agent, of the same release or of another: it waits and
// says so, and the sockets stay the first one's, which answers. When the first has
// ended, one of the same release takes over within seconds.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		owner, reason string
		file          string // of the state directory, with the name in the reason
	}{
		"one release":     {"mesh", "agent %s still runs on the node", "holder"},
		"another release": {"other", `the node belongs to release "%s"`, "owner"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			first := n.StartBehind(t, []string{"env", "POD_NAMESPACE=mesh", "POD_NAME=agent-1"}, "--mode", "insert", "--owner", "mesh")
			first.Ready(t)
			before := stat(t, n.sockets())
			second := n.Start(t, "--mode", "insert", "--owner", tt.owner)
			content, err := os.ReadFile(n.StateDir + "/" + tt.file)
			lab.Check(t, err)
			for _, first := range []string{string(content), "renamed", string(content)} { // each read by another attempt to lock the node
				lab.Check(t, os.WriteFile(n.StateDir+"/"+tt.file, []byte(first), 0o600))
				second.WaitForReadyz(t, fmt.Sprintf(tt.reason, strings.TrimSpace(first)))
				lab.Check(t, second.ExpectMetric(`capture_cni_node_good{part="owner"} 0`))
				lab.Check(t, n.ask(t))
				for i, now := range stat(t, n.sockets()) {
					if !os.SameFile(before[i], now) {
						t.Fatalf("the waiting agent replaced %s", n.sockets()[i])
					}
				}
			}
			first.Stop(t)
			if tt.owner != "mesh" {
				return
			}
			begin := time.Now()
			lab.Eventually(t, func() error { return n.ask(t) })
			second.Ready(t)
			if took := time.Since(begin); took > soon {
				t.Errorf("the second agent took over after %s", took)
			}
			for i, now := range stat(t, n.sockets()) {
				if os.SameFile(before[i], now) {
					t.Errorf("%s is still the first agent's", n.sockets()[i])
				}
			}
		})
	}
}

// TestRunCleared deletes what the agent has below /run, all of it or a part: the agent
// listens again within seconds, and a pod of the mesh starts meanwhile.
func TestRunCleared(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(n *node) error{
		"all":                      func(n *node) error { return os.RemoveAll(n.RunDir) },
		"the pods' socket":         func(n *node) error { return os.Remove(n.sockets()[2]) },
		"the directory of sockets": func(n *node) error { return os.RemoveAll(filepath.Dir(n.sockets()[2])) },
		"the socket of records":    func(n *node) error { return os.Remove(n.sockets()[0]) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.PutPod("web", true)
			a := n.StartReady(t, "--mode", "insert")
			lab.Check(t, remove(n))
			if out, err := n.Call("ADD", "web", machine.Sandbox(t).Path(), "5s"); err != nil {
				t.Errorf("a pod meanwhile: %v: %s", err, out)
			}
			begin := time.Now()
			lab.Eventually(t, func() error {
				for _, path := range n.sockets() {
					if _, err := os.Lstat(path); err != nil {
						return err
					}
				}
				return n.ask(t)
			})
			if took := time.Since(begin); took > soon {
				t.Errorf("the agent listened again after %s", took)
			}
			a.Ready(t)
			if out, err := n.Call("ADD", "web", machine.Sandbox(t).Path(), "5s"); err != nil {
				t.Errorf("%v: %s", err, out)
			}
			lab.Check(t, a.ExpectMetric("capture_cni_watch_polling 0"))
		})
	}
}
