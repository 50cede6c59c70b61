// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/install/node"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// metrics are what an operator can see of the ADDs on a node from afar.
type metrics struct {
	adds, lost     *prometheus.CounterVec
	dropped        *prometheus.CounterVec
	stages         *prometheus.HistogramVec
	build, netConf *prometheus.GaugeVec
}

// Metrics lists all metrics, in the order of the README's table.
func Metrics() []node.Metric {
	r := node.NewRegister(prometheus.NewRegistry())
	newMetrics(r)
	return r.Documented()
}

// stageBuckets reach from a commit in a small pod to a lookup's whole budget.
var stageBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120}

func newMetrics(r *node.Register) *metrics {
	m := &metrics{
		adds:    r.Counters("adds_total", "ADDs, by `result` (captured, passed, failed) and `reason`; `exempt_` and a cause: in the mesh and not captured", "result", "reason"),
		stages:  r.Histograms("add_stage_seconds", "how long each `stage` of an ADD took (decide, lookup, apply)", stageBuckets, "stage"),
		lost:    r.Counters("records_lost_total", "records that the agent did not take, by `cause` (version, form, sender: another user than the agent's own)", "cause"),
		dropped: r.Counters("log_lines_dropped_total", fmt.Sprintf("lines about records that were not logged: more than %d a second", logPerSecond)),
		build:   r.Gauges("build_info", "always 1: the version of the agent, and of the plugin that is in place", "agent", "plugin"),
		netConf: r.Gauges("netconf_info", "always 1: a hash of the operator's keys in our entry, in label `hash`", "hash"),
	}
	for _, verdict := range record.OfAdds() {
		for _, reason := range record.Reasons(verdict) {
			m.adds.WithLabelValues(string(verdict), string(reason)) // a rate needs a beginning
		}
	}
	for _, cause := range []string{causeVersion, causeForm, causeSender} {
		m.lost.WithLabelValues(cause)
	}
	return m
}

// Causes of a lost record.
const (
	causeVersion = "version"
	causeForm    = "form"
	causeSender  = "sender"
)

func (m *metrics) observe(r record.Record) {
	m.adds.WithLabelValues(string(r.Verdict), string(r.Reason)).Inc()
	for stage, seconds := range r.Stages {
		m.stages.WithLabelValues(string(stage)).Observe(seconds)
	}
}
