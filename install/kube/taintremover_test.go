// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
)

const key = "capture-cni.io/not-ready"

func list(keys ...string) (taints []corev1.Taint) {
	for _, k := range keys {
		taints = append(taints, corev1.Taint{Key: k, Effect: corev1.TaintEffectNoSchedule})
	}
	return taints
}

func keys(taints []corev1.Taint) (all []string) {
	for _, taint := range taints {
		all = append(all, taint.Key)
	}
	return all
}

// taintWorld is an API server with one node, and what is wrong with that.
type taintWorld struct {
	*TaintRemover
	server *kubeapi.Server
	fault  error
	checks int
	shown  []bool
	lines  bytes.Buffer
}

func newTaintWorld(t *testing.T, taints ...string) *taintWorld {
	t.Helper()
	server, err := kubeapi.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	server.PutNode("node-1", list(taints...)...)
	w := &taintWorld{server: server}
	access := &rest.Config{Host: server.URL, BearerToken: server.Token(), TLSClientConfig: rest.TLSClientConfig{CAData: server.Cert.PEM}}
	ready := func(context.Context) error { w.checks++; return w.fault }
	observe := func(tainted bool) { w.shown = append(w.shown, tainted) }
	api, err := New(access)
	if err != nil {
		t.Fatal(err)
	}
	w.TaintRemover = NewTaintRemover(api, "node-1", key, ready, observe, slog.New(slog.NewTextHandler(&w.lines, nil)))
	return w
}

func (w *taintWorld) expect(t *testing.T, again bool, taints []string, shown ...bool) {
	t.Helper()
	w.shown = nil
	if got := w.check(t.Context()); got != again {
		t.Errorf("again is %v", got)
	}
	if got := keys(w.server.Taints("node-1")); !slices.Equal(got, taints) {
		t.Errorf("the node has the taints %q, want %q", got, taints)
	}
	if !slices.Equal(w.shown, shown) {
		t.Errorf("the metric went %v, want %v", w.shown, shown)
	}
}

func TestRemoval(t *testing.T) {
	for name, tt := range map[string]struct{ before, after []string }{
		"alone":           {[]string{key}, nil},
		"among others":    {[]string{"a", key, "b"}, []string{"a", "b"}},
		"more than once":  {[]string{key, "a", key}, []string{"a"}},
		"a longer key":    {[]string{key + "-2", key}, []string{key + "-2"}},
		"the last of all": {[]string{"a", "b", key}, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTaintWorld(t, tt.before...)
			w.expect(t, false, tt.after, true, false)
			w.expect(t, false, tt.after, false)
			if len(w.server.Events()) != 0 || w.checks != 1 {
				t.Errorf("%d checks, events %v", w.checks, w.server.Events())
			}
		})
	}
}

// TestNoTaint has nothing to do, and does not even look at the node.
func TestNoTaint(t *testing.T) {
	for _, taints := range [][]string{nil, {"other", key + "-2"}} {
		w := newTaintWorld(t, taints...)
		before := w.server.Requests()
		w.reminder.since = time.Now() // of a taint that was there before
		w.expect(t, false, taints, false)
		if w.checks != 0 || w.reminder != (reminder{}) || w.server.Requests() != before+1 {
			t.Errorf("%d checks, %d requests", w.checks, w.server.Requests()-before)
		}
	}
}

// TestConflict changes the list between reading and patching.
func TestConflict(t *testing.T) {
	for name, tt := range map[string]struct{ meanwhile, after []string }{
		"one came before ours": {[]string{"new", key, "a"}, []string{"new", "a"}},
		"one went":             {[]string{key}, nil},
		"ours went":            {[]string{"a"}, []string{"a"}},
		"one has its place":    {[]string{"a", "new"}, []string{"a", "new"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTaintWorld(t, "a", key)
			patches := 0
			w.server.Misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPatch {
					if patches++; patches == 1 {
						w.server.PutNode("node-1", list(tt.meanwhile...)...)
					}
				}
				return false
			})
			w.expect(t, false, tt.after, true, false)
		})
	}
}

