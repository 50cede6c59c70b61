// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/report"
)

// Servers of a lively pod and its peer.
const (
	application, outside         = "application", "outside"
	inboundProxy, outboundProxy  = "proxy, inbound", "proxy, outbound"
	podAddress6, peerAddress6    = "2001:db8::2", "2001:db8::1"
	outsidePort, firstClientPort = 80, 20000
)

// dualStack gives the pod and its peer IPv6, which the mesh captures, too.
func (n *node) dualStack(t *testing.T, p *pod, mode string) {
	t.Helper()
	lab.Check(t, errors.Join(p.host.AddAddresses("eth0", podAddress6+"/64"), p.peer.AddAddresses("eth0", peerAddress6+"/64")))
	lab.Check(t, errors.Join(p.host.WaitForIPv6(), p.peer.WaitForIPv6()))
	p.sandbox.Annotations["sidecar.istio.io/interceptionMode"] = mode
	n.pods[p.sandbox.ID] = meshed(p.sandbox)
	n.pods[p.sandbox.ID].Spec.Containers[1].Env = []corev1.EnvVar{{Name: "ISTIO_DUAL_STACK", Value: "true"}}
}

// serveAll has the application, the proxy and the outside answer.
func (p *pod) serveAll(t *testing.T) {
	t.Helper()
	sidecar := lab.Owner{UID: 1337, GID: 1337}
	serve := func(host *lab.Host, owner lab.Owner, port int, name string) {
		server, err := host.ServeProxy(owner, "tcp", fmt.Sprintf(":%d", port), name)
		lab.Check(t, err)
		t.Cleanup(func() { _ = server.Close() })
	}
	serve(p.host, sidecar, inboundPort, inboundProxy)
	serve(p.host, sidecar, 15001, outboundProxy)
	app, err := p.host.Serve("tcp", fmt.Sprintf(":%d", appPort), application)
	lab.Check(t, err)
	t.Cleanup(func() { _ = app.Close() })
	serve(p.peer, lab.Owner{}, outsidePort, outside)
}

// direction is who connects to whom, and who has to answer on a captured pod.
type direction struct {
	name     string
	from, to func(p *pod) *lab.Host
	want     string
}

var directions = []direction{
	{"inbound", func(p *pod) *lab.Host { return p.peer }, func(p *pod) *lab.Host { return p.host }, inboundProxy},
	{"outbound", func(p *pod) *lab.Host { return p.host }, func(p *pod) *lab.Host { return p.peer }, outboundProxy},
}

// tuple is a connection in that direction, with a client's port.
func (d direction) tuple(ipv6 bool, port uint16) (client, server netip.AddrPort) {
	pod, peer := podAddress, peerAddress
	if ipv6 {
		pod, peer = podAddress6, peerAddress6
	}
	client, server = netip.AddrPortFrom(netip.MustParseAddr(peer), port), netip.AddrPortFrom(netip.MustParseAddr(pod), appPort)
	if d.want == outboundProxy {
		client, server = netip.AddrPortFrom(netip.MustParseAddr(pod), port), netip.AddrPortFrom(netip.MustParseAddr(peer), outsidePort)
	}
	return client, server
}

// crafted are segments that begin no connection.
func crafted(client, server netip.AddrPort) map[string]lab.Segment {
	segments := map[string]lab.Segment{}
	for _, signed := range []bool{true, false} {
		for name, s := range map[string]lab.Segment{
			"data": {Flags: lab.ACK | lab.PSH, Data: "GET"}, "ACK": {Flags: lab.ACK}, "FIN": {Flags: lab.FIN | lab.ACK},
			"RST": {Flags: lab.RST}, "RST and ACK": {Flags: lab.RST | lab.ACK}, "SYN and ACK": {Flags: lab.SYN | lab.ACK},
		} {
			s.Signed = signed
			there, back := s, s
			there.From, there.To = client, server
			back.From, back.To = server, client
			segments[fmt.Sprintf("%s of the client, signed %v", name, signed)] = there
			segments[fmt.Sprintf("%s of the server, signed %v", name, signed)] = back
		}
	}
	return segments
}

// attempt is a connection, and the segment of it that comes before it begins.
type attempt struct {
	direction
	name           string
	segment        lab.Segment
	client, server netip.AddrPort
}

// attempts are all segments in both directions and families, each with
// addresses and ports of its own.
func attempts() (all []attempt) {
	port := uint16(firstClientPort)
	for _, d := range directions {
		for _, ipv6 := range []bool{false, true} {
			for name := range crafted(netip.AddrPort{}, netip.AddrPort{}) {
				port++
				client, server := d.tuple(ipv6, port)
				all = append(all, attempt{d, name, crafted(client, server)[name], client, server})
			}
		}
	}
	return all
}

// inject sends the segment. The pod's own SYN-ACK of no connection does not leave it under
// TPROXY: that is the rules' work.
func (a attempt) inject(t *testing.T, p *pod, dropped bool) {
	t.Helper()
	sender := a.from(p)
	if a.segment.From == a.server {
		sender = a.to(p)
	}
	err := sender.Inject(a.segment)
	if dropped && sender == p.host && a.segment.Flags == lab.SYN|lab.ACK && errors.Is(err, unix.EPERM) {
		return
	}
	lab.Check(t, err)
}

// isCaptured connects.
func (a attempt) isCaptured(t *testing.T, p *pod, mode string) {
	t.Helper()
	answer, err := a.from(p).Ask(lab.Owner{UID: 1000, GID: 1000}, "tcp", a.client.String(), a.server.String())
	if err != nil && mode == "TPROXY" && a.segment.From == a.server && a.segment.Signed {
		return // the entry of the segment has the addresses of the answers: no connection comes of it
	}
	if err != nil || answer.Server != a.want {
		t.Errorf("%s, after %s (%s): %q answers, want %q (%v)", a.direction.name, a.name, a.client, answer.Server, a.want, err)
	}
}

// TestCraftedSegments sends a repaired pod, and from it, segments of connections
// that never began. The connection that then begins with the same addresses and
// ports is captured: conntrack has no entry that could exempt it. Nor has it one
// where the segments came before the repair, and something else needed conntrack.
func TestCraftedSegments(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"REDIRECT", "TPROXY"} {
		for _, when := range []string{"before the repair", "after it"} {
			t.Run(mode+", "+when, func(t *testing.T) {
				n := newNode()
				p := n.run(t, "web")
				n.dualStack(t, p, mode)
				p.serveAll(t)
				all := attempts()
				if when == "before the repair" {
					p.nft(t, "table inet firewall { chain unused { ct state new; }; }")
					for _, a := range all {
						a.inject(t, p, false)
					}
				}
				g := n.newGuard(t, options{})
				g.finds(t, report.Captured)
				for _, a := range all {
					if when == "after it" {
						a.inject(t, p, mode == "TPROXY")
					}
					a.isCaptured(t, p, mode)
				}
			})
		}
	}
}
