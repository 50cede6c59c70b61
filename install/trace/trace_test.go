// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"encoding/json"
	"flag"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var (
	anApp   = &trace.Owner{UID: 1000, GID: 1000}
	aProxy  = &trace.Owner{UID: 1337, GID: 1337}
	anyOne  *trace.Owner
	tproxys = &trace.Owner{UID: 0, GID: 1337} // the proxy's in the mode TPROXY
)

// TestGoldenTraces compares traces, in words, with files. e2e/traffic.TestTrace proves
// the verdicts.
func TestGoldenTraces(t *testing.T) {
	for name, tt := range map[string]struct {
		rules  string // of this case of TestGolden
		packet trace.Packet
	}{
		"outbound":               {"defaults", outbound("192.0.2.1:0", "198.51.100.1:443", "eth0", anApp)},
		"of-any-process":         {"defaults", outbound("", "198.51.100.1:443", "eth0", anyOne)},
		"excluded-port":          {"defaults", outbound("", "198.51.100.1:15020", "eth0", anApp)},
		"uncaptured-range":       {"ip-range", outbound("", "198.51.100.1:443", "eth0", anApp)},
		"uncaptured-ipv6":        {"dual-stack-uncaptured", outbound("", "[2001:db8::1]:443", "eth0", anApp)},
		"uncaptured-udp":         {"defaults", packetOver(capture.UDP, outbound("", "198.51.100.1:443", "eth0", anApp))},
		"skipped-port":           {"linkerd-skips", outbound("", "198.51.100.1:4500", "eth0", anApp)},
		"of-the-proxy":           {"defaults", outbound("", "198.51.100.1:443", "eth0", aProxy)},
		"proxy-to-its-own-pod":   {"defaults", outbound("192.0.2.1:0", "192.0.2.1:8080", "lo", aProxy)},
		"dns":                    {"dns", packetOver(capture.UDP, outbound("192.0.2.1:50000", "198.51.100.1:53", "eth0", anApp))},
		"dns-of-the-proxy":       {"dns", packetOver(capture.UDP, outbound("", "198.51.100.1:53", "eth0", aProxy))},
		"inbound":                {"defaults", inbound("198.51.100.1:50000", "192.0.2.1:8080")},
		"inbound-excluded-port":  {"defaults", inbound("198.51.100.1:50000", "192.0.2.1:15021")},
		"inbound-uncaptured":     {"tproxy-inbound-ports-empty", inbound("198.51.100.1:50000", "192.0.2.1:8080")},
		"inbound-tproxy":         {"tproxy", inbound("198.51.100.1:50000", "192.0.2.1:8080")},
		"tproxy-to-its-own-pod":  {"tproxy", outbound("192.0.2.1:0", "192.0.2.1:8080", "lo", tproxys)},
		"tproxy-hands-on":        {"tproxy", withMark(1337, outbound("198.51.100.1:50000", "192.0.2.1:8080", "lo", tproxys))},
		"fence-tcp":              {"fence-groups", outbound("", "198.51.100.1:443", "eth0", anApp)},
		"fence-proxys-port":      {"fence", inbound("198.51.100.1:50000", "192.0.2.1:15006")},
		"fence-same-port":        {"fence", outbound("", "198.51.100.1:15001", "eth0", anApp)},
		"fence-inbound-captured": {"fence", inbound("198.51.100.1:50000", "192.0.2.1:8080")},
		"fence-query":            {"fence-consul", packetOver(capture.UDP, outbound("127.0.0.1:0", "127.0.0.1:53", "lo", anApp))},
		"fence-rerouted":         {"fence-rerouted", inbound("198.51.100.1:50000", "192.0.2.1:8080")},
		"fence-udp":              {"fence", packetOver(capture.UDP, outbound("", "198.51.100.1:443", "eth0", anApp))},
		"fence-captured":         {"fence", outbound("192.0.2.1:0", "198.51.100.1:443", "eth0", anApp)},
		"fence-exception":        {"fence-openings", packetOver(capture.UDP, outbound("", "10.96.0.10:53", "eth0", anApp))},
		"fence-inbound-tcp":      {"fence-own-egress", inbound("[2001:db8::9]:50000", "[2001:db8::3]:8080")},
		"fence-ping":             {"fence", packetOver(capture.ICMPv6, outbound("", "[2001:db8::9]:0", "eth0", anApp))},
		"fence-inbound-ping":     {"fence", packetOver(capture.ICMP, inbound("198.51.100.1:0", "192.0.2.1:0"))},
		"translated":             {"consul", packetOver(capture.UDP, outbound("127.0.0.1:0", "127.0.0.1:53", "lo", anApp))},
		"translated-elsewhere":   {"consul-dns", outbound("", "198.51.100.1:53", "eth0", anApp)},
		"exempt-uid":             {"consul-dual-stack", outbound("", "[2001:db8::9]:80", "eth0", &trace.Owner{UID: 1000650001})},
		"exempt-uid-range":       {"kuma-exempt", packetOver(capture.UDP, outbound("", "198.51.100.1:53", "eth0", anApp))},
		"fence-inbound-udp":      {"fence", packetOver(capture.UDP, inbound("198.51.100.1:50000", "192.0.2.1:8080"))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rs := lab.ReadCase(t, filepath.Join("../../plugin/capture/testdata", tt.rules)).Rules(t)
			path := trace.Of(rs, tt.packet)
			lab.ExpectGolden(t, *update, filepath.Join("testdata", "traces", name+".txt"), path.Text())
			document, err := json.Marshal(path)
			var read trace.Path
			if err == nil {
				err = json.Unmarshal(document, &read)
			}
			if diff := cmp.Diff(path.Text(), read.Text()); err != nil || diff != "" {
				t.Errorf("read from JSON: %v\n%s", err, diff)
			}
		})
	}
}

