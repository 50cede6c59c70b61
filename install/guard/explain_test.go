// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// podNode is a runtime and an agent that know one pod, which needs no network namespace to
// be examined.
type podNode struct {
	*shaky
	*agent
	sandbox cri.Sandbox
	pod     capture.Pod // as it is now
	uids    []string    // of the pods that are injected now
}

// newPodNode returns the node of a pod that a test may change, and a guard of it.
func newPodNode(t *testing.T, settings Settings) (*podNode, *Guard) {
	t.Helper()
	n := &podNode{sandbox: cri.Sandbox{ID: "web", Namespace: "shop", Name: "web", UID: "uid-of-web", NetNS: "/nonexistent", Annotations: injected()}}
	n.pod = capture.Pod{Annotations: injected(), Containers: []capture.Container{{Name: "app"}, {Name: "istio-proxy"}}}
	n.shaky = &shaky{list: func(context.Context) ([]cri.Sandbox, error) { return []cri.Sandbox{n.sandbox}, nil }}
	n.agent = &agent{answer: func(context.Context) (lookup.Answer, error) {
		return lookup.Answer{UID: n.sandbox.UID, Pod: &n.pod, HasController: true, Injected: n.uids}, nil
	}}
	settings.Conf = config.Default()
	settings.Conf.ExcludeNamespaces = []string{"excluded", "openshift-*"}
	return n, New(settings, n.shaky, n.agent, slog.New(slog.NewTextHandler(t.Output(), nil)), prometheus.NewRegistry())
}

func injected() map[string]string { return map[string]string{"sidecar.istio.io/status": "{}"} }

// explained returns the text of the pod's explanation.
func explained(t *testing.T, g *Guard, namespace string) string {
	t.Helper()
	found, err := g.Explain(t.Context(), namespace, "web")
	lab.Check(t, err)
	return found.Text()
}

// expectText wants some lines in an explanation, and others not.
func expectText(t *testing.T, text string, says, silent []string) {
	t.Helper()
	for _, want := range says {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	for _, unwanted := range silent {
		if strings.Contains(text, unwanted) {
			t.Errorf("it says %q:\n%s", unwanted, text)
		}
	}
}

// TestExplainsLabels compares the inject label of a pod, which overrides the
// annotation, with that of its sandbox.
func TestExplainsLabels(t *testing.T) {
	t.Parallel()
	const key = "sidecar.istio.io/inject"
	n, g := newPodNode(t, Settings{})
	n.sandbox.Labels = map[string]string{key: "true"}
	for now, want := range map[string]string{"true": key + ": \"true\"\n", "false": key + ": \"true\"; now \"false\"\n"} {
		n.pod = n.pod.With(map[string]string{key: now}, injected())
		expectText(t, explained(t, g, "shop"), []string{want}, nil)
	}
}

// TestExplainsExcluded lists a pod of the mesh in an excluded namespace, and says why it is
// not captured.
func TestExplainsExcluded(t *testing.T) {
	t.Parallel()
	for _, namespace := range []string{"excluded", "openshift-dns"} {
		n, g := newPodNode(t, Settings{})
		n.sandbox.Namespace = namespace
		if pods, err := g.Pods(t.Context()); err != nil || !slices.Equal(pods, []string{namespace + "/web"}) {
			t.Errorf("%s: the node's pods are %q, %v", namespace, pods, err)
		}
		expectText(t, explained(t, g, namespace), []string{"state        exempt\nbecause      ", "namespace " + namespace + " is in excludeNamespaces"}, nil)
	}
}

// TestExplainsTheLastADD reads the record of the pod's ADD from the agent's history.
func TestExplainsTheLastADD(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	web := capture.PodRef{Namespace: "shop", Name: "web", UID: "uid-of-web"}
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
			[]string{"earlier sandbox", "lookup", "ADD     not known"},
		},
		"failed": {
			[]record.Record{captured, {Time: at.Add(time.Minute), Pod: web, Sandbox: "web", Verdict: record.Failed, Reason: capture.ReasonLookup, Message: "no answer"}},
			[]string{"last ADD     2026-01-02T03:05:05Z: failed (lookup): no answer\n"},
			[]string{"nftables\n", "took", "warned", "earlier sandbox"},
		},
		"of the sandbox before": {
			[]record.Record{older}, []string{"captured by nftables; for an earlier sandbox of the pod, 4ed1\n"}, []string{"ADD     not known"},
		},
		"of another pod of that name": {[]record.Record{others}, []string{"last ADD     not known"}, []string{"nftables;", "took", "warned"}},
		"no record":                   {nil, []string{"last ADD     not known"}, []string{"took", "warned"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, g := newPodNode(t, Settings{HistoryDir: writeHistory(t, tt.records...)})
			expectText(t, explained(t, g, "shop"), tt.says, tt.silent)
		})
	}
}

