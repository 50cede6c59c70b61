// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// TestTrace expects the answer of the guard on the pod's node, or the reason for which there is no such
// guard.
func TestTrace(t *testing.T) {
	t.Parallel()
	both := []string{InstallerContainer, GuardContainer}
	for name, tt := range map[string]struct {
		explainCase
		fault string
	}{
		"captured":           {explainCase: explainCase{pod: meshed(nil), agent: both, says: `{"form":1,"namespace":"shop","name":"web","path":{"verdict":"redirect","port":15001}}`}},
		"gone":               {explainCase{agent: both}, "reading pod shop/web"},
		"not scheduled":      {explainCase{pod: meshed(func(p *corev1.Pod) { p.Spec.NodeName = "" }), agent: both}, "it has no node yet"},
		"not in the mesh":    {explainCase{pod: meshed(func(p *corev1.Pod) { p.Annotations = nil }), agent: both}, "no rule concerns it: it has no annotation"},
		"no agent":           {explainCase{pod: meshed(nil)}, "no agent of namespace capture-cni runs on its node node-1"},
		"forbidden":          {explainCase{pod: meshed(nil), agent: both, denied: "daemonsets"}, "capture-cni-operator"},
		"no guard":           {explainCase{pod: meshed(nil), agent: both[:1]}, "render --pod FILE --to"},
		"flags with a fault": {explainCase{pod: meshed(nil), agent: both, fails: errors.New(`--to is "x": expected an IP address`)}, `--to is "x"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(&tt.explainCase)
			t.Cleanup(server.Close)
			client, err := NewClient(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			exec := func(_ context.Context, agent Agent, container string, command []string, out io.Writer) error {
				if agent.name != "agent-of-node-1" || container != GuardContainer || !slices.Equal(command, []string{"/capture-cni-node", "explain", "--output=json", "shop/web", "--to=10.0.0.1:80", "--in=true"}) {
					t.Errorf("%q is executed in container %s of %s", command, container, agent.name)
				}
				return tt.execute(out)
			}
			traced, err := Explainer{Client: client, Exec: exec, Namespace: DefaultNamespace}.Trace(t.Context(), "shop", "web", []string{"--to=10.0.0.1:80", "--in=true"})
			if tt.fault == "" && (err != nil || !strings.Contains(traced.Text(), "verdict      redirected to port 15001\n")) {
				t.Errorf("got %+v, %v", traced, err)
			}
			if tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault)) {
				t.Errorf("got %v, want %q", err, tt.fault)
			}
		})
	}
}
