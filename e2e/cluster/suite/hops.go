// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"net"
	"strings"
	"testing"

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

// Expose creates a service in front of a pod.
func (n Namespace) Expose(t *testing.T, pod string) {
	t.Helper()
	n.Kubectl(t, fmt.Sprintf(service, pod), "apply", "--filename=-")
}

// ExpectBothProxies has one pod connect to another, directly and through its
// service: both proxies are hops, and know the original destination.
func (n Namespace) ExpectBothProxies(t *testing.T, from, to string) {
	t.Helper()
	v4, v6 := n.Addresses(t, to)
	targets := map[string]string{Address(v4, 8080): Address(v4, 8080), Address(v6, 8080): Address(v6, 8080)}
	for _, ip := range strings.Fields(n.Kubectl(t, "", "get", "service", to, "-o", "jsonpath={.spec.clusterIPs[0]} {.spec.clusterIPs[1]}")) {
		pod := v4
		if strings.Contains(ip, ":") {
			pod = v6
		}
		targets[net.JoinHostPort(ip, "80")] = Address(pod, 8080)
	}
	if from == to { // what a proxy sends to its own pod is captured a second time only through a service
		delete(targets, Address(v4, 8080))
		delete(targets, Address(v6, 8080))
	}
	for target, pod := range targets {
		hops := n.WaitForHops(t, from, target, fmt.Sprintf("%s/outbound %s/inbound %s/app", from, to, to))
		if got := hops[0].OriginalDst.String(); got != target {
			t.Errorf("from %s to %s: the proxy's original destination is %s", from, target, got)
		}
		if got := hops[1].OriginalDst.String(); got != pod {
			t.Errorf("from %s to %s: the original destination of the server's proxy is %s, want %s", from, target, got, pod)
		}
	}
}

// WaitForHops has a pod connect until the hops are those wanted: kube-proxy learns
// of a service's pods some time after they are ready. An attempt may end early, but
// must not skip a hop.
func (n Namespace) WaitForHops(t *testing.T, from, target, want string) (hops []lab.Answer) {
	t.Helper()
	lab.Eventually(t, func() (err error) {
		hops, err = n.TryAsk(t.Context(), from, "tcp", target)
		got := Names(hops)
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
