// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/report"
)

// TestExplain explains a drifted pod, and changes nothing.
func TestExplain(t *testing.T) {
	t.Parallel()
	n := newNode()
	p := n.run(t, "web")
	p.capture(t, nil)
	n.pods["web"].Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "5432"
	p.nft(t, "insert", "rule", "inet", "capture-cni", "nat_OUTPUT", "return")
	before := p.list(t)
	g := n.newGuard(t, options{policy: guard.ReportOnly})
	out := g.explain(t, "web")
	for _, want := range []string{
		"sandbox      web", `excludeOutboundPorts: nothing; now "5432"`, "state        drifted", "because      ", "nat_OUTPUT", "kernel       backend nftables, capture-cni rules v5",
		"last ADD     not known: the agent has no record of it",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	if after := p.list(t); after != before {
		t.Errorf("it changed the rules:\n%s", after)
	}
	if _, err := g.Explain(t.Context(), "shop", "none"); !errors.Is(err, guard.ErrNotHere) {
		t.Errorf("a pod that is not there: %v", err)
	}
}

// TestExplainsMuch has a pod add many rules and chains: the guard's answers keep a
// size that kubectl reads, and say what is wrong.
func TestExplainsMuch(t *testing.T) {
	t.Parallel()
	n := newNode()
	p := n.run(t, "web")
	p.capture(t, nil)
	comment := strings.Repeat("x", 120)
	p.host.Load(t, strings.Repeat("add rule inet capture-cni nat_OUTPUT counter comment \""+comment+"\"\n", 100))
	if out := n.explain(t); !strings.Contains(out, "state        drifted\nbecause      unexpected: ") || !strings.Contains(out, "... and 80 more") {
		t.Errorf("it does not say that the pod drifted, or names all rules:\n%.1000s", out)
	}
	chains := "add table inet vpn\n"
	for i := range 40 {
		chains += fmt.Sprintf("add chain inet vpn c%d { type filter hook output priority -301; }\nadd rule inet vpn c%d counter\n", i, i)
	}
	p.host.Load(t, chains)
	out := n.trace(t, toPeer)
	if doubts := strings.Count(out, "other rules can affect the packet: "); doubts != 32 || !strings.Contains(out, "can't tell   and 8 more\n") {
		t.Errorf("it has %d doubts:\n%s", doubts, out)
	}
}

func (n *node) explain(t *testing.T) string {
	t.Helper()
	return n.newGuard(t, options{policy: guard.ReportOnly}).explain(t, "web")
}

// explain returns the text of an explanation.
func (g nodeGuard) explain(t *testing.T, name string) string {
	t.Helper()
	examining.Lock()
	defer examining.Unlock()
	explained, err := g.Explain(t.Context(), "shop", name)
	lab.Check(t, err)
	return textOf(t, explained)
}

// textOf returns the text of what the guard answers, as kubectl reads it.
func textOf[T interface{ Text() string }](t *testing.T, answer T) string {
	t.Helper()
	document, err := json.Marshal(answer)
	lab.Check(t, err)
	if len(document) > report.MaxExplanation/4 {
		t.Errorf("kubectl reads no answer of %d bytes", len(document))
	}
	var read T
	lab.Check(t, report.DecodeAnswer(document, &read))
	if diff := cmp.Diff(answer.Text(), read.Text()); diff != "" {
		t.Errorf("read as\n%s", diff)
	}
	return read.Text()
}
