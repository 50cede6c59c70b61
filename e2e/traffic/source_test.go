// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestSourceAddress runs a sidecar that hands connections on in the client's
// name: the client's address reaches the proxy, and the application.
func TestSourceAddress(t *testing.T) {
	t.Parallel()
	asked := map[string]map[string]string{
		"defaults":           nil,
		"an inbound list":    {"includeInboundPorts": "8080"},
		"a loopback range":   {"includeOutboundIPRanges": "127.0.0.0/8,10.0.0.0/8,fd00::/8"},
		"excluded interface": {"excludeInterfaces": "net1,lo"},
	}
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for name, annotations := range asked {
			for _, owner := range []lab.Owner{sidecarRoot, proxy} {
				t.Run(fmt.Sprintf("%s, %+v", name, owner), func(t *testing.T) {
					w := newLinks(t)
					w.serve(t, w.pod, "tcp", 8080, direct)
					sidecar, err := w.pod.ProxyTransparently(owner, ":15006")
					lab.Check(t, err)
					t.Cleanup(func() { _ = sidecar.Close() })
					env := map[string]string{"INVALID_DROP": "true"}
					lab.Check(t, open(t, w.pod, backend).Apply(decide(t, injected(spelled(tproxy(annotations)), env), dualStack())))
					for _, f := range bothFamilies {
						w.expectClient(t, f, external)
						w.expectClient(t, f, included)
					}
					if name == "defaults" {
						expectHandedOn(t, w, sidecar)
					}
				})
			}
		}
	})
}

// expectClient connects from one of the peer's addresses to the pod.
func (w world) expectClient(t *testing.T, f family, client dst) {
	t.Helper()
	to := netip.AddrPortFrom(netip.MustParseAddr(podIP[f]), 8080)
	answer, err := w.peer.Ask(app, "tcp", client[f], to.String())
	if err != nil || answer.Server != direct || answer.Client.Addr().Unmap().String() != client[f] {
		t.Errorf("%s: %q answers and sees client %s, want %s (%v)", f, answer.Server, answer.Client, client[f], err)
	}
}

// expectHandedOn makes sure that it was the proxy through which the
// application was reached: without it, it is not.
func expectHandedOn(t *testing.T, w world, sidecar net.Listener) {
	t.Helper()
	lab.Check(t, lab.StopListening(sidecar))
	w.probe(t, in(podIP, 8080, dropped), ipv4)
}

// TestNoProxyNoConnection keeps connections from the application while no
// proxy listens, even one whose SYN conntrack takes for a part of a connection
// that the proxy had.
func TestNoProxyNoConnection(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		w := newLinks(t)
		w.serve(t, w.pod, "tcp", 8080, direct)
		lab.Check(t, open(t, w.pod, backend).Apply(decide(t, injected(tproxy(nil), nil), dualStack())))
		w.probeAll(t,
			in(podIP, 8080, dropped), out(sidecarRoot, podIP, 8080, dropped), out(app, podIP, 8080, direct),
			out(app, localhost, 8080, direct))
		const client = "10.77.0.1:20080"
		w.forgetConnection(t, client)
		got := try(t, w.peer, lab.Connection{From: netip.MustParseAddrPort(client), To: netip.MustParseAddrPort(podIP[ipv4] + ":8080")})
		if !isTimeout(got.Err) {
			t.Errorf("a SYN that conntrack knows reaches %q, %v", got.Answer.Server, got.Err)
		}
	})
}

// forgetConnection has the proxy accept a connection, and both ends then
// vanish without a word to each other, or to conntrack.
func (w world) forgetConnection(t *testing.T, client string) {
	t.Helper()
	listener, err := w.pod.ListenTransparently(sidecarRoot, ":15006")
	lab.Check(t, err)
	conn, err := w.peer.Dial(app, client, podIP[ipv4]+":8080")
	lab.Check(t, err)
	accepted, err := listener.Accept()
	lab.Check(t, err)
	lab.Check(t, errors.Join(vanish(conn), vanish(accepted.(*net.TCPConn))))
	lab.Check(t, lab.StopListening(listener))
}
