// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// conditionWorld is an API server with one Node, and a ConditionWriter of it.
type conditionWorld struct {
	*ConditionWriter
	conditions    []corev1.NodeCondition // of the Node
	patches       []string
	others        []string // requests that are no patch of conditions
	begins, holds error
	called        bool
}

func newConditionWorld(t *testing.T, conditions ...corev1.NodeCondition) *conditionWorld {
	t.Helper()
	w := &conditionWorld{conditions: conditions}
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		document, err := io.ReadAll(r.Body)
		var patch struct {
			Status struct{ Conditions []corev1.NodeCondition }
		}
		decoder := json.NewDecoder(bytes.NewReader(document))
		decoder.DisallowUnknownFields()
		if err = errors.Join(err, decoder.Decode(&patch)); err != nil || r.Method != http.MethodPatch ||
			r.URL.Path != "/api/v1/nodes/node-1/status" || r.Header.Get("Content-Type") != string(types.StrategicMergePatchType) {
			w.others = append(w.others, fmt.Sprintf("%s %s %s, %v", r.Method, r.URL.Path, document, err))
		}
		w.patches = append(w.patches, string(document))
		for _, one := range patch.Status.Conditions {
			w.conditions = append(slices.DeleteFunc(w.conditions, func(c corev1.NodeCondition) bool { return c.Type == one.Type }), one)
		}
		out.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(out).Encode(corev1.Node{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, Status: corev1.NodeStatus{Conditions: w.conditions},
		})
	}))
	t.Cleanup(server.Close)
	api, err := New(&rest.Config{Host: server.URL, QPS: -1})
	lab.Check(t, err)
	begins := func(context.Context) error { w.called = true; return w.begins }
	holds := func(context.Context) error { return w.holds }
	w.ConditionWriter = NewConditionWriter(api, "node-1", begins, holds, slog.New(slog.DiscardHandler))
	return w
}

// expect checks the node at a moment, and expects the condition after so many patches.
func (w *conditionWorld) expect(t *testing.T, at time.Time, patches int, status corev1.ConditionStatus, message string, since time.Time) {
	t.Helper()
	w.patches, w.called = nil, false
	lab.Check(t, w.check(t.Context(), at))
	var found corev1.NodeCondition
	if i := slices.IndexFunc(w.conditions, func(c corev1.NodeCondition) bool { return c.Type == captureReady }); i >= 0 {
		found = w.conditions[i]
	}
	if len(w.patches) != patches || found.Status != status || !strings.Contains(found.Message, message) || !since.IsZero() && !found.LastTransitionTime.Time.Equal(since) {
		t.Errorf("at %s: %q, and the condition is %+v; want %d patches, %q since %s", at, w.patches, found, patches, status, since)
	}
	if len(w.others) > 0 {
		t.Errorf("other requests: %q", w.others)
	}
}

// TestConditionWriter writes each change once, a failure only if it lasts, and a heartbeat.
func TestConditionWriter(t *testing.T) {
	t.Parallel()
	w, began := newConditionWorld(t), time.Now().Truncate(time.Second)
	after := func(d time.Duration) time.Time { return began.Add(d) }
	w.begins = errors.New("no entry yet")
	w.expect(t, began, 1, "", "", time.Time{}) // reads
	w.expect(t, after(grace-1), 0, "", "", time.Time{})
	w.expect(t, after(grace), 1, corev1.ConditionFalse, "no entry yet", after(grace))
	w.begins = errors.New(strings.Repeat("x", maxCondition-1) + "ü")
	w.expect(t, after(grace+1*time.Second), 1, corev1.ConditionFalse, strings.Repeat("x", maxCondition-1), after(grace))
	w.begins, w.holds = nil, errors.New("is not asked yet")
	w.expect(t, after(20*time.Second), 1, corev1.ConditionTrue, "are captured", after(20*time.Second))
	if w.holds = nil; !w.called {
		t.Error("the condition became true without a call of the plugin")
	}
	w.expect(t, after(30*time.Second), 0, corev1.ConditionTrue, "", after(20*time.Second))
	if w.called {
		t.Error("the plugin is called though the condition is true")
	}
	w.holds = errors.New("a repair")
	w.expect(t, after(40*time.Second), 0, corev1.ConditionTrue, "", after(20*time.Second))
	w.holds = nil
	w.expect(t, after(45*time.Second), 0, corev1.ConditionTrue, "", after(20*time.Second))
	w.holds = errors.New("another repair")
	w.expect(t, after(54*time.Second), 0, corev1.ConditionTrue, "", after(20*time.Second))
	w.holds = nil
	w.expect(t, after(20*time.Second+heartbeat-1), 0, corev1.ConditionTrue, "", after(20*time.Second))
	w.expect(t, after(20*time.Second+heartbeat), 1, corev1.ConditionTrue, "", after(20*time.Second))
	w.expect(t, began, 1, corev1.ConditionTrue, "", after(20*time.Second)) // the clock was set back
	w.conditions = nil
	w.expect(t, after(heartbeat), 1, corev1.ConditionTrue, "", after(20*time.Second)) // the Node was created again
}

// TestConditionOfEarlierAgent keeps what an earlier agent wrote, and since when.
func TestConditionOfEarlierAgent(t *testing.T) {
	t.Parallel()
	now, since := time.Now(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w := newConditionWorld(t, corev1.NodeCondition{Type: "Ready"}, corev1.NodeCondition{
		Type: captureReady, Status: corev1.ConditionTrue, Message: "of an earlier agent", LastTransitionTime: metav1.NewTime(since),
	})
	w.holds = errors.New("the agent is starting")
	w.expect(t, now, 1, corev1.ConditionTrue, "", since)
	w.holds = nil
	w.expect(t, now.Add(time.Second), 1, corev1.ConditionTrue, "", since)
	if w.called {
		t.Error("the plugin is called though the condition is true")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.holds, w.failing, w.patches = context.Canceled, now, nil
	if err := w.check(ctx, now.Add(time.Hour)); err != nil || len(w.patches) > 0 {
		t.Errorf("at its end, the agent writes %q, %v", w.patches, err)
	}
}

// TestConditionPace sends few requests to an API server that refuses them, logs the error once, and checks
// the node again soon after the API server has recovered.
func TestConditionPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		requests, checks, refuses := 0, 0, true
		api, err := New(&rest.Config{Host: "http://192.0.2.1", QPS: -1, Transport: transported(func() (*http.Response, error) {
			if requests++; refuses {
				return nil, errors.New("refused")
			}
			return &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(`{"apiVersion": "v1", "kind": "Node"}`)),
			}, nil
		})})
		lab.Check(t, err)
		ready := func(context.Context) error { checks++; return nil }
		w := NewConditionWriter(api, "node-1", ready, ready, slog.New(slog.NewTextHandler(&log, nil)))
		for _, tt := range []struct{ requests, checks int }{{16, 0}, {13, 360}} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			w.Run(ctx)
			cancel()
			if lines := strings.Count(log.String(), "writing the node's condition failed; retrying"); requests != tt.requests || checks != tt.checks || lines != 1 {
				t.Errorf("%d requests, %d checks, want %+v; %s", requests, checks, tt, log.String())
			}
			requests, refuses = 0, false
		}
	})
}
