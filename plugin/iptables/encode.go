// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// MarkerChain is an unreachable chain in each iptables table that contains our rules. It shows that the
// table's ISTIO_ chains are ours. The comment of its first rule is the Stamp, and the comment of its
// second rule, if there is one, says what iptables-nft created.
const MarkerChain = "CAPTURE_CNI"

// RestoreText returns one family's part of the Ruleset as input for iptables-restore --noflush, which
// adds the rules to the existing ones. notes says what iptables-nft creates in each table, and can be
// nil. iptables commits each table by itself, and the table nat last, because its Stamp proves that the
// rules are complete.
func RestoreText(rs capture.Ruleset, family capture.Family, notes map[capture.Table]created) string {
	var out bytes.Buffer
	stamp := rs.Stamp()
	rs = rs.For(family)
	for _, table := range tablesOf(rs) {
		fmt.Fprintf(&out, "*%s\n:%s - [0:0]\n", table, MarkerChain)
		for _, chain := range rs.Chains {
			if chain.Table == table && chain.Hook == "" {
				fmt.Fprintf(&out, ":%s - [0:0]\n", chain.Name)
			}
		}
		for _, comment := range []string{stamp, notes[table].note()} {
			if comment != "" {
				fmt.Fprintf(&out, "-A %s -m comment --comment %q -j RETURN\n", MarkerChain, comment)
			}
		}
		for _, chain := range rs.Chains {
			if chain.Table == table {
				writeRules(&out, chain)
			}
		}
		out.WriteString("COMMIT\n")
	}
	return out.String()
}

// tablesOf returns the tables of the chains, in the order of the chains.
func tablesOf(rs capture.Ruleset) []capture.Table {
	var tables []capture.Table
	for _, chain := range rs.Chains {
		if !slices.Contains(tables, chain.Table) {
			tables = append(tables, chain.Table)
		}
	}
	return tables
}

func writeRules(out *bytes.Buffer, chain capture.Chain) {
	for _, rule := range chain.Rules {
		// One rule of ours can need several iptables rules, of which at most one gets the comment. A comment
		// costs time, at an ADD and for each packet that the rule matches, so most rules of the fence have
		// none.
		why := ""
		if !rule.PerPacket && rule.Do.Chain != capture.ChainFence && rule.Do.Chain != capture.ChainFenceReset {
			why = fmt.Sprintf(" -m comment --comment %q", rule.Why)
		}
		for _, match := range matchArguments(rule.Match) {
			if rule.Do.ConnMark != 0 { // iptables sets this mark by an additional rule, before the rule that ends the table
				fmt.Fprintf(out, "-A %s%s -j CONNMARK --set-mark %d\n", chain.Name, match, rule.Do.ConnMark)
			}
			fmt.Fprintf(out, "-A %s%s%s %s\n", chain.Name, match, why, targetArguments(rule.Do))
			why = ""
		}
	}
}

// matchArguments returns a match as the arguments of one iptables rule or, if one rule can't contain all
// values of the match's lists, of several rules.
func matchArguments(m capture.Match) []string {
	rules := []string{""}
	times := func(alternatives []string) {
		var product []string
		for _, rule := range rules {
			for _, alternative := range alternatives {
				product = append(product, rule+alternative)
			}
		}
		if len(alternatives) > 0 {
			rules = product
		}
	}
	times(options(" -s %s", m.Src.Values))
	times(options(" -d %s", m.Dst.Values))
	times(options(" -i %s", m.In.Values))
	times(options(" -o %s", m.Out.Values))
	if m.FromLo {
		times([]string{" -i lo"})
	}
	if m.ToLo {
		times([]string{" -o lo"})
	}
	if m.Protocol != "" {
		times([]string{fmt.Sprintf(" -p %s", m.Protocol)})
	}
	if m.ICMPTypes.Last != 0 {
		option := map[capture.Protocol]string{capture.ICMP: "icmp --icmp-type", capture.ICMPv6: "icmp6 --icmpv6-type"}[m.Protocol]
		var types []int
		for number := int(m.ICMPTypes.First); number <= int(m.ICMPTypes.Last); number++ {
			types = append(types, number)
		}
		times(options(" -m "+option+" %d", types))
	}
	times(portArguments(m))
	times(options(" -m owner --uid-owner %d", m.UID.Values))
	if m.UIDRange != (capture.IDRange{}) {
		times([]string{fmt.Sprintf(" -m owner --uid-owner %d-%d", m.UIDRange.First, m.UIDRange.Last)})
	}
	times(options(" -m owner --gid-owner %d", m.GID.Values))
	if state := stateArguments(m); state != "" {
		times([]string{state})
	}
	return rules
}

