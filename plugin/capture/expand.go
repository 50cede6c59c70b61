// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"strings"
)

// MaxExpanded limits what the lists of one pod become in the kernel: its rules in iptables,
// of both families and all tables together, and its elements in sets of nftables. iptables
// has a rule for each combination of a rule's lists. The limit is the same for all backends,
// because a backend can be chosen after the pod was made.
const MaxExpanded = 60_000

// multiportMax is the most ports that one rule of iptables can list (XT_MULTI_PORTS). A
// range counts as two.
const multiportMax = 15

// MultiportSize returns how many of the ranges one rule of iptables can list.
func MultiportSize(ranges []PortRange) int {
	for _, r := range ranges {
		if r.First != r.Last {
			return multiportMax / 2
		}
	}
	return multiportMax
}

// listSize is the length of a list, and how many rules of iptables it takes.
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

// Expanded returns how many rules of iptables the match takes.
func (m Match) Expanded() int {
	n := 1 + int(m.ICMPTypes.Last-m.ICMPTypes.First)
	for _, list := range m.listSizes() {
		n *= max(1, list.rules)
	}
	return n
}

// expanded returns the rules of iptables and the elements of sets, and the lists of the rule
// that takes most.
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

// checkExpansion returns a fault for lists that become more than the kernel's tables should
// hold. It counts, and expands none of it.
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
		Problem: fmt.Sprintf("the lists become %d rules of iptables and %d elements of nftables: "+
			"expected at most %d of each, so list fewer interfaces, or fewer and wider ranges",
			rules, elements, MaxExpanded),
	}}
}

// keyOf returns the annotation that a list is from, or the list's name: other lists can be
// too long only by the mesh's settings.
func (m *mesh) keyOf(pod Pod, list string) string {
	if strings.HasPrefix(list, listFence) {
		return annotationFenceAllow
	}
	for _, key := range m.lists[list] {
		if _, ok := pod.Annotations[key]; ok {
			return key
		}
	}
	return list
}
