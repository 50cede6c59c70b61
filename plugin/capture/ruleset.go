// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"net/netip"
)

// ProxySourceIPv4 and ProxySourceIPv6 are the loopback addresses from which
// the proxy hands inbound traffic on to the application. The first belongs to
// lo by itself; the second has to be put there.
var (
	ProxySourceIPv4 = netip.MustParsePrefix("127.0.0.6/32")
	ProxySourceIPv6 = netip.MustParsePrefix("::6/128")
)

// Ruleset is what netfilter should hold in one pod's namespace.
type Ruleset struct {
	IPv6 bool // whether IPv6 is captured, and lo needs ProxySourceIPv6

	// LocalMark, where not 0, is a mark whose packets have to be routed to
	// this host itself, wherever they are addressed to.
	LocalMark uint32

	Chains []Chain

	stampOfText bool // it bears the Stamp of textVersion, see StampedAs
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

// Chain is a list of rules. A chain with a Hook is entered by packets, any
// other one by a jump.
type Chain struct {
	Table Table
	Hook  Hook
	Name  string
	Rules []Rule
}

// Rule does something to the packets that match. Why is at most 127 bytes and
// becomes the comment in the kernel.
type Rule struct {
	Match Match
	Do    Action
	Why   string
}

// Match holds where all of its set fields hold; a list holds where one of its
// values does.
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
	Established      bool   // belongs to a connection and does not ask for a new one; needs TCP
	Invalid          bool   // conntrack can't place the packet
	Begins           bool   // asks for a new connection: a SYN; needs TCP
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

// List is a match's alternatives. The name is what a set of more than one
// value is called; lists of one name in a Ruleset are equal.
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

// Verdict is what becomes of a matching packet.
type Verdict string

const (
	Return   Verdict = "return"   // to the calling chain
	Jump     Verdict = "jump"     // to Chain, and back
	Goto     Verdict = "goto"     // to Chain, and not back
	Redirect Verdict = "redirect" // to Port of this host
	Drop     Verdict = "drop"

	// TProxy hands the packet with its addresses to who listens at Port, sets
	// Mark and leaves the table. Where nobody listens the next rule decides.
	TProxy Verdict = "tproxy"

	// These three let the next rule go on.
	SetMark     Verdict = "mark"     // the packet's, to Mark
	SetConnMark Verdict = "connmark" // the connection's, to Mark
	SetZone     Verdict = "zone"     // conntrack's, to Zone; the first one set stays
)

// Action is a verdict with its target.
type Action struct {
	Verdict Verdict
	Chain   string // of Jump and Goto, in the same table
	Port    uint16 // of Redirect and TProxy
	Mark    uint32 // of TProxy, SetMark and SetConnMark
	Zone    uint16 // of SetZone
}
