// SPDX-License-Identifier: Apache-2.0

// Package traffic proves the rules by real packets: it captures a pod's
// namespace as its annotations request, connects from and to it as every kind
// of process, and checks which process answers.
package traffic

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// family indexes addresses.
type family int

const (
	ipv4 family = iota
	ipv6
)

func (f family) String() string { return [...]string{"IPv4", "IPv6"}[f] }

// dst is a destination in both families.
type dst [2]string

var (
	external    = dst{"10.77.0.1", "fd77::1"}      // the peer, on the pod's own link
	included    = dst{"9.9.9.9", "2001:db8:9::9"}  // behind the peer
	excluded    = dst{"10.1.2.3", "2001:db8:1::3"} // behind the peer
	podIP       = dst{"10.77.0.2", "fd77::2"}      // the pod's own
	secondIP    = dst{"10.78.0.2", "fd78::2"}      // the pod's, on net1
	secondPeer  = dst{"10.78.0.1", "fd78::1"}      // the peer, over net1
	localhost   = dst{"127.0.0.1", "::1"}
	otherLocal  = dst{"127.0.0.2", "::1"}     // IPv6 has no second one
	serviceVIP  = dst{"10.99.0.1", "fd99::1"} // translated by the peer to the pod
	probeTarget = dst{"127.0.0.6", "::6"}     // what Istio's validation connects to
	proxySource = dst{"127.0.0.6", "::6"}     // what the proxy hands inbound traffic on from
)

// Whose traffic it is.
var (
	app      = lab.Owner{UID: 1000, GID: 1000}
	proxy    = lab.Owner{UID: 1337, GID: 1337}
	proxyUID = lab.Owner{UID: 1337, GID: 1000}
	proxyGID = lab.Owner{UID: 1000, GID: 1337}
	rootUser = lab.Owner{}
)

// istioMesh are the ports of Istio's proxy.
var istioMesh = config.DefaultSettings().Mesh

// Who answers.
const (
	outbound = "proxy, outbound"
	inbound  = "proxy, inbound"
	resolver = "proxy, DNS"
	direct   = "direct"  // the application, or the peer
	refused  = "refused" // by a reset, or a message that the port is closed
	dropped  = "dropped" // no answer comes
)

// world is a pod and a peer with two links between them.
type world struct {
	pod, peer *lab.Host
	servers   *lab.Servers // what answers probes; nil: threads
}

// newWorld makes a world in which everything listens everywhere: what a
// connection meets is for the rules alone to decide.
func newWorld(t *testing.T, ports []int, mesh config.Mesh) world {
	t.Helper()
	w := newLinks(t)
	w.serveAll(t, ports, mesh)
	return w
}

// newProbeWorld makes such a world for probes only, which take a third of the time there.
func newProbeWorld(t *testing.T, ports []int, mesh config.Mesh) world {
	t.Helper()
	w := newLinks(t)
	w.answerProbes(t)
	w.serveAll(t, ports, mesh)
	return w
}

// answerProbes lets servers that are added from now on answer on the thread that asks.
func (w *world) answerProbes(t *testing.T) {
	t.Helper()
	var err error
	w.servers, err = lab.NewServers()
	lab.Check(t, err)
	t.Cleanup(w.servers.Close)
}

func (w world) serveAll(t *testing.T, ports []int, mesh config.Mesh) {
	t.Helper()
	w.sidecar(t, lab.Owner{UID: int(mesh.ProxyUID), GID: int(mesh.ProxyGID)}, mesh)
	for _, port := range ports {
		for _, host := range []*lab.Host{w.pod, w.peer} {
			w.serve(t, host, "tcp", port, direct)
			w.serve(t, host, "udp", port, direct)
		}
	}
}

// newLinks makes the two hosts and all their addresses.
func newLinks(t *testing.T) world {
	t.Helper()
	lab.RequireRoot(t)
	w := world{pod: lab.StartHost(t), peer: lab.StartHost(t)}
	lab.Check(t, w.pod.AddAddresses("lo"))
	lab.Check(t, w.peer.AddAddresses("lo", included[ipv4]+"/32", included[ipv6]+"/128", excluded[ipv4]+"/32", excluded[ipv6]+"/128"))
	lab.Check(t, lab.Link(
		lab.Interface{Host: w.pod, Name: "eth0", Addresses: []string{podIP[ipv4] + "/24", podIP[ipv6] + "/64"}},
		lab.Interface{Host: w.peer, Name: "eth0", Addresses: []string{external[ipv4] + "/24", external[ipv6] + "/64"}}))
	lab.Check(t, lab.Link(
		lab.Interface{Host: w.pod, Name: "net1", Addresses: []string{secondIP[ipv4] + "/24", secondIP[ipv6] + "/64"}},
		lab.Interface{Host: w.peer, Name: "net1", Addresses: []string{secondPeer[ipv4] + "/24", secondPeer[ipv6] + "/64"}}))
	lab.Check(t, w.pod.AddDefaultRoute(external[ipv4]))
	lab.Check(t, w.pod.AddDefaultRoute(external[ipv6]))
	translateService(t, w.peer)
	lab.Check(t, errors.Join(w.pod.WaitForIPv6(), w.peer.WaitForIPv6()))
	return w
}

