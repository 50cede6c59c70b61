// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// everyMesh is the setting with which pods of every mesh are captured.
const everyMesh = "netconf.meshes={istio,linkerd,consul,kuma,capture-cni}"

// sidecarOf adds a stand-in for a proxy, in a container of this name and uid.
func sidecarOf(pod *corev1.Pod, name string, uid int64, native bool) *corev1.Container {
	proxy := *pod.Spec.Containers[0].DeepCopy()
	proxy.Name, proxy.Args, proxy.SecurityContext.RunAsUser = name, []string{"proxy", "sidecar", "plain"}, &uid
	if !native {
		pod.Spec.Containers = append(pod.Spec.Containers, proxy)
		return &pod.Spec.Containers[len(pod.Spec.Containers)-1]
	}
	always := corev1.ContainerRestartPolicyAlways
	proxy.RestartPolicy = &always
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, proxy)
	return &pod.Spec.InitContainers[len(pod.Spec.InitContainers)-1]
}

// initOf adds an init container of this name and uid.
func initOf(pod *corev1.Pod, name string, uid int64, args ...string) *corev1.Container {
	container := *pod.Spec.Containers[0].DeepCopy()
	container.Name, container.Args, container.SecurityContext.RunAsUser = name, args, &uid
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
	return &pod.Spec.InitContainers[len(pod.Spec.InitContainers)-1]
}

// validated adds a stand-in for a mesh's validator.
func validated(pod *corev1.Pod, name string, uid int64, direction string) {
	initOf(pod, name, uid, "validate", direction, "--family=both").Image = "test.local/capture-cni/capture-cni:v1"
}

// linkerdPod is one as Linkerd's injector makes it in CNI mode, with stand-ins for the
// proxy, at the ports of that, and for its validator.
func linkerdPod(name, node string, native bool) *corev1.Pod {
	pod := suite.Server(name, node)
	pod.Annotations["linkerd.io/proxy-version"] = "edge-26.8.1"
	pod.Annotations["config.linkerd.io/skip-inbound-ports"] = "9000-9010"
	validated(pod, "linkerd-network-validator", 65534, "outbound")
	proxy := sidecarOf(pod, "linkerd-proxy", 2102, native)
	proxy.Env = append(proxy.Env,
		corev1.EnvVar{Name: "LINKERD2_PROXY_INBOUND_LISTEN_ADDR", Value: "[::]:15006"},
		corev1.EnvVar{Name: "LINKERD2_PROXY_OUTBOUND_LISTEN_ADDRS", Value: "127.0.0.1:15001,[::1]:15001"},
		corev1.EnvVar{Name: "LINKERD2_PROXY_CONTROL_LISTEN_ADDR", Value: "[::]:4190"},
		corev1.EnvVar{Name: "LINKERD2_PROXY_ADMIN_LISTEN_ADDR", Value: "[::]:4191"})
	return pod
}

// consulPod is one as Consul's injector makes it in CNI mode: it has no validator, and its init
// container runs as an exempt user.
func consulPod(name, node string, native bool) *corev1.Pod {
	pod := suite.Server(name, node)
	for key, value := range map[string]string{
		"connect-inject-status": "injected", "mesh-inject-status": "injected", "transparent-proxy-status": "enabled", "dual-stack": "true",
		"redirect-traffic-config": `{"ConsulDNSIP":"::1","ConsulDNSPort":8600,"ProxyUserID":"5995","ProxyInboundPort":15006,"ProxyOutboundPort":15001,` +
			`"ExcludeInboundPorts":["9000:9010"],"ExcludeOutboundPorts":null,"ExcludeOutboundCIDRs":null,"ExcludeUIDs":["5996"],"NetNS":"","IptablesProvider":null}`,
	} {
		pod.Annotations["consul.hashicorp.com/"+key] = value
	}
	initOf(pod, "consul-connect-inject-init", 5996, "status")
	sidecarOf(pod, "consul-dataplane", 5995, native)
	return pod
}

// kumaPod is one as the injector of Kuma 3 makes it in CNI mode. Its proxy has an address of its own.
func kumaPod(name, node string, native bool) *corev1.Pod {
	pod := suite.Server(name, node)
	pod.Annotations["kuma.io/sidecar-injected"] = "true"
	pod.Annotations["traffic.kuma.io/transparent-proxy-config"] = `cniMode: true
ipFamilyMode: dualstack
kumaDPUser: "5678"
redirect:
  dns: {enabled: true, captureAll: true, port: 15053}
  inbound: {enabled: true, port: 15006, excludePorts: [9000, 9005]}
  outbound: {enabled: true, port: 15001}
`
	validated(pod, "kuma-validation", 5678, "inbound")
	sidecarOf(pod, "kuma-sidecar", 5678, native).Args = []string{"proxy", "sidecar"}
	return pod
}

