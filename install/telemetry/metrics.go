// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"debug/buildinfo"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/plugin/record"
)

type addMetrics struct {
	adds, lost     *prometheus.CounterVec
	dropped        prometheus.Counter
	failedPods     prometheus.Counter
	stages, whole  *prometheus.HistogramVec
	build, netConf *prometheus.GaugeVec
}

// Metrics describes the agent's metrics of records and Events.
func Metrics() []metrics.Metric {
	return slices.Concat(metrics.Document(newAddMetrics), metrics.Document(newDroppedEvents))
}

// stageBuckets are the upper limits of the histogram's buckets, in seconds, from a commit in a small
// pod to the longest lookup.
var stageBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 120}

func newAddMetrics(f *metrics.Factory) *addMetrics {
	m := &addMetrics{
		adds: f.CounterVec("adds_total",
			"ADDs, by `result` (captured, passed, failed) and `reason` (`exempt_…`: meshed, not captured)", "result", "reason"),
		failedPods: f.Counter("failed_pods_total", "pods with failed ADDs, each counted once until an ADD succeeds"),
		whole:      f.HistogramVec("add_seconds", "duration of whole ADDs, by `result`", stageBuckets, "result"),
		stages:     f.HistogramVec("add_stage_seconds", "duration of each `stage` of an ADD (decide, lookup, apply)", stageBuckets, "stage"),
		lost: f.Counters("records_lost_total",
			"discarded records of plugin and guard, by `cause` (version, form, sender)",
			"cause", causeVersion, causeForm, causeSender),
		dropped: f.Counter("log_lines_dropped_total",
			fmt.Sprintf("dropped log lines about records, beyond %d a second", logPerSecond)),
		build:   f.GaugeVec("build_info", metrics.BuildInfo, "version", "agent", "plugin"),
		netConf: f.GaugeVec("netconf_info", "always 1; label `hash` changes with the operator's keys in the entry", "hash"),
	}
	for _, verdict := range ofAdds() {
		for _, reason := range Reasons(verdict) {
			m.adds.WithLabelValues(string(verdict), string(reason)) // starts at 0, because a rate needs a first value
		}
	}
	return m
}

// Values of the label cause of discarded records.
const (
	causeVersion = "version"
	causeForm    = "form"
	causeSender  = "sender"
)

func (m *addMetrics) observe(r record.Record) {
	m.adds.WithLabelValues(string(r.Verdict), string(r.Reason)).Inc()
	whole := 0.0
	for stage, seconds := range r.Stages {
		m.stages.WithLabelValues(string(stage)).Observe(seconds)
		whole += seconds
	}
	if len(r.Stages) > 0 {
		m.whole.WithLabelValues(string(r.Verdict)).Observe(whole)
	}
}

// showBuild updates the labels of build_info, because the plugin may have been replaced.
func (m *addMetrics) showBuild(plugin string) {
	installed := "none"
	if program, err := host.Open(plugin); err == nil {
		if info, err := buildinfo.Read(program); err == nil {
			installed = config.Version(info)
		}
		_ = program.Close() // a failed close loses nothing
	}
	m.build.Reset()
	m.build.WithLabelValues(config.OwnVersion(), config.OwnVersion(), installed).Set(1)
}
