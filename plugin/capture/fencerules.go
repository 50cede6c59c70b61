// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"slices"
	"strings"
)

// The fence judges packets in table filter, after nat. It recognizes captured packets by the conntrack
// entry or, with TPROXY, by the connection's mark. It can't recognize them by the interface, because a
// redirected packet still has the interface of its original destination. By conntrack's state, it
// permits later TCP packets of permitted connections, answers, and ICMP errors. It judges every datagram
// that a process of the pod sends, not only the first one of a conntrack entry, because the entry can be
// that of a closed socket of the proxy.
const (
	// ChainFence and ChainFenceReset refuse and count packets, in table Filter. ChainFence drops
	// packets, and ChainFenceReset resets TCP connections of the pod's processes.
	ChainFence      = "ISTIO_FENCE"
	ChainFenceReset = "ISTIO_FENCE_RESET"

	chainFenceOut  = "ISTIO_FENCE_OUT"
	chainFenceIn   = "ISTIO_FENCE_IN"
	chainFenceLo   = "ISTIO_FENCE_LO"
	chainFenceICMP = "ISTIO_FENCE_ICMP"
	prefixFence    = ChainFence + "_"

	listFence = "fence_allow_" // and the number of the exception
)

var (
	fenced = gotoChain(ChainFence)
	resets = gotoChain(ChainFenceReset)
)

// jumpToFence adds, if the pod has a fence, a rule that leads all packets from the last chain to a chain of
// the fence. This rule must be the last one of its chain.
func (b *builder) jumpToFence(chain string) {
	if b.Fence != nil {
		b.add(Match{}, Action{Verdict: Jump, Chain: chain}, "the pod has a fence")
	}
}

// passesFence reports whether a rule of a chain lets packets through the fence, or leads them to rules
// that can. Such a rule can match every packet of a connection.
func passesFence(chain string, do Action) bool {
	if do.Verdict == Return {
		return strings.HasPrefix(chain, prefixFence)
	}
	return strings.HasPrefix(do.Chain, prefixFence) && do.Chain != ChainFenceReset
}

// fenceChains adds the chains of the fence. They judge both families, even if only IPv4 is captured.
func (b *builder) fenceChains() {
	if b.Fence == nil {
		return
	}
	b.baseChain(Filter, Input)
	b.jumpToFence(chainFenceIn)
	b.baseChain(Filter, Forward)
	b.jumpToFence(ChainFence)
	b.fenceOut()
	b.fenceIn()
	b.fenceICMP()
	b.chain(Filter, ChainFenceReset)
	b.add(Match{Protocol: TCP}, Action{Verdict: Reject}, "the fence refuses it")
	b.chain(Filter, ChainFence)
	b.add(Match{}, Action{Verdict: Drop}, "the fence refuses it")
}

func (b *builder) fenceOut() {
	b.chain(Filter, chainFenceOut)
	b.add(Match{ToLo: true}, gotoChain(chainFenceLo), "loopback")
	b.exempt(Match{UID: one(b.ProxyUID)}, "sent by the proxy's user")
	b.exempt(Match{GID: given(b.Fence.ProxyGID)}, "sent by the proxy's group")
	// The proxy's answer, or the kernel's with the packet's content, would leave the pod to that host. For
	// IPv4, the kernel itself sends no such packet.
	b.add(Match{Family: IPv6, ForeignSource: true, Unconfirmed: true}, fenced, "sent in another host's name")
	b.exempt(Match{Original: true, Translated: true}, "captured")
	if b.usesTPROXY() {
		b.exempt(Match{ConnMark: ProxyMark}, "the application's answers to the proxy")
	}
	b.add(Match{Dst: one(loopbackIPv4)}, fenced, "localhost, and not by loopback")
	b.add(Match{Dst: one(localhostIPv6)}, fenced, "localhost, and not by loopback")
	b.permit(b.openings(UDP, false))
	// Without OwnSource, a datagram that is sent in another host's name could count as an answer to the proxy.
	for _, m := range b.openings(UDP, true) {
		b.exempt(Match{Protocol: UDP, Answer: true, OwnSource: true, Dst: m.Src}, "an exception of the fence")
	}
	b.fenceTCP("OUTPUT", resets)
	b.add(Match{Family: IPv4, Protocol: ICMP}, gotoChain(chainFenceICMP), "ICMP")
	b.add(Match{Family: IPv6, Protocol: ICMPv6}, gotoChain(chainFenceICMP), "ICMPv6")
	b.add(Match{}, fenced, "neither captured nor the proxy's")
	b.chain(Filter, prefixFence+"OUTPUT")
	b.fenceFlow(b.outbound, b.openings(TCP, false), resets, resets)
	b.chain(Filter, chainFenceLo)
	// Without this rule, an answer to a packet that is sent in another host's name would leave the pod
	// to that host, because both packets have the same conntrack entry.
	forged := Match{ForeignSource: true, Original: true} // the kernel's resets are answers
	if b.usesTPROXY() {                                  // the proxy connects in its clients' names
		forged.ExceptMark = ProxyMark
	}
	b.add(forged, fenced, "sent in another host's name")
	// A packet on lo to another host's address would leave a conntrack entry, through which that host
	// could send an answer into the pod.
	b.add(Match{ForeignDst: true, Original: true}, fenced, "to another host by loopback")
}