// sidecar answers at all ports of the proxy. For DNS it listens on localhost
// alone, as Istio's does: the answer comes from where the query went.
func (w world) sidecar(t *testing.T, owner lab.Owner, mesh config.Mesh) {
	t.Helper()
	for _, at := range []struct {
		network, host string
		port          uint16
		name          string
	}{
		{"tcp", "", mesh.OutboundPort, outbound},
		{"tcp", "", mesh.InboundPort, inbound},
		{"tcp", "127.0.0.1", mesh.DNSPort, resolver},
		{"tcp", "[::1]", mesh.DNSPort, resolver},
		{"udp", "127.0.0.1", mesh.DNSPort, resolver},
		{"udp", "[::1]", mesh.DNSPort, resolver},
	} {
		w.serveAs(t, w.pod, owner, at.network, fmt.Sprintf("%s:%d", at.host, at.port), at.name)
	}
}

func (w world) serveAs(t *testing.T, host *lab.Host, owner lab.Owner, network, address, name string) {
	t.Helper()
	if w.servers != nil {
		lab.Check(t, w.servers.Add(host, owner, network, address, name))
		return
	}
	server, err := host.ServeProxy(owner, network, address, name)
	lab.Check(t, err)
	t.Cleanup(func() { _ = server.Close() })
}

func (w world) serve(t *testing.T, host *lab.Host, network string, port int, name string) {
	t.Helper()
	w.serveAs(t, host, rootUser, network, fmt.Sprintf(":%d", port), name)
}

// injected is a pod as the injector leaves it.
func injected(annotations, env map[string]string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = "shop", "web"
	pod.Annotations = map[string]string{"sidecar.istio.io/status": "{}"}
	for key, value := range annotations {
		pod.Annotations[key] = value
	}
	sidecar := corev1.Container{Name: "istio-proxy", Args: []string{"proxy", "sidecar"}}
	for name, value := range env {
		sidecar.Env = append(sidecar.Env, corev1.EnvVar{Name: name, Value: value})
	}
	pod.Spec.Containers = []corev1.Container{{Name: "web"}, sidecar}
	return pod
}

// decide is for a pod with an address of each family.
func decide(t *testing.T, pod *corev1.Pod, settings config.Settings) capture.Ruleset {
	t.Helper()
	decision, err := lab.Decide(pod, settings, podAddresses()...)
	lab.Check(t, err)
	return capture.Rules(decision.Intent)
}

func podAddresses() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr(podIP[ipv4]), netip.MustParseAddr(podIP[ipv6])}
}

// backends must all decide alike.
var backends = []config.Backend{config.NFTables, config.IPTablesNFT, config.IPTablesLegacy}

// forEachBackend runs a test with every one of them.
func forEachBackend(t *testing.T, test func(t *testing.T, backend config.Backend)) {
	t.Helper()
	lab.RequireRoot(t)
	for _, backend := range backends {
		t.Run(string(backend), func(t *testing.T) {
			t.Parallel()
			test(t, backend)
		})
	}
}

// capture applies rules for one case of a table: the world is as before when the case ends.
func (w world) capture(t *testing.T, backend config.Backend, rs capture.Ruleset) namespace {
	t.Helper()
	netns := open(t, w.pod, backend)
	lab.Check(t, netns.Apply(rs))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		lab.Check(t, netns.Namespace.Remove(ctx))
		lab.Check(t, w.pod.Do(func() error { return kernel.FlushEntries(ctx) }))
	})
	return netns
}

// expectSame expects a check to find the rules as they were applied.
func (n namespace) expectSame(rs capture.Ruleset) {
	n.t.Helper()
	if differences, err := n.Check(rs); err != nil || len(differences) > 0 {
		n.t.Errorf("a check finds %q (%v)", differences, err)
	}
}

// namespace is a pod's, locked for the rest of a test, with a backend.
type namespace struct {
	*podnet.Namespace
	t       *testing.T
	pod     *lab.Host
	backend config.Backend
}

func open(t *testing.T, pod *lab.Host, backend config.Backend) namespace {
	t.Helper()
	netns, err := podnet.Open(t.Context(), pod.Path())
	lab.Check(t, err)
	t.Cleanup(func() { _ = netns.Close() })
	return namespace{netns, t, pod, backend}
}

// Apply returns when packets reach the address that the proxy connects from, too.
func (n namespace) Apply(rs capture.Ruleset) error {
	if err := n.Namespace.Apply(n.t.Context(), rs, n.backend); err != nil {
		return err
	}
	return n.pod.WaitForIPv6()
}

func (n namespace) Check(rs capture.Ruleset) ([]string, error) {
	return n.differences(n.t.Context(), rs)
}

func (n namespace) differences(ctx context.Context, rs capture.Ruleset) ([]string, error) {
	found, err := n.Observe(ctx, true)
	if err != nil {
		return nil, err
	}
	return found.Differences(ctx, rs, n.backend)
}

func (n namespace) Remove() error { return n.Namespace.Remove(n.t.Context()) }
