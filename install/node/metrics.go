// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/metrics"
)

type nodeMetrics struct {
	good, contended                      *prometheus.GaugeVec
	otherMesh, preflight                 *prometheus.GaugeVec
	repairs, tokensRequested, tokensBad  prometheus.Counter
	tokenIssued, tokenExpires, caExpires prometheus.Gauge
	credentialsChecked                   prometheus.Gauge
	credentialsFallback, polling         prometheus.Gauge
	taint                                prometheus.Gauge
	runtime                              *prometheus.GaugeVec
}

// KeeperMetrics describes the Keeper's metrics.
func KeeperMetrics() []metrics.Metric { return metrics.Document(newNodeMetrics) }

func newNodeMetrics(f *metrics.Factory) *nodeMetrics {
	return &nodeMetrics{
		good:    f.GaugeVec("node_good", "1 if a `part` of the node is in the desired state", "part"),
		repairs: f.Counter("entry_repairs_total", "repairs of the agent's entry"),
		contended: f.GaugeVec("entry_contended",
			"1 while another program, the `writer` (cilium, unknown), keeps removing the entry or, in mode owned, changing the copied list",
			"writer"),
		otherMesh: f.GaugeVec("other_mesh_entry",
			"1 while the runtime's list has istio-cni or another mesh's plugin, by `type` and `decision`",
			"type", "decision"),
		preflight: f.GaugeVec("preflight_problems",
			"findings of preflight at the agent's start, by `severity` (serious, note)", "severity"),
		tokenIssued:  f.Gauge("token_issued_timestamp_seconds", "issue time of the plugin's token"),
		tokenExpires: f.Gauge("token_expires_timestamp_seconds", "expiry time of the plugin's token"),
		caExpires:    f.Gauge("ca_expires_timestamp_seconds", "earliest expiry time of the cluster CA's certificates"),
		credentialsChecked: f.Gauge("credentials_checked_timestamp_seconds",
			"time of the last check that found token and CA up to date, or renewed them"),
		credentialsFallback: f.Gauge("credentials_fallback",
			"1 while `--run-dir` holds the credentials, because `--state-dir` is full or read-only"),
		polling: f.Gauge("watch_polling", "1 if the agent polls directories, because the kernel refused inotify watches"),
		taint:   f.Gauge("taint", "1 while the node has the taint of `--untaint`"),
		runtime: f.GaugeVec("runtime_info",
			"1 for the runtime that answered last, by `name`, `version` and `socket`", "name", "version", "socket"),
		tokensRequested: f.Counter("token_requests_total", "tokens that the agent received"),
		tokensBad:       f.Counter("token_rejected_total", "times that the API server rejected the plugin's token"),
	}
}

// observe sets the metric of each part of the node to its state in a report.
func (m *nodeMetrics) observe(report Report) {
	for _, part := range parts() {
		m.good.WithLabelValues(string(part)).Set(boolean(report.IsGood(part)))
	}
}

func (m *nodeMetrics) setRuntime(found Runtime) {
	m.runtime.Reset()
	if found != (Runtime{}) {
		m.runtime.WithLabelValues(found.Program.Name, found.Program.Version, found.Socket).Set(1)
	}
}

func (m *nodeMetrics) observeOthers(others []conflist.Other) {
	m.otherMesh.Reset()
	for _, other := range others {
		m.otherMesh.WithLabelValues(other.Plugin, string(other.Decision)).Set(1)
	}
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
