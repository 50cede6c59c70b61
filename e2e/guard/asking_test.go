// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// TestEditShowsInTheNextRound asks for each pod in each round, with the digest of what
// the guard knows, so that only a pod that was edited is decided again.
func TestEditShowsInTheNextRound(t *testing.T) {
	t.Parallel()
	const key = "traffic.sidecar.istio.io/excludeOutboundPorts"
	n := newNode()
	p := n.run(t, "web")
	p.capture(t, nil)
	socket, _ := n.serveIn(t, t.TempDir())
	g := n.newGuard(t, options{pods: lookup.Agent{Socket: socket, AcceptTimeout: lab.Patience}})
	expectRound := func(what string, state report.Code, reads, unchanged int) {
		t.Helper()
		g.finds(t, state)
		if n.reads != reads || n.unchanged != unchanged {
			t.Errorf("%s: %d requests, %d of them unchanged; want %d and %d", what, n.reads, n.unchanged, reads, unchanged)
		}
	}
	expectRound("the first", report.Captured, 1, 0)
	expectRound("nothing has changed", report.Captured, 2, 1)
	n.pods["web"].Annotations[key] = "5432"
	expectRound("edited", report.Changed, 3, 1)
	expectRound("nothing has changed since", report.Changed, 4, 2)
	delete(n.pods["web"].Annotations, key)
	expectRound("as it was made", report.Captured, 5, 2)
	n.pods["web"].Annotations["example.com/other"] = "x"
	expectRound("edited where nothing is decided", report.Captured, 6, 3)
}

// TestAgentAway repairs pods whose desired state is known while no agent answers, and
// says of others why their state is unknown.
func TestAgentAway(t *testing.T) {
	t.Parallel()
	n := newNode()
	known := n.run(t, "known")
	known.capture(t, nil)
	dir := t.TempDir()
	socket, stop := n.serveIn(t, dir)
	g := n.newGuard(t, options{pods: lookup.Agent{Socket: socket, AcceptTimeout: lab.Patience}})
	g.finds(t, report.Captured)

	stop()
	n.run(t, "later")
	known.nft(t, "delete", "table", "inet", "capture-cni")
	g.finds(t, report.Captured, report.Unknown)
	if !strings.Contains(known.list(t), "redirect to :15001") {
		t.Errorf("it is not repaired:\n%s", known.list(t))
	}
	out := g.explain(t, "later")
	for _, want := range []string{"asks now     unknown: asking the node agent at " + socket, "state        unknown\nbecause      asking the node agent at " + socket} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}

	n.serveIn(t, dir)
	g.finds(t, report.Captured, report.Captured)
}

// TestNeedsNoCredentials runs the built guard with the agent's sockets and its own
// directory alone, as the chart's container has them. It sends its records there, too.
func TestNeedsNoCredentials(t *testing.T) {
	t.Parallel()
	n := newNode()
	captured, bare := n.run(t, "captured"), n.run(t, "bare")
	captured.capture(t, nil)
	runDir := t.TempDir()
	n.serveIn(t, runDir)
	conn := lab.AgentSocket(t, config.GuardSocket(filepath.Join(runDir, config.AgentSocketName)))
	b := startGuard(t, runDir, "--policy", "report", "--round", "1s", "--cri-socket", serveCRI(t, t.TempDir(), newCRIStub(captured, bare)))
	b.waitForCaptured(t, 1)
	lab.Eventually(t, func() error {
		records := receive(t, conn)["bare"]
		if len(records) == 0 {
			return errors.New("no record of the pod that is not captured")
		}
		if got := records[0]; got.Verdict != telemetry.Found || got.Reason != telemetry.Uncaptured {
			t.Errorf("it reports %+v", got)
		}
		return nil
	})
	entries, err := os.ReadDir(runDir)
	lab.Check(t, err)
	for _, entry := range entries {
		if name := entry.Name(); name != config.SocketsName && name != "guard" {
			t.Errorf("it has made %s", name)
		}
	}
}
