// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
)

// TestRemoval cleans the nodes and then removes the chart: pods of before end,
// new ones start without the plugin.
func TestRemoval(t *testing.T) {
	install(t)
	s := newSpace(t, restricted, cluster.Injected)
	var old, later []*corev1.Pod
	for _, node := range c.Nodes {
		old = append(old, server("old-"+node.Name, node.Name), unmeshed(server("old-plain-"+node.Name, node.Name)))
		later = append(later, server("later-"+node.Name, node.Name))
	}
	s.run(t, old...)
	uninstall(t)
	for _, node := range c.Nodes {
		for _, path := range []string{"/etc/cni/net.d/podnet/capture-cni.conf", "/var/lib/capture-cni/kubeconfig", "/var/lib/capture-cni/token"} {
			if _, err := os.Stat(node.Path(path)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s still has %s: %v", node.Name, path, err)
			}
		}
		if primary, err := os.ReadFile(node.Path("/etc/cni/net.d/" + cluster.NetworkConf)); err != nil || string(primary) != node.PrimaryList() {
			t.Errorf("the primary's list of %s is not what it was: %v\n%s", node.Name, err, primary)
		}
		check(t, loaded(t, node, false))
	}
	s.run(t, later...)
	for _, pod := range later {
		if rules := s.rules(t, pod.Name); rules.Backend != "" {
			t.Errorf("%s holds %+v", pod.Name, rules)
		}
	}
	s.remove(t, append(old, later...)...)
}

// TestUninstallAlone removes the chart, and with it the plugin's permission,
// and leaves the nodes as they are: meshed pods are refused, others unharmed,
// and the next installation mends it.
func TestUninstallAlone(t *testing.T) {
	install(t, impatient)
	s := newSpace(t, restricted, cluster.Injected)
	node := c.Nodes[0]
	old := server("old", node.Name)
	s.run(t, old)
	check(t, c.Uninstall(t.Context()))
	installed = nil
	meshed, plain := server("meshed", node.Name), unmeshed(server("plain", node.Name))
	s.create(t, meshed, plain)
	s.ready(t, plain)
	s.waits(t, "meshed", "/var/lib/capture-cni/token")
	s.remove(t, old, plain)
	install(t)
	s.ready(t, meshed)
	s.isCaptured(t, "meshed")
}

// TestAbsentRefuses does not clean a node on which captured pods run.
func TestAbsentRefuses(t *testing.T) {
	install(t)
	s := newSpace(t, restricted, cluster.Injected)
	pod := server("web", c.Nodes[0].Name)
	s.run(t, pod)
	settings := append(slices.Clone(installed), "state=absent")
	installed = nil
	_, err := c.Helm(t.Context(), "upgrade", cluster.Namespace, "../../deploy/chart", "--namespace", cluster.Namespace, "--reuse-values", "--set", "state=absent")
	check(t, err)
	eventually(t, func() error {
		logs, err := c.Kubectl(t.Context(), "", "--namespace", cluster.Namespace, "logs", "daemonset/capture-cni-node", "--all-pods", "--tail=50")
		if err == nil && lineWith(logs, "captured pods still run on the node", s.name+"/web") == "" {
			err = errors.New("no agent names the pod that keeps it: " + logs)
		}
		return err
	})
	s.isCaptured(t, "web")
	another := server("another", c.Nodes[0].Name)
	s.run(t, another)
	s.isCaptured(t, "another")
	installed = settings
}
