// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/node"
)

// TestGuardProbe fails the kubelet's probe of a guard that is stuck, with the reason.
func TestGuardProbe(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		stuck  error
		status int
		says   string
	}{
		{nil, http.StatusOK, "alive"},
		{errors.New("the last round was an hour ago"), http.StatusInternalServerError, "an hour ago"},
	} {
		answer := httptest.NewRecorder()
		guardProbe(func() error { return tt.stuck }, prometheus.NewRegistry()).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/healthz", nil))
		if answer.Code != tt.status || !strings.Contains(answer.Body.String(), tt.says) {
			t.Errorf("%v: %d %q", tt.stuck, answer.Code, answer.Body)
		}
	}
}

// TestGuardBuild has the guard's version among its metrics, as the agent's are.
func TestGuardBuild(t *testing.T) {
	t.Parallel()
	answer := httptest.NewRecorder()
	guardProbe(func() error { return nil }, guardRegistry()).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if want := `capture_cni_build_info{version="` + config.OwnVersion() + `"} 1`; !strings.Contains(answer.Body.String(), want) {
		t.Errorf("no %s in\n%s", want, answer.Body)
	}
}

// TestProbes answers the kubelet's probes by what the keeper says of itself and the node.
func TestProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		k := node.NewKeeper(node.New(node.Settings{}, nil, nil, slog.New(slog.DiscardHandler)), func() error { return nil }, registry, slog.New(slog.DiscardHandler))
		handler := probes(k, registry)
		expect := func(path string, status int, says string) {
			t.Helper()
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
			if answer.Code != status || !strings.Contains(answer.Body.String(), says) {
				t.Errorf("%s: %d %q, want %d %q", path, answer.Code, answer.Body, status, says)
			}
		}
		expect("/healthz", http.StatusOK, "alive: true")
		expect("/readyz", http.StatusServiceUnavailable, "the agent has not checked the node yet")
		expect("/metrics", http.StatusOK, "capture_cni_node_good")
		time.Sleep(time.Hour)
		expect("/healthz", http.StatusInternalServerError, "alive: false")
	})
}
