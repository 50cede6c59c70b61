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
	stays := failing.Start(t, "--mode", "insert")
	stays.Ready(t)
	failing.API.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		kubeapi.WriteStatus(w, r, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "down")
		return true
	})
	failing.API.EndWatches()

	n := newNode(t)
	n.PutPod("web", true)
	a := n.StartReady(t, "--mode", "insert")
	lab.Check(t, a.ExpectMetric("capture_cni_api_refused 0"))
	n.API.SetToken("of-the-new-account")
	n.API.EndWatches()
	a.Ready(t, http.StatusServiceUnavailable)
	lab.Check(t, errors.Join(
		a.ExpectReadyz("pods: the API server refuses the agent's token (401): if its service account was deleted and made again, delete the agent's pod"),
		a.ExpectMetric("capture_cni_api_refused 1"), a.ExpectMetric(`capture_cni_node_good{part="pods"} 0`), stays.ExpectMetric("capture_cni_api_refused 0")))
	stays.Ready(t)
	if err := n.add(t, "5s"); err != nil { // by what the agent knows
		t.Errorf("a meshed pod: %v", err)
	}
	lab.Check(t, os.WriteFile(filepath.Join(filepath.Dir(n.Access), "token"), []byte(n.API.Token()), 0o600))
	a.Ready(t)
	lab.Check(t, a.ExpectMetric("capture_cni_api_refused 0"))
}
