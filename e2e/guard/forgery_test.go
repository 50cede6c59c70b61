// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/history"
	"github.com/capture-cni/capture-cni/install/received"
	"github.com/capture-cni/capture-cni/install/terms"
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
	found record.Reason
}{
	"a stamp alone":                {func(t *testing.T, p *pod) { forgeStamp(t, p, forgedStamp) }, received.Drifted},
	"the stamp of ours":            {func(t *testing.T, p *pod) { forgeStamp(t, p, p.rules(t).Stamp) }, received.Drifted},
	"no stamp":                     {func(t *testing.T, p *pod) { p.nft(t, "flush", "chain", "inet", "capture-cni", "stamp") }, received.Drifted},
	"a table that no packet meets": {func(t *testing.T, p *pod) { p.nft(t, "add table inet capture-cni { flags dormant; }") }, received.Drifted},
	"a chain at another hook": {func(t *testing.T, p *pod) {
		p.nft(t, "flush chain inet capture-cni filter_OUTPUT; delete chain inet capture-cni filter_OUTPUT")
		p.nft(t, "add chain inet capture-cni filter_OUTPUT { type filter hook input priority 0; policy accept; }")
		p.nft(t, `add rule inet capture-cni filter_OUTPUT meta l4proto tcp tcp flags & (fin | syn | rst | ack) == syn counter jump filter_ISTIO_SYN comment "begins a connection"`)
	}, received.Drifted},
	"a policy of drop": {func(t *testing.T, p *pod) { p.nft(t, "chain inet capture-cni filter_OUTPUT { policy drop; }") }, received.Drifted},
	"another plugin's chain in their place": {func(t *testing.T, p *pod) {
		p.nft(t, "delete", "table", "inet", "capture-cni")
		addChain(t, p, "ISTIO_OUTPUT")
	}, received.Uncaptured},
	"another plugin's table in their place": {func(t *testing.T, p *pod) {
		p.nft(t, "delete", "table", "inet", "capture-cni")
		p.nft(t, "add", "table", "inet", "istio-proxy-nat")
		p.nft(t, "add", "chain", "inet", "istio-proxy-nat", "output")
	}, received.Uncaptured},
	"another plugin's chain next to changed rules": {func(t *testing.T, p *pod) {
		addChain(t, p, "ISTIO_OUTPUT")
		p.nft(t, "insert", "rule", "inet", "capture-cni", "nat_OUTPUT", "return")
	}, received.Drifted},
	"the marker of another backend": {func(t *testing.T, p *pod) {
		stamp := p.rules(t).Stamp
		p.nft(t, "delete", "table", "inet", "capture-cni")
		addChain(t, p, "CAPTURE_CNI")
		p.nft(t, "add", "rule", "ip", "nat", "CAPTURE_CNI", "return", "comment", `"`+stamp+`"`)
	}, received.Drifted},
}

// TestForgeries has the guard repair and report a captured pod whatever stands
// in the place of its rules, also if the guard was restarted meanwhile.
func TestForgeries(t *testing.T) {
	for name, tt := range forgeries {
		for _, restarts := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", over a restart"}[restarts], func(t *testing.T) {
				n := newNode()
				n.baselines = t.TempDir()
				conn := n.listen(t)
				p := n.run(t, "web")
				p.capture(t, nil)
				keeper, registry := n.keeper(t, guard.InPlace)
				keeper.Round(t.Context())
				expect(t, registry, map[terms.State]float64{terms.Captured: 1})
				tt.forge(t, p)
				if restarts {
					keeper, registry = n.keeper(t, guard.InPlace)
				}
				keeper.Round(t.Context())
				expect(t, registry, map[terms.State]float64{terms.Captured: 1})
				expectRepair(t, receive(t, conn)["web"], tt.found)
				if !strings.Contains(p.list(t), "redirect to :15001") {
					t.Errorf("it is not captured:\n%s", p.list(t))
				}
				keeper.Round(t.Context())
				expect(t, registry, map[terms.State]float64{terms.Captured: 1})
			})
		}
	}
}

