// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// shot is a packet that is sent.
type shot struct {
	remote  bool
	by      string // the interface that it leaves or arrives by
	request lab.Connection
	reply   lab.Reply
}

// send sends the packets of the pod, and then those of the peer.
func (w world) send(t *testing.T, shots []*shot) []*shot {
	t.Helper()
	for _, remote := range []bool{false, true} {
		host := map[bool]*lab.Host{false: w.pod, true: w.peer}[remote]
		for _, s := range shots {
			if s.remote == remote {
				var err error
				s.reply, err = w.servers.Ask(host, s.request)
				lab.Check(t, err)
			}
		}
	}
	return shots
}

func (s *shot) packet() trace.Packet {
	p := trace.Packet{
		Inbound: s.remote, Protocol: capture.Protocol(s.request.Network), From: s.reply.Source, To: s.request.To,
		Interface: s.by, Mark: uint32(s.request.Mark),
	}
	if !s.remote {
		p.Owner = &trace.Owner{UID: uint32(s.request.Owner.UID), GID: uint32(s.request.Owner.GID)}
	}
	return p
}

// met is the kernel's verdict.
func (s *shot) met() string {
	answer := s.reply.Answer
	switch {
	case s.reply.Refused() && !s.remote && s.by != "lo": // the peer refuses none
		return "reject 0"
	case s.reply.Refused() || answer.Server == direct:
		return "passes"
	case s.reply.Err != nil:
		return "drop 0"
	case s.request.Network == "udp":
		return "redirect 15053"
	case answer.Server == inbound && netip.AddrPortFrom(answer.Local.Addr().Unmap(), answer.Local.Port()) == s.request.To:
		return "tproxy 15006"
	}
	return fmt.Sprintf("redirect %d", answer.Local.Port())
}

func verdictOf(t trace.Path) string {
	switch t.Verdict {
	case capture.Return:
		return "passes"
	case capture.Translate:
		return fmt.Sprintf("redirect %d", t.Decisive.Do.To.Port())
	}
	return fmt.Sprintf("%s %d", t.Verdict, t.Port)
}

// place is an address, and the interface by which the pod sends to it.
type place struct {
	address dst
	by      string
}

var places = []place{
	{podIP, "lo"},
	{secondIP, "lo"},
	{localhost, "lo"},
	{otherLocal, "lo"},
	{dst{"127.255.0.1", "::1"}, "lo"},
	{external, "eth0"},
	{included, "eth0"},
	{excluded, "eth0"},
	{secondPeer, "net1"},
}

// behindPeer are addresses at and next to the ends of ranges that randomPod draws.
var behindPeer = []dst{
	{"9.9.9.8", "2001:db8:9::8"},
	{"9.9.9.10", "2001:db8:9::a"},
	{"10.1.2.2", "fcff:ffff::1"},
	{"10.255.255.255", "2001:db8:ffff::1"},
	{"11.0.0.0", "2001:db9::"},
	{"126.255.255.255", "fdff::1"},
	{"128.0.0.1", "2a00::1"},
}

// firstPort is the source port of a pod's first packet. Each packet has one of its own,
// so that it begins a connection.
const firstPort = 40_000

// randomShots draws packets around the values of the rules.
func randomShots(r *rand.Rand, rs capture.Ruleset) (shots []*shot) {
	ports := slices.Clone(parityPorts)
	for _, chain := range rs.Chains {
		for _, rule := range chain.Rules {
			for _, port := range rule.Match.DstPort.Values {
				ports = append(ports, int(port.First)-1, int(port.First), int(port.Last), int(port.Last)+1)
			}
		}
	}
	for n := range tracePackets {
		s := &shot{request: lab.Connection{Network: pick(r, "tcp", "tcp", "tcp", "udp")}}
		f := family(r.IntN(2))
		to, from, port := pick(r, places...), dst{"0.0.0.0", "::"}, pick(r, ports...)
		if r.IntN(3) == 0 {
			to = place{pick(r, behindPeer...), "eth0"}
		}
		if s.request.Network == "udp" {
			port = pick(r, 53, 53, otherPort)
		}
		switch {
		case r.IntN(3) == 0:
			s.remote, to = true, pick(r, place{podIP, "eth0"}, place{secondIP, "net1"})
			from = pick(r, from, external, included, excluded)
		default:
			s.request.Owner = lab.Owner{UID: pick(r, 1000, 1000, 1000, 0, 1337), GID: pick(r, 1000, 1000, 1000, 0, 5, 1337)}
			s.request.Mark = pick(r, 0, 0, 0, 7, 1337, 1338)
			if to.by == "lo" && r.IntN(3) == 0 {
				from = pick(r, podIP, secondIP, onlyWhere(rs.NeedsProxySource(), proxySource, podIP))
			}
		}
		if mark := s.request.Mark; to.by != "lo" && mark != 0 && uint32(mark) == rs.LocalMark {
			s.request.Mark = 0 // it would never leave the pod, which does not answer
		}
		s.by = to.by
		s.request.From = netip.AddrPortFrom(netip.MustParseAddr(from[f]), uint16(firstPort+n))
		s.request.To = netip.AddrPortFrom(netip.MustParseAddr(to.address[f]), uint16(port))
		shots = append(shots, s)
	}
	return shots
}

func onlyWhere(condition bool, then, otherwise dst) dst {
	if condition {
		return then
	}
	return otherwise
}
