// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
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
