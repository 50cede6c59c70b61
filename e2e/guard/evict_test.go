// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// listen opens the socket of the node's agent.
func (n *node) listen(t *testing.T) *net.UnixConn {
	t.Helper()
	n.socket = filepath.Join(t.TempDir(), "s")
	return lab.AgentSocket(t, n.socket)
}

// receive returns the records that were sent so far, by pod, without waiting.
func receive(t *testing.T, conn *net.UnixConn) map[string][]record.Record {
	t.Helper()
	records := map[string][]record.Record{}
	for _, document := range lab.Datagrams(t, conn) {
		r, err := telemetry.ParseRecord(document)
		lab.Check(t, err)
		records[r.Pod.Name] = append(records[r.Pod.Name], r)
	}
	return records
}

// own gives the pod a controller of some kind.
func (n *node) own(name, kind string) {
	controller := true
	n.pods[name].OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: kind, Name: "owner", Controller: &controller}}
}

// TestEvict changes nothing in any namespace, and requests at each examination the
// eviction of a pod that is not captured and has a controller.
func TestEvict(t *testing.T) {
	t.Parallel()
	n := newNode()
	conn := n.listen(t)
	n.run(t, "uncaptured")
	n.own("uncaptured", "ReplicaSet")
	n.run(t, "alone")
	drifted := n.run(t, "drifted")
	drifted.capture(t, nil)
	n.own("drifted", "DaemonSet")
	drifted.nft(t, "insert", "rule", "inet", "capture-cni", "nat_OUTPUT", "return")
	before := drifted.list(t)
	g := n.newGuard(t, options{policy: guard.Evict})
	sent := map[string][]record.Record{}
	const examinations = 2
	for range examinations {
		g.finds(t, report.Drifted, report.Uncaptured, report.Uncaptured)
		for name, records := range receive(t, conn) {
			sent[name] = append(sent[name], records...)
		}
	}
	for _, name := range []string{"uncaptured", "drifted"} {
		if got := verdicts(sent[name]); got[telemetry.Found] != 1 || got[telemetry.EvictionRequested] < examinations || len(got) != 2 {
			t.Errorf("%s: sent %v", name, got)
		}
	}
	if alone := sent["alone"]; len(alone) != 1 || !strings.Contains(alone[0].Message, "it has no controller that would replace it, so it is not evicted") {
		t.Errorf("a pod without a controller: %+v", alone)
	}
	if after := drifted.list(t); after != before {
		t.Errorf("the rules were changed:\n%s", after)
	}
}

func verdicts(records []record.Record) map[record.Verdict]int {
	counts := map[record.Verdict]int{}
	for _, r := range records {
		counts[r.Verdict]++
	}
	return counts
}
