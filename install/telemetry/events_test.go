// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// server takes Events, and has a pod of each name.
type server struct {
	mu      sync.Mutex
	pods    map[string]*corev1.Pod // by name; nil for none. Others are on node-1, with their name as UID
	events  map[string]corev1.Event
	patches int
	unknown int // requests about Events that do not exist
	refuse  bool
	loses   bool // the answer to a POST
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if _, name, ok := strings.Cut(r.URL.Path, "/pods/"); ok && !s.refuse {
		s.getPod(w, name)
		return
	}
	namespace, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/"), "/events")
	name = strings.TrimPrefix(name, "/")
	event, known := s.events[namespace+"/"+name]
	switch {
	case s.refuse:
		w.WriteHeader(http.StatusForbidden)
		return
	case r.Method == http.MethodPost && name == "":
	case r.Method == http.MethodPatch && known && r.Header.Get("Content-Type") == "application/merge-patch+json":
		s.patches++
	default:
		s.unknown++
		answer(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if _, exists := s.events[namespace+"/"+event.Name]; exists && !known {
		answer(w, http.StatusConflict, metav1.StatusReasonAlreadyExists)
		return
	}
	s.events[namespace+"/"+event.Name] = event
	if s.loses && r.Method == http.MethodPost {
		answer(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
		return
	}
	_ = json.NewEncoder(w).Encode(event) // a client that went away is its own business
}

func answer(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
}

func (s *server) getPod(w http.ResponseWriter, name string) {
	pod, known := s.pods[name]
	if !known {
		uid := cmp.Or(map[string]string{"web": captured.Pod.UID, "bad": failed.Pod.UID, "own-init": "77aa"}[name], name)
		pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid)}, Spec: corev1.PodSpec{NodeName: "node-1"}}
	}
	if pod == nil {
		answer(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	_ = json.NewEncoder(w).Encode(pod)
}

func (s *server) all() (events []corev1.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		events = append(events, e)
	}
	return events
}

func newEvents(t *testing.T) (*Events, *server) {
	t.Helper()
	s := &server{events: map[string]corev1.Event{}}
	listener := httptest.NewServer(s)
	t.Cleanup(listener.Close)
	api, err := kube.New(&rest.Config{Host: listener.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return NewEvents(api, "node-1", func(capture.PodRef) bool { return false }, prometheus.NewRegistry(), slog.New(slog.DiscardHandler)), s
}

// flush posts all that is queued.
func flush(t *testing.T, e *Events) (errs []error) {
	t.Helper()
	for len(e.queue) > 0 {
		if err := e.post(t.Context(), <-e.queue); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// TestEvents posts one for a pod and a reason, and counts in it from then on.
func TestEvents(t *testing.T) {
	t.Parallel()
	e, s := newEvents(t)
	at := time.Now()
	r := failed
	for i := range 3 {
		r.Time = at.Add(time.Duration(i) * time.Second)
		r.Message = "attempt " + string(rune('1'+i)) + strings.Repeat("!", i%2*maxMessage)
		r.Trace = "4bf92f3577b34da6a3ce929d0e0e473" + string(rune('1'+i))
		e.Post(r)
		if errs := flush(t, e); len(errs) > 0 {
			t.Fatal(errs)
		}
		if event := s.all()[0]; len(event.Message) > maxMessage || !strings.HasSuffix(event.Message, " (trace "+r.Trace+") [add-annotations]") {
			t.Errorf("got %q", event.Message)
		}
	}
	e.Post(passed)
	e.Post(record.Record{Verdict: record.Failed, Reason: capture.ReasonInput, Message: "no pod"})
	warned := captured
	warned.Time = at
	e.Post(warned)
	if errs := flush(t, e); len(errs) > 0 {
		t.Fatal(errs)
	}
	events := s.all()
	if len(events) != 2 || s.patches != 2 {
		t.Fatalf("%d Events, %d patches: %v", len(events), s.patches, events)
	}
	for _, event := range events {
		pod := event.InvolvedObject
		if event.Type != corev1.EventTypeWarning || pod.Kind != "Pod" || pod.Namespace != "shop" || event.Namespace != "shop" ||
			event.Source.Component != component || event.Source.Host != "node-1" || !event.FirstTimestamp.Time.Equal(at.Truncate(time.Second)) {
			t.Errorf("got %+v", event)
		}
		switch event.Reason {
		case eventFailed:
			if event.Count != 3 || event.Message != "attempt 3 (trace 4bf92f3577b34da6a3ce929d0e0e4733) [add-annotations]" || pod.Name != "bad" || pod.UID != "9d53" || !event.LastTimestamp.After(event.FirstTimestamp.Time) {
				t.Errorf("got %+v", event)
			}
		case eventWarning:
			if event.Count != 1 || event.Message != "IPv6 is left uncaptured [add-warned]" || pod.Name != "web" {
				t.Errorf("got %+v", event)
			}
		default:
			t.Errorf("got reason %s", event.Reason)
		}
	}
}

// TestEventEnds makes a new one where the API server has forgotten the old one.
func TestEventEnds(t *testing.T) {
	t.Parallel()
	e, s := newEvents(t)
	e.Post(failed)
	flush(t, e)
	s.mu.Lock()
	ended := slices.Collect(maps.Values(s.events))[0].Name
	clear(s.events)
	s.mu.Unlock()
	e.Post(failed)
	if errs := flush(t, e); len(errs) > 0 {
		t.Fatal(errs)
	}
	renewed := s.all()
	if len(renewed) != 1 || renewed[0].Count != 2 || renewed[0].Name == ended {
		t.Errorf("got %v after %s", renewed, ended)
	}
	e.Post(failed)
	if errs := flush(t, e); len(errs) > 0 {
		t.Fatal(errs)
	}
	if events := s.all(); len(events) != 1 || events[0].Count != 3 || events[0].Name != renewed[0].Name {
		t.Errorf("got %v after %v", events, renewed)
	}
}

// TestLostAnswer counts in the Event that an earlier request has created, though its answer was an error.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	e, s := newEvents(t)
	s.loses = true
	for want := range int32(3) {
		e.Post(failed)
		if errs := flush(t, e); (len(errs) > 0) != s.loses {
			t.Errorf("got %v", errs)
		}
		s.loses = false
		if events := s.all(); len(events) != 1 || events[0].Count != want+1 {
			t.Errorf("got %v", events)
		}
	}
	if s.patches != 2 {
		t.Errorf("%d patches", s.patches)
	}
}

// TestFlush posts what is queued and a summary that is due, unless the context has ended.
func TestFlush(t *testing.T) {
	t.Parallel()
	for ended, want := range map[bool]int{true: 0, false: 3} {
		e, s := newEvents(t)
		e.Post(failed)
		repairs(e, 1)
		e.dropped.count(causeFull, time.Now().Add(-summaryCheck))
		ctx, cancel := context.WithCancel(t.Context())
		if ended {
			cancel()
		}
		e.Flush(ctx)
		cancel()
		if events := s.all(); len(events) != want || (len(e.queue) > 0) != ended {
			t.Errorf("%d Events, %d queued: %v", len(events), len(e.queue), events)
		}
	}
}

// TestNoPermission is an error for the log, and tried again with the next notice: the Event
// that was refused is not counted in.
func TestNoPermission(t *testing.T) {
	t.Parallel()
	for _, watched := range []bool{false, true} { // else the pod is read first, which is refused, too
		e, s := newEvents(t)
		e.watched = func(capture.PodRef) bool { return watched }
		s.refuse = true
		e.Post(failed)
		if errs := flush(t, e); len(errs) != 1 {
			t.Errorf("got %v", errs)
		}
		s.refuse = false
		e.Post(failed)
		if errs := flush(t, e); len(errs) > 0 || len(s.all()) != 1 || s.unknown > 0 {
			t.Errorf("got %v, %v; %d requests were about Events that do not exist", errs, s.all(), s.unknown)
		}
	}
}

// TestEventsOfTheGuard posts what was found of a pod that runs, under a reason
// that says what became of it, and nothing of a pod that is to be evicted: the
// same look has told that it was found.
func TestEventsOfTheGuard(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		verdict record.Verdict
		reason  capture.Reason
		want    string
	}{
		{Repaired, Uncaptured, "CaptureRepaired"},
		{Repaired, Drifted, "CaptureRepaired"},
		{Updated, Outdated, "CaptureUpdated"},
		{Found, Uncaptured, "CaptureMissing"},
		{Found, Drifted, "CaptureMissing"},
		{Found, Outdated, "CaptureNote"},
		{Found, Changed, "CaptureNote"},
		{Found, Foreign, "CaptureWarning"},
		{Found, InjectedLater, "CaptureMissing"},
		{EvictionRequested, Uncaptured, ""},
		{EvictionRequested, Drifted, ""},
	} {
		e, s := newEvents(t)
		e.Post(record.Record{Time: time.Now(), Pod: captured.Pod, Verdict: tt.verdict, Reason: tt.reason, Message: "what was found"})
		if errs := flush(t, e); len(errs) > 0 {
			t.Fatal(errs)
		}
		events := s.all()
		if tt.want == "" {
			if len(events) > 0 {
				t.Errorf("%s, %s: got %v", tt.verdict, tt.reason, events)
			}
			continue
		}
		if isNote := tt.want == "CaptureNote" || tt.want == "CaptureUpdated"; len(events) > 0 && (events[0].Type == corev1.EventTypeNormal) != isNote {
			t.Errorf("%s, %s: type %s", tt.verdict, tt.reason, events[0].Type)
		}
		if len(events) != 1 || events[0].Reason != tt.want || events[0].Message != "what was found ["+string(tt.reason)+"]" || events[0].InvolvedObject.Name != "web" || events[0].Count != 1 {
			t.Errorf("%s, %s: got %v", tt.verdict, tt.reason, events)
		}
	}
}

// TestForgedRecords posts no Event about a pod of another node, of an earlier pod of its
// name, or of none, whatever a record says.
func TestForgedRecords(t *testing.T) {
	t.Parallel()
	on := func(node, uid string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: corev1.PodSpec{NodeName: node}}
	}
	for name, tt := range map[string]struct {
		pod    *corev1.Pod
		posted int
	}{
		"of this node":    {on("node-1", "9d53"), 1},
		"of another node": {on("node-2", "9d53"), 0},
		"not scheduled":   {on("", "9d53"), 0},
		"a later pod":     {on("node-1", "other"), 0},
		"gone":            {nil, 0},
	} {
		e, s := newEvents(t)
		s.pods = map[string]*corev1.Pod{"bad": tt.pod}
		e.Post(failed)
		errs := flush(t, e)
		if posted := len(s.all()); posted != tt.posted || len(errs) > 0 {
			t.Errorf("%s: %d Events, %v", name, posted, errs)
		}
	}
}

// TestWatchedPods posts an Event about a pod that the agent watches without a read, which an
// authorization webhook can refuse.
func TestWatchedPods(t *testing.T) {
	t.Parallel()
	e, s := newEvents(t)
	s.pods = map[string]*corev1.Pod{"bad": nil, "web": nil}
	e.watched = func(pod capture.PodRef) bool { return pod == failed.Pod }
	e.Post(failed)
	other := failed
	other.Pod.UID = "another"
	e.Post(other)
	if errs := flush(t, e); len(s.all()) != 1 || len(errs) > 0 {
		t.Errorf("%d Events, %v", len(s.all()), errs)
	}
}
