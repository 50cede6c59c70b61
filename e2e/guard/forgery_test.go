// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// forgedStamp has the form of a stamp, and is of no rules at all.
const forgedStamp = "capture-cni rules v1 ipv4 00112233445566778899aabbccddeeff"

// forgeStamp replaces the pod's rules by a stamp alone.
func forgeStamp(t *testing.T, p *pod, stamp string) {
	t.Helper()
	p.nft(t, "delete", "table", "inet", "capture-cni")
	p.nft(t, "add", "table", "inet", "capture-cni")
	p.nft(t, "add", "chain", "inet", "capture-cni", "stamp")
	p.nft(t, "add", "rule", "inet", "capture-cni", "stamp", "return", "comment", `"`+stamp+`"`)
}

// addChain adds a chain of a name that another plugin gives its own.
func addChain(t *testing.T, p *pod, chain string) {
	t.Helper()
	p.nft(t, "add", "table", "ip", "nat")
	p.nft(t, "add", "chain", "ip", "nat", chain)
}

// forgeries are what a process of a captured pod with NET_ADMIN does to hide
// from the guard that the rules are gone.
var forgeries = map[string]struct {
	forge func(t *testing.T, p *pod)
	found capture.Reason
	says  string
}{
	"a stamp alone":     {func(t *testing.T, p *pod) { forgeStamp(t, p, forgedStamp) }, telemetry.Drifted, ""},
	"the stamp of ours": {func(t *testing.T, p *pod) { forgeStamp(t, p, p.rules(t).Stamp) }, telemetry.Drifted, ""},
	"no stamp":          {func(t *testing.T, p *pod) { p.nft(t, "flush", "chain", "inet", "capture-cni", "stamp") }, telemetry.Drifted, ""},
	"no stamp, but its rule": {func(t *testing.T, p *pod) {
		p.nft(t, "flush chain inet capture-cni stamp; add rule inet capture-cni stamp return")
	}, telemetry.Drifted, `missing: rule "capture-cni rules v`},
	"a table that no packet meets": {func(t *testing.T, p *pod) { p.nft(t, "add table inet capture-cni { flags dormant; }") }, telemetry.Drifted, ""},
	"a chain at another hook": {func(t *testing.T, p *pod) {
		p.nft(t, "flush chain inet capture-cni filter_OUTPUT; delete chain inet capture-cni filter_OUTPUT")
		p.nft(t, "add chain inet capture-cni filter_OUTPUT { type filter hook input priority 0; policy accept; }")
		p.nft(t, `add rule inet capture-cni filter_OUTPUT meta l4proto tcp tcp flags & (fin | syn | rst | ack) == syn counter jump filter_ISTIO_SYN comment "begins a connection"`)
	}, telemetry.Drifted, ""},
	"a policy of drop": {func(t *testing.T, p *pod) { p.nft(t, "chain inet capture-cni filter_OUTPUT { policy drop; }") }, telemetry.Drifted, ""},
	"another plugin's chain in their place": {func(t *testing.T, p *pod) {
		p.nft(t, "delete", "table", "inet", "capture-cni")
		addChain(t, p, "ISTIO_OUTPUT")
	}, telemetry.Uncaptured, ""},
	"another plugin's table in their place": {func(t *testing.T, p *pod) {
		p.nft(t, "delete", "table", "inet", "capture-cni")
		p.nft(t, "add", "table", "inet", "istio-proxy-nat")
		p.nft(t, "add", "chain", "inet", "istio-proxy-nat", "output")
	}, telemetry.Uncaptured, ""},
	"another plugin's chain next to changed rules": {func(t *testing.T, p *pod) {
		addChain(t, p, "ISTIO_OUTPUT")
		p.nft(t, "insert", "rule", "inet", "capture-cni", "nat_OUTPUT", "return")
	}, telemetry.Drifted, ""},
	"the marker of another backend": {func(t *testing.T, p *pod) {
		stamp := p.rules(t).Stamp
		p.nft(t, "delete", "table", "inet", "capture-cni")
		addChain(t, p, "CAPTURE_CNI")
		p.nft(t, "add", "rule", "ip", "nat", "CAPTURE_CNI", "return", "comment", `"`+stamp+`"`)
	}, telemetry.Drifted, "in backend iptables-nft, and it was captured by nftables"},
}

// TestForgeries has the guard repair and report a captured pod whatever stands in the
// place of its rules. It reads those of another backend without that backend's programs,
// which its image lacks.
func TestForgeries(t *testing.T) {
	t.Parallel()
	for name, tt := range forgeries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testForgery(t, tt.forge, tt.found, tt.says, false)
		})
	}
	t.Run("a stamp alone, over a restart", func(t *testing.T) {
		t.Parallel()
		testForgery(t, forgeries["a stamp alone"].forge, telemetry.Drifted, "", true)
	})
}

