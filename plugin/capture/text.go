// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
)

// TableName is the nftables table with all of our chains.
const TableName = "capture-cni"

// StampChain is an unreachable chain whose only rule carries the Stamp.
const StampChain = "stamp"

// NFTName returns the chain's name in nftables, where one table has the chains of all
// iptables tables.
func (c Chain) NFTName() string { return NFTChain(c.Table, c.Name) }

// NFTChain returns the nftables name of a chain.
func NFTChain(table Table, name string) string { return string(table) + "_" + name }

// Priority returns the chain's priority at its hook.
func (c Chain) Priority() int32 {
	return map[Table]int32{Raw: -300, Mangle: -150, NAT: -100}[c.Table]
}

// Type returns the nftables type of a base chain. In a chain of type route, a packet
// whose mark a rule changes is routed again.
func (c Chain) Type() string {
	switch {
	case c.Table == NAT:
		return "nat"
	case c.Table == Mangle && c.Hook == Output:
		return "route"
	}
	return "filter"
}

// String returns the Ruleset as text for `nft -f`.
func (rs Ruleset) String() string {
	body := rs.body()
	return fmt.Sprintf("table inet %s {\n\tchain %s {\n\t\treturn comment %q\n\t}\n%s}\n", TableName, StampChain, rs.Stamp(), body)
}

// body returns the table's content without the stamp. A Stamp of textVersion is its hash.
func (rs Ruleset) body() []byte {
	var out bytes.Buffer
	for _, set := range rs.Sets() {
		out.WriteString(set.text())
	}
	for _, chain := range rs.Chains {
		fmt.Fprintf(&out, "\n\tchain %s {\n", chain.NFTName())
		if chain.Hook != "" {
			fmt.Fprintf(&out, "\t\ttype %s hook %s priority %d; policy accept;\n",
				chain.Type(), strings.ToLower(string(chain.Hook)), chain.Priority())
		}
		for _, rule := range chain.Rules {
			fmt.Fprintf(&out, "\t\t%s\n", rule.text(chain.Table))
		}
		out.WriteString("\t}\n")
	}
	return out.Bytes()
}

func (r Rule) text(table Table) string {
	words := append(r.Match.words(), "counter", r.Do.text(table), fmt.Sprintf("comment %q", r.Why))
	return strings.Join(words, " ")
}

func (do Action) text(table Table) string {
	switch do.Verdict {
	case Jump, Goto:
		return fmt.Sprintf("%s %s", do.Verdict, NFTChain(table, do.Chain))
	case Redirect:
		return fmt.Sprintf("redirect to :%d", do.Port)
	case TProxy:
		return fmt.Sprintf("tproxy to :%d meta mark set %d accept", do.Port, do.Mark)
	case SetMark:
		return fmt.Sprintf("meta mark set %d", do.Mark)
	case SetConnMark:
		return fmt.Sprintf("ct mark set %d", do.Mark)
	case SetZone:
		return fmt.Sprintf("ct zone set %d", do.Zone)
	}
	return string(do.Verdict)
}

// words returns a match in nft's syntax, in the order in which netfilter tests it.
func (m Match) words() []string {
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	if m.Family != "" {
		add("meta nfproto %s", m.Family)
	}
	if len(m.In.Values) > 0 {
		add("iifname %s", operand(m.In))
	}
	if len(m.Out.Values) > 0 {
		add("oifname %s", operand(m.Out))
	}
	for _, address := range []struct {
		field string
		List[netip.Prefix]
	}{{"saddr", m.Src}, {"daddr", m.Dst}} {
		if len(address.Values) > 0 {
			add("%s", addressWords(address.field, address.List))
		}
	}
	switch {
	case len(m.SrcPort.Values) > 0:
		add("%s sport %s", m.Protocol, operand(m.SrcPort))
	case len(m.DstPort.Values) > 0:
		add("%s dport %s", m.Protocol, operand(m.DstPort))
	case m.Protocol != "":
		add("meta l4proto %s", m.Protocol)
	}
	if len(m.UID.Values) > 0 {
		add("meta skuid %s", operand(m.UID))
	}
	if len(m.GID.Values) > 0 {
		add("meta skgid %s", operand(m.GID))
	}
	return append(words, m.stateWords()...)
}

// stateWords returns the matches on marks and connection state.
func (m Match) stateWords() []string {
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	if m.Mark != 0 {
		add("meta mark %d", m.Mark)
	}
	if m.ExceptMark != 0 {
		add("meta mark != %d", m.ExceptMark)
	}
	if m.ConnMark != 0 {
		add("ct mark %d", m.ConnMark)
	}
	if m.Established {
		add("ct state established tcp flags & (fin | syn | rst | ack) != syn")
	}
	if m.Begins {
		add("tcp flags & (fin | syn | rst | ack) == syn")
	}
	if m.Invalid {
		add("ct state invalid")
	}
	return words
}

// addressWords returns the match of a list of ranges. A range of a whole family becomes a
// match of the family, because nft drops the match "ip daddr 0.0.0.0/0".
func addressWords(field string, list List[netip.Prefix]) string {
	first := list.Values[0]
	protocol, family := "ip", IPv4
	if !first.Addr().Is4() {
		protocol, family = "ip6", IPv6
	}
	if first.Bits() == 0 {
		return "meta nfproto " + string(family)
	}
	return fmt.Sprintf("%s %s %s", protocol, field, operand(list))
}

// operand returns a single value, or the name of the set.
func operand[T any](list List[T]) string {
	if len(list.Values) == 1 {
		return spell(list.Values[0])
	}
	return "@" + list.Name
}

func (s Set) text() string {
	var out strings.Builder
	fmt.Fprintf(&out, "\n\tset %s {\n\t\ttype %s\n", s.Name, s.Type)
	if s.Type.Interval() {
		out.WriteString("\t\tflags interval\n")
	}
	elements := make([]string, len(s.Elements))
	for i, element := range s.Elements {
		elements[i] = spell(element)
	}
	fmt.Fprintf(&out, "\t\telements = { %s }\n\t}\n", strings.Join(elements, ", "))
	return out.String()
}
