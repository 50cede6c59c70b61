// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"slices"
	"strings"
)

// MaxExpanded limits two numbers that follow from the lists of one pod. One is the number of iptables
// rules in all tables and both families, because iptables needs a rule for each combination of the
// values in a rule's lists, except that a rule matches up to 15 ports. The other is the number of
// elements in nftables sets. Both limits apply to all backends, because the operator can change the
// backend later.
const MaxExpanded = 60_000

// multiportMax is the largest number of ports in one rule of iptables (XT_MULTI_PORTS). A range counts
// as two ports.
const multiportMax = 15

// MultiportSize returns how many of these ports, or ranges of ports, fit into one rule of iptables.
func MultiportSize(ranges []PortRange) int {
	for _, r := range ranges {
		if r.First != r.Last {
			return multiportMax / 2
		}
	}
	return multiportMax
}

// listSize contains the length of a list, and the number of iptables rules for it.
type listSize struct {
	name            string
	elements, rules int
}

func sizeOf[T any](l List[T]) listSize { return listSize{l.Name, len(l.Values), len(l.Values)} }

func (m Match) listSizes() [7]listSize {
	ports := sizeOf(m.DstPort)
	perRule := MultiportSize(m.DstPort.Values)
	ports.rules = (ports.elements + perRule - 1) / perRule
	return [...]listSize{sizeOf(m.In), sizeOf(m.Out), sizeOf(m.Src), sizeOf(m.Dst), ports, sizeOf(m.UID), sizeOf(m.GID)}
}

// Expanded returns the number of iptables rules that the match needs.
func (m Match) Expanded() int {
	n := 1 + int(m.ICMPTypes.Last-m.ICMPTypes.First)
	for _, list := range m.listSizes() {
		n *= max(1, list.rules)
	}
	return n
}

// expanded returns the number of iptables rules, the number of set elements, and the lists of the rule
// that needs the most iptables rules.
func (rs Ruleset) expanded() (rules, elements int, largest [7]listSize) {
	most, seen := 0, map[string]bool{}
	for _, family := range []Family{IPv4, IPv6} {
		for _, chain := range rs.For(family).Chains {
			for _, rule := range chain.Rules {
				n := rule.Match.Expanded()
				rules += n
				if n > most {
					most, largest = n, rule.Match.listSizes()
				}
				for _, list := range rule.Match.listSizes() {
					if !seen[list.name] {
						seen[list.name], elements = true, elements+list.elements
					}
				}
			}
		}
	}
	return rules, elements, largest
}

// checkExpansion returns a fault if the iptables rules or the set elements exceed MaxExpanded. It counts
// the iptables rules without creating them.
func (m *mesh) checkExpansion(pod Pod, rs Ruleset) error {
	rules, elements, largest := rs.expanded()
	if rules <= MaxExpanded && elements <= MaxExpanded {
		return nil
	}
	var named []string
	for _, list := range largest {
		if list.elements > 1 {
			named = append(named, m.keyOf(pod, list.name))
		}
	}
	return BadInput{{
		Key: strings.Join(named, " with "), Value: pod.Annotations[named[0]],
		Problem: fmt.Sprintf("the lists, with those of netconf.mesh, become %d rules of iptables and %d elements of nftables: "+
			"expected at most %d of each, so list fewer interfaces, or fewer and wider ranges",
			rules, elements, MaxExpanded),
	}}
}

// keyOf returns the annotation that contains a list, and prefers one that the pod has. If m.lists names no
// annotation for the list, keyOf returns the list's name.
func (m *mesh) keyOf(pod Pod, list string) string {
	if strings.HasPrefix(list, listFence) {
		return annotationFenceAllow
	}
	if m.whole != "" {
		return m.whole
	}
	ofBoth := strings.TrimSuffix(strings.TrimSuffix(list, "_"+string(IPv4)), "_"+string(IPv6))
	keys := append(slices.Clone(m.lists[ofBoth]), list)
	given := slices.IndexFunc(keys, func(key string) bool { return pod.Annotations[key] != "" })
	return keys[max(0, given)]
}