// TestTraceEvaluates a ruleset of every verdict: after Goto the chain that jumped goes
// on, the first zone stays, marks decide later rules, and Drop ends the path.
func TestTraceEvaluates(t *testing.T) {
	t.Parallel()
	rule := func(why string, m capture.Match, do capture.Action) capture.Rule {
		return capture.Rule{Match: m, Do: do, Why: why}
	}
	action := func(verdict capture.Verdict, chain string) capture.Action {
		return capture.Action{Verdict: verdict, Chain: chain}
	}
	tcp := capture.Match{Protocol: capture.TCP}
	rs := capture.Ruleset{Chains: []capture.Chain{
		{Table: capture.Raw, Hook: capture.Output, Name: "OUTPUT", Rules: []capture.Rule{
			rule("zone", tcp, capture.Action{Verdict: capture.SetZone, Zone: 2}),
			rule("no effect", tcp, capture.Action{Verdict: capture.SetZone, Zone: 1}),
		}},
		{Table: capture.Mangle, Hook: capture.Output, Name: "OUTPUT", Rules: []capture.Rule{
			rule("jumps", tcp, action(capture.Jump, "ISTIO_A")),
			rule("comes back", capture.Match{ConnMark: 9, Begins: true}, capture.Action{Verdict: capture.SetMark, Mark: 8}),
			rule("established", capture.Match{Assured: true}, action(capture.Drop, "")),
			rule("invalid", capture.Match{Invalid: true}, action(capture.Drop, "")),
			rule("arrives", capture.Match{In: capture.List[string]{Values: []string{"eth0"}}}, action(capture.Drop, "")),
		}},
		{Table: capture.Mangle, Name: "ISTIO_A", Rules: []capture.Rule{
			rule("goes", tcp, action(capture.Goto, "ISTIO_B")),
			rule("is not reached", tcp, action(capture.Drop, "")),
		}},
		{Table: capture.Mangle, Name: "ISTIO_B", Rules: []capture.Rule{
			rule("remembers", tcp, capture.Action{Verdict: capture.SetConnMark, Mark: 9}),
		}},
		{Table: capture.NAT, Hook: capture.Output, Name: "OUTPUT", Rules: []capture.Rule{
			rule("without it", capture.Match{ExceptMark: 8}, action(capture.Return, "")),
			rule("drops", capture.Match{Mark: 8}, action(capture.Drop, "")),
		}},
		{Table: capture.Mangle, Hook: capture.Prerouting, Name: "PREROUTING", Rules: []capture.Rule{
			rule("after a drop", tcp, action(capture.Return, "")),
		}},
	}}
	trace := trace.Of(rs, outbound("", "127.0.0.1:80", "lo", anApp))
	if trace.Verdict != capture.Drop || trace.Decisive.Why != "drops" || trace.Zone != 2 {
		t.Errorf("verdict %s, zone %d", trace.Verdict, trace.Zone)
	}
	var path []string
	for _, hook := range trace.Hooks {
		for _, step := range hook.Steps {
			path = append(path, step.Why)
		}
	}
	if got, want := strings.Join(path, ", "), "zone, no effect, jumps, goes, remembers, comes back, drops"; got != want {
		t.Errorf("the path is %s, want %s\n%s", got, want, trace.Text())
	}
	if text := trace.Text(); !strings.Contains(text, "verdict      dropped\n") || !strings.Contains(text, ") drops: drops\n") {
		t.Errorf("the verdict is not in the text:\n%s", text)
	}
}

