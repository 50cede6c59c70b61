// SPDX-License-Identifier: Apache-2.0

package cluster_test

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
)

// annotationNetworks is by what a pod names its attachments.
const annotationNetworks = "k8s.v1.cni.cncf.io/networks"

// TestMultus has Multus call the plugin for pods that name its attachment, as
// Istio's injector has them do on OpenShift.
func TestMultus(t *testing.T) {
	withoutChart(t)
	t.Cleanup(func() {
		check(t, c.StopMultus(context.Background()))
		expectNetwork(context.Background(), t, "podnet")
	})
	check(t, c.StartMultus(t.Context()))
	defer uninstall(t)
	install(t, "mode=multus", "paths.netDir="+cluster.MultusNetDir, "admission.settings.enabled=true")
	expectNetwork(t.Context(), t, "multus-cni-network")
	t.Run("admission", func(t *testing.T) {
		testNetworksPolicy(t, func(t *testing.T, args ...string) (string, error) {
			return c.Kubectl(context.WithoutCancel(t.Context()), "", args...)
		})
	})
	t.Run("attachment", testAttachment)
	t.Run("second attachment", testSecondAttachment)
}

// withoutChart begins without the chart, also where the cluster was running before.
func withoutChart(t *testing.T) {
	t.Helper()
	requireCluster(t)
	if installed == nil {
		releases, err := c.Helm(t.Context(), "list", "--all-namespaces", "--short")
		check(t, err)
		if releases != "" {
			install(t)
		}
	}
	uninstall(t)
}

// expectNetwork waits until each runtime would call this network's plugins.
func expectNetwork(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	for _, node := range c.Nodes {
		eventually(t, func() error {
			network, err := loadedNetwork(ctx, node)
			if err == nil && network.name != name {
				err = fmt.Errorf("%s has loaded the network %s, want %s", node.Name, network.name, name)
			}
			return err
		})
	}
}

// network is what a runtime says that it would call.
type network struct {
	name    string
	plugins []string
}

// loadedNetwork asks a node's runtime, which names the loopback's network first.
func loadedNetwork(ctx context.Context, node *cluster.Node) (loaded network, err error) {
	service, err := node.CRI(ctx)
	if err != nil {
		return loaded, err
	}
	defer func() { _ = service.Close(context.WithoutCancel(ctx)) }()
	status, err := service.Status(ctx, true)
	if err != nil {
		return loaded, err
	}
	var told struct {
		Networks []struct {
			Config struct {
				Name    string
				Plugins []struct{ Network struct{ Type string } }
			}
		}
	}
	if err := json.Unmarshal([]byte(status.Info["cniconfig"]), &told); err != nil {
		return loaded, err
	}
	if len(told.Networks) < 2 {
		return loaded, fmt.Errorf("%s has loaded no network", node.Name)
	}
	config := told.Networks[len(told.Networks)-1].Config
	loaded.name = config.Name
	for _, plugin := range config.Plugins {
		loaded.plugins = append(loaded.plugins, plugin.Network.Type)
	}
	return loaded, nil
}

// attached is a server that names attachments.
func attached(name, node, networks string) *corev1.Pod {
	pod := server(name, node)
	pod.Annotations[annotationNetworks] = networks
	return pod
}

// testAttachment runs pods that name the attachment in either form, twice or
// not at all.
func testAttachment(t *testing.T) {
	s := newSpace(t, restricted, cluster.Injected)
	var meshed, others []*corev1.Pod
	for _, node := range c.Nodes {
		meshed = append(meshed,
			attached("once-"+node.Name, node.Name, "default/istio-cni"),
			attached("twice-"+node.Name, node.Name, "default/istio-cni,default/istio-cni"),
			attached("json-"+node.Name, node.Name, `[{"name": "istio-cni", "namespace": "default"}]`))
		others = append(others,
			unmeshed(server("plain-"+node.Name, node.Name)),
			unmeshed(attached("named-"+node.Name, node.Name, "default/istio-cni")))
	}
	all := slices.Concat(meshed, others)
	s.run(t, all...)
	for _, pod := range all {
		s.expectOneNetwork(t, pod.Name)
	}
	for i, pod := range meshed {
		if rules := s.rules(t, pod.Name); rules.Backend == "" || rules.Foreign != "" {
			t.Errorf("%s holds %+v", pod.Name, rules)
		}
		to := meshed[(i+1)%len(meshed)].Name
		s.expectHops(t, pod.Name, to, pod.Name+"/outbound", to+"/inbound", to+"/app")
	}
	for i, pod := range others {
		if rules := s.rules(t, pod.Name); rules.Backend != "" || rules.Foreign != "" {
			t.Errorf("%s, which is not in the mesh, holds %+v", pod.Name, rules)
		}
		to := others[(i+1)%len(others)].Name
		s.expectHops(t, pod.Name, to, to+"/app")
	}
	s.remove(t, all...)
}

