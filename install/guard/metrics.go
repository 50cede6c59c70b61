// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

type podMetrics struct {
	pods, exempt *prometheus.GaugeVec
	repeated     prometheus.Counter
	connections  *prometheus.CounterVec
	uncaptured   *prometheus.HistogramVec

	repairs, updates *prometheus.CounterVec

	lastListing, lastRound prometheus.Gauge
}

// Metrics describes the guard's metrics.
func Metrics() []metrics.Metric { return metrics.Document(newPodMetrics) }

func newPodMetrics(f *metrics.Factory) *podMetrics {
	return &podMetrics{
		pods: f.GaugeVec("pods",
			"meshed pods, by `state` and `mesh` (from `netconf.meshes`; none: not injected at creation)",
			"state", "mesh"),
		exempt: f.GaugeVec("exempt_pods",
			"exempt pods, by `cause`", "cause"),
		repairs: f.Counters("pod_repairs_total",
			"attempts to repair a pod's rules, by `result` (done, failed)", "result", done, failed),
		updates: f.Counters("pod_updates_total",
			"attempts to update a pod's rules, by `result` (done, failed)", "result", done, failed),
		repeated: f.Counter("pod_repairs_repeated_total",
			"attempts to repair a pod again within ten minutes"),
		connections: f.CounterVec("connections_total",
			"connections or refused packets of captured pods, by `decision`, `reason` and `mesh`", "decision", "reason", "mesh"),
		uncaptured: f.HistogramVec("pod_uncaptured_seconds",
			"age at which the guard repaired pods that started uncaptured, by `mesh`", uncapturedBuckets, "mesh"),

		lastListing: f.Gauge("guard_last_listing_timestamp_seconds",
			"last time when the runtime listed its sandboxes; 0: never"),
		lastRound: f.Gauge("guard_last_round_timestamp_seconds",
			"last time when no pod waited for its examination"),
	}
}

// uncapturedBuckets are the upper limits of the histogram's buckets, in seconds: from the guard's
// reaction time to the age of pods that are older than the plugin.
var uncapturedBuckets = []float64{1, 5, 10, 30, 60, 300, 1800, 3600, 21600, 86400}

// begin creates the counters of each mesh with the value 0, because a rate needs a first value.
func (m *podMetrics) begin(meshes []config.MeshName) {
	for _, mesh := range meshes {
		m.uncaptured.WithLabelValues(string(mesh))
		for _, of := range trace.Outcomes() {
			m.connections.WithLabelValues(of.Decision, of.Reason, string(mesh))
		}
	}
}

// Values of the label result of repairs and updates.
const (
	done   = "done"
	failed = "failed"
)

func (m *podMetrics) count(watched map[string]*watched, meshes []config.MeshName) {
	counts := map[[2]string]int{} // by state and mesh
	for _, state := range report.PodStates() {
		for _, mesh := range append(slices.Clone(meshes), "") {
			counts[[2]string{string(state), string(mesh)}] = 0
		}
	}
	exempt := map[capture.ExemptionCause]int{}
	for _, w := range watched {
		counts[[2]string{string(w.finding.Code), string(w.mesh)}]++
		if w.finding.Code == report.Exempt {
			exempt[w.desired.exemption.Cause]++
		}
	}
	for of, count := range counts {
		if state, mesh := of[0], cmp.Or(of[1], "none"); state != "" { // an empty state means that the pod was not examined yet
			m.pods.WithLabelValues(state, mesh).Set(float64(count))
		}
	}
	for _, cause := range report.MeshedExemptions() {
		m.exempt.WithLabelValues(string(cause)).Set(float64(exempt[cause]))
	}
}

// seconds returns a time as the value of a gauge: Unix seconds, or 0 for the zero time.
func seconds(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return float64(at.UnixMilli()) / 1000
}
