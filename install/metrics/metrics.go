// SPDX-License-Identifier: Apache-2.0

// Package metrics registers the metrics of the agent and of the guard, and lists them for the
// documents.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// BuildInfo is the help text of the metric build_info, which both the agent and the guard serve.
const BuildInfo = "always 1; labels `version` and, of an agent, `agent` and the installed `plugin`"

// Metric documents one metric.
type Metric struct{ Name, Help string }

// Factory creates and registers metrics.
type Factory struct {
	auto       promauto.Factory
	documented []Metric
}

// NewFactory returns a Factory that registers metrics with a registry.
func NewFactory(registry prometheus.Registerer) *Factory {
	return &Factory{auto: promauto.With(registry)}
}

// Document returns the names and help texts of the metrics that a function creates, in their order.
func Document[M any](makeAll func(*Factory) M) []Metric {
	f := NewFactory(prometheus.NewRegistry())
	makeAll(f)
	return f.documented
}

func (f *Factory) document(name, help string) prometheus.Opts {
	name = "capture_cni_" + name
	f.documented = append(f.documented, Metric{name, help})
	return prometheus.Opts{Name: name, Help: help}
}

// Counter creates a counter.
func (f *Factory) Counter(name, help string) prometheus.Counter {
	return f.auto.NewCounter(prometheus.CounterOpts(f.document(name, help)))
}

// CounterVec creates counters, one for each combination of the labels' values.
func (f *Factory) CounterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return f.auto.NewCounterVec(prometheus.CounterOpts(f.document(name, help)), labels)
}

// Counters creates a counter for each value of one label. Each counter begins at 0, because a rate
// needs a first value.
func (f *Factory) Counters(name, help, label string, values ...string) *prometheus.CounterVec {
	counters := f.CounterVec(name, help, label)
	for _, value := range values {
		counters.WithLabelValues(value)
	}
	return counters
}

// Gauge creates a gauge.
func (f *Factory) Gauge(name, help string) prometheus.Gauge {
	return f.auto.NewGauge(prometheus.GaugeOpts(f.document(name, help)))
}

// GaugeVec creates gauges, one for each combination of the labels' values.
func (f *Factory) GaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return f.auto.NewGaugeVec(prometheus.GaugeOpts(f.document(name, help)), labels)
}

// HistogramVec creates histograms, one for each combination of the labels' values.
func (f *Factory) HistogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	opts := f.document(name, help)
	return f.auto.NewHistogramVec(prometheus.HistogramOpts{Name: opts.Name, Help: opts.Help, Buckets: buckets}, labels)
}
