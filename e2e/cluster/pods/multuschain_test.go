// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// extraNetwork is an attachment with an interface of its own.
const extraNetwork = `apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: extra}
spec:
  config: '{"cniVersion": "1.0.0", "name": "extra", "type": "ptp", "ipam": {"type": "host-local", "subnet": "10.99.0.0/16"}}'
`

// chainSettings are without the guard, which would capture what the chain leaves out.
var chainSettings = []string{"mode=multus-chain", "guard.enabled=false", suite.ShortLookup}

// TestMultusChain has the thick Multus call the plugin in its auxiliary chain, as OpenShift
// configures it: for every pod, without an attachment and without annotations.
func TestMultusChain(t *testing.T) {
	c.UninstallChart(t)
	t.Cleanup(func() {
		lab.Check(t, c.StopThickMultus(context.Background()))
		expectNetwork(context.Background(), t, "podnet")
	})
	lab.Check(t, c.StartThickMultus(t.Context(), c.Nodes...))
	expectNetwork(t.Context(), t, "multus-cni-network")
	defer c.UninstallChart(t)
	t.Run("from the attachment", testFromAttachment)
	c.InstallChart(t, chainSettings...)
	t.Run("pods", testChainPods)
	t.Run("broken chain", testBrokenChain)
	t.Run("without agents", testChainAlone)
}

// testFromAttachment goes from the mode multus to the chain, as the guide says: a pod for
// which Multus calls the plugin twice is captured once.
func testFromAttachment(t *testing.T) {
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	node := c.Nodes[0].Name
	const attachment = "network-attachment-definitions.k8s.cni.cncf.io"
	c.InstallChart(t, "mode=multus", "paths.netDir="+cluster.MultusNetDir, "guard.enabled=false")
	before, both, after := attached("before", node, "default/istio-cni"), attached("both", node, "default/istio-cni"), suite.Server("after", node)
	n.Run(t, before)
	n.ExpectCaptured(t, before.Name)
	c.MustKubectl(t, "--namespace=default", "annotate", attachment, "istio-cni", "helm.sh/resource-policy=keep")
	c.InstallChart(t, chainSettings...)
	n.Run(t, both)
	n.ExpectCaptured(t, both.Name)
	c.MustKubectl(t, "--namespace=default", "delete", attachment, "istio-cni")
	n.Run(t, after)
	n.ExpectCaptured(t, after.Name)
	n.Delete(t, before, both, after)
}

// testChainPods runs pods with and without a further network, in the mesh or not.
func testChainPods(t *testing.T) {
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	n.Kubectl(t, extraNetwork, "apply", "--filename=-")
	system := c.NewNamespaceWith(t, "openshift-", suite.Restricted, cluster.Injected)
	var meshed, others, excluded []*corev1.Pod
	for _, node := range c.Nodes {
		meshed = append(meshed, suite.Server("meshed-"+node.Name, node.Name), attached("extra-"+node.Name, node.Name, "extra"))
		others = append(others, suite.Unmeshed(suite.Server("plain-"+node.Name, node.Name)), suite.Unmeshed(attached("plain-extra-"+node.Name, node.Name, "extra")))
		excluded = append(excluded, suite.Server("meshed-"+node.Name, node.Name))
	}
	all := slices.Concat(meshed, others)
	n.Run(t, all...)
	system.Run(t, excluded...)
	for i, pod := range meshed {
		n.ExpectCaptured(t, pod.Name)
		to := meshed[(i+1)%len(meshed)].Name
		expectHops(t, n, pod.Name, to, pod.Name+"/outbound", to+"/inbound", to+"/app")
	}
	for i, pod := range others {
		expectUntouched(t, n, pod.Name)
		to := others[(i+1)%len(others)].Name
		expectHops(t, n, pod.Name, to, to+"/app")
	}
	for _, pod := range excluded {
		expectUntouched(t, system, pod.Name)
	}
	for _, pod := range []string{"extra-" + c.Nodes[0].Name, "plain-extra-" + c.Nodes[0].Name} {
		if status := n.Get(t, pod).Annotations["k8s.v1.cni.cncf.io/network-status"]; !strings.Contains(status, `"net1"`) {
			t.Errorf("%s has no further interface: %s", pod, status)
		}
	}
	n.Delete(t, all...)
	system.Delete(t, excluded...)
}