// unmeshed keeps a pod out of the mesh.
func unmeshed(pod *corev1.Pod) *corev1.Pod {
	pod.Labels["sidecar.istio.io/inject"] = "false"
	return pod
}

// expectHops has one pod connect to another.
func (s space) expectHops(t *testing.T, from, to string, want ...string) {
	t.Helper()
	v4, _ := s.addresses(t, to)
	if got := names(s.ask(t, from, "tcp", address(v4, 8080))); got != strings.Join(want, " ") {
		t.Errorf("from %s to %s: on the way are %s, want %s", from, to, got, want)
	}
}

// expectOneNetwork reads what Multus says about a pod's networks: the plugin
// adds no interface, and takes nothing from the pod's own.
func (s space) expectOneNetwork(t *testing.T, name string) {
	t.Helper()
	pod := s.get(t, name)
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

// testSecondAttachment has users bring attachments of their own: whichever
// comes first, no pod starts with other rules than the operator's.
func testSecondAttachment(t *testing.T) {
	s := newSpace(t, restricted, cluster.Injected)
	const other = "other rules of ours are in the namespace already"
	attachments := []struct {
		name, settings, refusal string
		itself                  bool // it is refused, whether or not it comes first
	}{
		{name: "harmless", settings: `"logLevel": "debug"`},
		{name: "default-uid", settings: `"mesh": {"proxyUID": 1000}`}, // the pod's own counts
		{name: "excluded", settings: `"excludeNamespaces": ["` + s.name + `"]`},
		{"exclude-port", `"mesh": {"excludeOutboundPorts": [8080]}`, other, false},
		{"exclude-range", `"mesh": {"excludeOutboundIPRanges": ["0.0.0.0/0"]}`, other, false},
		{"owner-group", `"mesh": {"outboundOwnerGroupsExclude": [1000]}`, other, false},
		{"other-port", `"mesh": {"outboundPort": 15002}`, other, false},
		{"backend", `"backend": "iptables-nft"`, "rules of ours are in the namespace already, put there by", false},
		// Later keys win: these are instead of the operator's.
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
	s.kubectl(t, manifests.String(), "apply", "--filename=-")
	reference := attached("reference", c.Nodes[0].Name, "default/istio-cni")
	s.create(t, append(pods, reference)...)
	s.ready(t, reference)
	want := s.rules(t, reference.Name)
	for _, a := range attachments {
		for order, second := range map[string]string{"first": "istio-cni", "second": a.name} {
			name := a.name + "-" + order
			if a.itself {
				second = a.name
			}
			if a.refusal == "" {
				s.kubectl(t, "", "wait", "--for=condition=Ready", patience, "pod/"+name)
				if got := s.rules(t, name); got != want {
					t.Errorf("%s holds %+v, want %+v", name, got, want)
				}
				continue
			}
			eventually(t, func() error {
				return s.expectRefused(t, name, fmt.Sprintf("network %q", second), a.refusal)
			})
			if phase := s.get(t, name).Status.Phase; phase != corev1.PodPending {
				t.Errorf("%s is %s", name, cmp.Or(phase, "nothing"))
			}
		}
	}
	s.remove(t, append(pods, reference)...)
}

// expectRefused looks for an event that says why a pod does not start.
func (s space) expectRefused(t *testing.T, pod string, reasons ...string) error {
	t.Helper()
	events := s.kubectl(t, "", "get", "events", "--field-selector", "reason=FailedCreatePodSandBox,involvedObject.name="+pod,
		"-o", `jsonpath={range .items[*]}{.message}{"\n"}{end}`)
	for event := range strings.Lines(events) {
		if !slices.ContainsFunc(reasons, func(reason string) bool { return !strings.Contains(event, reason) }) {
			return nil
		}
	}
	return fmt.Errorf("%s: no event says %q: %s", pod, reasons, events)
}
