// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// The fence is judged in table filter, after nat. What nat captured is known by the
// connection, because a redirected packet still has its first interface; TPROXY's, by the
// connection's mark. State opens TCP, whose every first packet is judged, answers to what was
// let in, and ICMP errors. A datagram that a process of the pod sends is judged by its user:
// it can meet the entry of a closed socket of the proxy.
const (
	// ChainFence counts the packets that the fence refuses, and ChainFenceReset the outbound
	// TCP packets among them, in table Filter.
	ChainFence      = "ISTIO_FENCE"
	ChainFenceReset = "ISTIO_FENCE_RESET"

	chainFenceOut  = "ISTIO_FENCE_OUT"
	chainFenceIn   = "ISTIO_FENCE_IN"
	chainFenceICMP = "ISTIO_FENCE_ICMP"
	prefixFence    = "ISTIO_FENCE_"

	listFence = "fence_allow_" // and the number of the exception
)

var (
	fenced = gotoChain(ChainFence)
	resets = gotoChain(ChainFenceReset)
)

// jumpToFence has all packets of the pod pass the fence, as the last rule of the open chain.
func (b *builder) jumpToFence(chain string) {
	if b.Fence != nil {
		b.add(Match{}, Action{Verdict: Jump, Chain: chain}, "the pod has a fence")
	}
}

// fenceChains are the chains of the fence, for both families, whatever is captured.
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
	// The answer to a packet in another host's name would leave the pod by the same entry.
	forged := Match{ToLo: true, ForeignSource: true, Original: true} // the kernel's resets are answers
	if b.transparent() {                                             // the proxy connects in its clients' names
		forged.ExceptMark = ProxyMark
	}
	b.add(forged, fenced, "sent in another host's name")
	// A packet that dies on lo leaves an entry, by which an answer from outside would come in.
	b.add(Match{ToLo: true, ForeignDst: true, Original: true}, fenced, "to another host by loopback")
	b.exempt(Match{ToLo: true}, "loopback")
	b.exempt(Match{UID: one(b.ProxyUID)}, "sent by the proxy's user")
	b.exempt(Match{GID: given(b.ProxyGID)}, "sent by the proxy's group")
	b.exempt(Match{Original: true, Translated: true}, "captured")
	if b.transparent() {
		b.exempt(Match{ConnMark: ProxyMark}, "the application's answers to the proxy")
	}
	b.add(Match{Dst: one(loopbackIPv4)}, fenced, "localhost, and not by loopback")
	b.add(Match{Dst: one(localhostIPv6)}, fenced, "localhost, and not by loopback")
	for _, o := range b.openings() {
		switch {
		case !o.Inbound:
			o.DstPort, o.Dst = o.ports, o.ranges
		case o.Protocol == UDP:
			o.Answer, o.Dst = true, o.ranges
		default: // TCP's answers are those of a judged connection
			continue
		}
		b.exempt(o.Match, "an exception of the fence")
	}
	b.fenceTCP(b.outbound, "OUTPUT", resets)
	b.add(Match{Family: IPv4, Protocol: ICMP}, gotoChain(chainFenceICMP), "ICMP")
	b.add(Match{Family: IPv6, Protocol: ICMPv6}, gotoChain(chainFenceICMP), "ICMPv6")
	b.add(Match{}, fenced, "neither captured nor the proxy's")
	b.fenceFlow(b.outbound, "OUTPUT", resets)
}

func (b *builder) fenceIn() {
	b.chain(Filter, chainFenceIn)
	b.exempt(Match{FromLo: true}, "judged as it was sent")
	// It would belong to a connection on lo. By IPv4, the kernel drops such packets.
	b.add(Match{Family: IPv6, OwnSource: true}, fenced, "sent in the pod's name")
	b.exempt(Match{Original: true, Translated: true}, "captured")
	if b.transparent() {
		b.exempt(Match{ConnMark: markDelivered}, "delivered to the proxy")
	}
	for _, o := range b.openings() {
		if o.Inbound {
			o.DstPort, o.Src = o.ports, o.ranges
			b.exempt(o.Match, "an exception of the fence")
		}
	}
	inbound := b.inbound
	if b.transparent() { // its exclusions are in mangle, and nat has none of them
		redirected := b.Intent
		redirected.Transparent = false
		inbound = b.mesh.inbound(&redirected)
	}
	b.fenceTCP(inbound, "INPUT", fenced)
	b.add(Match{Protocol: ICMP, ICMPTypes: TypeRange{5, 5}}, fenced, "a redirect") // RFC 792; conntrack relates it to a connection
	b.exempt(Match{Answer: true}, "an answer to what was let out")
	b.add(Match{Family: IPv4, Protocol: ICMP}, gotoChain(chainFenceICMP), "ICMP")
	b.add(Match{Family: IPv6, Protocol: ICMPv6}, gotoChain(chainFenceICMP), "ICMPv6")
	b.add(Match{}, fenced, "not captured")
	b.fenceFlow(inbound, "INPUT", fenced)
}

