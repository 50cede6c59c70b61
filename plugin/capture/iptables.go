// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// MarkerChain is an unreachable chain in every table that holds iptables rules
// of ours. It tells that the chains beside it are ours, too, carries the Stamp
// in its first rule, and may note down what was Made for them.
const MarkerChain = "CAPTURE_CNI"

// Made is what did not exist before our rules came and is to go with them.
type Made struct {
	Table  bool   // the table itself
	Chains []Hook // its built-in chains
}

// MadePrefix begins the comment that notes Made down.
const MadePrefix = "made:"

// Tables are the tables that the rules are in, in the order of their chains.
func (rs Ruleset) Tables() []Table {
	var tables []Table
	for _, chain := range rs.Chains {
		if !slices.Contains(tables, chain.Table) {
			tables = append(tables, chain.Table)
		}
	}
	return tables
}

// Hooks are the built-in chains of a table that the rules are entered from.
func (rs Ruleset) Hooks(table Table) []Hook {
	var hooks []Hook
	for _, chain := range rs.Chains {
		if chain.Table == table && chain.Hook != "" {
			hooks = append(hooks, chain.Hook)
		}
	}
	return hooks
}

// IPTables is one family's part of the Ruleset as text for iptables-restore,
// or ip6tables-restore, with --noflush: it adds to what is there. Every table
// is committed by itself, nat and with it the last Stamp at the end.
func (rs Ruleset) IPTables(family Family, made map[Table]Made) string {
	var out bytes.Buffer
	for _, table := range rs.Tables() {
		fmt.Fprintf(&out, "*%s\n:%s - [0:0]\n", table, MarkerChain)
		for _, chain := range rs.Chains {
			if chain.Table == table && chain.Hook == "" {
				fmt.Fprintf(&out, ":%s - [0:0]\n", chain.Name)
			}
		}
		fmt.Fprintf(&out, "-A %s -m comment --comment %q -j RETURN\n", MarkerChain, rs.Stamp())
		if note := made[table].note(); note != "" {
			fmt.Fprintf(&out, "-A %s -m comment --comment %q -j RETURN\n", MarkerChain, note)
		}
		for _, chain := range rs.Chains {
			if chain.Table == table {
				writeIPTables(&out, chain, family)
			}
		}
		out.WriteString("COMMIT\n")
	}
	return out.String()
}

func writeIPTables(out *bytes.Buffer, chain Chain, family Family) {
	for _, rule := range chain.Rules {
		if of := rule.Match.family(); of != "" && of != family {
			continue
		}
		// One comment is enough for what is one rule to people.
		why := fmt.Sprintf(" -m comment --comment %q", rule.Why)
		for _, match := range rule.Match.iptables() {
			fmt.Fprintf(out, "-A %s%s%s %s\n", chain.Name, match, why, rule.Do.iptables())
			why = ""
		}
	}
}

// iptables spells a match as the arguments of one rule or, where iptables
// knows no list, of several.
func (m Match) iptables() []string {
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
	if m.Protocol != "" {
		times([]string{fmt.Sprintf(" -p %s", m.Protocol)})
	}
	times(options(fmt.Sprintf(" -m %s --sport %%d", m.Protocol), m.SrcPort.Values))
	times(m.iptablesPorts())
	times(options(" -m owner --uid-owner %d", m.UID.Values))
	times(options(" -m owner --gid-owner %d", m.GID.Values))
	if state := m.iptablesState(); state != "" {
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

// multiportMax is how many ports one rule can list (XT_MULTI_PORTS).
const multiportMax = 15

func (m Match) iptablesPorts() []string {
	if len(m.DstPort.Values) == 1 {
		return []string{fmt.Sprintf(" -m %s --dport %d", m.Protocol, m.DstPort.Values[0])}
	}
	var rules []string
	for chunk := range slices.Chunk(m.DstPort.Values, multiportMax) {
		rules = append(rules, " -m multiport --dports "+strings.Join(options("%d", chunk), ","))
	}
	return rules
}

// iptablesState spells what netfilter itself keeps of a packet.
func (m Match) iptablesState() string {
	var words strings.Builder
	if m.Mark != 0 {
		fmt.Fprintf(&words, " -m mark --mark %d", m.Mark)
	}
	if m.ExceptMark != 0 {
		fmt.Fprintf(&words, " -m mark ! --mark %d", m.ExceptMark)
	}
	if m.ConnMark != 0 {
		fmt.Fprintf(&words, " -m connmark --mark %d", m.ConnMark)
	}
	if m.Established {
		words.WriteString(" -m tcp ! --syn -m conntrack --ctstate ESTABLISHED")
	}
	if m.Begins {
		words.WriteString(" -m tcp --syn")
	}
	if m.Invalid {
		words.WriteString(" -m conntrack --ctstate INVALID")
	}
	return words.String()
}

func (do Action) iptables() string {
	switch do.Verdict {
	case Jump:
		return "-j " + do.Chain
	case Goto:
		return "-g " + do.Chain
	case Redirect:
		return fmt.Sprintf("-j REDIRECT --to-ports %d", do.Port)
	case TProxy:
		return fmt.Sprintf("-j TPROXY --on-port %d --tproxy-mark %d", do.Port, do.Mark)
	case SetMark:
		return fmt.Sprintf("-j MARK --set-mark %d", do.Mark)
	case SetConnMark:
		return fmt.Sprintf("-j CONNMARK --set-mark %d", do.Mark)
	case SetZone:
		return fmt.Sprintf("-j CT --zone %d", do.Zone)
	}
	return "-j " + strings.ToUpper(string(do.Verdict))
}

func (made Made) note() string {
	if !made.Table && len(made.Chains) == 0 {
		return ""
	}
	words := []string{MadePrefix}
	if made.Table {
		words = append(words, "table")
	}
	for _, hook := range made.Chains {
		words = append(words, string(hook))
	}
	return strings.Join(words, " ")
}

// ParseMade reads what a marker chain's comment noted down; ok tells whether
// it is such a note.
func ParseMade(comment string) (made Made, ok bool) {
	words := strings.Fields(comment)
	if len(words) == 0 || words[0] != MadePrefix {
		return Made{}, false
	}
	for _, word := range words[1:] {
		if word == "table" {
			made.Table = true
		} else {
			made.Chains = append(made.Chains, Hook(word))
		}
	}
	return made, true
}
