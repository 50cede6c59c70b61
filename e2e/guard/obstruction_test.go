// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// TestObstructed reports another table of a captured pod whose rules could keep
// packets from ours, and touches nothing.
func TestObstructed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		nft   string // its commands
		names []string
	}{
		"notrack": {
			"table inet hide { chain out { type filter hook output priority -301; meta l4proto tcp notrack; } }",
			[]string{`inet table "hide"`, "output", "-301", "notrack"},
		},
		"notrack in a chain of its own": {
			"table ip hide { chain more { notrack; }\nchain in { type filter hook prerouting priority raw; tcp dport 80 jump more; } }",
			[]string{`ip table "hide"`, "prerouting", "-300", "notrack"},
		},
		"redirect in front": {
			"table ip nat { chain OUTPUT { type nat hook output priority -101; tcp dport 80 redirect to :9999; } }",
			[]string{`ip table "nat"`, "output", "-101", "redir"},
		},
		"routing behind ours": {
			"table ip late { chain out { type route hook output priority 10; ip daddr 127.0.0.1 ip daddr set 192.0.2.1; } }",
			[]string{`ip table "late"`, "output", "priority 10", "payload", "routes packets again"},
		},
		"a mark": {
			"table inet marks { chain out { type route hook output priority mangle; meta skuid 2000 meta mark set 1337; } }",
			[]string{`inet table "marks"`, "output", "-150", "meta"},
		},
		"a device's ingress": {
			`table netdev early { chain in { type filter hook ingress device "eth0" priority 0; fwd to "lo"; } }`,
			[]string{`netdev table "early"`, "ingress", "fwd"},
		},
		"a device's ingress in family inet": {
			`table inet early { chain in { type filter hook ingress device "eth0" priority 300; meta mark set 1337; } }`,
			[]string{`inet table "early"`, "ingress", "300", "meta"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode()
			conn := n.listen(t)
			p := n.run(t, "web")
			p.capture(t, nil)
			g := n.newGuard(t, options{})
			g.finds(t, report.Captured)
			p.load(t, tt.nft)
			before := p.list(t)
			for range 2 {
				g.finds(t, report.Obstructed)
			}
			records := receive(t, conn)["web"]
			if len(records) != 1 || records[0].Verdict != telemetry.Found || records[0].Reason != "obstructed" {
				t.Fatalf("reported %+v", records)
			}
			for _, want := range tt.names {
				if !strings.Contains(records[0].Message, want) {
					t.Errorf("the report does not name %q: %s", want, records[0].Message)
				}
			}
			if after := p.list(t); after != before {
				t.Errorf("another table was changed:\n%s", after)
			}
		})
	}
}

// TestObstructedAndRepaired repairs our rules and leaves what is in front of
// them where it is, and reports both.
func TestObstructedAndRepaired(t *testing.T) {
	t.Parallel()
	n := newNode()
	conn := n.listen(t)
	p := n.run(t, "web")
	p.capture(t, nil)
	g := n.newGuard(t, options{})
	g.round(t)
	p.nft(t, "delete", "table", "inet", "capture-cni")
	p.load(t, "table inet hide { chain out { type filter hook output priority -301; notrack; } }")
	g.round(t)
	g.finds(t, report.Obstructed)
	if rules := p.list(t); !strings.Contains(rules, "redirect to :15001") || !strings.Contains(rules, "notrack") {
		t.Errorf("it holds\n%s", rules)
	}
	if diff := verdicts(receive(t, conn)["web"]); diff[telemetry.Repaired] != 1 || diff[telemetry.Found] != 1 {
		t.Errorf("reported %v", diff)
	}
}

