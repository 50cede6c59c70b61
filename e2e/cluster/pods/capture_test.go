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

// TestInjected runs injected pods without any capability, where Pod Security
// allows none: what they send and get is captured on each node, across nodes
// and through a service, in both families.
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
				if rules := n.Rules(t, pod.Name); rules.Backend == "" || rules.Foreign != "" {
					t.Errorf("%s holds %+v", pod.Name, rules)
				}
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
// service: the proxies of both stand between them and know where it was going.
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
	if from == to { // without a detour, what a proxy sends to its own pod is not captured a second time
		delete(targets, suite.Address(v4, 8080))
		delete(targets, suite.Address(v6, 8080))
	}
	for target, pod := range targets {
		hops := waitForHops(t, n, from, target, fmt.Sprintf("%s/outbound %s/inbound %s/app", from, to, to))
		if got := hops[0].OriginalDst.String(); got != target {
			t.Errorf("from %s to %s: the proxy took it for %s", from, target, got)
		}
		if got := hops[1].OriginalDst.String(); got != pod {
			t.Errorf("from %s to %s: the server's proxy took it for %s, want %s", from, target, got, pod)
		}
	}
}

// waitForHops has a pod connect, until all that are wanted are on the way: kube-proxy
// hears of a service's pods a while after they are ready. None may be passed by.
func waitForHops(t *testing.T, n suite.Namespace, from, target, want string) (hops []lab.Answer) {
	t.Helper()
	suite.Eventually(t, func() (err error) {
		hops, err = n.TryAsk(t.Context(), from, "tcp", target)
		got := suite.Names(hops)
		if !strings.HasPrefix(want, got) {
			t.Fatalf("from %s to %s: on the way are %s, want %s", from, target, got, want)
		}
		if err == nil && got != want {
			err = fmt.Errorf("from %s to %s: on the way are no more than %q", from, target, got)
		}
		return err
	})
	return hops
}

// expectNoCapability looks at the proxy and the application as the kernel does.
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
