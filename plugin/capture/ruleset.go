// SPDX-License-Identifier: Apache-2.0

package capture

import "net/netip"

// ProxySourceIPv4 and ProxySourceIPv6 are the loopback addresses from which
// the proxy sends inbound traffic to the application. The kernel assigns the first to
// lo by default; podnet adds the second.
var (
	ProxySourceIPv4 = netip.MustParsePrefix("127.0.0.6/32")
	ProxySourceIPv6 = netip.MustParsePrefix("::6/128")
)

// Ruleset is the desired state of netfilter in one pod's network namespace.
type Ruleset struct {
	IPv6 bool // whether IPv6 is captured, and lo needs ProxySourceIPv6

	// LocalMark, if not 0, is the mark of packets to be routed to this host,
	// whatever their destination.
	LocalMark uint32

	Chains []Chain

	stampOfText bool // Stamp returns that of textVersion, see StampedAs
}

// Table is the netfilter table a chain belongs to, in iptables' sense.
type Table string

const (
	Raw    Table = "raw"
	Mangle Table = "mangle"
	NAT    Table = "nat"
)

// Hook is a built-in chain.
type Hook string

const (
	Prerouting Hook = "PREROUTING"
	Output     Hook = "OUTPUT"
)

// Chain is a list of rules. Packets enter a chain with a Hook from the kernel, any
// other chain by a jump.
type Chain struct {
	Table Table
	Hook  Hook
	Name  string
	Rules []Rule
}

// Rule applies an action to packets that match. Why, at most 127 bytes, is the rule's
// comment in the kernel.
type Rule struct {
	Match Match
	Do    Action
	Why   string
}

// Match matches packets that match all fields that are set. A list matches if one of
// its values does.
type Match struct {
	Family   Family
	Protocol Protocol
	In, Out  List[string]       // interfaces
	Src, Dst List[netip.Prefix] // all of one family
	SrcPort  List[uint16]       // one at most; needs Protocol
	DstPort  List[uint16]       // needs Protocol
	UID, GID List[uint32]       // of the socket's owner

	Mark, ExceptMark uint32 // the packet's mark is, or is not, this; 0 is any
	ConnMark         uint32 // the connection's mark; 0 is any
	Established      bool   // conntrack's state is ESTABLISHED, and the packet is no SYN; needs TCP
	Invalid          bool   // conntrack's state is INVALID
	Begins           bool   // a SYN; needs TCP
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
	return m.Family
}

// List holds the alternatives of a match. Two or more values are a set with this name.
// Lists with the same name in a Ruleset are equal.
type List[T any] struct {
	Name   string
	Values []T
}

// Family is an address family; the zero value is any.
type Family string

const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

// Protocol is a transport protocol; the zero value is any.
type Protocol string

const (
	TCP Protocol = "tcp"
	UDP Protocol = "udp"
)

// Verdict is the kind of an Action.
type Verdict string

const (
	Return   Verdict = "return"   // to the calling chain
	Jump     Verdict = "jump"     // to Chain, and back
	Goto     Verdict = "goto"     // to Chain, and not back
	Redirect Verdict = "redirect" // to Port of this host
	Drop     Verdict = "drop"

	// TProxy delivers the packet, with its addresses, to the socket that listens at
	// Port, sets Mark and leaves the table. Without a socket the next rule follows.
	TProxy Verdict = "tproxy"

	// After these three the next rule follows.
	SetMark     Verdict = "mark"     // the packet's, to Mark
	SetConnMark Verdict = "connmark" // the connection's, to Mark
	SetZone     Verdict = "zone"     // conntrack's, to Zone; later ones have no effect
)

// Action is a verdict with its target.
type Action struct {
	Verdict Verdict
	Chain   string // of Jump and Goto, in the same table
	Port    uint16 // of Redirect and TProxy
	Mark    uint32 // of TProxy, SetMark and SetConnMark
	Zone    uint16 // of SetZone
}
