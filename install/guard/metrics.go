// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/install/node"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

type metrics struct {
	pods, exempt *prometheus.GaugeVec
	repairs      *prometheus.CounterVec
	repeated     prometheus.Counter
}

// Metrics lists all metrics, in the order of the README's table.
func Metrics() []node.Metric {
	r := node.NewRegister(prometheus.NewRegistry())
	newMetrics(r)
	return r.Documented()
}

func newMetrics(r *node.Register) *metrics {
	m := &metrics{
		pods:     r.Gauges("pods", "pods of the mesh on this node, by how they stand (`state`: captured, uncaptured, drifted, outdated, changed, foreign, obstructed, unknown, exempt); the guard's", "state"),
		exempt:   r.Gauges("exempt_pods", "pods of the mesh on this node that are not captured on purpose, by `cause` ("+causes()+"); the guard's", "cause"),
		repairs:  r.Counters("pod_repairs_total", "pods whose rules were put right while they ran, by `result`; the guard's", "result"),
		repeated: r.Counters("pod_repairs_repeated_total", "attempts to repair a pod within ten minutes of the attempt before; the guard's").WithLabelValues(),
	}
	for _, result := range []string{done, failed} {
		m.repairs.WithLabelValues(result) // a rate needs a beginning
	}
	return m
}

func causes() string {
	var names []string
	for _, cause := range capture.MeshedExemptions() {
		names = append(names, string(cause))
	}
	return strings.Join(names, ", ")
}

// Results of a repair.
const (
	done   = "done"
	failed = "failed"
)

func (m *metrics) repaired(result string) { m.repairs.WithLabelValues(result).Inc() }

func (m *metrics) count(watched map[string]*watched) {
	counts := map[State]int{}
	exempt := map[capture.ExemptionCause]int{}
	for _, w := range watched {
		counts[w.finding.State]++
		if w.finding.State == Exempt {
			exempt[w.wish.exemption.Cause]++
		}
	}
	for _, state := range States() {
		m.pods.WithLabelValues(string(state)).Set(float64(counts[state]))
	}
	for _, cause := range capture.MeshedExemptions() {
		m.exempt.WithLabelValues(string(cause)).Set(float64(exempt[cause]))
	}
}
