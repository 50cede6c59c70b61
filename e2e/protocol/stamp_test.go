// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"net/netip"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestStampOfText runs CHECK and a second ADD for a pod whose rules an earlier
// version of the plugin wrote: their stamp holds a hash of text.
func TestStampOfText(t *testing.T) {
	n, host := newNode(t), sandbox(t)
	conn, socket := listen(t)
	c := call{netns: host.Path(), stdin: n.conf(reportTo(socket))}
	c.run(t).succeeds(t)
	decision, err := lab.Decide(meshed(), config.DefaultSettings(), netip.MustParseAddr("192.0.2.1"))
	check(t, err)
	stamp := lab.TextStamp(capture.Rules(decision.Intent))
	script(t, host, "flush chain inet capture-cni stamp\n"+
		`add rule inet capture-cni stamp return comment "`+stamp+`"`)
	before := ruleset(t, host)
	verify := call{command: "CHECK", netns: host.Path(), stdin: n.conf("")}
	verify.run(t).silent(t)
	receive(t, conn) // of the first ADD
	c.run(t).succeeds(t)
	if r := receive(t, conn); r.Stamp != stamp {
		t.Errorf("the record has stamp %q, the namespace %q", r.Stamp, stamp)
	}
	if after := ruleset(t, host); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	script(t, host, "flush chain inet capture-cni nat_ISTIO_INBOUND")
	verify.run(t).fails(t, 999, "nat_ISTIO_INBOUND")
	c.run(t).fails(t, 101, "the rules in the namespace were changed since ADD")
}
