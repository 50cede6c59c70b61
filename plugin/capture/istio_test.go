// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// istio is a model of istio-iptables. It holds the arguments: lists with commas, "*" for
// everything.
type istio struct {
	includeInbound, excludeInbound   string
	includeOutbound, excludeOutbound string // ports
	includeRanges, excludeRanges     string
	excludeInterfaces, reroute       string
	onlyGroups, exceptGroups         string // "" for onlyGroups is every group
	loopback                         string
	dropInvalid, ipv6                bool
	tproxy, dns                      bool
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

func sourcePort(number uint16) condition { return func(p packet) bool { return p.from == number } }
func marked(mark uint32) condition       { return func(p packet) bool { return p.mark == mark } }
func connMarked(mark uint32) condition   { return func(p packet) bool { return p.connMark == mark } }
func established(p packet) bool          { return p.established }

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

// istioEffects are the targets that do not end the traversal of a chain.
var istioEffects = map[string]func(*traversal){
	"MARK 1337":    func(j *traversal) { j.mark = 1337 },
	"MARK 1338":    func(j *traversal) { j.mark = 1338 },
	"save mark":    func(j *traversal) { j.connMark = j.mark },
	"restore mark": func(j *traversal) { j.mark = j.connMark },
	"CT zone 1":    func(j *traversal) { j.setZone(1) },
	"CT zone 2":    func(j *traversal) { j.setZone(2) },
}

// walk reports whether the packet leaves the table before the end of the chain.
func (t istioTables) walk(chain string, j *traversal) bool {
	for _, rule := range t[chain] {
		if slices.ContainsFunc(rule.conditions, func(c condition) bool { return !c(j.packet) }) {
			continue
		}
		effect, continues := istioEffects[rule.target]
		_, isChain := t[rule.target]
		switch {
		case rule.target == "RETURN":
			return false
		case continues:
			effect(j)
		case isChain:
			if t.walk(rule.target, j) {
				return true
			}
		case rule.target == "ACCEPT":
			return true
		default:
			j.end = rule.target
			if rule.target == tproxied(15006) {
				j.mark = 1337
			}
			return true
		}
	}
	return false
}

// tables returns the rules for one family, in the order in which istio-iptables
// appends and inserts them. The proxy's uid and gid are 1337.
func (i istio) tables(four bool) istioTables {
	loopback, proxySource := i.loopback, "127.0.0.6/32"
	if !four {
		loopback, proxySource = "::1/128", "::6/128"
	}
	t := istioTables{}
	for _, name := range split(i.excludeInterfaces) {
		t.add("nat PREROUTING", "RETURN", from(name))
		t.add("nat OUTPUT", "RETURN", to(name))
	}
	for _, name := range split(i.reroute) {
		t.insert("nat PREROUTING", "RETURN", from(name))
	}
	if i.dropInvalid {
		conditions := []condition{invalid}
		for _, name := range split(i.excludeInterfaces) { // ours under REDIRECT, where Istio has these in nat alone
			conditions = append(conditions, not(from(name)))
		}
		t.add("mangle PREROUTING", dropped, conditions...)
	}
	t.add("ISTIO_INBOUND", "RETURN", tcp, port("15008"))
	t.add("ISTIO_REDIRECT", redirected(15001), tcp)
	t.add("ISTIO_IN_REDIRECT", redirected(15006), tcp)
	i.inbound(t)
	t.add("nat OUTPUT", "ISTIO_OUTPUT")
	for _, p := range split(i.excludeOutbound) {
		t.add("ISTIO_OUTPUT", "RETURN", tcp, port(p))
		t.add("ISTIO_OUTPUT", "RETURN", isProtocol(UDP), port(p))
	}
	t.add("ISTIO_OUTPUT", "RETURN", to("lo"), source(proxySource))
	if i.tproxies() {
		t.add("ISTIO_OUTPUT", "RETURN", to("lo"), marked(1337)) // ours: without it, the proxy can loop
	}
	i.owners(t, loopback)
	i.groups(t)
	if i.capturesDNS() {
		t.add("ISTIO_OUTPUT", "nat ISTIO_OUTPUT_DNS")
		for _, protocol := range []Protocol{TCP, UDP} {
			t.add("nat ISTIO_OUTPUT_DNS", redirected(15053), isProtocol(protocol), port("53"))
		}
		i.zones(t)
	}
	if i.tproxies() {
		i.transparent(t, loopback, proxySource)
	}
	t.add("ISTIO_OUTPUT", "RETURN", destination(loopback))
	i.outbound(t, four)
	return t
}

// owners adds the rules for the proxy's uid and gid, which differ under DNS capture.
func (i istio) owners(t istioTables, loopback string) {
	for n, owner := range []condition{user("1337"), group("1337")} {
		toSelf := []condition{to("lo"), not(destination(loopback)), tcp, not(port("15008")), owner}
		others := []condition{to("lo"), not(owner)}
		if i.dns && n == 0 {
			toSelf = append(toSelf, not(port("53")))
		}
		if i.dns {
			others = append(others, tcp, not(port("53")))
		}
		t.add("ISTIO_OUTPUT", "ISTIO_IN_REDIRECT", toSelf...)
		if !i.includesLoopback() {
			t.add("ISTIO_OUTPUT", "RETURN", others...)
		}
		t.add("ISTIO_OUTPUT", "RETURN", owner)
	}
}

func (i istio) inbound(t istioTables) {
	if i.tproxy {
		return
	}
	if i.includeInbound != "" {
		t.add("nat PREROUTING", "ISTIO_INBOUND", tcp)
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
	if i.onlyGroups != "" {
		t.add("ISTIO_OUTPUT", "RETURN", noneOf(split(i.onlyGroups))...)
		return
	}
	for _, id := range split(i.exceptGroups) {
		t.add("ISTIO_OUTPUT", "RETURN", group(id))
	}
}

func noneOf(groups []string) (others []condition) {
	for _, id := range groups {
		others = append(others, not(group(id)))
	}
	return others
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
			t.insert("nat PREROUTING", "ISTIO_REDIRECT", from(name))
		}
		return
	}
	for _, r := range split(i.includeRanges) {
		if !ofOneFamily(r, four) {
			continue
		}
		for _, name := range split(i.reroute) {
			t.insert("nat PREROUTING", "ISTIO_REDIRECT", from(name), destination(r))
		}
		t.add("ISTIO_OUTPUT", "ISTIO_REDIRECT", destination(r))
	}
}

func (i istio) result(p packet, tables map[bool]istioTables) string {
	j := &traversal{packet: p}
	if p.dst.Is4() || i.ipv6 {
		for _, table := range p.tables() {
			if j.end == "" {
				tables[p.dst.Is4()].walk(fmt.Sprintf("%s %s", table, p.hook), j)
			}
		}
	}
	return j.result()
}
