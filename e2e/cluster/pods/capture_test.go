// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"net"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

const service = `
apiVersion: v1
kind: Service
metadata: {name: %s}
spec:
  ipFamilyPolicy: RequireDualStack
  selector: {app: %[1]s}
  ports: [{port: 80, targetPort: 8080}]
`

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
				n.Kubectl(t, fmt.Sprintf(service, pod.Name), "apply", "--filename=-")
			}
			n.Run(t, pods...)
			for _, pod := range pods {
				expectNoCapability(t, n, pod.Name)
				n.ExpectCaptured(t, pod.Name)
			}
			for _, from := range pods {
				for _, to := range pods {
					expectBothProxies(t, n, from.Name, to.Name)
				}
			}
		})
	}
}

// expectBothProxies has one pod connect to another, directly and through its
// service: both proxies are hops, and know the original destination.
func expectBothProxies(t *testing.T, n suite.Namespace, from, to string) {
	t.Helper()
	v4, v6 := n.Addresses(t, to)
	targets := map[string]string{suite.Address(v4, 8080): suite.Address(v4, 8080), suite.Address(v6, 8080): suite.Address(v6, 8080)}
	for _, ip := range strings.Fields(n.Kubectl(t, "", "get", "service", to, "-o", "jsonpath={.spec.clusterIPs[0]} {.spec.clusterIPs[1]}")) {
		pod := v4
		if strings.Contains(ip, ":") {
			pod = v6
		}
		targets[net.JoinHostPort(ip, "80")] = suite.Address(pod, 8080)
	}
	if from == to { // what a proxy sends to its own pod is captured a second time only through a service
		delete(targets, suite.Address(v4, 8080))
		delete(targets, suite.Address(v6, 8080))
	}
	for target, pod := range targets {
		hops := waitForHops(t, n, from, target, fmt.Sprintf("%s/outbound %s/inbound %s/app", from, to, to))
		if got := hops[0].OriginalDst.String(); got != target {
			t.Errorf("from %s to %s: the proxy's original destination is %s", from, target, got)
		}
		if got := hops[1].OriginalDst.String(); got != pod {
			t.Errorf("from %s to %s: the original destination of the server's proxy is %s, want %s", from, target, got, pod)
		}
	}
}

// waitForHops has a pod connect until the hops are those wanted: kube-proxy learns
// of a service's pods some time after they are ready. An attempt may end early, but
// must not skip a hop.
func waitForHops(t *testing.T, n suite.Namespace, from, target, want string) (hops []lab.Answer) {
	t.Helper()
	suite.Eventually(t, func() (err error) {
		hops, err = n.TryAsk(t.Context(), from, "tcp", target)
		got := suite.Names(hops)
		if !strings.HasPrefix(want, got) {
			t.Fatalf("from %s to %s: the hops are %s, want %s", from, target, got, want)
		}
		if err == nil && got != want {
			err = fmt.Errorf("from %s to %s: the hops are no more than %q", from, target, got)
		}
		return err
	})
	return hops
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
