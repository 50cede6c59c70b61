// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

type podMetrics struct {
	pods, exempt *prometheus.GaugeVec
	repairs      *prometheus.CounterVec
	repeated     prometheus.Counter

	lastListing, lastRound prometheus.Gauge
}

// Metrics returns all metrics, in the order of the reference's table.
func Metrics() []metrics.Metric { return metrics.Document(newPodMetrics) }

func newPodMetrics(f *metrics.Factory) *podMetrics {
	return &podMetrics{
		pods: f.GaugeVec("pods",
			"pods of the mesh on this node, by `state` (captured, uncaptured, drifted, outdated, changed, foreign, obstructed, "+
				"injected_later, unknown, exempt) and `mesh` (istio, linkerd, capture-cni, or none of a pod that was injected later); "+
				"served by the guard",
			"state", "mesh"),
		exempt: f.GaugeVec("exempt_pods",
			"pods of the mesh on this node that are exempt from capture, by `cause` ("+causes()+"); served by the guard", "cause"),
		repairs: f.Counters("pod_repairs_total",
			"attempts to repair the rules of a running pod, by `result` (done, failed); served by the guard", "result", done, failed),
		repeated: f.Counter("pod_repairs_repeated_total",
			"attempts to repair a pod within ten minutes of the previous attempt; served by the guard"),

		lastListing: f.Gauge("guard_last_listing_timestamp_seconds",
			"time at which the container runtime last listed its sandboxes, 0 before the first listing; "+
				"until the next one, the guard examines the pods that it knows"),
		lastRound: f.Gauge("guard_last_round_timestamp_seconds",
			"time at which the guard last had examined all pods that were due; while pods wait, the time since which the first one has waited"),
	}
}

func causes() string {
	var names []string
	for _, cause := range report.MeshedExemptions() {
		names = append(names, string(cause))
	}
	return strings.Join(names, ", ")
}

// Results of a repair.
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
		counts[[2]string{string(w.finding.State), string(w.mesh)}]++
		if w.finding.State == report.Exempt {
			exempt[w.desired.exemption.Cause]++
		}
	}
	for of, count := range counts {
		if state, mesh := of[0], cmp.Or(of[1], "none"); state != "" { // else it was not examined yet
			m.pods.WithLabelValues(state, mesh).Set(float64(count))
		}
	}
	for _, cause := range report.MeshedExemptions() {
		m.exempt.WithLabelValues(string(cause)).Set(float64(exempt[cause]))
	}
}

// seconds returns the time of a gauge, 0 for the zero time.
func seconds(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return float64(at.UnixMilli()) / 1000
}
