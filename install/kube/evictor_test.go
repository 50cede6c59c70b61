// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// evictorWorld is an API server without a network in between, so that its time can be
// a test's own, and what is wrong with the node.
type evictorWorld struct {
	*Evictor
	registry *prometheus.Registry
	pods     map[string]*corev1.Pod // as the API server has them; fit for eviction where there is none
	codes    map[string]int         // the answer to each pod's eviction; 201 where there is none
	reads    []string               // the pods that were read, in their order
	asked    []string               // the pods, in their order
	began    time.Time
	at       []time.Duration
	fault    error
	checks   int
	log      strings.Builder

	unreadable bool // pods can't be read
}

func newEvictorWorld(t *testing.T) *evictorWorld {
	t.Helper()
	w := &evictorWorld{registry: prometheus.NewRegistry(), pods: map[string]*corev1.Pod{}, codes: map[string]int{}, began: time.Now()}
	ready := func(context.Context) error { w.checks++; return w.fault }
	api, err := New(&rest.Config{Host: "http://api.test", Transport: w})
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewEvictor(api, evictorsNode, config.DefaultSettings().Meshes, ready, w.registry, slog.New(slog.NewTextHandler(&w.log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	w.Evictor = e
	return w
}

// RoundTrip implements http.RoundTripper.
func (w *evictorWorld) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return w.read(path.Base(r.URL.Path))
	}
	var eviction struct{ Metadata metav1.ObjectMeta }
	if err := json.NewDecoder(r.Body).Decode(&eviction); err != nil {
		return nil, err
	}
	name := eviction.Metadata.Name
	w.asked, w.at = append(w.asked, name), append(w.at, time.Since(w.began))
	recorder := httptest.NewRecorder()
	answer(recorder, r, w.codes[name])
	return recorder.Result(), nil
}

// read answers with a pod.
func (w *evictorWorld) read(name string) (*http.Response, error) {
	w.reads = append(w.reads, name)
	pod := w.pods[name]
	if pod == nil {
		pod = fit(name)
	}
	recorder := httptest.NewRecorder()
	if w.unreadable {
		answer(recorder, nil, http.StatusForbidden)
		return recorder.Result(), nil
	}
	recorder.Header().Set("Content-Type", "application/json")
	err := json.NewEncoder(recorder).Encode(pod)
	return recorder.Result(), err
}

const evictorsNode = "node-1"

// fit is a pod that the agent of its node may evict.
func fit(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	controller := true
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID("uid-of-" + name), Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "owner", Controller: &controller}},
		},
		Spec: corev1.PodSpec{NodeName: evictorsNode},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