func expectUntouched(t *testing.T, n suite.Namespace, pod string) {
	t.Helper()
	if rules := n.Rules(t, pod); rules.Backend != "" || rules.Foreign != "" {
		t.Errorf("%s/%s, which is not captured, has the rules %+v", n.Name, pod, rules)
	}
}

// testBrokenChain has another program's malformed file in the chain: Multus starts pods
// without any plugin of the chain, and the agent is not ready and names the file. A guard
// captures such a pod.
func testBrokenChain(t *testing.T) {
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	node := c.Nodes[0]
	file := node.Path(cluster.MultusChainDir + "/50-other.conf")
	lab.Check(t, os.WriteFile(file, []byte(`{"type": "tuning"`), 0o644))
	lab.Eventually(t, func() error {
		status, body, err := suite.AskAgent(t.Context(), node, "/readyz")
		if err == nil && (status == 200 || !strings.Contains(body, cluster.MultusChainDir+"/50-other.conf, which another program wrote")) {
			err = fmt.Errorf("/readyz is %d: %s", status, body)
		}
		return err
	})
	uncaptured, captured := suite.Server("uncaptured", node.Name), suite.Server("captured", node.Name)
	n.Run(t, uncaptured)
	expectUntouched(t, n, uncaptured.Name)
	lab.Check(t, os.Remove(file))
	suite.WaitAgentReady(t, node)
	n.Run(t, captured)
	n.ExpectCaptured(t, captured.Name)
	c.InstallChart(t, "mode=multus-chain")
	lab.Eventually(t, func() error { return n.CheckCaptured(t.Context(), n.Get(t, uncaptured.Name)) })
	c.InstallChart(t, chainSettings...)
	n.Delete(t, uncaptured, captured)
}

// testChainAlone uninstalls the chart without cleaning the nodes: pods start by the token on
// the node. Without the plugin's account, pods of excluded namespaces start without a lookup,
// all others fail until the next installation, and the DEL of earlier ones succeeds.
func testChainAlone(t *testing.T) {
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	system := c.NewNamespaceWith(t, "openshift-", suite.Restricted)
	node := c.Nodes[0]
	old, oldPlain := suite.Server("old", node.Name), suite.Unmeshed(suite.Server("old-plain", node.Name))
	n.Run(t, old, oldPlain)
	lab.Check(t, c.Uninstall(t.Context()))
	c.Installed = nil
	byToken := suite.Server("by-token", node.Name)
	n.Run(t, byToken)
	n.ExpectCaptured(t, byToken.Name)
	deletePermission(t)
	meshed, plain := suite.Server("meshed", node.Name), suite.Unmeshed(suite.Server("plain", node.Name))
	excluded := suite.Unmeshed(suite.Server("excluded", node.Name))
	n.Create(t, meshed, plain)
	system.Run(t, excluded)
	for _, pod := range []*corev1.Pod{meshed, plain} {
		lab.Eventually(t, func() error {
			return n.CheckRefused(t, pod.Name, `adding container to network "vendor-cni-chain"`, "looking up pod "+n.Name+"/"+pod.Name)
		})
	}
	n.Delete(t, old, oldPlain, byToken)
	system.Delete(t, excluded)
	c.InstallChart(t, chainSettings...)
	n.WaitReady(t, meshed, plain)
	n.ExpectCaptured(t, meshed.Name)
	expectUntouched(t, n, plain.Name)
	n.Delete(t, meshed, plain)
}