// TestUnobstructed is content with other tables that hide nothing.
func TestUnobstructed(t *testing.T) {
	t.Parallel()
	n := newNode()
	p := n.run(t, "web")
	p.capture(t, nil)
	for _, nft := range []string{
		`table inet filter { chain in { type filter hook input priority filter; ct state established accept; tcp dport 22 drop; }` + "\n" + `chain out { type filter hook output priority -310; counter accept; ip daddr 192.0.2.9 log drop; } }`,
		"table ip nat { chain POSTROUTING { type nat hook postrouting priority srcnat; oifname eth0 masquerade; } }",
		"table ip iptables { chain POSTROUTING { type nat hook postrouting priority srcnat; oifname eth0 masquerade; }" + "\n" + `chain OUTPUT { type nat hook output priority -100; tcp dport 22 counter return; } }`,
		"table ip docker { chain PREROUTING { type nat hook prerouting priority dstnat; tcp dport 80 dnat to 172.17.0.2:80; } }",
		"table ip after { chain OUTPUT { type nat hook output priority -99; tcp dport 80 redirect to :9999; } }",
		"table ip late { chain out { type filter hook output priority 10; meta mark set 7; } }",
		"table ip empty { chain PREROUTING { type nat hook prerouting priority dstnat; }\nchain ISTIO_OUTPUT { } }",
		"table inet unused { chain nowhere { notrack; } }",
	} {
		p.load(t, nft)
	}
	n.newGuard(t, options{}).finds(t, report.Captured)
}

// TestIPTablesObstructsNothing takes rules of ours for none of another plugin,
// whatever backend holds them.
func TestIPTablesObstructsNothing(t *testing.T) {
	t.Parallel()
	for _, name := range []config.Backend{config.IPTablesNFT, config.IPTablesLegacy} {
		t.Run(string(name), func(t *testing.T) {
			n := newNode()
			p := n.run(t, "web")
			backend, err := netfilter.Find(t.Context(), name)
			lab.Check(t, err)
			p.captureBy(t, backend, nil)
			g := n.newGuard(t, options{policy: guard.ReportOnly})
			for range 2 {
				g.finds(t, report.Captured)
			}
		})
	}
}

// TestObstructedByLegacyTables finds what iptables' older variant keeps apart
// from nf_tables.
func TestObstructedByLegacyTables(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		commands []string
		want     report.Code
	}{
		"notrack": {[]string{"-t raw -A OUTPUT -p tcp -j NOTRACK"}, report.Obstructed},
		"a mark":  {[]string{"-t mangle -A PREROUTING -j MARK --set-mark 1337"}, report.Obstructed},
		"harmless": {[]string{
			"-t nat -A OUTPUT -p tcp -j REDIRECT --to-ports 9999", // behind ours
			"-t nat -A POSTROUTING -j MASQUERADE", "-t filter -A INPUT -p tcp --dport 22 -j DROP",
		}, report.Captured},
	} {
		n := newNode()
		p := n.run(t, "web")
		p.capture(t, nil)
		for _, command := range tt.commands {
			p.execute(t, "iptables-legacy", strings.Fields("--wait "+command)...)
		}
		t.Log(name)
		n.newGuard(t, options{}).finds(t, tt.want)
	}
}

// TestObstructedByRouting finds a policy rule that routes redirected packets elsewhere.
func TestObstructedByRouting(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rules string
		want  report.Code
	}{
		"before table local":       {"rule add priority 5 lookup local, rule del priority 0, rule add priority 1 lookup 100", report.Obstructed},
		"before table local, IPv6": {"-6 rule add priority 5 lookup local, -6 rule del priority 0, -6 rule add priority 1 fwmark 7 lookup 100", report.Obstructed},
		"behind part of it":        {"rule add priority 5 lookup local, rule del priority 0, rule add priority 1 from 10.0.0.1 lookup local, rule add priority 2 lookup 100", report.Obstructed},
		"local, later":             {"rule add priority 5 lookup local, rule del priority 0", report.Captured},
		"behind it":                {"rule add priority 1 fwmark 1337 lookup 133", report.Captured},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode()
			p := n.run(t, "web")
			p.capture(t, nil)
			for command := range strings.SplitSeq(tt.rules, ", ") {
				p.execute(t, "ip", strings.Fields(command)...)
			}
			g := n.newGuard(t, options{policy: guard.ReportOnly})
			g.finds(t, tt.want)
		})
	}
}

// load adds tables by their text, in the lines that nft wants.
func (p *pod) load(t *testing.T, text string) {
	t.Helper()
	p.nft(t, strings.NewReplacer("{ ", "{\n", "; ", ";\n", " }", "\n}\n").Replace(text))
}
