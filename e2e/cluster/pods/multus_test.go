// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// annotationNetworks is the annotation with a pod's attachments.
const annotationNetworks = "k8s.v1.cni.cncf.io/networks"

// TestMultus has Multus call the plugin for pods with its attachment, which Istio's
// injector adds on OpenShift.
func TestMultus(t *testing.T) {
	c.UninstallChart(t)
	t.Cleanup(func() {
		lab.Check(t, c.StopMultus(context.Background()))
		expectNetwork(context.Background(), t, "podnet")
	})
	lab.Check(t, c.StartMultus(t.Context()))
	defer c.UninstallChart(t)
	c.InstallChart(t, "mode=multus", "paths.netDir="+cluster.MultusNetDir, "admission.settings.enabled=true")
	expectNetwork(t.Context(), t, "multus-cni-network")
	t.Run("admission", testNetworksPolicy)
	t.Run("attachment", testAttachment)
	t.Run("second attachment", testSecondAttachment)
}

// expectNetwork waits until each runtime has loaded this network.
func expectNetwork(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	for _, node := range c.Nodes {
		lab.Eventually(t, func() error {
			network, err := suite.LoadedNetwork(ctx, node)
			if err == nil && network.Name != name {
				err = fmt.Errorf("%s has loaded the network %s, want %s", node.Name, network.Name, name)
			}
			return err
		})
	}
}

// attached returns a server with attachments.
func attached(name, node, networks string) *corev1.Pod {
	pod := suite.Server(name, node)
	pod.Annotations[annotationNetworks] = networks
	return pod
}

// testAttachment runs pods with the attachment in either form, twice or not at all.
func testAttachment(t *testing.T) {
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	var meshed, others []*corev1.Pod
	for _, node := range c.Nodes {
		meshed = append(meshed,
			attached("once-"+node.Name, node.Name, "default/istio-cni"),
			attached("twice-"+node.Name, node.Name, "default/istio-cni,default/istio-cni"),
			attached("json-"+node.Name, node.Name, `[{"name": "istio-cni", "namespace": "default"}]`))
		others = append(others,
			suite.Unmeshed(suite.Server("plain-"+node.Name, node.Name)),
			suite.Unmeshed(attached("named-"+node.Name, node.Name, "default/istio-cni")))
	}
	all := slices.Concat(meshed, others)
	n.Run(t, all...)
	for _, pod := range all {
		expectOneNetwork(t, n, pod.Name)
	}
	for i, pod := range meshed {
		n.ExpectCaptured(t, pod.Name)
		to := meshed[(i+1)%len(meshed)].Name
		expectHops(t, n, pod.Name, to, pod.Name+"/outbound", to+"/inbound", to+"/app")
	}
	for i, pod := range others {
		if rules := n.Rules(t, pod.Name); rules.Backend != "" || rules.Foreign != "" {
			t.Errorf("%s, which is not in the mesh, has the rules %+v", pod.Name, rules)
		}
		to := others[(i+1)%len(others)].Name
		expectHops(t, n, pod.Name, to, to+"/app")
	}
	n.Delete(t, all...)
}

// expectHops has one pod connect to another.
func expectHops(t *testing.T, n suite.Namespace, from, to string, want ...string) {
	t.Helper()
	v4, _ := n.Addresses(t, to)
	if got := suite.Names(n.Ask(t, from, "tcp", suite.Address(v4, 8080))); got != strings.Join(want, " ") {
		t.Errorf("from %s to %s: the hops are %s, want %s", from, to, got, want)
	}
}

