// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
)

// TestRollout installs the chart. Each agent finds by itself how its runtime
// takes the entry, and is ready only when the runtime has loaded it.
func TestRollout(t *testing.T) {
	uninstall(t)
	install(t)
	for _, node := range c.Nodes {
		primary, err := os.ReadFile(node.Path("/etc/cni/net.d/" + cluster.NetworkConf))
		check(t, err)
		_, err = os.Stat(node.Path("/etc/cni/net.d/podnet/capture-cni.conf"))
		switch dropIn := err == nil; {
		case node.Runtime == cluster.Containerd2 && (!dropIn || strings.Contains(string(primary), "capture-cni")):
			t.Errorf("%s: no drop-in, or the primary's list is edited:\n%s", node.Name, primary)
		case node.Runtime == cluster.Debian1 && (dropIn || !strings.Contains(string(primary), `"capture-cni"`)):
			t.Errorf("%s: a drop-in, which its runtime does not read, or the primary's list lacks the entry:\n%s", node.Name, primary)
		}
		check(t, loaded(t, node, true))
	}
	out, err := c.Kubectl(t.Context(), "", "--namespace", cluster.Namespace, "get", "pods", "-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}")
	check(t, err)
	if strings.Trim(out, "0 ") != "" {
		t.Errorf("agents were restarted: %s", out)
	}
}

// TestNotReady has a runtime that does not load what is on its disk: its agent
// says so, and only as long.
func TestNotReady(t *testing.T) {
	install(t)
	node := c.Nodes[0]
	broken := node.Path("/etc/cni/net.d/00-broken.conflist")
	t.Cleanup(func() { _ = os.Remove(broken) })
	ready := func(want string) func() error {
		return func() error {
			out, err := c.Kubectl(t.Context(), "", "--namespace", cluster.Namespace, "get", "pods", "--field-selector", "spec.nodeName="+node.Name,
				"-o", `jsonpath={.items[*].status.containerStatuses[?(@.name=="installer")].ready}`)
			if err != nil || out != want {
				return fmt.Errorf("ready: %s, want %s: %w", out, want, err)
			}
			return nil
		}
	}
	check(t, os.WriteFile(broken, []byte(`{"cniVersion": "1.0.0", "name": "broken", "plugins": []}`), 0o600))
	eventually(t, ready("false"))
	check(t, os.Remove(broken))
	eventually(t, ready("true"))
}

// loaded asks a node's runtime whether it would call the plugin.
func loaded(t *testing.T, node *cluster.Node, want bool) error {
	t.Helper()
	service, err := node.CRI(t.Context())
	if err != nil {
		return err
	}
	defer func() { _ = service.Close(t.Context()) }()
	status, err := service.Status(t.Context(), true)
	if err != nil {
		return err
	}
	if got := strings.Contains(status.Info["cniconfig"], `"type":"capture-cni"`); got != want {
		return fmt.Errorf("%s has loaded the plugin: %v, want %v: %s", node.Name, got, want, status.Info["cniconfig"])
	}
	return nil
}
