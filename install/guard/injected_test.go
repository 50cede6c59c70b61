// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// TestInjectedLater has pods that the API server shows as pods of the mesh, and whose
// annotations were edited since their sandbox was made: the plugin has passed them.
func TestInjectedLater(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*cri.Sandbox)
		want   report.Code // "" for a pod that is not watched
		asked  int         // requests for the pod
	}{
		"later":              {func(*cri.Sandbox) {}, report.InjectedLater, 0},
		"excluded":           {func(s *cri.Sandbox) { s.Namespace = "excluded" }, report.Exempt, 0},
		"the node's network": {func(s *cri.Sandbox) { s.NetNS = "" }, "", 0},
		"another pod":        {func(s *cri.Sandbox) { s.UID = "another" }, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, g := newPodNode(t, Settings{Policy: InPlace})
			n.uids = []string{"uid-of-web"}
			n.sandbox.Annotations = nil
			tt.change(&n.sandbox)
			expectWatched := func(when string, want report.Code) {
				t.Helper()
				g.Round(t.Context()) // asks for the pods that are injected now
				g.Round(t.Context())
				if w := g.watched["web"]; (w != nil) != (want != "") || w != nil && w.finding.Code != want {
					t.Errorf("%s: it watches %+v", when, w)
				}
			}
			expectWatched("injected", tt.want)
			if tt.want == report.InjectedLater {
				expectText(t, explained(t, g, "shop"), []string{"state        injected_later\n", "sidecar.istio.io/status: nothing; now "}, nil)
			}
			n.uids = nil
			expectWatched("not injected", "")
		})
	}
}

// TestIsolatedSandbox reports a pod whose runtime keeps a network stack of its own as
// uncaptured, whatever its namespace holds, and neither repairs nor evicts it: nothing of
// that would capture it.
func TestIsolatedSandbox(t *testing.T) {
	t.Parallel()
	for _, policy := range Policies() {
		socket := t.TempDir() + "/s"
		conn := lab.AgentSocket(t, socket)
		n, g := newPodNode(t, Settings{Policy: policy, Socket: socket})
		n.sandbox.Runtime = cri.OCIRuntime{Handler: "fast", Type: "io.containerd.kata.v2"}
		for range 2 {
			g.Round(t.Context())
		}
		sent := receive(t, conn)
		if len(sent) != 1 || sent[0].Verdict != telemetry.Found || sent[0].Reason != telemetry.Uncaptured || !strings.Contains(sent[0].Message, "network stack") {
			t.Errorf("%s: reported %+v", policy, sent)
		}
		if requests := slices.DeleteFunc(n.asked, func(r lookup.Request) bool { return r.Injected }); len(requests) != 2 {
			t.Errorf("%s: asked %+v", policy, requests)
		}
	}
}