// TestForgedBackend repairs rules that claim to be another backend's without
// reading them by programs, which the guard's image lacks.
func TestForgedBackend(t *testing.T) {
	n := newNode()
	conn := n.listen(t)
	p := n.run(t, "web")
	p.capture(t, nil)
	keeper, _ := n.keeper(t, guard.InPlace)
	keeper.Round(t.Context())
	forgeries["the marker of another backend"].forge(t, p)
	keeper.Round(t.Context())
	records := receive(t, conn)["web"]
	expectRepair(t, records, received.Drifted)
	if want := "in backend iptables-nft, and it was captured by nftables"; !strings.Contains(records[0].Message, want) {
		t.Errorf("the report does not say %q: %s", want, records[0].Message)
	}
}

func expectRepair(t *testing.T, records []record.Record, found record.Reason) {
	t.Helper()
	if len(records) != 1 || records[0].Verdict != received.Repaired || records[0].Reason != found {
		t.Fatalf("reported %+v, want one repair of what is %s", records, found)
	}
}

// TestForgedBeforeTheFirstExamination has the guard believe the plugin's record of its
// ADD where it did not see the pod before it was changed, also if the agent
// writes that record after the guard's first examination.
func TestForgedBeforeTheFirstExamination(t *testing.T) {
	for name, tt := range map[string]struct {
		forge func(t *testing.T, p *pod)
		first terms.State // without a record
		found record.Reason
	}{
		"a stamp alone":          {forgeries["a stamp alone"].forge, terms.Outdated, received.Drifted},
		"another plugin's chain": {forgeries["another plugin's chain in their place"].forge, terms.Foreign, received.Uncaptured},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode()
			n.baselines = t.TempDir()
			conn := n.listen(t)
			p := n.run(t, "web")
			p.capture(t, nil)
			add := record.Record{
				Time: time.Now(), Pod: record.PodRef{Namespace: "shop", Name: "web", UID: p.sandbox.UID}, Sandbox: p.sandbox.ID,
				Verdict: record.Captured, Backend: "nftables", Stamp: p.rules(t).Stamp,
			}
			tt.forge(t, p)
			keeper, registry := n.keeper(t, guard.InPlace)
			keeper.Round(t.Context())
			expect(t, registry, map[terms.State]float64{tt.first: 1})
			receive(t, conn)
			lab.Check(t, os.Mkdir(history.Directory(n.socket), 0o700))
			other := add
			other.Sandbox = "another"
			lab.Check(t, recordADD(n.socket, other))
			keeper, registry = n.keeper(t, guard.InPlace)
			keeper.Round(t.Context())
			expect(t, registry, map[terms.State]float64{tt.first: 1})
			receive(t, conn)
			add.Time = add.Time.Add(time.Second)
			lab.Check(t, recordADD(n.socket, add))
			keeper, registry = n.keeper(t, guard.InPlace)
			keeper.Round(t.Context())
			expect(t, registry, map[terms.State]float64{terms.Captured: 1})
			expectRepair(t, receive(t, conn)["web"], tt.found)
		})
	}
}

// busyRuntime is one that can't list its sandboxes now.
type busyRuntime struct{ *node }

func (busyRuntime) Sandboxes(context.Context) ([]cri.Sandbox, error) {
	return nil, errors.New("the runtime is busy")
}

// TestBaselinesOutliveABusyRuntime forgets a pod when it has gone, and not when
// the runtime can't say which pods it has.
func TestBaselinesOutliveABusyRuntime(t *testing.T) {
	n := newNode()
	n.baselines = t.TempDir()
	p := n.run(t, "web")
	p.capture(t, nil)
	keeper, _ := n.keeper(t, guard.InPlace)
	keeper.Round(t.Context())
	expectKept := func(want int) {
		t.Helper()
		kept, err := os.ReadDir(n.baselines)
		kept = slices.DeleteFunc(kept, func(file os.DirEntry) bool { return file.Name() == "pods.json" })
		if err != nil || len(kept) != want {
			t.Errorf("baselines %v, %v, want %d", kept, err, want)
		}
	}
	busy, _ := n.keeperOf(t, busyRuntime{n}, guard.Settings{Policy: guard.InPlace})
	busy.Round(t.Context())
	expectKept(1)
	delete(n.sandboxes, "web")
	keeper.Round(t.Context())
	expectKept(0)
}

