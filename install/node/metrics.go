// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metric documents one metric of the agent.
type Metric struct{ Name, Meaning string }

// metrics are what an operator can see of a node from afar.
type metrics struct {
	good                       *prometheus.GaugeVec
	repairs                    prometheus.Counter
	contended                  *prometheus.GaugeVec
	tokenIssued, tokenExpires  prometheus.Gauge
	caExpires                  prometheus.Gauge
	credentialsChecked         prometheus.Gauge
	credentialsFallback        prometheus.Gauge
	polling                    prometheus.Gauge
	tokensRequested, tokensBad prometheus.Counter
}

// names and meanings, in the order of the README's table.
var documented = []Metric{
	{"capture_cni_node_good", "1 where a part of the node (label `part`) is as it should be"},
	{"capture_cni_entry_repairs_total", "how often our entry was put back after somebody took it away"},
	{"capture_cni_entry_contended", "1 while the writer in label `writer` keeps taking it away"},
	{"capture_cni_token_issued_timestamp_seconds", "when the plugin's token was issued"},
	{"capture_cni_token_expires_timestamp_seconds", "when it ends"},
	{"capture_cni_ca_expires_timestamp_seconds", "when the first certificate of the cluster's CA ends"},
	{"capture_cni_credentials_written_timestamp_seconds", "when token and CA were last found right, or put right"},
	{"capture_cni_credentials_fallback", "1 while they are only where a boot loses them: the disk is full"},
	{"capture_cni_watch_polling", "1 where the kernel had no watches to give, and folders are polled"},
	{"capture_cni_token_requests_total", "tokens that were asked for"},
	{"capture_cni_token_rejected_total", "tokens that the API server took for invalid before their time"},
}

// Metrics lists all metrics.
func Metrics() []Metric { return documented }

func newMetrics(registry prometheus.Registerer) *metrics {
	next := 0
	options := func() (name, help string) {
		m := documented[next]
		next++
		return m.Name, m.Meaning
	}
	vec := func(label string) *prometheus.GaugeVec {
		name, help := options()
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label})
		registry.MustRegister(v)
		return v
	}
	gauge := func() prometheus.Gauge {
		name, help := options()
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		registry.MustRegister(g)
		return g
	}
	counter := func() prometheus.Counter {
		name, help := options()
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		registry.MustRegister(c)
		return c
	}
	// In the order of the table above.
	m := &metrics{}
	m.good = vec("part")
	m.repairs = counter()
	m.contended = vec("writer")
	m.tokenIssued = gauge()
	m.tokenExpires = gauge()
	m.caExpires = gauge()
	m.credentialsChecked = gauge()
	m.credentialsFallback = gauge()
	m.polling = gauge()
	m.tokensRequested = counter()
	m.tokensBad = counter()
	return m
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