// TestStaleCache has the API server's cache lag behind, longer than a check takes: the Node is
// then read from where it is stored.
func TestStaleCache(t *testing.T) {
	w := newTaintWorld(t, "new", key)
	stale := corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
		Spec: corev1.NodeSpec{Taints: list(key)},
	}
	w.server.Misbehave(func(rw http.ResponseWriter, r *http.Request) bool {
		cached := r.Method == http.MethodGet && r.URL.Query().Get("resourceVersion") == "0"
		if cached {
			rw.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(rw).Encode(stale)
		}
		return cached
	})
	w.expect(t, false, []string{"new"}, true, false)
}

// TestEndlessConflict gives up for now where the list never stays the same.
func TestEndlessConflict(t *testing.T) {
	w := newTaintWorld(t, key)
	patches := 0
	w.server.Misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPatch {
			patches++
			w.server.PutNode("node-1", append(slices.Repeat(list("new"), patches), list(key)...)...)
		}
		return false
	})
	w.check(t.Context())
	const attempts = 5
	if patches != attempts {
		t.Errorf("%d attempts", patches)
	}
	w.server.Misbehave(nil)
	w.expect(t, false, slices.Repeat([]string{"new"}, attempts), true, false)
}

// TestRefused reports a policy or a missing permission, and tries again later.
func TestRefused(t *testing.T) {
	w := newTaintWorld(t, key)
	patches := 0
	w.server.Misbehave(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPatch {
			patches++
			kubeapi.WriteStatus(rw, r, http.StatusForbidden, "Forbidden", "a policy")
			return true
		}
		return false
	})
	w.expect(t, true, []string{key}, true)
	if patches != 1 || !strings.Contains(w.logged, "a policy") {
		t.Errorf("%d attempts, said %q", patches, w.logged)
	}
}

// TestBadInstall keeps the taint and says why: at once in the log, after some
// time in an Event, and not again and again.
func TestBadInstall(t *testing.T) {
	w := newTaintWorld(t, key, "other")
	w.fault = errors.New("the plugin does not run")
	w.expect(t, true, []string{key, "other"}, true)
	if events := w.server.Events(); len(events) != 0 {
		t.Fatalf("events at once: %v", events)
	}
	w.reminder.since = time.Now().Add(-grace)
	for range 3 {
		w.expect(t, true, []string{key, "other"}, true)
	}
	events := w.server.Events()
	if len(events) != 1 {
		t.Fatalf("%d events: %v", len(events), events)
	}
	at := events[0].FirstTimestamp
	if diff := cmp.Diff(corev1.Event{
		TypeMeta:       metav1.TypeMeta{Kind: "Event", APIVersion: "v1"},
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "capture-cni-", Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: "node-1", UID: "uid-of-node-1"},
		Type:           "Warning", Reason: "CaptureNotReady", Message: "the taint " + key + " stays: the plugin does not run",
		Source: corev1.EventSource{Component: "capture-cni-node", Host: "node-1"}, FirstTimestamp: at, LastTimestamp: at, Count: 1,
	}, events[0]); diff != "" || time.Since(at.Time) > time.Minute {
		t.Errorf("the event of %s differs: %s", at, diff)
	}
	w.reminder.posted = time.Now().Add(-samePause)
	w.expect(t, true, []string{key, "other"}, true)
	if got := len(w.server.Events()); got != 2 {
		t.Errorf("%d events after a while", got)
	}
	w.fault = errors.New("something else")
	w.expect(t, true, []string{key, "other"}, true)
	if got := len(w.server.Events()); got != 2 {
		t.Errorf("%d events for two reasons at once", got)
	}
	w.reminder.posted = time.Now().Add(-changedPause)
	w.expect(t, true, []string{key, "other"}, true)
	if got := len(w.server.Events()); got != 3 {
		t.Errorf("%d events of another reason", got)
	}
	w.fault = nil
	w.expect(t, false, []string{"other"}, true, false)
	if w.reminder != (reminder{}) {
		t.Errorf("a later taint is reminded of as %+v", w.reminder)
	}
	for _, line := range []string{"stays: the plugin does not run", "stays: something else", "removed the taint " + key} {
		if n := strings.Count(w.lines.String(), line); n != 1 {
			t.Errorf("the log has %q %d times: %s", line, n, &w.lines)
		}
	}
}

