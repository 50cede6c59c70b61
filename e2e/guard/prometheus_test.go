// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// TestPrometheus has a Prometheus server scrape an agent, after an ADD, and a guard, whose pod
// started uncaptured and then had connections on each path. Queries return them, and promtool has
// nothing to say about names and labels.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	m := machine.NewNode(t)
	m.Release = t.TempDir()
	lab.Check(t, lab.Build(t.Context(), m.Release, "./plugin/capture-cni", "./plugin/capture-cni-lookup", "./install/capture-cni-node"))
	m.PreparePods(t)
	a := m.StartReady(t)
	_, err := m.StartPod(t, "web")
	lab.Check(t, err)

	n := newNode()
	p := n.run(t, "web")
	p.sandbox.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = fmt.Sprint(excludedPort)
	n.dualStack(t, p, "REDIRECT")
	n.sandboxes["web"] = p.sandbox
	p.serveAll(t)
	excluded, err := p.peer.Serve("tcp", fmt.Sprint(":", excludedPort), outside)
	lab.Check(t, err)
	defer excluded.Close()
	runDir := t.TempDir()
	n.serveIn(t, runDir)
	g := startGuard(t, runDir, "--round", "1s", "--cri-socket", serveCRI(t, t.TempDir(), newCRIStub(p)))
	g.waitForCaptured(t, 1)
	p.meet(t, 3)

	agent := strings.TrimPrefix(a.URL, "http://")
	prometheus := lab.StartPrometheus(t, agent, g.address)
	for query, want := range map[string]float64{
		`sum(up)`: 2,
		`sum(capture_cni_connections_total{decision="captured", reason="inbound", mesh="istio"})`:  6,
		`sum(capture_cni_connections_total{decision="captured", reason="outbound", mesh="istio"})`: 6,
		`sum by (mesh, reason) (capture_cni_connections_total{decision="exempt"}) > 0`:             6, // one series
		`sum(capture_cni_connections_total{decision=~"refused|fenced"})`:                           0,
		`sum(capture_cni_pods{state="captured"})`:                                                  1,
		`sum(capture_cni_failed_pods_total)`:                                                       0,
		`sum(capture_cni_pod_uncaptured_seconds_count)`:                                            1,
		`sum(capture_cni_add_seconds_count{result="captured"})`:                                    1,
		`histogram_quantile(0.95, sum by (le, result) (capture_cni_add_seconds_bucket)) > bool 0`:  1,
		`time() - capture_cni_api_answered_timestamp_seconds < bool 600`:                           1,
		`count by (agent, plugin) (capture_cni_build_info{agent!=""})`:                             1,
		`sum(rate(capture_cni_guard_last_round_timestamp_seconds[5s])) > bool 0`:                   1,
	} {
		lab.Eventually(t, func() error {
			values, err := prometheus.Query(query)
			if err == nil && (len(values) != 1 || values[0] != want) {
				err = fmt.Errorf("%s returns %v, want %v", query, values, want)
			}
			return err
		})
	}
	for _, address := range []string{agent, g.address} {
		page, err := http.Get("http://" + address + "/metrics")
		lab.Check(t, err)
		defer page.Body.Close()
		check := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
		check.Stdin = page.Body
		if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("promtool check metrics: %v\n%s", err, out)
		}
	}
}
