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

// linkerdPod is one as Linkerd's injector makes it in CNI mode, with stand-ins for the
// proxy, at the ports of that, and for its validator.
func linkerdPod(name, node string, native bool) *corev1.Pod {
	pod := suite.Server(name, node)
	pod.Annotations["linkerd.io/proxy-version"] = "edge-26.8.1"
	pod.Annotations["config.linkerd.io/skip-inbound-ports"] = "9000-9010"
	validator := *pod.Spec.Containers[0].DeepCopy()
	validator.Name, validator.Image, validator.Args = "linkerd-network-validator", "test.local/capture-cni/capture-cni:v1", []string{"validate", "outbound", "--family=both"}
	validator.SecurityContext.RunAsUser = new(int64(65534))
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, validator)
	proxy := sidecarOf(pod, "linkerd-proxy", 2102, native)
	proxy.Env = append(proxy.Env,
		corev1.EnvVar{Name: "LINKERD2_PROXY_INBOUND_LISTEN_ADDR", Value: "[::]:15006"},
		corev1.EnvVar{Name: "LINKERD2_PROXY_OUTBOUND_LISTEN_ADDRS", Value: "127.0.0.1:15001,[::1]:15001"},
		corev1.EnvVar{Name: "LINKERD2_PROXY_CONTROL_LISTEN_ADDR", Value: "[::]:4190"},
		corev1.EnvVar{Name: "LINKERD2_PROXY_ADMIN_LISTEN_ADDR", Value: "[::]:4191"})
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

// TestOtherSidecars runs pods of Linkerd's form, and with keys of our own, without a
// capability: the connections between all of them go through both proxies, in both families;
// guard and explain know them. A pod with two proxies, or a wrong key, does not start.
func TestOtherSidecars(t *testing.T) {
	c.InstallChart(t, everyMesh, suite.ShortLookup)
	n := c.NewNamespace(t, suite.Restricted)
	first, second := c.Nodes[0].Name, c.Nodes[1].Name
	pods := []*corev1.Pod{linkerdPod("linkerd-native", first, true), linkerdPod("linkerd-classic", second, false), ownPod("own-native", second, true), ownPod("own-classic", first, false)}
	for _, pod := range pods {
		n.Expose(t, pod.Name)
	}
	n.Run(t, pods...)
	for _, from := range pods {
		n.ExpectCaptured(t, from.Name)
		for _, to := range pods {
			if from != to {
				n.ExpectBothProxies(t, from.Name, to.Name)
			}
		}
	}
	for _, node := range c.Nodes[:2] {
		lab.Eventually(t, func() error {
			_, metrics, err := suite.AskGuard(t.Context(), node, "/metrics")
			for _, mesh := range []string{"linkerd", "capture-cni"} {
				if line := fmt.Sprintf("capture_cni_pods{mesh=%q,state=\"captured\"} 1\n", mesh); err == nil && !strings.Contains(metrics, line) {
					err = fmt.Errorf("the guard of %s does not say %q", node.Name, line)
				}
			}
			return err
		})
	}
	plugin := c.BuildPlugin(t)
	for name, key := range map[string]string{"linkerd-native": "config.linkerd.io/skip-inbound-ports", "own-classic": "capture-cni.io/proxy"} {
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
	n.Create(t, both, wrong)
	for name, reason := range map[string]string{"both": "keys of linkerd and of capture-cni", "wrong": "there is no such key"} {
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
