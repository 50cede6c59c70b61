// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"net/netip"
	"slices"
)

// ProxySourceIPv4 and ProxySourceIPv6 are the loopback addresses from which
// the proxy forwards inbound traffic to the application. The kernel assigns the
// first to lo; the second has to be added.
var (
	ProxySourceIPv4 = netip.MustParsePrefix("127.0.0.6/32")
	ProxySourceIPv6 = netip.MustParsePrefix("::6/128")
)

// Ruleset is what netfilter should hold in one pod's namespace. The JSON of its
// fields is what a Stamp hashes.
type Ruleset struct {
	IPv6 Treatment `json:",omitzero"`

	// LocalMark, unless 0, is a mark whose packets are routed to this host
	// itself, whatever their destination.
	LocalMark uint32 `json:",omitzero"`

	Chains []Chain

	stamp string // see WithStamp
}

// NeedsProxySource reports whether lo needs ProxySourceIPv6: a rule knows the proxy by it.
func (rs Ruleset) NeedsProxySource() bool {
	return rs.IPv6 == Captured && slices.ContainsFunc(rs.Chains, func(c Chain) bool {
		return slices.ContainsFunc(c.Rules, func(r Rule) bool { return slices.Contains(r.Match.Src.Values, ProxySourceIPv6) })
	})
}

// HasFence reports whether the rules are those of a fenced pod.
func (rs Ruleset) HasFence() bool {
	return slices.ContainsFunc(rs.Chains, func(c Chain) bool { return c.Name == ChainFence })
}

// Table is the netfilter table a chain belongs to, in iptables' sense.
type Table string

const (
	Raw    Table = "raw"
	Mangle Table = "mangle"
	NAT    Table = "nat"
	Filter Table = "filter"
)

// Hook is a built-in chain.
type Hook string

const (
	Prerouting  Hook = "PREROUTING"
	Input       Hook = "INPUT"
	Forward     Hook = "FORWARD"
	Output      Hook = "OUTPUT"
	Postrouting Hook = "POSTROUTING"
)

// Chain is a list of rules. A packet enters a chain with a Hook by itself, and
// any other one by a jump.
type Chain struct {
	Table Table
	Hook  Hook `json:",omitzero"`
	Name  string
	Rules []Rule
}

// Rule applies an action to the packets that match. Why is at most 127 bytes, and
// the rule's comment in the kernel.
type Rule struct {
	Match Match
	Do    Action
	Why   string
}

// Match holds if all of its set fields hold; a list holds if one of its values
// does.
type Match struct {
	Family   Family             `json:",omitzero"`
	Protocol Protocol           `json:",omitzero"`
	In       List[string]       `json:",omitzero"` // interface
	Out      List[string]       `json:",omitzero"` // interface
	FromLo   bool               `json:",omitzero"` // arrives by the loopback interface, whatever its name
	ToLo     bool               `json:",omitzero"` // leaves by it
	Src, Dst List[netip.Prefix] `json:",omitzero"` // all of one family
	DstPort  List[PortRange]    `json:",omitzero"` // needs Protocol
	UID, GID List[uint32]       `json:",omitzero"` // of the socket's owner

	ICMPTypes TypeRange `json:",omitzero"` // of ICMP or ICMPv6, which Protocol names
	HopLimit  uint8     `json:",omitzero"` // IPv6's; 0 is any

	Mark           uint32 `json:",omitzero"` // the packet's mark; 0 is any
	ExceptMark     uint32 `json:",omitzero"` // a mark that the packet does not have; 0 is any
	ConnMark       uint32 `json:",omitzero"` // the connection's mark; 0 is any
	ExceptConnMark uint32 `json:",omitzero"` // a mark that the connection does not have; 0 is any

	ForeignSource bool `json:",omitzero"` // the source is no address of the namespace
	OwnSource     bool `json:",omitzero"` // the source is one
	ForeignDst    bool `json:",omitzero"` // the destination is no address of the namespace
	Begins        bool `json:",omitzero"` // is a SYN, which requests a new connection; needs TCP
	Accepts       bool `json:",omitzero"` // has SYN and ACK, which accept a connection; needs TCP
	Continues     bool `json:",omitzero"` // has ACK, and neither SYN nor RST; needs TCP

	// What conntrack has of the packet's connection.
	Invalid     bool `json:",omitzero"` // it assigns the packet to none
	Unconfirmed bool `json:",omitzero"` // it is the first packet of its entry (IPS_CONFIRMED is not set): nat is still to decide
	Original    bool `json:",omitzero"` // the packet comes from its client
	Answer      bool `json:",omitzero"` // the packet comes from its server
	Translated  bool `json:",omitzero"` // nat changed its destination
	Assured     bool `json:",omitzero"` // both ends have sent
}

// OnlyFamily returns the one family whose packets can match, or any.
func (m Match) OnlyFamily() Family {
	for _, list := range []List[netip.Prefix]{m.Src, m.Dst} {
		if len(list.Values) == 0 {
			continue
		}
		if list.Values[0].Addr().Is4() {
			return IPv4
		}
		return IPv6
	}
	switch m.Protocol {
	case ICMP:
		return IPv4
	case ICMPv6:
		return IPv6
	}
	return m.Family
}

// List holds a match's alternatives. Name is that of the set if there are several
// values; lists of one name in a Ruleset are equal.
type List[T any] struct {
	Name   string `json:",omitzero"`
	Values []T
}

// IsZero reports whether the list matches anything, as if it was not set.
func (l List[T]) IsZero() bool { return len(l.Values) == 0 }

// Treatment is what the rules do with a family's TCP connections.
type Treatment string

const (
	Ignored  Treatment = ""         // they pass
	Captured Treatment = "captured" // they reach the proxy
	Refused  Treatment = "refused"  // those that would be captured fail
)

// Family is an address family; the zero value is any.
type Family string

const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

// Protocol is a transport protocol; the zero value is any.
type Protocol string

const (
	TCP    Protocol = "tcp"
	UDP    Protocol = "udp"
	ICMP   Protocol = "icmp"
	ICMPv6 Protocol = "ipv6-icmp"
)

// TypeRange is the types of ICMP from First to Last; the zero value is any.
type TypeRange struct{ First, Last uint8 }

// Verdict is what happens to a matching packet.
type Verdict string

const (
	Return   Verdict = "return"   // to the calling chain
	Jump     Verdict = "jump"     // to Chain, and back
	Goto     Verdict = "goto"     // to Chain, and not back
	Redirect Verdict = "redirect" // to Port of this host
	Drop     Verdict = "drop"
	Reject   Verdict = "reject" // with a TCP reset; in table filter

	// TProxy delivers the packet, with its addresses, to the socket of its connection or
	// the one that listens at Port, sets Mark and ConnMark, and leaves the table. If that
	// socket is missing or not transparent, the next rule decides.
	TProxy Verdict = "tproxy"

	// After these three, the next rule decides.
	SetMark     Verdict = "mark"     // the packet's, to Mark
	SetConnMark Verdict = "connmark" // the connection's, to Mark
	SetZone     Verdict = "zone"     // conntrack's for what the entry's client sends, to Zone; later ones have no effect
)

// Action is a verdict with its target.
type Action struct {
	Verdict Verdict
	Chain   string `json:",omitzero"` // of Jump and Goto, in the same table
	Port    uint16 `json:",omitzero"` // of Redirect and TProxy
	Mark    uint32 `json:",omitzero"` // of TProxy, SetMark and SetConnMark
	Zone    uint16 `json:",omitzero"` // of SetZone

	ConnMark uint32 `json:",omitzero"` // the connection's, of TProxy
}