func (b *builder) fenceIn() {
	b.chain(Filter, chainFenceIn)
	b.exempt(Match{FromLo: true}, "judged as it was sent")
	// A packet from outside with an address of the pod as its source would match a connection on lo.
	// For IPv4, the kernel itself drops such packets.
	b.add(Match{Family: IPv6, OwnSource: true}, fenced, "sent in the pod's name")
	b.fenceTCP("INPUT", fenced)
	b.permit(b.openings(UDP, true))
	b.add(Match{Protocol: ICMP, ICMPTypes: TypeRange{5, 5}}, fenced, "a redirect") // RFC 792; conntrack relates it to a connection
	b.exempt(Match{Answer: true}, "an answer to what was let out")
	b.add(Match{Family: IPv4, Protocol: ICMP}, gotoChain(chainFenceICMP), "ICMP")
	b.add(Match{Family: IPv6, Protocol: ICMPv6}, gotoChain(chainFenceICMP), "ICMPv6")
	b.add(Match{}, fenced, "not captured")

	b.chain(Filter, prefixFence+"INPUT")
	b.exempt(Match{Original: true, Translated: true}, "captured")
	if b.usesTPROXY() {
		b.exempt(Match{ConnMark: markDelivered}, "delivered to the proxy")
	}
	b.refuseInbound(fenced)
	b.exemptProxysPort()
	b.fenceFlow(b.natInbound(), b.openings(TCP, true), gotoChain(ChainRefuseInbound), fenced)
	b.chain(Filter, ChainRefuseInbound)
	b.add(Match{}, Action{Verdict: Drop}, "it would bypass the proxy")
}

// fenceTCP judges the first packet of each connection by nat's policy, in a chain that the caller adds.
// It also judges each SYN, even if conntrack already has an entry for the SYN's connection.
func (b *builder) fenceTCP(name string, refused Action) {
	policy := gotoChain(prefixFence + name)
	b.add(Match{Protocol: TCP, Begins: true}, policy, "begins a connection")
	b.exempt(Match{Protocol: TCP, Confirmed: true}, "of a connection that was let through")
	b.add(Match{Protocol: TCP, Invalid: true}, refused, "of no connection")
	b.add(Match{Protocol: TCP}, policy, "the first packet of a connection")
}