// writeHistory writes records as the agent does, and returns their directory.
func writeHistory(t *testing.T, records ...record.Record) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "adds")
	lab.Check(t, os.Mkdir(dir, 0o700))
	for _, r := range records {
		lab.Check(t, telemetry.KeepRecord(dir, r, false))
	}
	return dir
}

// TestExplainsWithoutSandbox shows the last ADD of a pod that does not start, or has
// ended.
func TestExplainsWithoutSandbox(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	failed := func(uid string, after time.Duration, message string) record.Record {
		return record.Record{
			Time: at.Add(after), Pod: capture.PodRef{Namespace: "shop", Name: "web", UID: uid},
			Sandbox: "4ed1", Verdict: record.Failed, Reason: capture.ReasonAnnotations, Message: message,
		}
	}
	dir := writeHistory(t, failed("uid-1", 0, "an earlier fault"), failed("uid-2", time.Minute, "excludeOutboundPorts is \"http\": expected ports"))
	n, g := newPodNode(t, Settings{HistoryDir: dir})
	n.sandbox.Name = "other"
	expectText(t, explained(t, g, "shop"), []string{
		"UID uid-2\n", "sandbox      not examined: the last one known is 4ed1\n",
		"last ADD     2026-01-02T03:05:05Z: failed (annotations): excludeOutboundPorts is \"http\"",
	}, nil)
	if found, err := ExplainWithoutSandbox(dir, "shop", "none"); !errors.Is(err, ErrNotHere) {
		t.Errorf("a pod that was never here: %v, %+v", err, found)
	}
}

// TestExplainsWithoutHistory where no agent has ever run, and refuses a history that
// other users can read.
func TestExplainsWithoutHistory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "adds")
	_, g := newPodNode(t, Settings{HistoryDir: dir})
	expectText(t, explained(t, g, "shop"), []string{"last ADD     not known"}, nil)
	lab.Check(t, os.Mkdir(dir, 0o755))
	expectText(t, explained(t, g, "shop"), []string{"last ADD     not known: ", "owned by root, mode 0700", "state        unknown"}, nil)
}

// TestExplainHasNoSecret quotes only annotations that have a form, such as those of a fence
// in any mesh: an explanation goes into support archives (S13).
func TestExplainHasNoSecret(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-7Gq"
	n, g := newPodNode(t, Settings{})
	made, now := n.sandbox.Annotations, n.pod.Annotations
	made["sidecar.istio.io/status"], now["sidecar.istio.io/status"] = `{"psk":"`+secret+`"}`, `{"psk":"`+secret+`2"}`
	for _, key := range []string{"proxy.istio.io/config", "istio.io/other", secret + ".istio.io/x", "kubectl.kubernetes.io/last-applied-configuration"} {
		made[key], now[key] = `{"name":"ETCD_PASSWORD","value":"`+secret+`"}`, secret
	}
	long := strings.Repeat("8080,", 1000) + "9090"
	made["traffic.sidecar.istio.io/excludeInboundPorts"], now["traffic.sidecar.istio.io/excludeInboundPorts"] = long, long
	now["traffic.sidecar.istio.io/excludeOutboundPorts"] = "5432"
	made["capture-cni.io/fence"] = "strict"
	out := explained(t, g, "shop")
	expectText(t, out, []string{"sidecar.istio.io/status: present\n", "8080,8080", "(5004 bytes, cut after 1024)", `excludeOutboundPorts: nothing; now "5432"`, `capture-cni.io/fence: "strict"; now nothing`}, []string{secret})
	if len(out) > 8<<10 {
		t.Errorf("it has %d bytes", len(out))
	}
}
