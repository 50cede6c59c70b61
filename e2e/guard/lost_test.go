// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// losses are changes of what the rules need. None changes a rule of nf_tables.
var losses = map[string]string{ // arguments of ip
	"lo is down":             "link set lo down",
	"no ::6":                 "-6 address del ::6/128 dev lo",
	"no route":               "route flush table 133",
	"no route of IPv6":       "-6 route flush table 133",
	"no policy rule":         "rule del table 133",
	"no policy rule of IPv6": "-6 rule del table 133",
}

// TestLost has a captured pod lose what its rules need: every tenth round finds that, and
// a repair restores it.
func TestLost(t *testing.T) {
	forEachLoss(t, func(t *testing.T, n *node, _ *pod, lose func()) {
		reporter := n.newGuard(t, options{policy: guard.ReportOnly})
		reporter.finds(t, report.Captured)
		lose()
		for range 9 {
			reporter.round(t)
			reporter.expect(t, report.Captured) // without a comparison of all
		}
		reporter.finds(t, report.Drifted)
		g := n.newGuard(t, options{})
		g.finds(t, report.Captured)
	})
}

// TestRepeatedADDRestores repeats the ADD of a pod that has lost what its rules need.
func TestRepeatedADDRestores(t *testing.T) {
	forEachLoss(t, func(t *testing.T, n *node, p *pod, lose func()) {
		before := p.list(t)
		lose()
		p.add(t, n)
		if after := p.list(t); after != before {
			t.Errorf("the rules were changed:\n%s", after)
		}
	})
}

// forEachLoss captures a dual-stack pod for each loss, and wants it whole after the test.
func forEachLoss(t *testing.T, test func(t *testing.T, n *node, p *pod, lose func())) {
	for name, arguments := range losses {
		t.Run(name, func(t *testing.T) {
			n := newNode()
			p := n.run(t, "web")
			n.dualStack(t, p, "TPROXY")
			p.add(t, n)
			test(t, n, p, func() { p.execute(t, "ip", strings.Fields(arguments)...) })
			p.holdsWhatADDInstalls(t, n)
		})
	}
}

// add captures the pod, with all that its rules need, as an ADD does.
func (p *pod) add(t *testing.T, n *node) {
	t.Helper()
	p.addBy(t, n, config.NFTables, config.DefaultSettings())
}

func (p *pod) addBy(t *testing.T, n *node, backend config.Backend, settings config.Settings) {
	t.Helper()
	netns, rules := p.decided(t, n, settings)
	defer netns.Close()
	lab.Check(t, netns.Apply(t.Context(), rules, backend))
}

// decided opens the pod's namespace, and returns its rules.
func (p *pod) decided(t *testing.T, n *node, settings config.Settings) (*podnet.Namespace, capture.Ruleset) {
	t.Helper()
	netns, err := podnet.Open(t.Context(), p.sandbox.NetNS)
	lab.Check(t, err)
	addresses, err := netns.Addresses()
	lab.Check(t, err)
	decision, err := lab.Decide(n.pods[p.sandbox.ID], settings, addresses...)
	lab.Check(t, err)
	return netns, capture.Rules(decision.Intent)
}
