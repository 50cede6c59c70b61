// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// istio is what istio-iptables is called with, in its own words: lists with
// commas, "*" for everything.
type istio struct {
	includeInbound, excludeInbound   string
	includeOutbound, excludeOutbound string // ports
	includeRanges, excludeRanges     string
	excludeInterfaces, reroute       string
	onlyGroups, exceptGroups         string // "" for onlyGroups is every group
	loopback                         string
	dropInvalid, ipv6                bool
}

// condition is one match of an iptables rule; a rule has several.
type condition func(packet) bool

func not(c condition) condition { return func(p packet) bool { return !c(p) } }

func tcp(p packet) bool          { return p.protocol == TCP }
func invalid(p packet) bool      { return p.invalid }
func from(name string) condition { return func(p packet) bool { return p.in == name } }
func to(name string) condition   { return func(p packet) bool { return p.out == name } }
func port(text string) condition {
	return func(p packet) bool { return strconv.Itoa(int(p.port)) == text }
}

func source(r string) condition {
	return func(p packet) bool { return netip.MustParsePrefix(r).Contains(p.src) }
}

func destination(r string) condition {
	return func(p packet) bool { return netip.MustParsePrefix(r).Contains(p.dst) }
}

func user(id string) condition {
	return func(p packet) bool { return p.socket && fmt.Sprint(p.uid) == id }
}

func group(id string) condition {
	return func(p packet) bool { return p.socket && fmt.Sprint(p.gid) == id }
}

func isProtocol(name Protocol) condition { return func(p packet) bool { return p.protocol == name } }

func split(list string) (words []string) {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}
func ofOneFamily(r string, four bool) bool { return netip.MustParsePrefix(r).Addr().Is4() == four }

type istioRule struct {
	target     string
	conditions []condition
}

type istioTables map[string][]istioRule

func (t istioTables) add(chain, target string, conditions ...condition) {
	t[chain] = append(t[chain], istioRule{target, conditions})
}

func (t istioTables) insert(chain, target string, conditions ...condition) {
	t[chain] = slices.Insert(t[chain], 0, istioRule{target, conditions})
}

func (t istioTables) walk(chain string, p packet) string {
	for _, rule := range t[chain] {
		if slices.ContainsFunc(rule.conditions, func(c condition) bool { return !c(p) }) {
			continue
		}
		if rule.target == "RETURN" {
			return ""
		}
		if _, isChain := t[rule.target]; !isChain {
			return rule.target
		}
		if fate := t.walk(rule.target, p); fate != "" {
			return fate
		}
	}
	return ""
}

// tables are the rules in the order in which istio-iptables appends and
// inserts them, for one family; the user and group are 1337.
func (i istio) tables(four bool) istioTables {
	loopback, proxySource := i.loopback, "127.0.0.6/32"
	if !four {
		loopback, proxySource = "::1/128", "::6/128"
	}
	t := istioTables{}
	for _, name := range split(i.excludeInterfaces) {
		t.add("PREROUTING", "RETURN", from(name))
		t.add("OUTPUT", "RETURN", to(name))
	}
	for _, name := range split(i.reroute) {
		t.insert("PREROUTING", "RETURN", from(name))
	}
	if i.dropInvalid {
		t.add("mangle PREROUTING", dropped, invalid)
	}
	t.add("ISTIO_INBOUND", "RETURN", tcp, port("15008"))
	t.add("ISTIO_REDIRECT", redirected(15001), tcp)
	t.add("ISTIO_IN_REDIRECT", redirected(15006), tcp)
	i.inbound(t)
	t.add("OUTPUT", "ISTIO_OUTPUT")
	for _, p := range split(i.excludeOutbound) {
		t.add("ISTIO_OUTPUT", "RETURN", tcp, port(p))
		t.add("ISTIO_OUTPUT", "RETURN", isProtocol(udp), port(p))
	}
	t.add("ISTIO_OUTPUT", "RETURN", to("lo"), source(proxySource))
	for _, owner := range []condition{user("1337"), group("1337")} {
		t.add("ISTIO_OUTPUT", "ISTIO_IN_REDIRECT", to("lo"), not(destination(loopback)), tcp, not(port("15008")), owner)
		if !i.includesLoopback() {
			t.add("ISTIO_OUTPUT", "RETURN", to("lo"), not(owner))
		}
		t.add("ISTIO_OUTPUT", "RETURN", owner)
	}
	i.groups(t)
	t.add("ISTIO_OUTPUT", "RETURN", destination(loopback))
	i.outbound(t, four)
	return t
}

func (i istio) inbound(t istioTables) {
	if i.includeInbound != "" {
		t.add("PREROUTING", "ISTIO_INBOUND", tcp)
	}
	if i.includeInbound == "*" {
		for _, p := range append(split(i.excludeInbound), "15020", "15021", "15090") {
			t.add("ISTIO_INBOUND", "RETURN", tcp, port(p))
		}
		t.add("ISTIO_INBOUND", "ISTIO_IN_REDIRECT", tcp)
		return
	}
	for _, p := range split(i.includeInbound) {
		t.add("ISTIO_INBOUND", "ISTIO_IN_REDIRECT", tcp, port(p))
	}
}

func (i istio) includesLoopback() bool {
	return i.includeRanges != "*" && slices.ContainsFunc(split(i.includeRanges), func(r string) bool {
		return netip.MustParsePrefix(r).Addr().IsLoopback()
	})
}

func (i istio) groups(t istioTables) {
	var others []condition
	for _, id := range split(i.onlyGroups) {
		others = append(others, not(group(id)))
	}
	if len(others) > 0 {
		t.add("ISTIO_OUTPUT", "RETURN", others...)
		return
	}
	for _, id := range split(i.exceptGroups) {
		t.add("ISTIO_OUTPUT", "RETURN", group(id))
	}
}

func (i istio) outbound(t istioTables, four bool) {
	for _, r := range split(i.excludeRanges) {
		if ofOneFamily(r, four) {
			t.add("ISTIO_OUTPUT", "RETURN", destination(r))
		}
	}
	for _, p := range split(i.includeOutbound) {
		t.add("ISTIO_OUTPUT", "ISTIO_REDIRECT", tcp, port(p))
	}
	if i.includeRanges == "*" {
		t.add("ISTIO_OUTPUT", "ISTIO_REDIRECT")
		for _, name := range split(i.reroute) {
			t.insert("PREROUTING", "ISTIO_REDIRECT", from(name))
		}
		return
	}
	for _, r := range split(i.includeRanges) {
		if !ofOneFamily(r, four) {
			continue
		}
		for _, name := range split(i.reroute) {
			t.insert("PREROUTING", "ISTIO_REDIRECT", from(name), destination(r))
		}
		t.add("ISTIO_OUTPUT", "ISTIO_REDIRECT", destination(r))
	}
}

func (i istio) fate(p packet, tables map[bool]istioTables) string {
	if !p.dst.Is4() && !i.ipv6 {
		return untouched
	}
	t, fate := tables[p.dst.Is4()], ""
	if p.hook == Prerouting {
		fate = t.walk("mangle PREROUTING", p)
	}
	if fate == "" && !p.invalid {
		fate = t.walk(string(p.hook), p)
	}
	if fate == "" {
		return untouched
	}
	return fate
}