func testForgery(t *testing.T, forge func(*testing.T, *pod), found capture.Reason, says string, restarts bool) {
	t.Helper()
	n := newNode()
	n.baselines = t.TempDir()
	conn := n.listen(t)
	p := n.run(t, "web")
	p.capture(t, nil)
	g := n.newGuard(t, options{})
	g.finds(t, report.Captured)
	forge(t, p)
	if restarts {
		g = n.newGuard(t, options{})
	}
	g.finds(t, report.Captured)
	records := receive(t, conn)["web"]
	expectRepair(t, records, found)
	if !strings.Contains(records[0].Message, says) {
		t.Errorf("the report does not say %q: %s", says, records[0].Message)
	}
	if !strings.Contains(p.list(t), "redirect to :15001") {
		t.Errorf("it is not captured:\n%s", p.list(t))
	}
	g.finds(t, report.Captured)
}

func expectRepair(t *testing.T, records []record.Record, found capture.Reason) {
	t.Helper()
	if len(records) != 1 || records[0].Verdict != telemetry.Repaired || records[0].Reason != found {
		t.Fatalf("reported %+v, want one repair of what is %s", records, found)
	}
}

// TestForgedBeforeTheFirstExamination has the guard believe the plugin's record of its
// ADD where it did not see the pod before it was changed, also if the agent
// writes that record after the guard's first examination.
func TestForgedBeforeTheFirstExamination(t *testing.T) {
	t.Parallel()
	n := newNode()
	n.baselines = t.TempDir()
	conn := n.listen(t)
	p := n.run(t, "web")
	p.capture(t, nil)
	add := p.record(t)
	forgeStamp(t, p, forgedStamp)
	n.newGuard(t, options{}).finds(t, report.Outdated)
	receive(t, conn)
	n.recordADD(t, add)
	n.newGuard(t, options{}).finds(t, report.Captured)
	expectRepair(t, receive(t, conn)["web"], telemetry.Drifted)
}

// record returns what the plugin reports of the ADD that made the pod's rules.
func (p *pod) record(t *testing.T) record.Record {
	t.Helper()
	state := p.rules(t)
	return record.Record{
		Time: time.Now(), Pod: capture.PodRef{Namespace: p.sandbox.Namespace, Name: p.sandbox.Name, UID: p.sandbox.UID}, Sandbox: p.sandbox.ID,
		Verdict: record.Captured, Backend: string(state.Backend), Stamp: state.Stamp,
	}
}

// recordADD writes a record to the node's history, as the agent does.
func (n *node) recordADD(t *testing.T, r record.Record) {
	t.Helper()
	lab.Check(t, os.Mkdir(telemetry.HistoryDirectory(n.socket), 0o700))
	lab.Check(t, telemetry.KeepRecord(telemetry.HistoryDirectory(n.socket), r, false))
}

// TestConfigurationChanges has rules that a repair or an ADD made become
// outdated, and not drifted, when the guard starts with another configuration.
func TestConfigurationChanges(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]func(t *testing.T, n *node, p *pod){
		"captured by ADD":       func(t *testing.T, _ *node, p *pod) { p.capture(t, nil) },
		"captured by the guard": func(*testing.T, *node, *pod) {},
		"outdated, changed and repaired": func(t *testing.T, n *node, p *pod) {
			p.capture(t, map[string]string{"traffic.sidecar.istio.io/excludeInboundPorts": "9090"})
			g := n.newGuard(t, options{})
			g.round(t)
			p.nft(t, "insert", "rule", "inet", "capture-cni", "nat_OUTPUT", "return")
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode()
			n.baselines = t.TempDir()
			p := n.run(t, "web")
			made(t, n, p)
			g := n.newGuard(t, options{})
			g.finds(t, report.Captured)
			before := p.list(t)
			n.netConf = `{"mesh": {"excludeOutboundPorts": [5432]}}`
			for range 2 {
				g = n.newGuard(t, options{})
				g.finds(t, report.Outdated)
			}
			if after := p.list(t); after != before {
				t.Errorf("what is outdated was changed:\n%s", after)
			}
			p.nft(t, "insert", "rule", "inet", "capture-cni", "nat_OUTPUT", "return")
			g.finds(t, report.Captured)
		})
	}
}

// TestForeignNextToOurs judges a captured pod by our rules, whatever other
// chains it has, and leaves those alone.
func TestForeignNextToOurs(t *testing.T) {
	t.Parallel()
	n := newNode()
	p := n.run(t, "web")
	p.capture(t, nil)
	addChain(t, p, "ISTIO_OUTPUT")
	before := p.list(t)
	g := n.newGuard(t, options{})
	for range 2 {
		g.finds(t, report.Captured)
	}
	p.nft(t, "delete", "table", "inet", "capture-cni")
	g.finds(t, report.Captured)
	if after := p.list(t); after == before || !strings.Contains(after, "ISTIO_OUTPUT") {
		t.Errorf("another plugin's chain went with a repair:\n%s", after)
	}
}
