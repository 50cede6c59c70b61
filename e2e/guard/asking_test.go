// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/received"
	"github.com/capture-cni/capture-cni/install/terms"
	"github.com/capture-cni/capture-cni/plugin/lookup"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// keeperOfAgent makes a guard that asks the agent at a socket.
func (n *node) keeperOfAgent(t *testing.T, socket string, policy guard.Policy) (*guard.Guard, *prometheus.Registry) {
	t.Helper()
	return n.keeperAsking(t, lookup.Agent{Socket: socket}, n, guard.Settings{Policy: policy})
}

// TestEditShowsInTheNextRound asks for each pod in each round, with the digest of what
// the guard knows, so that only a pod that was edited is decided again.
func TestEditShowsInTheNextRound(t *testing.T) {
	const key = "traffic.sidecar.istio.io/excludeOutboundPorts"
	n := newNode()
	p := n.run(t, "web")
	p.capture(t, nil)
	socket, _ := n.serveIn(t, t.TempDir())
	keeper, registry := n.keeperOfAgent(t, socket, guard.InPlace)
	expectRound := func(what string, state terms.State, reads, unchanged int) {
		t.Helper()
		keeper.Round(t.Context())
		expect(t, registry, map[terms.State]float64{state: 1})
		if n.reads != reads || n.unchanged != unchanged {
			t.Errorf("%s: %d requests, %d of them unchanged; want %d and %d", what, n.reads, n.unchanged, reads, unchanged)
		}
	}
	expectRound("the first", terms.Captured, 1, 0)
	expectRound("nothing has changed", terms.Captured, 2, 1)
	n.pods["web"].Annotations[key] = "5432"
	expectRound("edited", terms.Changed, 3, 1)
	expectRound("nothing has changed since", terms.Changed, 4, 2)
	delete(n.pods["web"].Annotations, key)
	expectRound("as it was made", terms.Captured, 5, 2)
	n.pods["web"].Annotations["example.com/other"] = "x"
	expectRound("edited where nothing is decided", terms.Captured, 6, 3)
}

// TestAgentAway repairs pods whose desired state is known while no agent answers, and
// says of others why their state is unknown.
func TestAgentAway(t *testing.T) {
	n := newNode()
	known := n.run(t, "known")
	known.capture(t, nil)
	dir := t.TempDir()
	socket, stop := n.serveIn(t, dir)
	keeper, registry := n.keeperOfAgent(t, socket, guard.InPlace)
	keeper.Round(t.Context())
	expect(t, registry, map[terms.State]float64{terms.Captured: 1})

	stop()
	n.run(t, "later")
	known.nft(t, "delete", "table", "inet", "capture-cni")
	keeper.Round(t.Context())
	expect(t, registry, map[terms.State]float64{terms.Captured: 1, terms.Unknown: 1})
	if !strings.Contains(known.list(t), "redirect to :15001") {
		t.Errorf("it is not repaired:\n%s", known.list(t))
	}
	out := explanation(t, keeper, "shop", "later")
	for _, want := range []string{"asks now     unknown: asking the node agent at " + socket, "state        unknown\nbecause      asking the node agent at " + socket} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}

	n.serveIn(t, dir)
	keeper.Round(t.Context())
	expect(t, registry, map[terms.State]float64{terms.Captured: 2})
}

// TestNeedsNoCredentials runs the built guard with the agent's sockets and its own
// directory alone, as the chart's container has them. It sends its records there, too.
func TestNeedsNoCredentials(t *testing.T) {
	n := newNode()
	captured, bare := n.run(t, "captured"), n.run(t, "bare")
	captured.capture(t, nil)
	runDir := t.TempDir()
	n.serveIn(t, runDir)
	conn := lab.AgentSocket(t, config.GuardSocket(filepath.Join(runDir, config.AgentSocketName)))
	stub := &criStub{netns: map[string]string{}}
	for _, p := range []*pod{captured, bare} {
		stub.netns[p.sandbox.ID] = p.sandbox.NetNS
		stub.items = append(stub.items, &runtimeapi.PodSandbox{
			Id: p.sandbox.ID, State: runtimeapi.PodSandboxState_SANDBOX_READY, Annotations: p.sandbox.Annotations,
			Metadata: &runtimeapi.PodSandboxMetadata{Namespace: p.sandbox.Namespace, Name: p.sandbox.Name, Uid: p.sandbox.UID},
		})
	}
	_, address, _ := startGuard(t, runDir, "--policy", "report", "--round", "1s", "--cri-socket", serveCRI(t, t.TempDir(), stub))
	waitForCaptured(t, address, 1)
	if got := waitForRecord(t, conn, "bare"); got.Verdict != received.Found || got.Reason != received.Uncaptured {
		t.Errorf("it reports %+v", got)
	}
	entries, err := os.ReadDir(runDir)
	lab.Check(t, err)
	for _, entry := range entries {
		if name := entry.Name(); name != config.SocketsName && name != "guard" {
			t.Errorf("it has made %s", name)
		}
	}
}

func waitForRecord(t *testing.T, conn *net.UnixConn, pod string) record.Record {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if records := receive(t, conn)[pod]; len(records) > 0 {
			return records[0]
		}
	}
	t.Fatalf("no record of %s", pod)
	return record.Record{}
}
