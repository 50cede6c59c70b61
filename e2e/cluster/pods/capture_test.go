// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
)

// TestInjected runs injected pods without any capability, in a restricted
// namespace: their connections are captured within a node, across nodes and
// through a service, in both families.
func TestInjected(t *testing.T) {
	t.Parallel()
	c.InstallChart(t)
	for sidecar, native := range map[string]string{"native": "true", "classic": "false"} {
		t.Run(sidecar, func(t *testing.T) {
			t.Parallel()
			n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
			var pods []*corev1.Pod
			for _, node := range c.Nodes {
				pod := suite.Server("web-"+node.Name, node.Name)
				pod.Annotations["sidecar.istio.io/nativeSidecar"] = native
				pod.Annotations["proxy.istio.io/config"] = `proxyMetadata: {ISTIO_DUAL_STACK: "true"}`
				pods = append(pods, pod)
			}
			for _, pod := range pods {
				n.Expose(t, pod.Name)
			}
			n.Run(t, pods...)
			for _, pod := range pods {
				expectNoCapability(t, n, pod.Name)
				n.ExpectCaptured(t, pod.Name)
			}
			for _, from := range pods {
				for _, to := range pods {
					n.ExpectBothProxies(t, from.Name, to.Name)
				}
			}
		})
	}
}

// expectNoCapability reads the capabilities of proxy and application from the kernel.
func expectNoCapability(t *testing.T, n suite.Namespace, pod string) {
	t.Helper()
	for container, uid := range map[string]string{"istio-proxy": "1337", "app": "1000"} {
		status := n.Kubectl(t, "", "exec", pod, "--container", container, "--", "/apps", "status")
		for _, line := range strings.Split(status, "\n") {
			key, value, _ := strings.Cut(line, ":")
			value = strings.TrimSpace(value)
			switch key {
			case "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb":
				if strings.Trim(value, "0") != "" {
					t.Errorf("%s of %s: %s is %s", container, pod, key, value)
				}
			case "Uid":
				if !strings.HasPrefix(value, uid+"\t") {
					t.Errorf("%s of %s: uid %s, want %s", container, pod, value, uid)
				}
			}
		}
	}
}
