// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// TestWatchLog logs when a watch breaks and when it works again, and how many pods were read at first.
func TestWatchLog(t *testing.T) {
	t.Parallel()
	log := &lab.Log{}
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	registry := newRegistry()
	c := newPodCache(true, config.DefaultSettings().Meshes, newMetrics(metrics.NewFactory(registry)), logger)
	expect := func(when, unready string, logged map[string]int) {
		t.Helper()
		if err := c.unready(); (err == nil) != (unready == "") || err != nil && err.Error() != "the agent has not read its node's pods yet: "+unready {
			t.Errorf("%s: %v, want %q", when, err, unready)
		}
		for text, want := range logged {
			if n := strings.Count(log.String(), text); n != want {
				t.Errorf("%s: %d times %s, want %d: %s", when, n, text, want, log)
			}
		}
	}
	const (
		failed = `msg="watching the node's pods failed, or omitted some; retrying" error=first synced=false`
		again  = "watching the node's pods again"
		read   = `msg="the node's pods were read" pods=2`
	)
	c.WatchStarted()
	expect("at first", "the API server has not answered so far", map[string]int{again: 0})
	c.WatchFailed(errors.New("first"))
	c.WatchFailed(errors.New("second"))
	expect("broken", "second", map[string]int{failed: 1, "retrying": 1})
	c.WatchStarted()
	expect("started", "the API server has not answered so far", map[string]int{again: 1})
	for range 2 {
		lab.Check(t, c.Replace([]any{podOn(ownNode, "a", "1"), podOn(ownNode, "b", "2"), "no pod"}, "1"))
	}
	expect("read", "", map[string]int{read: 1, "were read": 1, `msg="caching a pod failed; the agent reads it for each request"`: 2})
	families, err := registry.Gather()
	lab.Check(t, err)
	for _, family := range families {
		if watched := family.GetMetric()[0].GetGauge().GetValue(); strings.HasSuffix(family.GetName(), "pods_watched") && watched != 2 {
			t.Errorf("%v pods are watched", watched)
		}
	}
	c.WatchFailed(errors.New("third"))
	expect("broken again", "", map[string]int{"error=third synced=true": 1})
	a := &answers{cache: c, metrics: c.metrics, log: logger, api: readerFunc(func(context.Context, capture.PodRef) (*corev1.Pod, error) {
		return nil, errors.New("no answer")
	})}
	a.answer(t.Context(), lookup.Request{Version: capture.PodVersion, Pod: ref("web", "u1")})
	expect("asked", "", map[string]int{`level=DEBUG msg="a request for a pod failed"`: 1, "no answer": 1, "encoding": 0})
}

// TestLostSocket reports why pods can't be asked for. An agent that serves no pods is ready without.
func TestLostSocket(t *testing.T) {
	t.Parallel()
	log := &lab.Log{}
	s := New(Settings{Socket: "/s"}, nil, newRegistry(), slog.New(slog.NewTextHandler(log, nil)))
	if err := s.Ready(); err == nil || err.Error() != "the agent does not listen for requests for pods yet" {
		t.Errorf("at first: %v", err)
	}
	s.lost(errors.New("broken"))
	if err := s.Ready(); err == nil || err.Error() != "listening for lookups of pods at /s: broken" {
		t.Errorf("a lost socket: %v", err)
	}
	if !strings.Contains(log.String(), `msg="listening for lookups of pods failed; retrying" socket=/s error=broken`) {
		t.Errorf("logged %s", log)
	}
	var none *Server
	ended, end := context.WithCancel(t.Context())
	end()
	if err := errors.Join(none.Ready(), none.Serve(ended)); err != nil || none.Watches(ref("web", "u1")) {
		t.Errorf("no server: %v", err)
	}
}