func options[T any](format string, values []T) []string {
	spelled := make([]string, len(values))
	for i, value := range values {
		spelled[i] = fmt.Sprintf(format, value)
	}
	return spelled
}

func portArguments(m capture.Match) []string {
	spelled := make([]string, len(m.DstPort.Values))
	for i, r := range m.DstPort.Values {
		spelled[i] = r.Spell(":")
	}
	if len(spelled) == 1 {
		return []string{fmt.Sprintf(" -m %s --dport %s", m.Protocol, spelled[0])}
	}
	var rules []string
	for chunk := range slices.Chunk(spelled, capture.MultiportSize(m.DstPort.Values)) {
		rules = append(rules, " -m multiport --dports "+strings.Join(chunk, ","))
	}
	return rules
}

// stateArguments returns iptables' arguments for marks, TCP flags, the hop limit, the connection's
// state, and types of addresses.
func stateArguments(m capture.Match) string {
	var words strings.Builder
	add := func(isSet bool, format string, args ...any) {
		if isSet {
			fmt.Fprintf(&words, format, args...)
		}
	}
	add(m.Mark != 0, " -m mark --mark %d", m.Mark)
	add(m.ExceptMark != 0, " -m mark ! --mark %d", m.ExceptMark)
	add(m.ConnMark != 0, " -m connmark --mark %d", m.ConnMark)
	add(m.ExceptConnMark != 0, " -m connmark ! --mark %d", m.ExceptConnMark)
	add(m.Begins, " -m tcp --syn")
	add(m.Accepts, " -m tcp --tcp-flags SYN,ACK SYN,ACK")
	add(m.Continues, " -m tcp --tcp-flags SYN,RST,ACK ACK")
	add(m.HopLimit != 0, " -m hl --hl-eq %d", m.HopLimit)
	add(m.Invalid || m.Unconfirmed || m.Confirmed || m.Original || m.Answer || m.Translated || m.Assured, " -m conntrack")
	add(m.Invalid, " --ctstate INVALID")
	add(m.Unconfirmed, " ! --ctstatus CONFIRMED")
	add(m.Confirmed, " --ctstatus CONFIRMED")
	add(m.Original, " --ctdir ORIGINAL")
	add(m.Answer, " --ctdir REPLY")
	add(m.Translated, " --ctstate DNAT")
	add(m.Assured, " --ctstatus ASSURED")
	add(m.ForeignSource, " -m addrtype ! --src-type LOCAL")
	add(m.OwnSource, " -m addrtype --src-type LOCAL")
	add(m.ForeignDst, " -m addrtype ! --dst-type LOCAL")
	return words.String()
}

func targetArguments(do capture.Action) string {
	switch do.Verdict {
	case capture.Jump:
		return "-j " + do.Chain
	case capture.Goto:
		return "-g " + do.Chain
	case capture.Redirect:
		return fmt.Sprintf("-j REDIRECT --to-ports %d", do.Port)
	case capture.Translate:
		return "-j DNAT --to-destination " + do.Target()
	case capture.TProxy:
		return fmt.Sprintf("-j TPROXY --on-port %d --tproxy-mark %d", do.Port, do.Mark)
	case capture.SetMark:
		return fmt.Sprintf("-j MARK --set-mark %d", do.Mark)
	case capture.SetConnMark:
		return fmt.Sprintf("-j CONNMARK --set-mark %d", do.Mark)
	case capture.SetZone:
		return fmt.Sprintf("-j CT --zone-orig %d", do.Zone)
	case capture.Reject:
		return "-j REJECT --reject-with tcp-reset"
	}
	return "-j " + strings.ToUpper(string(do.Verdict))
}
