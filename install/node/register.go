// SPDX-License-Identifier: Apache-2.0

package node

import "github.com/prometheus/client_golang/prometheus"

// Register makes metrics and keeps what they mean.
type Register struct {
	registry   prometheus.Registerer
	documented []Metric
}

// NewRegister has documented nothing yet.
func NewRegister(registry prometheus.Registerer) *Register { return &Register{registry: registry} }

// Documented are the metrics that were made, in their order.
func (r *Register) Documented() []Metric { return r.documented }

const metricPrefix = "capture_cni_"

// document notes a metric down and gives its full name.
func (r *Register) document(name, meaning string) string {
	r.documented = append(r.documented, Metric{metricPrefix + name, meaning})
	return metricPrefix + name
}

// Counters makes counters that labels tell apart.
func (r *Register) Counters(name, meaning string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: r.document(name, meaning), Help: meaning}, labels)
	r.registry.MustRegister(c)
	return c
}

// Gauges makes gauges that labels tell apart.
func (r *Register) Gauges(name, meaning string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: r.document(name, meaning), Help: meaning}, labels)
	r.registry.MustRegister(g)
	return g
}

// Histograms makes histograms that labels tell apart.
func (r *Register) Histograms(name, meaning string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: r.document(name, meaning), Help: meaning, Buckets: buckets}, labels)
	r.registry.MustRegister(h)
	return h
}
