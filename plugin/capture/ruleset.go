// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"net/netip"
	"slices"
)

// ProxySourceIPv4 and ProxySourceIPv6 are the addresses on lo from which the proxies of Istio and Kuma
// forward inbound traffic to the application, unless they keep the client's address. The kernel accepts all
// of 127.0.0.0/8 on lo, so ADD adds only the IPv6 address to lo.
var (
	ProxySourceIPv4 = netip.MustParsePrefix("127.0.0.6/32")
	ProxySourceIPv6 = netip.MustParsePrefix("::6/128")
)

// Ruleset contains the desired rules for one pod's network namespace. Its Stamp contains a hash of the
// JSON of its fields.
type Ruleset struct {
	IPv6 Treatment `json:",omitzero"`

	// LocalMark is the mark of packets that policy routing delivers inside the namespace, whatever
	// their destination is. 0 means that the rules need no policy routing.
	LocalMark uint32 `json:",omitzero"`

	Chains []Chain

	stamp string // see WithStamp
}

// NeedsProxySource reports whether lo needs ProxySourceIPv6, because a rule recognizes the proxy by
// this address.
func (rs Ruleset) NeedsProxySource() bool {
	return rs.IPv6 == Captured && slices.ContainsFunc(rs.Chains, func(c Chain) bool {
		return slices.ContainsFunc(c.Rules, func(r Rule) bool { return slices.Contains(r.Match.Src.Values, ProxySourceIPv6) })
	})
}

// HasFence reports whether the rules are those of a fenced pod.
func (rs Ruleset) HasFence() bool {
	return slices.ContainsFunc(rs.Chains, func(c Chain) bool { return c.Name == ChainFence })
}

// Table is the iptables table to which a chain belongs. In nftables, it is part of the chain's name.
type Table string

const (
	Raw    Table = "raw"
	Mangle Table = "mangle"
	NAT    Table = "nat"
	Filter Table = "filter"
)

// Hook is the iptables name of a netfilter hook, and of the built-in chain at this hook.
type Hook string

const (
	Prerouting  Hook = "PREROUTING"
	Input       Hook = "INPUT"
	Forward     Hook = "FORWARD"
	Output      Hook = "OUTPUT"
	Postrouting Hook = "POSTROUTING"
)

// Chain is a list of rules. The kernel calls a chain that has a Hook. Packets enter any other chain by
// a rule of another chain.
type Chain struct {
	Table Table
	Hook  Hook `json:",omitzero"`
	Name  string
	Rules []Rule
}

// Rule applies an action to the packets that match. Why has at most 127 bytes, and becomes the rule's
// comment in the kernel. PerPacket is set for a fence's rules that permit packets, or lead to such rules.
// For these rules, nftables omits the counter, and iptables the comment, to save time. iptables also omits
// the comments of rules that lead to ChainFence or ChainFenceReset. Neither Why nor PerPacket is a part of
// the Stamp.
type Rule struct {
	Match     Match
	Do        Action
	Why       string `json:"-"`
	PerPacket bool   `json:"-"`
}

// Match matches a packet if every field that is set matches. A list matches if one of its values does.
type Match struct {
	Family   Family             `json:",omitzero"`
	Protocol Protocol           `json:",omitzero"`
	In       List[string]       `json:",omitzero"` // the interface by which the packet arrives
	Out      List[string]       `json:",omitzero"` // the interface by which the packet leaves
	FromLo   bool               `json:",omitzero"` // arrives by the loopback interface, in nftables whatever its name is
	ToLo     bool               `json:",omitzero"` // leaves by the loopback interface; see FromLo
	Src, Dst List[netip.Prefix] `json:",omitzero"` // all of one family
	DstPort  List[PortRange]    `json:",omitzero"` // needs Protocol
	UID, GID List[uint32]       `json:",omitzero"` // of the socket's owner
	UIDRange IDRange            `json:",omitzero"` // of the socket's owner; the zero value is any

	ICMPTypes TypeRange `json:",omitzero"` // of ICMP or ICMPv6, which Protocol names
	HopLimit  uint8     `json:",omitzero"` // of IPv6; 0 is any

	Mark           uint32 `json:",omitzero"` // the packet's mark; 0 is any
	ExceptMark     uint32 `json:",omitzero"` // a mark that the packet does not have; 0 is any
	ConnMark       uint32 `json:",omitzero"` // the connection's mark; 0 is any
	ExceptConnMark uint32 `json:",omitzero"` // a mark that the connection does not have; 0 is any

	ForeignSource bool `json:",omitzero"` // the source is no address of the namespace
	OwnSource     bool `json:",omitzero"` // the source is an address of the namespace
	ForeignDst    bool `json:",omitzero"` // the destination is no address of the namespace
	Begins        bool `json:",omitzero"` // is a SYN, which requests a connection; needs TCP
	Accepts       bool `json:",omitzero"` // has SYN and ACK, which accept a connection; needs TCP
	Continues     bool `json:",omitzero"` // has ACK, and neither SYN nor RST; needs TCP

	// The following fields test the entry of the packet's connection in conntrack.
	Invalid     bool `json:",omitzero"` // conntrack assigns the packet to no connection
	Unconfirmed bool `json:",omitzero"` // the packet is the first one of its entry (IPS_CONFIRMED is not set), so nat decides about it
	Confirmed   bool `json:",omitzero"` // the packet is a later one of its entry
	Original    bool `json:",omitzero"` // the packet comes from the connection's client
	Answer      bool `json:",omitzero"` // the packet comes from the connection's server
	Translated  bool `json:",omitzero"` // nat changed the connection's destination
	Assured     bool `json:",omitzero"` // conntrack has seen the connection established (IPS_ASSURED is set)
}

