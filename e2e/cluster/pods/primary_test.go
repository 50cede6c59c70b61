// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestPrimaryInstaller installs the chart in each mode, before the primary and after it, and
// then has the primary's installer write its list again: no runtime loses the plugin for long,
// and pods are captured without the guard.
func TestPrimaryInstaller(t *testing.T) {
	t.Cleanup(func() { c.UninstallChart(t) })
	for _, mode := range []string{"auto", "insert", "dropin", "owned"} {
		for order, first := range map[string]bool{"after the primary": false, "before the primary": true} {
			t.Run(mode+" "+order, func(t *testing.T) {
				c.UninstallChart(t)
				settings, nodes := []string{"mode=" + mode, "guard.enabled=false"}, c.Nodes
				if mode == "dropin" {
					nodes = slices.DeleteFunc(slices.Clone(nodes), func(node *cluster.Node) bool { return node.Runtime == cluster.Debian1 })
					for _, node := range nodes {
						c.MustKubectl(t, "label", "node", node.Name, "drop-ins=yes", "--overwrite")
					}
					settings = append(settings, "nodeSelector.drop-ins=yes")
				}
				if first {
					lab.Check(t, c.RemovePrimary(t.Context()))
					c.ApplyChart(t, settings...)
					for _, node := range nodes {
						lab.Eventually(t, func() error {
							status, body, err := suite.AskAgent(t.Context(), node, "/readyz")
							if err == nil && status != http.StatusServiceUnavailable {
								err = fmt.Errorf("without a primary, the agent of %s answers %d: %s", node.Name, status, body)
							}
							return err
						})
					}
					lab.Check(t, c.InstallPrimary(t.Context()))
				}
				c.InstallChart(t, settings...)
				n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
				expectCapturedOn(t, n, "first", nodes)
				lab.Check(t, c.ReinstallPrimary(t.Context()))
				for _, node := range nodes {
					if mode != "dropin" { // which no installer undoes, and CRI-O does not report
						lab.Eventually(t, func() error { return hasPlugin(t, node) })
					}
					suite.WaitAgentReady(t, node)
				}
				expectCapturedOn(t, n, "second", nodes)
			})
		}
	}
}

// expectCapturedOn starts a pod on each node and expects that it is captured.
func expectCapturedOn(t *testing.T, n suite.Namespace, name string, nodes []*cluster.Node) {
	t.Helper()
	var pods []*corev1.Pod
	for _, node := range nodes {
		pods = append(pods, suite.Server(name+"-"+node.Name, node.Name))
	}
	n.Run(t, pods...)
	for _, pod := range pods {
		n.ExpectCaptured(t, pod.Name)
	}
	n.Delete(t, pods...)
}

// hasPlugin returns an error unless a node's runtime calls the plugin.
func hasPlugin(t *testing.T, node *cluster.Node) error {
	t.Helper()
	network, err := suite.LoadedNetwork(t.Context(), node)
	if err == nil && !slices.Contains(network.Plugins, "capture-cni") {
		err = errors.New(node.Name + " does not call the plugin")
	}
	return err
}
