// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// TestKinds serves one metric of each kind, and documents all of them in their order.
func TestKinds(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	makeAll := func(f *Factory) *Factory {
		f.Counter("pods_total", "pods").Add(2)
		f.CounterVec("adds_total", "ADDs", "verdict", "reason").WithLabelValues("passed", "exempt").Inc()
		f.Counters("repairs_total", "repairs", "result", "done", "failed").WithLabelValues("done").Inc()
		f.Gauge("ready", "readiness").Set(1)
		f.GaugeVec("good", "parts", "part").WithLabelValues("entry").Set(1)
		f.HistogramVec("add_seconds", "time", []float64{1, 5}, "stage").WithLabelValues("decide").Observe(3)
		return f
	}
	makeAll(NewFactory(registry))
	served := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(served, httptest.NewRequest("GET", "/metrics", nil))
	if diff := cmp.Diff(`# HELP capture_cni_add_seconds time
# TYPE capture_cni_add_seconds histogram
capture_cni_add_seconds_bucket{stage="decide",le="1"} 0
capture_cni_add_seconds_bucket{stage="decide",le="5"} 1
capture_cni_add_seconds_bucket{stage="decide",le="+Inf"} 1
capture_cni_add_seconds_sum{stage="decide"} 3
capture_cni_add_seconds_count{stage="decide"} 1
# HELP capture_cni_adds_total ADDs
# TYPE capture_cni_adds_total counter
capture_cni_adds_total{reason="exempt",verdict="passed"} 1
# HELP capture_cni_good parts
# TYPE capture_cni_good gauge
capture_cni_good{part="entry"} 1
# HELP capture_cni_pods_total pods
# TYPE capture_cni_pods_total counter
capture_cni_pods_total 2
# HELP capture_cni_ready readiness
# TYPE capture_cni_ready gauge
capture_cni_ready 1
# HELP capture_cni_repairs_total repairs
# TYPE capture_cni_repairs_total counter
capture_cni_repairs_total{result="done"} 1
capture_cni_repairs_total{result="failed"} 0
`, served.Body.String()); diff != "" {
		t.Error(diff)
	}
	want := []Metric{
		{"capture_cni_pods_total", "pods"},
		{"capture_cni_adds_total", "ADDs"},
		{"capture_cni_repairs_total", "repairs"},
		{"capture_cni_ready", "readiness"},
		{"capture_cni_good", "parts"},
		{"capture_cni_add_seconds", "time"},
	}
	if diff := cmp.Diff(want, Document(makeAll)); diff != "" {
		t.Error(diff)
	}
}