// expectOneNetwork checks the network-status that Multus writes: the plugin adds no
// interface and no address.
func expectOneNetwork(t *testing.T, n suite.Namespace, name string) {
	t.Helper()
	pod := n.Get(t, name)
	var networks []struct {
		Name, Interface string
		IPs             []string
		Default         bool
	}
	text := pod.Annotations["k8s.v1.cni.cncf.io/network-status"]
	if err := json.Unmarshal([]byte(text), &networks); err != nil {
		t.Errorf("%s: reading its network-status %q: %v", name, text, err)
		return
	}
	var ips []string
	for _, ip := range pod.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	slices.Sort(ips)
	for _, network := range networks {
		slices.Sort(network.IPs)
	}
	if len(networks) != 1 || !networks[0].Default || networks[0].Interface != "eth0" || !slices.Equal(networks[0].IPs, ips) {
		t.Errorf("%s, whose addresses are %s, has the network-status %s", name, ips, text)
	}
}

const ownAttachment = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: %s}
spec:
  config: '{"cniVersion": "1.0.0", "name": "%[1]s", "type": "capture-cni", "kubeconfig": "/var/lib/capture-cni/kubeconfig", %s}'
---`

// testSecondAttachment adds attachments of users: in either order, no pod starts
// with other rules than the operator's.
func testSecondAttachment(t *testing.T) {
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	const other = "the namespace holds other rules of an earlier ADD"
	attachments := []struct {
		name, settings, refusal string
		itself                  bool // the attachment is refused in either order
	}{
		{name: "harmless", settings: `"logLevel": "debug"`},
		{name: "default-uid", settings: `"mesh": {"proxyUID": 1000}`}, // overridden by the pod's own
		{name: "excluded", settings: `"excludeNamespaces": ["` + n.Name + `"]`},
		{"exclude-port", `"mesh": {"excludeOutboundPorts": [8080]}`, other, false},
		{"exclude-range", `"mesh": {"excludeOutboundIPRanges": ["0.0.0.0/0"]}`, other, false},
		{"owner-group", `"mesh": {"outboundOwnerGroupsExclude": [1000]}`, other, false},
		{"other-port", `"mesh": {"outboundPort": 15002}`, other, false},
		{"backend", `"backend": "iptables-nft"`, "the namespace holds rules of an earlier ADD, by backend", false},
		// Later keys win: these replace the entry's own.
		{"credentials", `"kubeconfig": "/run/containerd/io.containerd.runtime.v2.task/k8s.io/x/rootfs/kubeconfig", "CAPTURE_CNI_DIR": "/x"`, "expected kubeconfig in", true},
		{"kernel-log", `"kubeconfig": "/proc/kmsg"`, "expected an absolute path that ends in /kubeconfig", true},
		{"socket", `"agentSocket": "/tmp/agent.sock"`, "expected agent.sock in", true},
	}
	var manifests strings.Builder
	var pods []*corev1.Pod
	for i, a := range attachments {
		fmt.Fprintf(&manifests, ownAttachment, a.name, a.settings)
		node := c.Nodes[i%len(c.Nodes)].Name
		pods = append(pods,
			attached(a.name+"-first", node, a.name+",default/istio-cni"),
			attached(a.name+"-second", node, "default/istio-cni,"+a.name))
	}
	n.Kubectl(t, manifests.String(), "apply", "--filename=-")
	reference := attached("reference", c.Nodes[0].Name, "default/istio-cni")
	n.Create(t, append(pods, reference)...)
	n.WaitReady(t, reference)
	want := n.Rules(t, reference.Name)
	for _, a := range attachments {
		for order, second := range map[string]string{"first": "istio-cni", "second": a.name} {
			name := a.name + "-" + order
			if a.itself {
				second = a.name
			}
			if a.refusal == "" {
				n.Kubectl(t, "", "wait", "--for=condition=Ready", suite.KubectlTimeout, "pod/"+name)
				if got := n.Rules(t, name); got != want {
					t.Errorf("%s has the rules %+v, want %+v", name, got, want)
				}
				continue
			}
			lab.Eventually(t, func() error {
				return n.CheckRefused(t, name, fmt.Sprintf("network %q", second), a.refusal)
			})
			if phase := n.Get(t, name).Status.Phase; phase != corev1.PodPending {
				t.Errorf("%s is %s", name, cmp.Or(phase, "nothing"))
			}
		}
	}
	n.Delete(t, append(pods, reference)...)
}