// TestTraceDecides names the rule that decides: only rules of chains that can capture
// do, and what has captured a packet is not undone.
func TestTraceDecides(t *testing.T) {
	t.Parallel()
	chain := func(table capture.Table, hook capture.Hook, name string, rules ...capture.Rule) capture.Chain {
		return capture.Chain{Table: table, Hook: hook, Name: name, Rules: rules}
	}
	does := func(why string, verdict capture.Verdict, target string) capture.Rule {
		return capture.Rule{Do: capture.Action{Verdict: verdict, Chain: target}, Why: why}
	}
	syn := func(name string, m capture.Match) []capture.Chain {
		return []capture.Chain{chain(capture.Mangle, capture.Prerouting, name, capture.Rule{Match: m, Do: capture.Action{Verdict: capture.Return}, Why: "this one"})}
	}
	for name, tt := range map[string]struct {
		chains []capture.Chain
		want   string
	}{
		"a return in filter":           {[]capture.Chain{chain(capture.Filter, capture.Output, "OUTPUT", does("this one", capture.Return, ""))}, "rule 1 of chain OUTPUT in table filter: this one\n"},
		"a return in raw":              {[]capture.Chain{chain(capture.Raw, capture.Prerouting, "PREROUTING", does("not this one", capture.Return, ""))}, "no rule: none matches it\n"},
		"a SYN that another table has": {syn(capture.ChainSYN, capture.Match{FromLo: true}), "no rule: none matches it\n"},
		"a new one, too":               {syn(capture.ChainSYN, capture.Match{Unconfirmed: true}), "no rule: none matches it\n"},
		"another SYN":                  {syn(capture.ChainSYN, capture.Match{}), "rule 1 of chain " + capture.ChainSYN + " in table mangle: this one\n"},
		"of another chain":             {syn("PREROUTING", capture.Match{Unconfirmed: true}), "rule 1 of chain PREROUTING in table mangle: this one\n"},
		"a return that keeps nothing from capture": {[]capture.Chain{
			chain(capture.Mangle, capture.Output, "OUTPUT", does("not this one", capture.Return, "")),
			chain(capture.NAT, capture.Output, "OUTPUT"),
		}, "no rule: none matches it\n"},
		"a return after capture": {[]capture.Chain{
			chain(capture.NAT, capture.Output, "OUTPUT", does("captured", capture.Redirect, "")),
			chain(capture.Mangle, capture.Prerouting, "PREROUTING", does("not this one", capture.Return, "")),
		}, "rule 1 of chain OUTPUT in table nat: captured\n"},
		"capture behind lo": {[]capture.Chain{
			chain(capture.NAT, capture.Output, "OUTPUT", does("not this one", capture.Return, "")),
			chain(capture.Mangle, capture.Prerouting, "PREROUTING", does("captured", capture.TProxy, "")),
		}, "rule 1 of chain PREROUTING in table mangle: captured\n"},
		"a refused connection": {[]capture.Chain{
			chain(capture.Filter, capture.Output, "OUTPUT", does("refused", capture.Reject, ""), does("not this one", capture.Drop, "")),
			chain(capture.Mangle, capture.Prerouting, "PREROUTING", does("not this one", capture.TProxy, "")),
		}, "rule 1 of chain OUTPUT in table filter: refused\n"},
		"the end of a chain": {[]capture.Chain{
			chain(capture.NAT, capture.Output, "OUTPUT", does("first", capture.Jump, "ISTIO_A")),
			chain(capture.Mangle, capture.Prerouting, "PREROUTING", does("last", capture.Goto, "ISTIO_B")),
			chain(capture.NAT, "", "ISTIO_A"), chain(capture.Mangle, "", "ISTIO_B"),
		}, "no rule: it reaches the end of chain ISTIO_B in table mangle\n"},
	} {
		trace := trace.Of(capture.Ruleset{Chains: tt.chains}, outbound("", "127.0.0.1:80", "lo", anApp))
		text := trace.Text()
		if !strings.Contains(text, "decided by   "+tt.want) || strings.Contains(text, "resets: refused") != strings.Contains(text, "verdict      refused by a reset\n") {
			t.Errorf("%s: want %s\n%s", name, tt.want, text)
		}
		trace.NFTables = true
		for _, words := range []string{"it reaches the end of chain mangle_ISTIO_B in table inet ", "nat_OUTPUT: rule 1 (any packet) jumps to nat_ISTIO_A: first"} {
			if text := trace.Text(); strings.Contains(tt.want, "the end of") && !strings.Contains(text, words) {
				t.Errorf("%s, in nftables' names, lacks %s\n%s", name, words, text)
			}
		}
	}
}