// fenceTCP judges the first packet of each connection by the policy of nat, and a SYN
// whatever conntrack has of its connection.
func (b *builder) fenceTCP(f flow, name string, refused Action) {
	policy := refused // a flow without rules exempts nothing
	if len(f) > 0 {
		policy = gotoChain(prefixFence + name)
	}
	b.add(Match{Protocol: TCP, Begins: true}, policy, "begins a connection")
	b.add(Match{Protocol: TCP, Invalid: true}, refused, "of no connection")
	b.add(Match{Protocol: TCP, Unconfirmed: true}, policy, "the first packet of a connection")
	b.add(Match{Protocol: TCP}, Action{Verdict: Return}, "of a connection that was let through")
}

// fenceFlow copies a flow for TCP: its exemptions pass, and all else is refused. It leaves out
// rules about packets that have passed the fence already, on lo or as the proxy's.
func (b *builder) fenceFlow(f flow, name string, refused Action) {
	fenceName := func(chain string) string { return prefixFence + strings.TrimPrefix(chain, ChainPrefix) }
	reached := map[string]bool{"": true}
	for _, chain := range f {
		if !reached[chain.Name] {
			continue
		}
		b.chain(Filter, fenceName(cmp.Or(chain.Name, name)))
		for _, r := range chain.Rules {
			m := r.Match
			switch {
			case m.Protocol == UDP, m.ToLo, isOnly(m.UID, b.ProxyUID), isOnly(m.GID, b.ProxyGID) && b.ProxyGID != 0:
				continue
			case r.Do.Verdict == Redirect || r.Do == toInbound || r.Do == toOutbound:
				r.Do = refused
			case r.Do.Chain != "":
				reached[r.Do.Chain] = true
				r.Do.Chain = fenceName(r.Do.Chain)
			}
			r.Match.Protocol = TCP
			b.add(r.Match, r.Do, r.Why)
		}
		b.add(Match{}, refused, "not captured")
	}
}

func isOnly(list List[uint32], id uint32) bool { return slices.Equal(list.Values, []uint32{id}) }

// fenceICMP lets through what a network needs: errors about connections that conntrack knows,
// and, from this link only, neighbour discovery and multicast listeners' reports.
func (b *builder) fenceICMP() {
	b.chain(Filter, chainFenceICMP)
	b.add(Match{Invalid: true}, fenced, "of no connection")
	// RFC 792 and RFC 4443: unreachable, too big, time exceeded, parameter problem.
	b.exempt(Match{Protocol: ICMP, ICMPTypes: TypeRange{3, 3}}, "an error")
	b.exempt(Match{Protocol: ICMP, ICMPTypes: TypeRange{11, 12}}, "an error")
	b.exempt(Match{Protocol: ICMPv6, ICMPTypes: TypeRange{1, 4}}, "an error")
	// RFC 4861, without redirects; RFC 2710 and RFC 3810.
	b.exempt(Match{Family: IPv6, HopLimit: 255, Protocol: ICMPv6, ICMPTypes: TypeRange{133, 136}}, "neighbour discovery")
	b.exempt(Match{Family: IPv6, HopLimit: 1, Protocol: ICMPv6, ICMPTypes: TypeRange{130, 132}}, "multicast listeners")
	b.exempt(Match{Family: IPv6, HopLimit: 1, Protocol: ICMPv6, ICMPTypes: TypeRange{143, 143}}, "multicast listeners")
	b.add(Match{}, fenced, "no error")
}

// opening is an exception as a match on its protocol, with the lists that it is about.
type opening struct {
	Match
	Inbound bool
	ports   List[PortRange]
	ranges  List[netip.Prefix]
}

// openings leaves out an exception without a range, which would match every address: the
// node's addresses can be all of a narrow one.
func (b *builder) openings() (list []opening) {
	for i, o := range b.Fence.Openings {
		if len(o.Ranges) == 0 {
			continue
		}
		list = append(list, opening{
			Match{Protocol: Protocol(o.Protocol)}, o.Inbound, one(PortRange{o.First, o.Last}), named(fmt.Sprint(listFence, i), o.Ranges),
		})
	}
	return list
}
