// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// Servers outside of the cluster: one on each of these ports.
const (
	outside     = "198.51.100.10"
	freePort    = 8443
	anotherPort = 9000
)

// TestAnnotations has pods with several annotations, and checks which of their
// connections go through the proxy.
func TestAnnotations(t *testing.T) {
	t.Parallel()
	c.InstallChart(t)
	serveOutside(t)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	node := c.Nodes[0].Name
	client := suite.NewPod("client", c.Nodes[1].Name, "pause")
	client.Annotations["sidecar.istio.io/inject"] = "false"
	ask := func(annotations map[string]string) *corev1.Pod {
		pod := suite.NewPod(fmt.Sprintf("web-%d", len(annotations)), node, "serve", "tcp", ":8080", ":9090")
		pod.Annotations = annotations
		return pod
	}
	plain := ask(map[string]string{})
	excluding := ask(map[string]string{
		"traffic.sidecar.istio.io/excludeInboundPorts":     "9090",
		"traffic.sidecar.istio.io/excludeOutboundPorts":    "8443",
		"traffic.sidecar.istio.io/excludeOutboundIPRanges": "192.168.77.0/24",
	})
	including := ask(map[string]string{
		"traffic.sidecar.istio.io/includeInboundPorts":     "9090",
		"traffic.sidecar.istio.io/includeOutboundIPRanges": "192.0.2.0/24",
	})
	n.Run(t, client, plain, excluding, including)

	const captured, free = true, false
	for _, tt := range []struct {
		pod      *corev1.Pod
		inbound  map[uint16]bool
		outbound map[uint16]bool
	}{
		{plain, map[uint16]bool{8080: captured, 9090: captured}, map[uint16]bool{freePort: captured, anotherPort: captured}},
		{excluding, map[uint16]bool{8080: captured, 9090: free}, map[uint16]bool{freePort: free, anotherPort: captured}},
		{including, map[uint16]bool{8080: free, 9090: captured}, map[uint16]bool{freePort: free, anotherPort: free}},
	} {
		v4, _ := n.Addresses(t, tt.pod.Name)
		for port, want := range tt.inbound {
			hops := suite.Names(n.Ask(t, "client", "tcp", suite.Address(v4, port)))
			if got := strings.Contains(hops, tt.pod.Name+"/inbound"); got != want || !strings.HasSuffix(hops, tt.pod.Name+"/app") {
				t.Errorf("to %s, port %d: the hops are %s", tt.pod.Name, port, hops)
			}
		}
		for port, want := range tt.outbound {
			hops := suite.Names(n.Ask(t, tt.pod.Name, "tcp", suite.Address(netip.MustParseAddr(outside), port)))
			if got := strings.Contains(hops, tt.pod.Name+"/outbound"); got != want || !strings.HasSuffix(hops, "outside") {
				t.Errorf("from %s, port %d: the hops are %s", tt.pod.Name, port, hops)
			}
		}
	}
	if rules := n.Rules(t, "client"); rules.Backend != "" {
		t.Errorf("a pod without a sidecar has the rules %+v", rules)
	}
}

// TestTransparent has a pod under TPROXY: the application sees the client's
// address. Its sidecar needs NET_ADMIN, which a restricted namespace forbids.
func TestTransparent(t *testing.T) {
	t.Parallel()
	c.InstallChart(t)
	n := c.NewNamespace(t, cluster.Injected)
	client := suite.NewPod("client", c.Nodes[1].Name, "pause")
	client.Labels["sidecar.istio.io/inject"] = "false"
	web := suite.Server("web", c.Nodes[0].Name)
	web.Spec.SecurityContext.RunAsNonRoot = nil // the sidecar runs as root
	web.Annotations["sidecar.istio.io/interceptionMode"] = "TPROXY"
	n.Run(t, client, web)
	v4, _ := n.Addresses(t, "web")
	from, _ := n.Addresses(t, "client")
	hops := n.Ask(t, "client", "tcp", suite.Address(v4, 8080))
	if got := suite.Names(hops); got != "web/inbound web/app" {
		t.Fatalf("the hops are %s", got)
	}
	for _, hop := range hops {
		if got := hop.Client.Addr().Unmap(); got != from {
			t.Errorf("%s sees %s, the client is %s", hop.Server, got, from)
		}
	}
}

// TestDNS has a pod with DNS capture: the sidecar answers queries to any server.
func TestDNS(t *testing.T) {
	t.Parallel()
	c.InstallChart(t)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	web := suite.Server("web", c.Nodes[0].Name)
	web.Annotations["proxy.istio.io/config"] = `proxyMetadata: {ISTIO_META_DNS_CAPTURE: "true"}`
	plain := suite.Server("plain", c.Nodes[0].Name)
	n.Run(t, web, plain)
	for _, network := range []string{"udp", "tcp"} {
		if got := suite.Names(n.Ask(t, "web", network, "10.96.0.10:53")); got != "web/dns" {
			t.Errorf("over %s, a query is answered by %s", network, got)
		}
	}
	if out, err := c.Kubectl(t.Context(), "", "--namespace", n.Name, "exec", "plain", "--", "/apps", "ask", "udp", "10.96.0.10:53"); err == nil {
		t.Errorf("without DNS capture, a query is answered: %s", out)
	}
}

// serveOutside starts the servers outside of the cluster.
func serveOutside(t *testing.T) {
	t.Helper()
	host, err := c.Control.Host()
	lab.Check(t, err)
	t.Cleanup(func() { _ = host.NetNS.Close() })
	for _, port := range []uint16{freePort, anotherPort} {
		serve(t, host, fmt.Sprintf("%s:%d", outside, port))
	}
}

func serve(t *testing.T, host *lab.Host, address string) {
	t.Helper()
	server, err := host.Serve("tcp", address, "outside")
	lab.Check(t, err)
	t.Cleanup(func() { _ = server.Close() })
}
