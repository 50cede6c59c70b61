// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/received"
	"github.com/capture-cni/capture-cni/install/terms"
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
		r, err := received.Read(document)
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

// kinds are pods of all kinds, and the records that a guard that evicts sends of
// each: its finding once, and a request for an eviction at each examination.
var kinds = map[string]struct {
	owner     string
	happened  func(t *testing.T, n *node, p *pod)
	found     record.Reason
	requested bool
}{
	"uncaptured": {"ReplicaSet", func(*testing.T, *node, *pod) {}, received.Uncaptured, true},
	"drifted": {"DaemonSet", func(t *testing.T, _ *node, p *pod) {
		p.capture(t, nil)
		p.nft(t, "insert", "rule", "inet", "capture-cni", "nat_OUTPUT", "return")
	}, received.Drifted, true},
	"loosened": {"ReplicaSet", func(_ *testing.T, n *node, p *pod) {
		n.pods[p.sandbox.ID].Annotations["traffic.sidecar.istio.io/includeOutboundIPRanges"] = ""
	}, received.Uncaptured, true},
	"alone":    {"", func(*testing.T, *node, *pod) {}, received.Uncaptured, false},
	"static":   {"Node", func(*testing.T, *node, *pod) {}, received.Uncaptured, false},
	"captured": {"ReplicaSet", func(t *testing.T, _ *node, p *pod) { p.capture(t, nil) }, "", false},
	"outdated": {"ReplicaSet", func(t *testing.T, _ *node, p *pod) {
		p.capture(t, map[string]string{"traffic.sidecar.istio.io/excludeInboundPorts": "9090"})
	}, received.Outdated, false},
	"foreign": {"ReplicaSet", func(t *testing.T, _ *node, p *pod) {
		p.nft(t, "add", "table", "ip", "nat")
		p.nft(t, "add", "chain", "ip", "nat", "ISTIO_OUTPUT")
	}, received.Foreign, false},
	"unknown": {"ReplicaSet", func(_ *testing.T, n *node, p *pod) { delete(n.pods, p.sandbox.ID) }, "", false},
	"exempt": {"ReplicaSet", func(_ *testing.T, n *node, p *pod) {
		p.sandbox.Annotations["sidecar.istio.io/interceptionMode"] = "NONE"
	}, "", false},
}

// TestEvict changes nothing in any namespace, and requests at each examination the
// eviction of the pods that are not captured and have a controller, and of no other.
func TestEvict(t *testing.T) {
	n := newNode()
	conn := n.listen(t)
	before := map[string]string{}
	pods := map[string]*pod{}
	for name, kind := range kinds {
		pods[name] = n.run(t, name)
		if kind.owner != "" {
			n.own(name, kind.owner)
		}
		kind.happened(t, n, pods[name])
		before[name] = pods[name].list(t)
	}
	keeper, registry := n.keeper(t, guard.Evict)
	const examinations = 3
	sent := map[string][]record.Record{}
	for i := range examinations {
		keeper.Round(t.Context())
		for name, records := range receive(t, conn) {
			if requested := count(records, received.EvictionRequested); requested != (map[bool]int{true: 1})[kinds[name].requested] {
				t.Errorf("%s: requested %d times at examination %d", name, requested, i)
			}
			sent[name] = append(sent[name], records...)
		}
	}
	for name, kind := range kinds {
		want := map[record.Verdict]int{}
		if kind.found != "" {
			want[received.Found] = 1
		}
		if kind.requested {
			want[received.EvictionRequested] = examinations
		}
		if diff := cmp.Diff(want, verdicts(sent[name])); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		for _, r := range sent[name] {
			spared := strings.Contains(r.Message, "it has no controller that would replace it, so it is not evicted")
			if r.Reason != kind.found || r.Pod.UID != "uid-of-"+name || r.Sandbox != name || spared != (kind.found == received.Uncaptured && !kind.requested) {
				t.Errorf("%s: sent %+v", name, r)
			}
		}
		if after := pods[name].list(t); after != before[name] {
			t.Errorf("%s: its rules were changed:\n%s", name, after)
		}
	}
	expect(t, registry, map[terms.State]float64{
		terms.Uncaptured: 4, terms.Drifted: 1, terms.Captured: 1, terms.Outdated: 1, terms.Foreign: 1, terms.Unknown: 1, terms.Exempt: 1,
	})
}

func count(records []record.Record, verdict record.Verdict) int { return verdicts(records)[verdict] }

func verdicts(records []record.Record) map[record.Verdict]int {
	counts := map[record.Verdict]int{}
	for _, r := range records {
		counts[r.Verdict]++
	}
	return counts
}

// TestEvictionRequestsStop for a pod that is captured by now or has ended, and go on
// for one that is not captured, also if no agent received the last request.
func TestEvictionRequestsStop(t *testing.T) {
	n := newNode()
	conn := n.listen(t)
	healed := n.run(t, "healed")
	for _, name := range []string{"gone", "stays"} {
		n.run(t, name)
	}
	for name := range n.pods {
		n.own(name, "ReplicaSet")
	}
	keeper, _ := n.keeper(t, guard.Evict)
	keeper.Round(t.Context())
	if got := slices.Sorted(maps.Keys(receive(t, conn))); !slices.Equal(got, []string{"gone", "healed", "stays"}) {
		t.Fatalf("asked for %q", got)
	}
	healed.capture(t, nil)
	delete(n.sandboxes, "gone")
	lab.Check(t, os.Rename(n.socket, n.socket+".away"))
	keeper.Round(t.Context()) // without an agent
	lab.Check(t, os.Rename(n.socket+".away", n.socket))
	keeper.Round(t.Context())
	got := receive(t, conn)
	if count(got["stays"], received.EvictionRequested) != 1 || len(got) != 1 {
		t.Errorf("sent %v", got)
	}
}

// TestOtherPoliciesEvictNoPod send findings and repairs, and request no eviction.
func TestOtherPoliciesEvictNoPod(t *testing.T) {
	for policy, want := range map[guard.Policy]record.Verdict{guard.InPlace: received.Repaired, guard.ReportOnly: received.Found} {
		n := newNode()
		conn := n.listen(t)
		for _, name := range []string{"owned", "alone"} {
			n.run(t, name)
		}
		n.own("owned", "ReplicaSet")
		keeper, _ := n.keeper(t, policy)
		for range 3 {
			keeper.Round(t.Context())
		}
		received := receive(t, conn)
		for _, name := range []string{"owned", "alone"} {
			got := received[name]
			if diff := cmp.Diff(map[record.Verdict]int{want: 1}, verdicts(got)); diff != "" || strings.Contains(got[0].Message, "evicted") {
				t.Errorf("%s: %s: sent %v\n%s", policy, name, got, diff)
			}
		}
	}
}
