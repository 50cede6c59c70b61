// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
)

// builder collects the chains of a Ruleset. add and exempt add rules to the last chain.
type builder struct {
	Intent
	mesh              *mesh
	inbound, outbound flow
	chains            []Chain
}

// baseChainWithoutIPv6 begins the base chain of a hook. If IPv6 is not captured, the first rule returns
// IPv6 packets, so that no later rule has to match the family. Ruleset.For omits this rule for
// iptables, because there it would skip other programs' rules.
func (b *builder) baseChainWithoutIPv6(table Table, hook Hook) {
	b.baseChain(table, hook)
	b.leaveIPv6()
}

func (b *builder) baseChain(table Table, hook Hook) {
	b.chains = append(b.chains, Chain{Table: table, Hook: hook, Name: string(hook)})
}

func (b *builder) leaveIPv6() {
	if b.IPv6 != Captured {
		last := &b.chains[len(b.chains)-1]
		last.Rules = append(last.Rules, Rule{Match: Match{Family: IPv6}, Do: Action{Verdict: Return}, Why: "IPv6 is not captured"})
	}
}

func (b *builder) chain(table Table, name string) {
	b.chains = append(b.chains, Chain{Table: table, Name: name})
}

// add appends a rule to the last chain. It omits a rule that matches only IPv6 packets if IPv6 is not
// captured, unless the chain belongs to the fence or refuses IPv6, because IPv6 packets reach no other
// chain's rules then.
func (b *builder) add(m Match, do Action, why string) {
	last := &b.chains[len(b.chains)-1]
	refuses := b.IPv6 == Refused && (last.Table == Filter || last.Name == ChainSYN) || strings.HasPrefix(last.Name, prefixFence)
	if m.OnlyFamily() == IPv6 && b.IPv6 != Captured && !refuses {
		return
	}
	last.Rules = append(last.Rules, Rule{Match: m, Do: do, Why: why, PerPacket: passesFence(last.Name, do)})
}

// exempt adds a rule that returns matching packets to the calling chain. For an empty match, it adds no
// rule.
func (b *builder) exempt(m Match, why string) {
	if !m.empty() {
		b.add(m, Action{Verdict: Return}, why)
	}
}

func (in *Intent) excludedInterfaces() List[string] {
	return named("exclude_interfaces", in.ExcludeInterfaces)
}

// ListReroute is the name of the list of interfaces whose inbound traffic counts as outbound.
const ListReroute = "reroute_interfaces"

func (in *Intent) reroutes() List[string] { return named(ListReroute, in.RerouteInterfaces) }

func (in *Intent) ownerGroups() List[uint32] { return named("owner_groups", in.OwnerGroups) }

// excludedOwnerGroups returns the groups whose traffic is not captured. If the Intent lists the
// captured groups, it returns an empty list.
func (in *Intent) excludedOwnerGroups() List[uint32] {
	if len(in.OwnerGroups) > 0 {
		return List[uint32]{}
	}
	return named("exclude_owner_groups", in.ExcludeOwnerGroups)
}

// exemptMatches returns the matches for Intent.Exempt. An element becomes one match or, if it has
// ranges, one match for each IP family of the ranges.
func (in *Intent) exemptMatches() (matches []Match) {
	for i, e := range in.Exempt {
		m := Match{Protocol: e.Protocol, DstPort: named(fmt.Sprint("exempt_ports_", i), e.Ports)}
		if e.UIDs != nil && e.UIDs.First == e.UIDs.Last {
			m.UID = named(fmt.Sprint("exempt_users_", i), []uint32{e.UIDs.First})
		} else if e.UIDs != nil {
			m.UIDRange = *e.UIDs
		}
		if len(e.Ranges) == 0 {
			matches = append(matches, m)
			continue
		}
		for _, family := range []Family{IPv4, IPv6} {
			if m.Dst = ranges(fmt.Sprint("exempt_ranges_", i), e.Ranges, family); !m.Dst.IsZero() {
				matches = append(matches, m)
			}
		}
	}
	return matches
}

// empty reports whether a match tests at most the packet's family and protocol, for example because its
// only list has no values.
func (m Match) empty() bool {
	m.Protocol, m.Family = "", ""
	return reflect.ValueOf(m).IsZero()
}

// one returns a list of a single value. It has no name, because it needs no set.
func one[T any](value T) List[T] { return List[T]{Values: []T{value}} }

// given returns a list of a single value, or an empty list if the value is the zero value.
func given[T comparable](value T) List[T] {
	if value == *new(T) {
		return List[T]{}
	}
	return one(value)
}

func named[T any](name string, values []T) List[T] {
	if len(values) == 0 {
		return List[T]{}
	}
	return List[T]{Name: name, Values: values}
}

func tcpPorts(name string, ports ...PortRange) Match {
	return Match{Protocol: TCP, DstPort: named(name, ports)}
}

// ranges returns the ranges of one family, because a set in the kernel has addresses of only one
// family.
func ranges(name string, prefixes []netip.Prefix, family Family) List[netip.Prefix] {
	of := slices.DeleteFunc(slices.Clone(prefixes), func(p netip.Prefix) bool { return p.Addr().Is4() != (family == IPv4) })
	return named(name+"_"+string(family), of)
}