// OnlyFamily returns the only IP family whose packets can match, or "" if both can.
func (m Match) OnlyFamily() Family {
	for _, list := range []List[netip.Prefix]{m.Src, m.Dst} {
		if len(list.Values) == 0 {
			continue
		}
		return FamilyOf(list.Values[0].Addr())
	}
	switch m.Protocol {
	case ICMP:
		return IPv4
	case ICMPv6:
		return IPv6
	}
	return m.Family
}

// List contains the alternative values of one field of a Match. If there are several values, Name is
// the name of their set. Lists with the same name in a Ruleset are equal.
type List[T any] struct {
	Name   string `json:",omitzero"`
	Values []T
}

// IsZero reports whether the list is empty, so that it matches anything.
func (l List[T]) IsZero() bool { return len(l.Values) == 0 }

// Treatment says how the rules, apart from a fence's, treat the TCP connections and DNS queries of an IP
// family.
type Treatment string

const (
	Ignored  Treatment = ""         // they pass
	Captured Treatment = "captured" // they reach the proxy, unless an exclusion exempts them

	// Refused means that outbound ones fail if they would otherwise be captured and, if the pod captures
	// inbound ports, that all inbound connections fail except on excluded interfaces. On loopback, they pass.
	Refused Treatment = "refused"
)

// Family is an IP family. The zero value means any family.
type Family string

const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

// FamilyOf returns the family of an address.
func FamilyOf(address netip.Addr) Family {
	if address.Is4() {
		return IPv4
	}
	return IPv6
}

// Protocol is a transport protocol. The zero value means any protocol.
type Protocol string

const (
	TCP    Protocol = "tcp"
	UDP    Protocol = "udp"
	ICMP   Protocol = "icmp"
	ICMPv6 Protocol = "ipv6-icmp"
)

// IDRange contains the uids from First to Last.
type IDRange struct{ First, Last uint32 }

// Contains reports whether a uid is in the range.
func (r IDRange) Contains(uid uint32) bool { return r.First <= uid && uid <= r.Last }

// TypeRange contains the ICMP types from First to Last. The zero value means any type.
type TypeRange struct{ First, Last uint8 }

// Verdict says how a rule treats matching packets.
type Verdict string

const (
	Return    Verdict = "return"    // to the calling chain
	Jump      Verdict = "jump"      // to Chain, from which the packet can return
	Goto      Verdict = "goto"      // to Chain, from which the packet does not return
	Redirect  Verdict = "redirect"  // to Port of this host
	Translate Verdict = "translate" // to To, an address of the packet's family
	Drop      Verdict = "drop"
	Reject    Verdict = "reject" // with a TCP reset; in table filter

	// TProxy delivers the packet, without changing its addresses, to the socket of its connection or,
	// if there is none, to the socket that listens at Port. It sets Mark and ConnMark, and no later
	// rule of the same table and hook sees the packet. If there is no such socket, or it is not
	// transparent, nftables continues with the next rule, and iptables drops the packet.
	TProxy Verdict = "tproxy"

	// A packet with one of the three verdicts below continues with the next rule.
	SetMark     Verdict = "mark"     // sets the packet's mark to Mark
	SetConnMark Verdict = "connmark" // sets the connection's mark to Mark
	SetZone     Verdict = "zone"     // Zone becomes the conntrack zone of packets from the connection's client; a later SetZone has no effect
)

// Action is a verdict with its parameters, such as a chain, a port or a mark.
type Action struct {
	Verdict Verdict
	Chain   string         `json:",omitzero"` // of Jump and Goto, in the same table
	Port    uint16         `json:",omitzero"` // of Redirect and TProxy
	Mark    uint32         `json:",omitzero"` // of TProxy, SetMark and SetConnMark
	Zone    uint16         `json:",omitzero"` // of SetZone
	To      netip.AddrPort `json:",omitzero"` // of Translate; port 0 keeps the packet's port

	ConnMark uint32 `json:",omitzero"` // of TProxy; the connection's mark
}
