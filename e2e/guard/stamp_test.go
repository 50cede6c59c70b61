// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// TestStampOfText has a pod whose rules an earlier version of the plugin wrote:
// their stamp holds a hash of text. It is captured while its rules are the
// desired ones, and drifted once they are changed.
func TestStampOfText(t *testing.T) {
	for name, tamper := range map[string][]string{
		"a rule is added":   {"insert", "rule", "inet", "capture-cni", "nat_OUTPUT", "return"},
		"a chain is empty":  {"flush", "chain", "inet", "capture-cni", "nat_ISTIO_OUTPUT"},
		"an element is new": {"add", "element", "inet", "capture-cni", "exclude_inbound_ports", "{ 8080 }"},
	} {
		for _, seen := range []bool{true, false} {
			t.Run(name+map[bool]string{false: ", before the first examination"}[seen], func(t *testing.T) {
				n := newNode()
				n.baselines = t.TempDir()
				conn := n.listen(t)
				p := n.run(t, "web")
				p.capture(t, nil)
				stamp := p.stampAsText(t)
				if seen {
					before := p.list(t)
					for range 2 { // over a restart
						keeper, registry := n.keeper(t, guard.InPlace)
						keeper.Round(t.Context())
						expect(t, registry, map[guard.State]float64{guard.Captured: 1})
					}
					if after := p.list(t); after != before {
						t.Errorf("a captured pod was changed:\n%s", after)
					}
					if records := receive(t, conn)["web"]; len(records) > 0 {
						t.Errorf("reported %+v", records)
					}
				}
				p.nft(t, tamper...)
				keeper, registry := n.keeper(t, guard.InPlace)
				keeper.Round(t.Context())
				expect(t, registry, map[guard.State]float64{guard.Captured: 1})
				expectRepair(t, receive(t, conn)["web"], record.Drifted)
				if repaired := p.rules(t).Stamp; repaired == stamp || !strings.HasPrefix(repaired, capture.StampPrefix) {
					t.Errorf("the repair wrote stamp %q", repaired)
				}
			})
		}
	}
}

// stampAsText gives a captured pod the stamp that version 2 of the rules wrote.
func (p *pod) stampAsText(t *testing.T) string {
	t.Helper()
	decision, err := lab.Decide(meshed(p.sandbox), config.DefaultSettings(), netip.MustParseAddr(podAddress))
	check(t, err)
	stamp := lab.TextStamp(capture.Rules(decision.Intent))
	p.nft(t, "flush", "chain", "inet", "capture-cni", "stamp")
	p.nft(t, "add", "rule", "inet", "capture-cni", "stamp", "return", "comment", `"`+stamp+`"`)
	return stamp
}
