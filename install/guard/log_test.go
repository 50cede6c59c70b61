// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestFindingsAreLogged expects one line for each new finding, at the level that it deserves.
func TestFindingsAreLogged(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		found report.Finding
		line  string
	}{
		{finding(report.Captured, "a rule more"), `level=WARN msg="repaired the pod's capture rules" pod=shop/web state=captured found=drifted reason="a rule more"`},
		{finding(report.Captured, "as desired"), `level=DEBUG msg="the pod is captured" pod=shop/web state=captured reason="as desired"`},
		{finding(report.Exempt, "NONE"), `level=INFO msg="the pod is in the mesh and exempt from capture" pod=shop/web state=exempt cause=no_proxy reason=NONE`},
		{finding(report.Foreign, "nat"), `level=WARN msg="the pod's state needs attention" pod=shop/web state=foreign reason=nat`},
		{finding(report.Unknown, "before"), ""},
	} {
		var log strings.Builder
		g := New(Settings{}, nil, nil, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: withoutTime})), prometheus.NewRegistry())
		w := examined("web", tt.found)
		if strings.Contains(tt.line, "found=drifted") {
			w.repaired = report.Drifted
		}
		w.desired.exemption.Cause = capture.NoProxy
		g.report(w, finding(report.Unknown, ""))
		if got := strings.TrimSuffix(log.String(), "\n"); got != tt.line {
			t.Errorf("%+v: logged %q, want %q", tt.found, got, tt.line)
		}
	}
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// TestPodMetrics counts pods by state and mesh, and exempt ones by their cause.
func TestPodMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	g := New(Settings{}, nil, nil, slog.New(slog.DiscardHandler), registry)
	exempt := examined("exempt", finding(report.Exempt, ""))
	exempt.desired.exemption.Cause, exempt.mesh = capture.NoProxy, config.Istio
	foreign := examined("foreign", finding(report.Foreign, ""))
	foreign.desired.exemption.Cause = capture.NoProxy // of an earlier answer
	g.metrics.count(map[string]*watched{"exempt": exempt, "foreign": foreign, "new": examined("new", report.Finding{})}, []config.MeshName{config.Istio})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := family.GetName()
			for _, label := range metric.GetLabel() {
				name += " " + label.GetValue()
			}
			got[name] = metric.GetGauge().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"capture_cni_pods istio exempt": 1, "capture_cni_pods none foreign": 1, "capture_cni_pods istio captured": 0, "capture_cni_pods none exempt": 0,
		"capture_cni_exempt_pods no_proxy": 1, "capture_cni_exempt_pods interception_none": 0,
		"capture_cni_pod_repairs_total done": 0, "capture_cni_pod_repairs_total failed": 0, "capture_cni_pod_repairs_repeated_total": 0,
	} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("%s is %v (%v), want %v of %v", name, value, ok, want, got)
		}
	}
}

// TestSeconds is what a gauge of a time holds.
func TestSeconds(t *testing.T) {
	t.Parallel()
	for at, want := range map[time.Time]float64{{}: 0, time.Unix(1, 5e8): 1.5} {
		if got := seconds(at); got != want {
			t.Errorf("%s: %v, want %v", at, got, want)
		}
	}
}