// answer is the API server's; 429 and 500 ask the client to come again.
func answer(w http.ResponseWriter, r *http.Request, code int) {
	reasons := map[int]metav1.StatusReason{
		http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusConflict: metav1.StatusReasonConflict,
		http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests, http.StatusInternalServerError: metav1.StatusReasonInternalError,
	}
	if code == 0 {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`)
		return
	}
	if code == http.StatusTooManyRequests || code == http.StatusInternalServerError {
		w.Header().Set("Retry-After", "3")
	}
	status := &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reasons[code]}
	if code == http.StatusTooManyRequests {
		status.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: policy.DisruptionBudgetCause}}}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status)
}

// serve evicts for some time of the test's own.
func (w *evictorWorld) serve(t *testing.T, long time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	w.Serve(ctx)
}

// expect wants these pods to have been asked for, and these results.
func (w *evictorWorld) expect(t *testing.T, asked []string, want map[string]float64) {
	t.Helper()
	if diff := cmp.Diff(asked, w.asked); diff != "" {
		t.Errorf("asked for: %s", diff)
	}
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families[0].GetMetric() {
		if result := m.GetLabel()[0].GetValue(); m.GetCounter().GetValue() != want[result] {
			t.Errorf("%v are %s, want %v", m.GetCounter().GetValue(), result, want[result])
		}
	}
	if len(families) != 1 || families[0].GetName() != "capture_cni_evictions_total" || len(families[0].GetMetric()) != 4 {
		t.Errorf("the metrics are %v", families)
	}
}

func pod(name string) capture.PodRef {
	return capture.PodRef{Namespace: "shop", Name: name, UID: "uid-of-" + name}
}

// TestAnswers counts and logs what the API server says. A pod that it does not know any
// more, or only another of that name, is no failure. None is asked for
// twice, and none that stays keeps another waiting.
func TestEvictorAnswers(t *testing.T) {
	t.Parallel()
	const next = `level=INFO msg="evicted the pod, whose rules were missing or changed" pod=shop/next`
	for code, want := range map[int]struct {
		results map[string]float64
		logged  string // before the next pod
	}{
		http.StatusTooManyRequests:     {map[string]float64{refused: 1, done: 1}, `level=INFO msg="a PodDisruptionBudget refuses the eviction for now" pod=shop/kept error=`},
		http.StatusNotFound:            {map[string]float64{done: 1}, ""},
		http.StatusConflict:            {map[string]float64{done: 1}, ""},
		http.StatusForbidden:           {map[string]float64{failed: 1, done: 1}, `level=WARN msg="evicting the pod failed" pod=shop/kept error=`},
		http.StatusInternalServerError: {map[string]float64{failed: 1, done: 1}, `level=WARN msg="evicting the pod failed" pod=shop/kept error=`},
	} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newEvictorWorld(t)
				w.codes["kept"] = code
				for _, name := range []string{"kept", "kept", "next", "kept"} {
					w.Request(pod(name))
				}
				w.serve(t, retryAfter)
				w.expect(t, []string{"kept", "next"}, want.results)
				if log := w.log.String(); !strings.Contains(log, want.logged) || !strings.Contains(log, next) || strings.Count(log, "\n") != len(want.results) {
					t.Errorf("logged %s", log)
				}
				if len(w.at) != 2 || w.at[1] >= evictPause {
					t.Errorf("asked after %s", w.at)
				}
			})
		})
	}
}

// TestEnding evicts no pod that ends already, and none waits for it.
func TestEnding(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newEvictorWorld(t)
		w.pods["ending"] = fit("ending", func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) })
		w.Request(pod("ending"))
		w.Request(pod("next"))
		w.serve(t, evictPause)
		w.expect(t, []string{"next"}, map[string]float64{done: 1})
		if w.at[0] > readPause {
			t.Errorf("asked after %s", w.at)
		}
	})
}

// TestAgain asks for a pod that stays, once it had its time.
func TestAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newEvictorWorld(t)
		w.codes["kept"] = http.StatusTooManyRequests
		for range 25 { // as the guard does, after each examination
			w.Request(pod("kept"))
			w.serve(t, 5*time.Second)
		}
		w.expect(t, []string{"kept", "kept"}, map[string]float64{refused: 2})
		if len(w.at) != 2 || w.at[1]-w.at[0] <= retryAfter {
			t.Errorf("asked after %s", w.at)
		}
	})
}

// TestPace lets one pod after the other go.
func TestEvictorPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newEvictorWorld(t)
		var guard sync.WaitGroup
		guard.Go(func() { // after each examination
			for range 8 {
				for _, name := range []string{"a", "b", "c"} {
					w.Request(pod(name))
				}
				time.Sleep(evictPause / 2)
			}
		})
		w.serve(t, 4*evictPause)
		guard.Wait()
		w.expect(t, []string{"a", "b", "c"}, map[string]float64{done: 3})
		if diff := cmp.Diff([]time.Duration{0, evictPause, 2 * evictPause}, w.at); diff != "" {
			t.Errorf("asked after: %s", diff)
		}
	})
}

// TestBadNode evicts no pod, as the pod that comes instead would be no better;
// and later, at the next request, at once.
func TestBadNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newEvictorWorld(t)
		w.fault = errors.New("the plugin does not run")
		for _, name := range []string{"a", "b", "a"} {
			w.Request(pod(name))
		}
		w.serve(t, time.Second)
		w.expect(t, nil, nil)
		const logged = `msg="not evicting the pod: the node is not in the desired state" pod=shop/b error="the plugin does not run"`
		if log := w.log.String(); w.checks != 3 || !strings.Contains(log, logged) {
			t.Errorf("%d checks, want 3; logged %s", w.checks, log)
		}
		w.fault = nil
		w.Request(pod("a"))
		w.serve(t, time.Second)
		w.expect(t, []string{"a"}, map[string]float64{done: 1})
	})
}

// TestRequestNeverBlocks though nothing serves the queue; a full one drops requests.
func TestRequestNeverBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newEvictorWorld(t)
		for range 2 * queueLength { // a bubble in which all wait fails
			w.Request(pod("first"))
		}
		w.Request(pod("late"))
		w.serve(t, 2*evictPause)
		w.expect(t, []string{"first"}, map[string]float64{done: 1})
		w.Request(pod("late"))
		w.serve(t, 2*evictPause)
		w.expect(t, []string{"first", "late"}, map[string]float64{done: 2})
	})
}

// TestServeEnds with its context, whether it waits for a request or for
// the next one's turn.
func TestServeEnds(t *testing.T) {
	t.Parallel()
	for _, asked := range [][]string{nil, {"a"}} {
		synctest.Test(t, func(t *testing.T) {
			w := newEvictorWorld(t)
			for _, name := range asked {
				w.Request(pod(name))
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := false
			go func() { w.Serve(ctx); ended = true }()
			synctest.Wait()
			if ended {
				t.Error("it ended by itself")
			}
			cancel()
			synctest.Wait()
			if !ended || !slices.Equal(w.asked, asked) {
				t.Errorf("ended: %v, asked for %q", ended, w.asked)
			}
		})
	}
}

// TestNoneAfterTheEnd evicts no pod once its context has ended, though requests
// are queued.
func TestNoneAfterTheEnd(t *testing.T) {
	t.Parallel()
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			w := newEvictorWorld(t)
			w.Request(pod("a"))
			w.Request(pod("b"))
			w.serve(t, evictPause/2)
			w.expect(t, []string{"a"}, map[string]float64{done: 1})
			if w.checks != 1 {
				t.Errorf("%d checks", w.checks)
			}
		})
	}
}

// TestOldRequests are not carried out: who is still to go was asked for again
// meanwhile, and who is not has been put right.
func TestOldRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newEvictorWorld(t)
		for i := range 20 {
			w.Request(pod(string(rune('a' + i))))
		}
		w.serve(t, 20*evictPause)
		if last := w.at[len(w.at)-1]; last > retryAfter {
			t.Errorf("a pod was evicted %s after the request", last)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newEvictorWorld(t)
		w.Request(pod("too-late"))
		time.Sleep(time.Nanosecond)
		w.Request(pod("just-in-time"))
		time.Sleep(maxAge)
		w.serve(t, evictPause)
		w.expect(t, []string{"just-in-time"}, map[string]float64{done: 1})
	})
}
