// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// TestRefusedAgent has an API server that refuses the agent's token, as after its service
// account was deleted and made again: the agent is not ready, and says why. Once the token is
// accepted, the agent is ready again. Meanwhile a node whose API server only fails stays ready.
// These agents wait for a second in place of the minute that install/kube.TestRefusals has.
func TestRefusedAgent(t *testing.T) {
	t.Parallel()
	failing := newNode(t)
	hasty := t.TempDir()
	source, err := filepath.Abs("../../install/kube/refusals.go")
	lab.Check(t, err)
	content, err := os.ReadFile(source)
	lab.Check(t, err)
	changed := bytes.Replace(content, []byte("refusalTime = time.Minute"), []byte("refusalTime = time.Second"), 1)
	if bytes.Equal(changed, content) {
		t.Fatalf("%s has no refusalTime of a minute", source)
	}
	lab.Check(t, errors.Join(
		lab.BuildChanged(t.Context(), hasty+"/capture-cni-node", "github.com/capture-cni/capture-cni/install/capture-cni-node", map[string][]byte{source: changed}),
		os.Symlink(machine.Bin+"/capture-cni", hasty+"/capture-cni"), os.Symlink(machine.Bin+"/capture-cni-lookup", hasty+"/capture-cni-lookup")))
	failing.Release = hasty
	stays := failing.Start(t, "--mode", "insert")
	stays.Ready(t)
	failing.API.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		kubeapi.WriteStatus(w, r, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "down")
		return true
	})
	failing.API.EndWatches()

	n := newNode(t)
	n.Release = hasty
	n.PutPod("web", true)
	a := n.StartReady(t, "--mode", "insert")
	lab.Check(t, a.ExpectMetric("capture_cni_api_refused 0"))
	old := n.API.Token()
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
	n.API.SetToken(old)
	a.Ready(t)
	lab.Check(t, a.ExpectMetric("capture_cni_api_refused 0"))
}
