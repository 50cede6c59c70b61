// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestGone tells a mirror that no longer has a suite from one that fails or is away: only
// the first leaves a kernel untested.
func TestGone(t *testing.T) {
	lab.RequireProgram(t, "apt-get")
	status := http.StatusNotFound
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer server.Close()
	a, err := newApt(server.URL, "bullseye-security", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.update(t.Context()); !errors.Is(err, ErrGone) {
		t.Errorf("a mirror without the suite: %v", err)
	}
	for _, status = range []int{http.StatusForbidden, http.StatusServiceUnavailable} {
		if err := a.update(t.Context()); err == nil || errors.Is(err, ErrGone) {
			t.Errorf("a mirror that answers %d: %v", status, err)
		}
	}
	server.Close()
	if err := a.update(t.Context()); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("a mirror that is away: %v", err)
	}
}
