// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/install/metrics"
)

// Sources of answers, in their metric.
const (
	sourceWatch     = "watch"
	sourceRead      = "read"
	sourceUnchanged = "unchanged"
	sourceFault     = "fault"
)

// Reasons for refused connections, in their metric.
const (
	reasonFull = "full"
	reasonPeer = "peer"
)

type podMetrics struct {
	requests        *prometheus.CounterVec
	watched, synced prometheus.Gauge
	refused         *prometheus.CounterVec
}

// Metrics returns all metrics, in the order of the reference's table.
func Metrics() []metrics.Metric { return metrics.Document(newMetrics) }

func newMetrics(f *metrics.Factory) *podMetrics {
	return &podMetrics{
		requests: f.Counters("pod_requests_total", "requests of pods that the agent answered, by `source` (watch, read from the API server, unchanged since the last answer, fault)", "source", sourceWatch, sourceRead, sourceUnchanged, sourceFault),
		watched:  f.Gauge("pods_watched", "pods of this node that the agent knows"),
		synced:   f.Gauge("pods_synced", "1 once the agent has read its node's pods"),
		refused:  f.Counters("pods_connections_refused_total", "connections for requests of pods that the agent refused, by `reason` (full: too many at once, peer: of another user)", "reason", reasonFull, reasonPeer),
	}
}
