// SPDX-License-Identifier: Apache-2.0

package node

import "github.com/prometheus/client_golang/prometheus"

// Metric documents one metric of the agent.
type Metric struct{ Name, Meaning string }

// metrics are what an operator can see of a node from afar.
type metrics struct {
	good, contended                      *prometheus.GaugeVec
	repairs, tokensRequested, tokensBad  prometheus.Counter
	tokenIssued, tokenExpires, caExpires prometheus.Gauge
	credentialsChecked                   prometheus.Gauge
	credentialsFallback, polling         prometheus.Gauge
	taint                                prometheus.Gauge
}

// Metrics lists all metrics, in the order of the README's table.
func Metrics() []Metric {
	r := NewRegister(prometheus.NewRegistry())
	newMetrics(r)
	return r.Documented()
}

func newMetrics(r *Register) *metrics {
	return &metrics{
		good:                r.Gauges("node_good", "1 where a part of the node (label `part`) is as it should be", "part"),
		repairs:             r.counter("entry_repairs_total", "how often our entry was put back after somebody took it away"),
		contended:           r.Gauges("entry_contended", "1 while the writer in label `writer` keeps taking it away", "writer"),
		tokenIssued:         r.gauge("token_issued_timestamp_seconds", "when the plugin's token was issued"),
		tokenExpires:        r.gauge("token_expires_timestamp_seconds", "when it ends"),
		caExpires:           r.gauge("ca_expires_timestamp_seconds", "when the first certificate of the cluster's CA ends"),
		credentialsChecked:  r.gauge("credentials_checked_timestamp_seconds", "when token and CA were last found right, or put right"),
		credentialsFallback: r.gauge("credentials_fallback", "1 while they are only where a boot loses them: the disk is full"),
		polling:             r.gauge("watch_polling", "1 where the kernel had no watches to give, and folders are polled"),
		taint:               r.gauge("taint", "1 while the node has the taint that `--untaint` names"),
		tokensRequested:     r.counter("token_requests_total", "tokens that were asked for"),
		tokensBad:           r.counter("token_rejected_total", "tokens that the API server took for invalid before their time"),
	}
}

func (r *Register) gauge(name, meaning string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: r.document(name, meaning), Help: meaning})
	r.registry.MustRegister(g)
	return g
}

func (r *Register) counter(name, meaning string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: r.document(name, meaning), Help: meaning})
	r.registry.MustRegister(c)
	return c
}

// observe shows a report.
func (m *metrics) observe(report Report) {
	for _, part := range Parts() {
		m.good.WithLabelValues(string(part)).Set(boolean(report.Is(part)))
	}
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
