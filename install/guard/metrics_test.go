// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestSeries expects the series of each mesh from the first moment, and a series for each state and cause.
func TestSeries(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m, meshes := newPodMetrics(metrics.NewFactory(registry)), []config.MeshName{config.Istio, config.Linkerd}
	m.begin(meshes)
	exempt := examined("exempt", finding(report.Exempt, ""))
	exempt.desired.exemption.Cause = capture.NoProxy
	m.count(map[string]*watched{"exempt": exempt, "broken": examined("broken", finding(report.Uncaptured, ""))}, meshes)
	families, err := registry.Gather()
	lab.Check(t, err)
	got, exempted := map[string]int{}, 0.0
	for _, family := range families {
		got[family.GetName()] = len(family.GetMetric())
		for _, series := range family.GetMetric() {
			if family.GetName() == "capture_cni_exempt_pods" {
				exempted += series.GetGauge().GetValue()
			}
		}
	}
	if exempted != 1 {
		t.Errorf("%v pods are exempt, want one", exempted)
	}
	want := map[string]int{
		"connections_total": len(trace.Outcomes()) * len(meshes), "pod_uncaptured_seconds": len(meshes),
		"pods": len(report.PodStates()) * (len(meshes) + 1), "pod_repairs_total": 2, "pod_updates_total": 2,
	}
	for name, series := range want {
		if got["capture_cni_"+name] != series {
			t.Errorf("%s has %d series, want %d", name, got["capture_cni_"+name], series)
		}
	}
}

// TestValueOf cuts long values, and hides those that can be secrets.
func TestValueOf(t *testing.T) {
	t.Parallel()
	long := string(make([]byte, report.MaxValue))
	listed, free := capture.Annotation{Key: "k", Form: "ports"}, capture.Annotation{Key: "k", Form: "any"}
	for name, tt := range map[string]struct {
		annotation capture.Annotation
		all        map[string]string
		want       *report.Value
	}{
		"absent":     {listed, map[string]string{"other": "1"}, nil},
		"short":      {listed, map[string]string{"k": "80"}, &report.Value{Text: "80"}},
		"as allowed": {listed, map[string]string{"k": long}, &report.Value{Text: long}},
		"too long":   {listed, map[string]string{"k": long + "x"}, &report.Value{Text: long, Bytes: report.MaxValue + 1}},
		"of any use": {free, map[string]string{"k": "80"}, &report.Value{Hidden: true}},
	} {
		if diff := cmp.Diff(tt.want, valueOf(tt.annotation, tt.all)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}
