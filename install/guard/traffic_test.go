// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/install/trace"
)

// TestCountTraffic reads counters of one rule that sends connections to a chain, and of one
// there that exempts some of them: the others are the proxy's own.
func TestCountTraffic(t *testing.T) {
	t.Parallel()
	own, exempt := trace.Outcome{Decision: "own", Reason: "proxy"}, trace.Outcome{Decision: "exempt", Reason: "range"}
	meters := []trace.Meter{{Chain: "a", Of: own}, {Chain: "b", Of: own, Negative: true}, {Chain: "b", Of: exempt}}
	type read struct{ a, b uint64 }
	for name, tt := range map[string]struct {
		older       bool
		reads       []read
		own, exempt float64
	}{
		"a new pod":                  {reads: []read{{5, 2}}, own: 3, exempt: 2},
		"a pod from before":          {older: true, reads: []read{{5, 2}}},
		"it goes on":                 {older: true, reads: []read{{5, 2}, {7, 3}}, own: 1, exempt: 1},
		"between two parts":          {reads: []read{{5, 2}, {5, 3}, {6, 3}, {7, 3}}, own: 4, exempt: 3},
		"one began at 0 again":       {reads: []read{{5, 2}, {9, 1}}, own: 3 + 8, exempt: 2 + 1},
		"forged":                     {reads: []read{{5, 2}, {1 << 63, 2}, {1<<63 + 1, 2}}, own: 3 + 1, exempt: 2},
		"forged, for what is missed": {reads: []read{{5, 2}, {5, 1 << 40}, {6, 1 << 40}}, own: 3 + 1, exempt: 2},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			e := &examiner{meters: map[string][]trace.Meter{"stamp": meters}, metrics: newPodMetrics(metrics.NewFactory(registry))}
			w := &watched{desired: desired{stamp: "stamp", mesh: "istio"}, exact: true, older: tt.older}
			for _, r := range tt.reads {
				e.countTraffic(w, kernel.Observation{Generation: 1, Counters: kernel.Counters{"a": {r.a}, "b": {r.b}}})
			}
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]float64{"own": 0, "exempt": 0}
			for _, family := range families {
				for _, metric := range family.GetMetric() {
					if family.GetName() == "capture_cni_connections_total" {
						got[metric.GetLabel()[0].GetValue()] = metric.GetCounter().GetValue()
					}
				}
			}
			if diff := cmp.Diff(map[string]float64{"own": tt.own, "exempt": tt.exempt}, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestUncountedTraffic reads counters that say nothing about the pod, and those of other rules.
func TestUncountedTraffic(t *testing.T) {
	t.Parallel()
	of := trace.Outcome{Decision: "own", Reason: "proxy"}
	counters := func(packets uint64) kernel.Counters { return kernel.Counters{"a": {packets}} }
	registry := prometheus.NewRegistry()
	meters := []trace.Meter{{Chain: "a", Of: of}}
	e := &examiner{meters: map[string][]trace.Meter{"stamp": meters, "next": meters}, metrics: newPodMetrics(metrics.NewFactory(registry))}
	w := &watched{desired: desired{stamp: "stamp", mesh: "istio"}, exact: true}
	expect := func(what string, o kernel.Observation, want float64) {
		t.Helper()
		e.countTraffic(w, o)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := 0.0
		for _, family := range families {
			if family.GetName() == "capture_cni_connections_total" {
				got = family.GetMetric()[0].GetCounter().GetValue()
			}
		}
		if got != want {
			t.Errorf("%s: %v connections, want %v", what, got, want)
		}
	}
	expect("an unchanged namespace", kernel.Observation{Counters: counters(5)}, 0)
	expect("unreadable counters", kernel.Observation{Generation: 1, Counters: counters(5), CountersFault: errors.New("no netlink")}, 0)
	w.exact = false
	expect("other rules than the desired ones", kernel.Observation{Generation: 1, Counters: counters(5)}, 0)
	w.exact = true
	expect("the first reading", kernel.Observation{Generation: 1, Counters: counters(5)}, 5)
	w.desired.stamp = "next"
	expect("new rules, whose counters began at 0", kernel.Observation{Generation: 2, Counters: counters(7)}, 12)
	expect("none since", kernel.Observation{Generation: 2, Counters: counters(7)}, 12)
}
