// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/report"
)

// connections are those that a guard's metric has, by decision and reason, without zeros.
type connections map[string]float64

// scrape reads the metrics as Prometheus does, also how many pods started uncaptured, and for
// how long they ran so.
func (g nodeGuard) scrape(t *testing.T) (found connections, pods uint64, seconds float64) {
	t.Helper()
	server := httptest.NewServer(promhttp.HandlerFor(g.metrics, promhttp.HandlerOpts{}))
	defer server.Close()
	answer, err := http.Get(server.URL)
	lab.Check(t, err)
	defer answer.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	lab.Check(t, err)
	found = connections{}
	for _, metric := range families["capture_cni_pod_uncaptured_seconds"].GetMetric() {
		pods += metric.GetHistogram().GetSampleCount()
		seconds += metric.GetHistogram().GetSampleSum()
	}
	for _, metric := range families["capture_cni_connections_total"].GetMetric() {
		labels := map[string]string{}
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		if value := metric.GetCounter().GetValue(); value != 0 && labels["mesh"] == string(config.Istio) {
			found[labels["decision"]+" "+labels["reason"]] = value
		}
	}
	return found, pods, seconds
}

// meet connects to and from the pod over both families, and returns what that counts.
func (p *pod) meet(t *testing.T, times int) {
	t.Helper()
	for range times {
		for _, to := range []string{appAddress, "[" + podAddress6 + "]:8080"} {
			answer, err := p.peer.Ask(lab.Owner{}, "tcp", "", to)
			if err != nil || answer.Server != inboundProxy {
				t.Fatalf("%s answers: %q, %v", to, answer.Server, err)
			}
		}
		for _, to := range []string{peerAddress, "[" + peerAddress6 + "]"} {
			answer, err := p.host.Ask(lab.Owner{UID: 1000, GID: 1000}, "tcp", "", fmt.Sprint(to, ":", outsidePort))
			if err != nil || answer.Server != outboundProxy {
				t.Fatalf("%s answers: %q, %v", to, answer.Server, err)
			}
			answer, err = p.host.Ask(lab.Owner{UID: 1000, GID: 1000}, "tcp", "", fmt.Sprint(to, ":", excludedPort))
			if err != nil || answer.Server != outside {
				t.Fatalf("%s answers past the proxy: %q, %v", to, answer.Server, err)
			}
		}
	}
}

const excludedPort = 8082

// TestConnections has the node's sum grow by what a pod's connections are, through
// repairs, a restart and the pod's end.
func TestConnections(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"REDIRECT", "TPROXY"} {
		t.Run(mode, func(t *testing.T) {
			n := newNode()
			n.baselines = t.TempDir()
			g := n.newGuard(t, options{})
			g.round(t)
			p := n.run(t, "web")
			p.sandbox.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = fmt.Sprint(excludedPort)
			p.sandbox.Created = time.Now().Add(-time.Hour)
			n.dualStack(t, p, mode)
			n.sandboxes["web"] = p.sandbox
			p.serveAll(t)
			server, err := p.peer.Serve("tcp", fmt.Sprint(":", excludedPort), outside)
			lab.Check(t, err)
			defer server.Close()

			expect := func(g nodeGuard, times float64) {
				t.Helper()
				g.finds(t, report.Captured)
				want := connections{}
				if times > 0 {
					want = connections{"captured inbound": 2 * times, "captured outbound": 2 * times, "exempt outbound_port": 2 * times}
				}
				got, _, _ := g.scrape(t)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("-want +got\n%s", diff)
				}
			}
			expect(g, 0) // repaired
			p.meet(t, 3)
			expect(g, 3)
			p.nft(t, "delete", "table", "inet", "capture-cni")
			g.finds(t, report.Captured) // repaired again
			p.meet(t, 4)
			expect(g, 7)
			expect(g, 7)
			p.execute(t, "ip", "link", "set", "lo", "down") // repaired, with the same rules
			for range 10 {                                  // the generation does not cover it
				g.round(t)
			}
			p.meet(t, 1)
			expect(g, 8)
			expect(g, 8)
			if _, pods, seconds := g.scrape(t); pods != 1 || seconds < 3600 || seconds > 3660 {
				t.Errorf("%d pods started uncaptured, for %.0f s, want one for an hour", pods, seconds)
			}

			restarted := n.newGuard(t, options{})
			expect(restarted, 0)
			p.meet(t, 2)
			expect(restarted, 2)
			traffic, err := restarted.Traffic(t.Context(), "shop", "web")
			if err != nil || len(traffic) != 1 || traffic[0].Sum("captured") != 12 || traffic[0].Sum("exempt") != 6 {
				t.Errorf("the pod's own counters: %+v, %v", traffic, err)
			}
			delete(n.sandboxes, "web")
			restarted.round(t)
			last, _, _ := restarted.scrape(t)
			if diff := cmp.Diff(connections{"captured inbound": 4, "captured outbound": 4, "exempt outbound_port": 4}, last); diff != "" {
				t.Errorf("after the pod's end: -want +got\n%s", diff)
			}
		})
	}
}