// TestTraceMeets has conditions that a packet meets, and others that it nearly does.
func TestTraceMeets(t *testing.T) {
	t.Parallel()
	list := func(name string) capture.List[string] { return capture.List[string]{Values: []string{name}} }
	root := capture.List[uint32]{Values: []uint32{0}}
	out, over, in := outbound("", "127.0.0.1:80", "eth0", anyOne), outbound("", "[2001:db8::1]:80", "lo", tproxys), inbound("198.51.100.1:50000", "192.0.2.1:8080")
	for name, test := range map[string]struct {
		packet trace.Packet
		hook   capture.Hook
		match  capture.Match
		holds  bool
	}{
		"leaves by eth0":             {out, capture.Output, capture.Match{Out: list("eth0")}, true},
		"leaves by another":          {out, capture.Output, capture.Match{Out: list("lo")}, false},
		"leaves, and does not come":  {out, capture.Output, capture.Match{In: list("eth0")}, false},
		"comes by eth0":              {in, capture.Prerouting, capture.Match{In: list("eth0")}, true},
		"comes by another":           {in, capture.Prerouting, capture.Match{In: list("lo")}, false},
		"comes, and does not leave":  {in, capture.Prerouting, capture.Match{Out: list("eth0")}, false},
		"leaves by lo":               {over, capture.Output, capture.Match{ToLo: true}, true},
		"has not come by lo yet":     {over, capture.Output, capture.Match{FromLo: true}, false},
		"has come by lo":             {over, capture.Prerouting, capture.Match{FromLo: true}, true},
		"has left by lo":             {over, capture.Prerouting, capture.Match{ToLo: true}, false},
		"of root":                    {over, capture.Output, capture.Match{UID: root}, true},
		"of root, when it has come":  {over, capture.Prerouting, capture.Match{UID: root}, false},
		"of a user in the range":     {outbound("", "[2001:db8::1]:80", "lo", anApp), capture.Output, capture.Match{UIDRange: capture.IDRange{First: 999, Last: 1000}}, true},
		"of a user before the range": {outbound("", "[2001:db8::1]:80", "lo", anApp), capture.Output, capture.Match{UIDRange: capture.IDRange{First: 1001, Last: 1002}}, false},
		"of a user after the range":  {outbound("", "[2001:db8::1]:80", "lo", anApp), capture.Output, capture.Match{UIDRange: capture.IDRange{First: 1, Last: 999}}, false},
		"of a user that is unknown":  {out, capture.Output, capture.Match{UID: root}, false},
		"of a group that is unknown": {out, capture.Output, capture.Match{GID: root}, false},
		"without a mark":             {out, capture.Output, capture.Match{ExceptConnMark: 9}, true},
		"with the mark":              {over, capture.Output, capture.Match{ExceptConnMark: 9}, false},
		"foreign":                    {out, capture.Output, capture.Match{ForeignSource: true}, false},
		"in the pod's own name":      {out, capture.Output, capture.Match{OwnSource: true}, false},
		"to a foreign address":       {out, capture.Output, capture.Match{ForeignDst: true}, false},
		"an answer":                  {out, capture.Output, capture.Match{Accepts: true}, false},
		"a later packet":             {out, capture.Output, capture.Match{Continues: true}, false},
		"a captured connection":      {out, capture.Output, capture.Match{Translated: true}, false},
		"redirected IPv6":            {over, capture.Prerouting, capture.Match{Dst: capture.List[netip.Prefix]{Values: []netip.Prefix{netip.MustParsePrefix("::1/128")}}}, true},
	} {
		ipv6, drop := capture.Match{Family: capture.IPv6}, capture.Action{Verdict: capture.Drop}
		path := trace.Of(capture.Ruleset{Chains: []capture.Chain{
			{Table: capture.Raw, Hook: capture.Output, Name: "OUTPUT", Rules: []capture.Rule{{Match: ipv6, Do: capture.Action{Verdict: capture.SetConnMark, Mark: 9}}}},
			{Table: capture.Mangle, Hook: test.hook, Name: "TESTED", Rules: []capture.Rule{{Match: test.match, Do: drop}}},
			{Table: capture.NAT, Hook: capture.Output, Name: "OUTPUT", Rules: []capture.Rule{{Match: ipv6, Do: capture.Action{Verdict: capture.Redirect, Port: 15001}}}},
		}}, test.packet)
		if got := path.Verdict == capture.Drop; got != test.holds {
			t.Errorf("%s: the condition holds: %v\n%s", name, got, path.Text())
		}
	}
}

func outbound(from, to, by string, owner *trace.Owner) trace.Packet {
	p := trace.Packet{Protocol: capture.TCP, To: netip.MustParseAddrPort(to), Interface: by, Owner: owner}
	if from != "" {
		p.From = netip.MustParseAddrPort(from)
	}
	return p
}

func inbound(from, to string) trace.Packet {
	p := outbound(from, to, "eth0", nil)
	p.Inbound = true
	return p
}

func packetOver(protocol capture.Protocol, p trace.Packet) trace.Packet {
	p.Protocol = protocol
	return p
}

func withMark(mark uint32, p trace.Packet) trace.Packet {
	p.Mark = mark
	return p
}
