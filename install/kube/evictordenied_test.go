// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestDenied evicts no pod that is not this node's, meshed and owned, whatever a
// record says, and says why (S15).
func TestDenied(t *testing.T) {
	t.Parallel()
	for reason, change := range map[string]func(*corev1.Pod){
		`it is on node "node-2"`:              func(p *corev1.Pod) { p.Spec.NodeName = "node-2" },
		`it is on node ""`:                    func(p *corev1.Pod) { p.Spec.NodeName = "" },
		"the pod of that name has UID":        func(p *corev1.Pod) { p.UID = "uid-of-its-successor" },
		"no annotation of one":                func(p *corev1.Pod) { p.Annotations = map[string]string{"sidecar.istio.io/inject": "true"} },
		"no controller":                       func(p *corev1.Pod) { p.OwnerReferences = nil },
		"no controller that would replace it": func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Node" },
		"no controller that":                  func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil },
	} {
		t.Run(reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newEvictorWorld(t)
				w.pods["kept"] = fit("kept", change)
				for _, name := range []string{"kept", "kept", "next"} {
					w.Request(pod(name))
				}
				w.serve(t, evictPause)
				w.expect(t, []string{"next"}, map[string]float64{denied: 1, done: 1})
				if want := []string{"kept", "next"}; !slices.Equal(w.reads, want) {
					t.Errorf("read %q, want %q", w.reads, want)
				}
				if line := strings.ReplaceAll(w.log.String(), `\"`, `"`); !strings.Contains(line, reason) || !strings.Contains(line, "pod=shop/kept") {
					t.Errorf("the log says %s", line)
				}
			})
		})
	}
}

// TestNoUID evicts no pod that a record does not identify.
func TestNoUID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newEvictorWorld(t)
		w.pods["web"] = fit("web", func(p *corev1.Pod) { p.UID = "" })
		w.Request(capture.PodRef{Namespace: "shop", Name: "web"})
		w.serve(t, evictPause)
		w.expect(t, nil, map[string]float64{denied: 1})
	})
}

// TestUnreadable evicts nothing that it can't judge.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newEvictorWorld(t)
		w.unreadable = true
		w.Request(pod("web"))
		w.serve(t, evictPause)
		w.expect(t, nil, map[string]float64{failed: 1})
	})
}

// TestReadsAreSlow lets a flood of records about pods of other nodes have one
// read a second, and evicts what is due in between.
func TestReadsAreSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newEvictorWorld(t)
		for i := range queueLength {
			name := fmt.Sprint("other-", i)
			w.pods[name] = fit(name, func(p *corev1.Pod) { p.Spec.NodeName = "node-2" })
			w.Request(pod(name))
		}
		w.serve(t, maxAge)
		if len(w.reads) > int(maxAge/readPause)+1 || len(w.asked) > 0 {
			t.Errorf("%d reads in %s, evicted %q", len(w.reads), maxAge, w.asked)
		}
		if len(w.attempted) > int(retryAfter/readPause)+1 {
			t.Errorf("%d pods are remembered", len(w.attempted))
		}
	})
}

// TestNodeUnknown refuses to evict where the agent can't tell which pods are its
// own node's.
func TestNodeUnknown(t *testing.T) {
	t.Parallel()
	ready := func(context.Context) error { return nil }
	_, err := NewEvictor(nil, "", nil, ready, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "--node-name") {
		t.Errorf("got %v", err)
	}
}