// TestEventLost posts an event that could not be posted with the next pass.
func TestEventLost(t *testing.T) {
	w := newTaintWorld(t, key)
	w.fault = errors.New("bad")
	w.reminder.since = time.Now().Add(-grace)
	w.server.Misbehave(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			kubeapi.WriteStatus(rw, r, http.StatusForbidden, "Forbidden", "no events")
			return true
		}
		return false
	})
	w.expect(t, true, []string{key}, true)
	w.server.Misbehave(nil)
	w.expect(t, true, []string{key}, true)
	if got := len(w.server.Events()); got != 1 || strings.Count(w.lines.String(), "posting an Event about the taint failed") != 1 {
		t.Errorf("%d events; log: %s", got, &w.lines)
	}
}

// TestNoNode goes on where there is no Node yet, or no API server.
func TestNoNode(t *testing.T) {
	w := newTaintWorld(t)
	w.server.DeleteNode("node-1")
	if !w.check(t.Context()) || len(w.shown) != 0 || !strings.Contains(w.logged, "not found") {
		t.Errorf("shown %v, said %q", w.shown, w.logged)
	}
}

// TestRegisteredAnew has a node come back with its taint, in one life of the agent.
func TestRegisteredAnew(t *testing.T) {
	w := newTaintWorld(t, key)
	w.expect(t, false, nil, true, false)
	w.server.PutNode("node-1", list(key)...)
	w.expect(t, false, nil, true, false)
}

// unserved is a node with an API server without a network in between.
type unserved struct {
	mu                   sync.Mutex
	tainted, unreachable bool
	fault                error       // of the node
	requests             []time.Time // of the Node
}

// RoundTrip implements http.RoundTripper.
func (u *unserved) RoundTrip(r *http.Request) (*http.Response, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if r.Method == http.MethodGet {
		u.requests = append(u.requests, time.Now())
	}
	if u.unreachable {
		return nil, errors.New("no route to host")
	}
	node := corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	if u.tainted = u.tainted && r.Method != http.MethodPatch; u.tainted {
		node.Spec.Taints = list(key)
	}
	recorder := httptest.NewRecorder()
	recorder.Header().Set("Content-Type", "application/json")
	err := json.NewEncoder(recorder).Encode(node)
	return recorder.Result(), err
}

func (u *unserved) ready(context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.fault
}

// become changes what the node is.
func (u *unserved) become(tainted, unreachable bool, fault error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.tainted, u.unreachable, u.fault, u.requests = tainted, unreachable, fault, nil
}

// pauses returns those between the first requests since the node changed.
func (u *unserved) pauses() (pauses []time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range min(len(u.requests)-1, 5) {
		pauses = append(pauses, u.requests[i+1].Sub(u.requests[i]))
	}
	return pauses
}

func (u *unserved) isTainted() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.tainted
}

// TestRunKeepsChecking has a node get its taint again and again, for a minute or an hour, with
// a fault of the node or of the API server: the taint goes soon after each, and a later one is
// checked as often as the first.
func TestRunKeepsChecking(t *testing.T) {
	t.Parallel()
	fault := errors.New("no entry")
	for _, unreachable := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server := &unserved{}
			api, err := New(&rest.Config{Host: "http://api.test", Transport: server})
			if err != nil {
				t.Fatal(err)
			}
			remover := NewTaintRemover(api, "node-1", key, server.ready, func(bool) {}, slog.New(slog.DiscardHandler))
			ctx, end := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { remover.Run(ctx) })
			var first []time.Duration
			for round, lasts := range []time.Duration{2 * time.Minute, time.Hour, 2 * time.Minute} {
				server.become(true, unreachable, fault)
				time.Sleep(lasts)
				synctest.Wait()
				if round == 0 {
					first = server.pauses()
				}
				if pauses := server.pauses(); len(pauses) != 5 || !slices.Equal(pauses, first) {
					t.Errorf("round %d: pauses of %s, in the first round of %s", round, pauses, first)
				}
				server.become(true, false, nil)
				if time.Sleep(maxTaintPause); server.isTainted() {
					t.Errorf("round %d: the node is well, and has the taint", round)
				}
			}
			end()
			running.Wait()
		})
	}
}