// TestConfigurationChanges has rules that a repair or an ADD made become
// outdated, and not drifted, when the guard starts with another configuration.
func TestConfigurationChanges(t *testing.T) {
	for name, made := range map[string]func(t *testing.T, n *node, p *pod){
		"captured by ADD":       func(t *testing.T, _ *node, p *pod) { p.capture(t, nil) },
		"captured by the guard": func(*testing.T, *node, *pod) {},
		"outdated, changed and repaired": func(t *testing.T, n *node, p *pod) {
			p.capture(t, map[string]string{"traffic.sidecar.istio.io/excludeInboundPorts": "9090"})
			keeper, _ := n.keeper(t, guard.InPlace)
			keeper.Round(t.Context())
			p.nft(t, "insert", "rule", "inet", "capture-cni", "nat_OUTPUT", "return")
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode()
			n.baselines = t.TempDir()
			p := n.run(t, "web")
			made(t, n, p)
			keeper, registry := n.keeper(t, guard.InPlace)
			keeper.Round(t.Context())
			expect(t, registry, map[terms.State]float64{terms.Captured: 1})
			before := p.list(t)
			n.netConf = `{"mesh": {"excludeOutboundPorts": [5432]}}`
			for range 2 {
				keeper, registry = n.keeper(t, guard.InPlace)
				keeper.Round(t.Context())
				expect(t, registry, map[terms.State]float64{terms.Outdated: 1})
			}
			if after := p.list(t); after != before {
				t.Errorf("what is outdated was changed:\n%s", after)
			}
			p.nft(t, "insert", "rule", "inet", "capture-cni", "nat_OUTPUT", "return")
			keeper.Round(t.Context())
			expect(t, registry, map[terms.State]float64{terms.Captured: 1})
		})
	}
}

// TestForeignNextToOurs judges a captured pod by our rules, whatever other
// chains it has, and leaves those alone.
func TestForeignNextToOurs(t *testing.T) {
	n := newNode()
	p := n.run(t, "web")
	p.capture(t, nil)
	addChain(t, p, "ISTIO_OUTPUT")
	before := p.list(t)
	keeper, registry := n.keeper(t, guard.InPlace)
	for range 2 {
		keeper.Round(t.Context())
		expect(t, registry, map[terms.State]float64{terms.Captured: 1})
	}
	p.nft(t, "delete", "table", "inet", "capture-cni")
	keeper.Round(t.Context())
	expect(t, registry, map[terms.State]float64{terms.Captured: 1})
	if after := p.list(t); after == before || !strings.Contains(after, "ISTIO_OUTPUT") {
		t.Errorf("another plugin's chain went with a repair:\n%s", after)
	}
}

// TestOutdatedRulesChange has rules of another version repaired once a process
// of the pod has changed them, and left alone until then.
func TestOutdatedRulesChange(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, p *pod){
		"a rule":    func(t *testing.T, p *pod) { p.nft(t, "insert", "rule", "inet", "capture-cni", "nat_OUTPUT", "return") },
		"the stamp": func(t *testing.T, p *pod) { forgeStamp(t, p, forgedStamp) },
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", over a restart"}[restarts], func(t *testing.T) {
				n := newNode()
				n.baselines = t.TempDir()
				conn := n.listen(t)
				p := n.run(t, "web")
				p.capture(t, map[string]string{"traffic.sidecar.istio.io/excludeInboundPorts": "9090"})
				before := p.list(t)
				keeper, registry := n.keeper(t, guard.InPlace)
				for range 2 {
					keeper.Round(t.Context())
					expect(t, registry, map[terms.State]float64{terms.Outdated: 1})
				}
				if after := p.list(t); after != before {
					t.Errorf("what is outdated was changed:\n%s", after)
				}
				receive(t, conn)
				change(t, p)
				if restarts {
					keeper, registry = n.keeper(t, guard.InPlace)
				}
				keeper.Round(t.Context())
				expect(t, registry, map[terms.State]float64{terms.Captured: 1})
				expectRepair(t, receive(t, conn)["web"], received.Drifted)
			})
		}
	}
}
