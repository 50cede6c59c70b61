// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Packet is the first packet of a new connection, for which conntrack has no entry. With ICMP or
// ICMPv6, the packet is an echo request, which has no ports.
type Packet struct {
	Inbound   bool             `json:"inbound,omitempty"` // another host sent the packet; if false, a process of the pod did
	Protocol  capture.Protocol `json:"protocol"`
	From      netip.AddrPort   `json:"from,omitzero"` // a zero address or port means one that no rule names
	To        netip.AddrPort   `json:"to"`
	Interface string           `json:"interface"`       // by which the packet arrives or, if it is not inbound, leaves
	Owner     *Owner           `json:"owner,omitempty"` // of the sending socket; nil means a user and a group that no rule names
	Mark      uint32           `json:"mark,omitempty"`
}

// Owner is the user and group of a socket.
type Owner struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

func (p Packet) family() capture.Family {
	if p.To.Addr().Is4() {
		return capture.IPv4
	}
	return capture.IPv6
}

// passage is a packet at one hook.
type passage struct {
	Packet
	hook       capture.Hook
	connMark   uint32
	translated bool // nat has captured it
}

// meets reports whether a match holds for the packet. conditions describes each condition of the match
// in words. Of a list, it names only the packet's value, or the range that contains the packet's address.
func (p passage) meets(m capture.Match) (conditions []string, holds bool) {
	holds = true
	test := func(isSet, isMet bool, format string, args ...any) {
		if isSet {
			conditions, holds = append(conditions, fmt.Sprintf(format, args...)), holds && isMet
		}
	}
	tcp := p.Protocol == capture.TCP
	test(m.Family != "", m.Family == p.family(), "%s", familyWords[m.Family])
	test(m.Protocol != "", m.Protocol == p.Protocol, "%s", protocolWords(m.Protocol))
	arrives := p.hook == capture.Prerouting || p.hook == capture.Input
	test(!m.In.IsZero(), arrives && slices.Contains(m.In.Values, p.Interface), "arriving by %s", p.Interface)
	test(!m.Out.IsZero(), p.hook == capture.Output && slices.Contains(m.Out.Values, p.Interface), "leaving by %s", p.Interface)
	test(m.FromLo, arrives && p.Interface == loopbackName, "arriving by loopback")
	test(m.ToLo, p.hook == capture.Output && p.Interface == loopbackName, "leaving by loopback")
	source, fromRange := rangeOf(m.Src, p.From.Addr())
	test(!m.Src.IsZero(), fromRange, "from %s", capture.Spell(source))
	destination, toRange := rangeOf(m.Dst, p.To.Addr())
	test(!m.Dst.IsZero(), toRange, "to %s", capture.Spell(destination))
	test(!m.DstPort.IsZero(), slices.ContainsFunc(m.DstPort.Values, func(r capture.PortRange) bool { return r.Contains(p.To.Port()) }),
		"to port %d", p.To.Port())
	test(m.ICMPTypes.Last != 0, m.ICMPTypes.First <= echoRequest[p.Protocol] && echoRequest[p.Protocol] <= m.ICMPTypes.Last,
		"of ICMP types %d to %d", m.ICMPTypes.First, m.ICMPTypes.Last)
	test(m.HopLimit != 0, false, "with hop limit %d", m.HopLimit)
	owner, sent := p.sender()
	test(!m.UID.IsZero(), sent && slices.Contains(m.UID.Values, owner.UID), "sent by uid %d", owner.UID)
	test(m.UIDRange != capture.IDRange{}, sent && m.UIDRange.Contains(owner.UID), "sent by uid %d", owner.UID)
	test(!m.GID.IsZero(), sent && slices.Contains(m.GID.Values, owner.GID), "sent by gid %d", owner.GID)
	test(m.Mark != 0, m.Mark == p.Mark, "with mark %d", m.Mark)
	test(m.ExceptMark != 0, m.ExceptMark != p.Mark, "without mark %d", m.ExceptMark)
	test(m.ConnMark != 0, m.ConnMark == p.connMark, "with connection mark %d", m.ConnMark)
	test(m.ExceptConnMark != 0, m.ExceptConnMark != p.connMark, "without connection mark %d", m.ExceptConnMark)
	test(m.Original, true, "of the client")
	test(m.Answer, false, "of the server")
	test(m.ForeignSource, false, "from an address that is not the pod's")
	test(m.OwnSource, false, "from an address of the pod")
	test(m.ForeignDst, false, "to an address that is not the pod's")
	test(m.Begins, tcp, "beginning a connection")
	test(m.Accepts, false, "accepting a connection")
	test(m.Continues, false, "continuing a connection")
	test(m.Invalid, false, "of no connection that conntrack knows")
	test(m.Unconfirmed, true, "new to conntrack")
	test(m.Confirmed, false, "known to conntrack")
	test(m.Translated, p.translated, "of a connection that nat captured")
	test(m.Assured, false, "of an established connection")
	return conditions, holds
}

// echoRequest maps each ICMP protocol to its type of an echo request (RFC 792, RFC 4443).
var echoRequest = map[capture.Protocol]uint8{capture.ICMP: 8, capture.ICMPv6: 128}

var familyWords = map[capture.Family]string{capture.IPv4: "IPv4", capture.IPv6: "IPv6"}

func protocolWords(p capture.Protocol) string {
	if p == capture.ICMPv6 {
		return "ICMPv6" // iptables and nft call it ipv6-icmp
	}
	return strings.ToUpper(string(p))
}

// sender returns the owner of the packet's socket. A packet that has arrived, even over lo, has no
// owner.
func (p passage) sender() (owner Owner, known bool) {
	if p.hook != capture.Output || p.Owner == nil {
		return Owner{}, false
	}
	return *p.Owner, true
}

func rangeOf(list capture.List[netip.Prefix], address netip.Addr) (netip.Prefix, bool) {
	i := slices.IndexFunc(list.Values, func(p netip.Prefix) bool { return p.Contains(address) })
	if i < 0 {
		return netip.Prefix{}, false
	}
	return list.Values[i], true
}
