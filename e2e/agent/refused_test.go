// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestRefusedAgent has an API server that refuses the agent's token, as after its service
// account was deleted and made again: the agent is not ready, and says why. Once the kubelet
// has renewed the token's file, the agent is ready again. Meanwhile a node whose API server
// only fails stays ready.
func TestRefusedAgent(t *testing.T) {
	t.Parallel()
	failing := newNode(t)
	stays := failing.start(t, "--mode", "insert")
	stays.ready(t)
	failing.api.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		kubeapi.WriteStatus(w, r, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "down")
		return true
	})
	failing.api.EndWatches()

	n := newNode(t)
	n.pod("web", true)
	a := n.start(t, "--mode", "insert")
	a.ready(t)
	lab.Check(t, expectMetric(a, "capture_cni_api_refused 0"))
	n.api.SetToken("of-the-new-account")
	n.api.EndWatches()
	a.ready(t, http.StatusServiceUnavailable)
	lab.Check(t, errors.Join(
		expectReadyz(a, "pods: the API server refuses the agent's token (401): if its service account was deleted and made again, delete the agent's pod"),
		expectMetric(a, "capture_cni_api_refused 1"), expectMetric(a, `capture_cni_node_good{part="pods"} 0`), expectMetric(stays, "capture_cni_api_refused 0")))
	stays.ready(t)
	if err := n.add(t, "5s"); err != nil { // by what the agent knows
		t.Errorf("a meshed pod: %v", err)
	}
	lab.Check(t, os.WriteFile(filepath.Join(filepath.Dir(n.access), "token"), []byte(n.api.Token()), 0o600))
	a.ready(t)
	lab.Check(t, expectMetric(a, "capture_cni_api_refused 0"))
}