// fenceFlow adds a copy of a flow for TCP, which begins in the last chain. It permits packets that the
// flow exempts, and packets of openings that nat would not capture. The action bypasses applies to packets
// that nat would capture, but did not, for example SYNs that match an older conntrack entry. The action
// refused applies to all other packets.
func (b *builder) fenceFlow(f flow, openings []Match, bypasses, refused Action) {
	fenceName := func(chain string) string { return prefixFence + strings.TrimPrefix(chain, ChainPrefix) }
	if len(f) == 0 {
		f = flow{{}} // it exempts nothing
	}
	reached := map[string]bool{"": true}
	for _, chain := range f {
		if !reached[chain.Name] {
			continue
		}
		if chain.Name != "" {
			b.chain(Filter, fenceName(chain.Name))
		}
		all := false // the chain's rules decide about every packet
		for _, r := range chain.Rules {
			m, captures := r.Match, r.Do.translates() || r.Do == toInbound || r.Do == toOutbound
			if captures && b.IPv6 == Ignored { // nat captures no IPv6
				m.Family = IPv4
			}
			switch {
			case m.Protocol == UDP, m.Family == IPv4 && r.Match.OnlyFamily() == IPv6, b.hasJudged(m):
				continue
			case r.Do.Verdict == Return && m.In.Name == ListReroute:
				// nat leaves other packets of a rerouted interface uncaptured, but this is no exclusion, so they
				// need an exception.
				for _, o := range openings {
					o.In = m.In
					b.exempt(o, "an exception of the fence")
				}
				continue
			case captures:
				r.Do, all = bypasses, m.Family == "" && m.empty()
			case r.Do.Chain != "":
				reached[r.Do.Chain] = true
				r.Do.Chain = fenceName(r.Do.Chain)
			}
			m.Protocol = TCP
			b.add(m, r.Do, r.Why)
		}
		if !all {
			b.permit(openings)
			b.add(Match{}, refused, "not captured")
		}
	}
}

// hasJudged reports whether the fence's earlier rules decide about all packets that match: those on lo,
// those of the proxy, and those that are sent to localhost. It also omits the mesh's rules for the proxy's
// gid: without Fence.ProxyGID, a process that has only the gid is judged like any other.
func (b *builder) hasJudged(m Match) bool {
	return m.ToLo || isOnly(m.UID, b.ProxyUID) || isOnly(m.GID, b.ProxyGID) && b.ProxyGID != 0 ||
		isOnly(m.Dst, localhostIPv4) || isOnly(m.Dst, loopbackIPv4) || isOnly(m.Dst, localhostIPv6)
}

func (b *builder) permit(openings []Match) {
	for _, m := range openings {
		b.exempt(m, "an exception of the fence")
	}
}

func isOnly[T comparable](list List[T], value T) bool { return slices.Equal(list.Values, []T{value}) }

// fenceICMP permits the ICMP that a network needs: errors about known connections and, with the hop
// limits that keep them on one link, neighbour discovery and multicast listener discovery.
func (b *builder) fenceICMP() {
	b.chain(Filter, chainFenceICMP)
	b.add(Match{Invalid: true}, fenced, "of no connection")
	// RFC 792 and RFC 4443 define these errors: unreachable, too big, time exceeded, parameter problem.
	b.exempt(Match{Protocol: ICMP, ICMPTypes: TypeRange{3, 3}}, "an error")
	b.exempt(Match{Protocol: ICMP, ICMPTypes: TypeRange{11, 12}}, "an error")
	b.exempt(Match{Protocol: ICMPv6, ICMPTypes: TypeRange{1, 4}}, "an error")
	// These types are from RFC 4861, without redirects, and from RFC 2710 and RFC 3810.
	b.exempt(Match{Family: IPv6, HopLimit: 255, Protocol: ICMPv6, ICMPTypes: TypeRange{133, 136}}, "neighbour discovery")
	b.exempt(Match{Family: IPv6, HopLimit: 1, Protocol: ICMPv6, ICMPTypes: TypeRange{130, 132}}, "multicast listeners")
	b.exempt(Match{Family: IPv6, HopLimit: 1, Protocol: ICMPv6, ICMPTypes: TypeRange{143, 143}}, "multicast listeners")
	b.add(Match{}, fenced, "no error")
}

// openings returns matches on the packets of the exceptions with this protocol and direction. It omits an
// exception whose addresses all belong to the node, because a rule without a range would match every
// address.
func (b *builder) openings(protocol Protocol, inbound bool) (matches []Match) {
	for i, o := range b.Fence.Openings {
		if o.Protocol != string(protocol) || o.Inbound != inbound || len(o.Ranges) == 0 {
			continue
		}
		m := Match{Protocol: protocol, DstPort: one(PortRange{o.First, o.Last})}
		if hosts := named(fmt.Sprint(listFence, i), o.Ranges); inbound {
			m.Src = hosts
		} else {
			m.Dst = hosts
		}
		matches = append(matches, m)
	}
	return matches
}