// ownPod is one with keys of our own, for a sidecar of both directions.
func ownPod(name, node string, native bool) *corev1.Pod {
	pod := suite.Server(name, node)
	for key, value := range map[string]string{"proxy": "sidecar", "inbound-port": "15006", "outbound-port": "15001", "exclude-inbound-ports": "9000-9010"} {
		pod.Annotations["capture-cni.io/"+key] = value
	}
	sidecarOf(pod, "sidecar", 3128, native)
	return pod
}

// TestOtherSidecars runs pods of the form of Linkerd, Consul and Kuma, and with keys of our own,
// without a capability: the connections between pods of each two of them go through both proxies, in
// both families; guard and explain know them. A pod with two proxies, or a wrong key, does not start.
func TestOtherSidecars(t *testing.T) {
	c.InstallChart(t, everyMesh, suite.ShortLookup)
	n := c.NewNamespace(t, suite.Restricted)
	first, second := c.Nodes[0].Name, c.Nodes[1].Name
	pods := []*corev1.Pod{
		linkerdPod("linkerd-native", first, true), consulPod("consul-native", second, true), kumaPod("kuma-native", first, true), ownPod("own-native", second, true),
		linkerdPod("linkerd-classic", second, false), consulPod("consul-classic", first, false), kumaPod("kuma-classic", second, false), ownPod("own-classic", first, false),
	}
	for _, pod := range pods {
		n.Expose(t, pod.Name)
	}
	n.Run(t, pods...)
	for i, from := range pods {
		n.ExpectCaptured(t, from.Name)
		for next := 1; next <= 4; next++ { // a pod of each mesh
			n.ExpectBothProxies(t, from.Name, pods[(i+next)%len(pods)].Name)
		}
	}
	for _, node := range c.Nodes[:2] {
		lab.Eventually(t, func() error {
			_, metrics, err := suite.AskGuard(t.Context(), node, "/metrics")
			for _, mesh := range []string{"linkerd", "consul", "kuma", "capture-cni"} {
				if line := fmt.Sprintf("capture_cni_pods{mesh=%q,state=\"captured\"} 1\n", mesh); err == nil && !strings.Contains(metrics, line) {
					err = fmt.Errorf("the guard of %s does not say %q", node.Name, line)
				}
			}
			return err
		})
	}
	plugin := c.BuildPlugin(t)
	for name, key := range map[string]string{
		"linkerd-native": "config.linkerd.io/skip-inbound-ports", "own-classic": "capture-cni.io/proxy",
		"consul-native": "consul.hashicorp.com/redirect-traffic-config", "kuma-classic": "traffic.kuma.io/transparent-proxy-config",
	} {
		if out, status := plugin.Output(t, "explain", n.Name+"/"+name); status != 0 || !strings.Contains(out, ": captured") || !strings.Contains(out, "asked for    "+key) {
			t.Errorf("explain: exit status %d\n%s", status, out)
		}
		address, _ := n.Addresses(t, name)
		if out, status := plugin.Output(t, "trace", n.Name+"/"+name, "--in", "--to", suite.Address(address, 9005)); status != 0 || !strings.Contains(out, "verdict      passes") {
			t.Errorf("trace: exit status %d\n%s", status, out)
		}
	}

	both := linkerdPod("both", first, true)
	both.Annotations["capture-cni.io/proxy"] = "linkerd-proxy"
	wrong := ownPod("wrong", first, true)
	wrong.Annotations["capture-cni.io/outbound-prot"] = "15001"
	consul, kuma := consulPod("wrong-consul", first, true), kumaPod("wrong-kuma", first, true)
	consul.Annotations["consul.hashicorp.com/dual-stack"] = "yes"
	delete(kuma.Annotations, "traffic.kuma.io/transparent-proxy-config")
	n.Create(t, both, wrong, consul, kuma)
	for name, reason := range map[string]string{
		"both": "keys of linkerd and of capture-cni", "wrong": "there is no such key",
		"wrong-consul": "expected an IPv6 address with consul.hashicorp.com/dual-stack true", "wrong-kuma": "transparent-proxy-config: it is absent",
	} {
		lab.Eventually(t, func() error { return n.CheckRefused(t, name, reason) })
	}
}

// TestMeshOff starts a pod of a mesh that is not on, and leaves it alone.
func TestMeshOff(t *testing.T) {
	c.InstallChart(t)
	n := c.NewNamespace(t, suite.Restricted)
	pod := linkerdPod("web", c.Nodes[0].Name, false)
	pod.Spec.InitContainers = nil
	n.Run(t, pod)
	if rules := n.Rules(t, "web"); rules.Backend != "" {
		t.Errorf("the pod has rules: %+v", rules)
	}
}
