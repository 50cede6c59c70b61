// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/explain"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/history"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// TestExplain explains a drifted pod, and changes nothing.
func TestExplain(t *testing.T) {
	n := newNode()
	p := n.run(t, "web")
	p.capture(t, nil)
	n.pods["web"].Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "5432"
	p.nft(t, "insert", "rule", "inet", "capture-cni", "nat_OUTPUT", "return")
	before := p.list(t)
	keeper, _ := n.keeper(t, guard.ReportOnly)
	out := explanation(t, keeper, "shop", "web")
	for _, want := range []string{
		"sandbox      web", `excludeOutboundPorts: nothing; now "5432"`, "state        drifted", "because      ", "nat_OUTPUT", "kernel       backend nftables, capture-cni rules v5",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	if after := p.list(t); after != before {
		t.Errorf("it changed the rules:\n%s", after)
	}
	if strings.Contains(out, "last ADD") {
		t.Errorf("it names an ADD without an agent socket:\n%s", out)
	}
	if _, err := keeper.Explain(t.Context(), "shop", "none"); !errors.Is(err, guard.ErrNotHere) {
		t.Errorf("a pod that is not there: %v", err)
	}
}

// TestExplainsMuch has a pod add thousands of rules and chains: the guard's answers keep a
// size that kubectl reads, and say what is wrong.
func TestExplainsMuch(t *testing.T) {
	n := newNode()
	p := n.run(t, "web")
	p.capture(t, nil)
	comment := strings.Repeat("x", 120)
	p.host.Load(t, strings.Repeat("add rule inet capture-cni nat_OUTPUT counter comment \""+comment+"\"\n", 4000))
	if out := n.explain(t); !strings.Contains(out, "state        drifted\nbecause      unexpected: ") {
		t.Errorf("it does not say that the pod drifted:\n%.1000s", out)
	}
	chains := "add table inet vpn\n"
	for i := range 40 {
		chains += fmt.Sprintf("add chain inet vpn c%d { type filter hook output priority -301; }\nadd rule inet vpn c%d counter\n", i, i)
	}
	p.host.Load(t, chains)
	out := n.trace(t, toPeer)
	if doubts := strings.Count(out, "the packet meets other rules first: "); doubts != 32 || !strings.Contains(out, "can't tell   and 8 more\n") {
		t.Errorf("it has %d doubts:\n%s", doubts, out)
	}
}

// TestExplainsLabels compares the inject label of a pod, which overrides the
// annotation, with that of its sandbox.
func TestExplainsLabels(t *testing.T) {
	const key = "sidecar.istio.io/inject"
	n := newNode()
	p := n.run(t, "web")
	p.capture(t, nil)
	p.sandbox.Labels = map[string]string{key: "true"}
	n.sandboxes["web"] = p.sandbox
	for now, want := range map[string]string{"true": key + ": \"true\"\n", "false": key + ": \"true\"; now \"false\"\n"} {
		n.pods["web"].Labels = map[string]string{key: now}
		if out := n.explain(t); !strings.Contains(out, want) {
			t.Errorf("label %s now: it does not say %q:\n%s", now, want, out)
		}
	}
}

// TestExplainsExempt lists a pod of the mesh that is not captured, and says why.
func TestExplainsExempt(t *testing.T) {
	for want, change := range map[string]func(s *cri.Sandbox){
		"namespace excluded is in excludeNamespaces":      func(s *cri.Sandbox) { s.Namespace = "excluded" },
		"namespace openshift-dns is in excludeNamespaces": func(s *cri.Sandbox) { s.Namespace = "openshift-dns" },
		"interceptionMode is NONE":                        func(s *cri.Sandbox) { s.Annotations["sidecar.istio.io/interceptionMode"] = "NONE" },
	} {
		n := newNode()
		p := n.run(t, "web")
		sandbox := p.sandbox
		change(&sandbox)
		n.sandboxes["web"] = sandbox
		keeper, _ := n.keeper(t, guard.ReportOnly)
		pods, err := keeper.Pods(t.Context())
		if err != nil || !slices.Equal(pods, []string{sandbox.Namespace + "/web"}) {
			t.Errorf("%s: the node's pods are %q, %v", want, pods, err)
		}
		out := explanation(t, keeper, sandbox.Namespace, "web")
		if said := out; !strings.Contains(said, "state        exempt\nbecause      ") || !strings.Contains(said, want) {
			t.Errorf("%s is not said:\n%s", want, said)
		}
	}
}

// TestExplainsTheLastADD writes the record of the pod's ADD.
func TestExplainsTheLastADD(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	web := record.PodRef{Namespace: "shop", Name: "web", UID: "uid-of-web"}
	captured := record.Record{
		Time: at, Pod: web, Sandbox: "web", Verdict: record.Captured, Backend: "nftables", Warnings: []string{"IPv6 is left uncaptured"},
		Stages: map[record.Stage]float64{record.Deciding: .0005, record.Committing: .0123},
	}
	older, others := captured, captured
	older.Sandbox = "4ed1"
	others.Pod.UID = "9d53"
	for name, tt := range map[string]struct {
		records      []record.Record
		says, silent []string
	}{
		"captured": {
			[]record.Record{captured},
			[]string{
				"last ADD     2026-01-02T03:04:05Z: captured by nftables\n", "last ADD     decide took 0.5 ms\n",
				"last ADD     apply took 12.3 ms\n", "last ADD     warned: IPv6 is left uncaptured\n",
			},
			[]string{"earlier sandbox", "lookup", "not known"},
		},
		"failed": {
			[]record.Record{captured, {Time: at.Add(time.Minute), Pod: web, Sandbox: "web", Verdict: record.Failed, Reason: record.Lookup, Message: "no answer"}},
			[]string{"last ADD     2026-01-02T03:05:05Z: failed (lookup): no answer\n"},
			[]string{"nftables\n", "took", "warned", "earlier sandbox"},
		},
		"of the sandbox before": {
			[]record.Record{older}, []string{"captured by nftables; for an earlier sandbox of the pod, 4ed1\n"}, []string{"not known"},
		},
		"of another pod of that name": {[]record.Record{others}, []string{"last ADD     not known"}, []string{"nftables;", "took", "warned"}},
		"no record":                   {nil, []string{"last ADD     not known"}, []string{"took", "warned"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode()
			n.listen(t)
			n.run(t, "web").capture(t, nil)
			lab.Check(t, os.Mkdir(history.Directory(n.socket), 0o700))
			for _, r := range tt.records {
				lab.Check(t, recordADD(n.socket, r))
			}
			explained := n.explain(t)
			_, said, _ := strings.Cut(explained, "last ADD")
			for _, want := range tt.says {
				if !strings.Contains("last ADD"+said, want) {
					t.Errorf("it does not say %q:\n%s", want, explained)
				}
			}
			for _, unwanted := range tt.silent {
				if strings.Contains(said, unwanted) {
					t.Errorf("it says %q:\n%s", unwanted, explained)
				}
			}
		})
	}
}

// TestExplainsWithoutSandbox shows the last ADD of a pod that does not start, or has
// ended.
func TestExplainsWithoutSandbox(t *testing.T) {
	n := newNode()
	n.listen(t)
	lab.Check(t, os.Mkdir(history.Directory(n.socket), 0o700))
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i, message := range []string{"an earlier fault", "excludeOutboundPorts is \"http\": expected ports"} {
		uid := []string{"uid-1", "uid-2"}[i]
		lab.Check(t, recordADD(n.socket, record.Record{
			Time: at.Add(time.Duration(i) * time.Minute), Pod: record.PodRef{Namespace: "shop", Name: "web", UID: uid},
			Sandbox: "4ed1", Verdict: record.Failed, Reason: record.Annotations, Message: message,
		}))
	}
	explained := n.explain(t)
	for _, want := range []string{"UID uid-2\n", "sandbox      not examined: the last one known is 4ed1\n", "last ADD     2026-01-02T03:05:05Z: failed (annotations): excludeOutboundPorts is \"http\""} {
		if !strings.Contains(explained, want) {
			t.Errorf("it does not say %q:\n%s", want, explained)
		}
	}
	if found, err := guard.ExplainWithoutSandbox(history.Directory(n.socket), "shop", "other"); !errors.Is(err, guard.ErrNotHere) {
		t.Errorf("a pod that was never here: %v, %+v", err, found)
	}
}

// TestExplainsWithoutHistory where no agent has ever run, and refuses a history that
// other users can read.
func TestExplainsWithoutHistory(t *testing.T) {
	n := newNode()
	n.listen(t)
	n.run(t, "web").capture(t, nil)
	if out := n.explain(t); !strings.Contains(out, "last ADD     not known") {
		t.Errorf("it does not say that nothing is known:\n%s", out)
	}
	lab.Check(t, os.Mkdir(history.Directory(n.socket), 0o755))
	if out := n.explain(t); !strings.Contains(out, "last ADD     not known: ") || !strings.Contains(out, "owned by root, mode 0700") || !strings.Contains(out, "state        captured") {
		t.Errorf("a directory that other users can read:\n%s", out)
	}
}

func (n *node) explain(t *testing.T) string {
	t.Helper()
	keeper, _ := n.keeper(t, guard.ReportOnly)
	return explanation(t, keeper, "shop", "web")
}

// explanation returns the text of an explanation.
func explanation(t *testing.T, keeper *guard.Guard, namespace, name string) string {
	t.Helper()
	explained, err := keeper.Explain(t.Context(), namespace, name)
	lab.Check(t, err)
	return textOf(t, explained)
}

// textOf returns the text of what the guard answers, as kubectl reads it.
func textOf[T interface{ Text() string }](t *testing.T, answer T) string {
	t.Helper()
	document, err := json.Marshal(answer)
	lab.Check(t, err)
	if len(document) > explain.MaxSize/4 {
		t.Errorf("kubectl reads no answer of %d bytes", len(document))
	}
	var read T
	lab.Check(t, explain.Decode(document, &read))
	if diff := cmp.Diff(answer.Text(), read.Text()); diff != "" {
		t.Errorf("read as\n%s", diff)
	}
	return read.Text()
}

// recordADD writes a record to the history, as the agent does.
func recordADD(socket string, r record.Record) error {
	return history.Record(history.Directory(socket), r, false)
}
