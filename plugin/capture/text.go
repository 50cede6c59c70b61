// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"net/netip"
	"strings"
)

// TableName is the name of the table in which the backend nftables keeps all of our rules.
const TableName = "capture-cni"

// StampChain is the name of a chain that no packet reaches. The comment of its only rule is the Stamp.
const StampChain = "stamp"

// NFTName returns the chain's name in nftables, where one table contains the chains of all iptables
// tables.
func (c Chain) NFTName() string { return NFTChain(c.Table, c.Name) }

// NFTChain returns the nftables name of a chain with this iptables table and name.
func NFTChain(table Table, name string) string { return string(table) + "_" + name }

// Priority returns the chain's priority among all chains of its hook in nftables. For nat, it is lower
// than that of iptables, so that the plugin's rules precede those with which a Docker daemon in the pod
// publishes ports. Of two chains with the same priority, the kernel would call the newer one first.
func (c Chain) Priority() int32 {
	return map[Table]int32{Raw: -300, Mangle: -150, NAT: -101, Filter: 0}[c.Table]
}

// Type returns the nftables type of a base chain. After a chain of type route, the kernel routes a
// packet again if a rule has changed its mark.
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
	var out strings.Builder
	fmt.Fprintf(&out, "table inet %s {\n\tchain %s {\n\t\treturn comment %q\n\t}\n", TableName, StampChain, rs.Stamp())
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
	out.WriteString("}\n")
	return out.String()
}

func (r Rule) text(table Table) string {
	words := r.Match.words()
	if !r.PerPacket {
		words = append(words, "counter")
	}
	return strings.Join(append(words, r.Do.text(table), fmt.Sprintf("comment %q", r.Why)), " ")
}

func (do Action) text(table Table) string {
	switch do.Verdict {
	case Jump, Goto:
		return fmt.Sprintf("%s %s", do.Verdict, NFTChain(table, do.Chain))
	case Redirect:
		return fmt.Sprintf("redirect to :%d", do.Port)
	case Translate:
		return fmt.Sprintf("dnat %s to %s", map[Family]string{IPv4: "ip", IPv6: "ip6"}[FamilyOf(do.To.Addr())], do.Target())
	case TProxy:
		return fmt.Sprintf("tproxy to :%d meta mark set %d ct mark set %d accept", do.Port, do.Mark, do.ConnMark)
	case SetMark:
		return fmt.Sprintf("meta mark set %d", do.Mark)
	case SetConnMark:
		return fmt.Sprintf("ct mark set %d", do.Mark)
	case SetZone:
		return fmt.Sprintf("ct original zone set %d", do.Zone)
	case Reject:
		return "reject with tcp reset"
	}
	return string(do.Verdict)
}

// Target returns the destination of Translate. It is the address, with the port if the port changes,
// too.
func (do Action) Target() string {
	if do.To.Port() == 0 {
		return do.To.Addr().String()
	}
	return do.To.String()
}

// words returns the conditions of a match as text, in the order in which the kernel tests them.
func (m Match) words() []string {
	var words []string
	add := func(isSet bool, format string, args ...any) {
		if isSet {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	add(m.Family != "", "meta nfproto %s", m.Family)
	add(!m.In.IsZero(), "iifname %s", operand(m.In))
	add(!m.Out.IsZero(), "oifname %s", operand(m.Out))
	add(m.FromLo, "iif lo")
	add(m.ToLo, "oif lo")
	add(!m.Src.IsZero(), "%s", addressWords("saddr", m.Src))
	add(!m.Dst.IsZero(), "%s", addressWords("daddr", m.Dst))
	if add(m.HopLimit != 0, "ip6 hoplimit %d", m.HopLimit); m.ICMPTypes.Last != 0 {
		header := map[Protocol]string{ICMP: "icmp", ICMPv6: "icmpv6"}[m.Protocol]
		add(true, "%s type %s", header, PortRange{uint16(m.ICMPTypes.First), uint16(m.ICMPTypes.Last)})
	} else if m.DstPort.IsZero() {
		add(m.Protocol != "", "meta l4proto %s", m.Protocol)
	} else {
		add(true, "%s dport %s", m.Protocol, operand(m.DstPort))
	}
	add(!m.UID.IsZero(), "meta skuid %s", operand(m.UID))
	add(m.UIDRange != IDRange{}, "meta skuid %d-%d", m.UIDRange.First, m.UIDRange.Last)
	add(!m.GID.IsZero(), "meta skgid %s", operand(m.GID))
	add(m.Mark != 0, "meta mark %d", m.Mark)
	add(m.ExceptMark != 0, "meta mark != %d", m.ExceptMark)
	add(m.ConnMark != 0, "ct mark %d", m.ConnMark)
	add(m.ExceptConnMark != 0, "ct mark != %d", m.ExceptConnMark)
	add(m.Original, "ct direction original")
	add(m.Answer, "ct direction reply")
	add(m.Unconfirmed, "ct status & confirmed == 0")
	add(m.ForeignSource, "fib saddr type != local")
	add(m.OwnSource, "fib saddr type local")
	add(m.ForeignDst, "fib daddr type != local")
	add(m.Begins, "tcp flags & (fin | syn | rst | ack) == syn")
	add(m.Accepts, "tcp flags & (syn | ack) == (syn | ack)")
	add(m.Continues, "tcp flags & (syn | rst | ack) == ack")
	add(m.Invalid, "ct state invalid")
	add(m.Confirmed, "ct status confirmed")
	add(m.Translated, "ct status dnat")
	add(m.Assured, "ct status assured")
	return words
}

// addressWords returns a match of an address field with ranges. For a range of all addresses of a
// family, it returns a match of the family, as encoder.addresses of package nftables does.
func addressWords(field string, list List[netip.Prefix]) string {
	protocol, family := "ip", IPv4
	if addressType(list) == IPv6Set {
		protocol, family = "ip6", IPv6
	}
	if !list.IsZero() && list.Values[0].Bits() == 0 {
		return "meta nfproto " + string(family)
	}
	return fmt.Sprintf("%s %s %s", protocol, field, operand(list))
}

// operand returns a single value, or the name of the set that contains the values.
func operand[T any](list List[T]) string {
	if len(list.Values) == 1 {
		return Spell(list.Values[0])
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
		elements[i] = Spell(element)
	}
	fmt.Fprintf(&out, "\t\telements = { %s }\n\t}\n", strings.Join(elements, ", "))
	return out.String()
}
