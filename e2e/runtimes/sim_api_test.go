// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
)

// reasons are those of the API server's answers.
var reasons = map[int]metav1.StatusReason{
	401: metav1.StatusReasonUnauthorized, 403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound, 409: metav1.StatusReasonConflict,
	410: metav1.StatusReasonExpired, 429: metav1.StatusReasonTooManyRequests, 500: metav1.StatusReasonInternalError, 503: metav1.StatusReasonServiceUnavailable,
}

// RoundTrip answers a request in process, as the API server is at the moment.
func (w *world) RoundTrip(request *http.Request) (*http.Response, error) {
	if w.disk.killed {
		return nil, errKilled
	}
	w.reach("API server: " + w.apiState)
	w.count(request)
	if w.apiState != "ok" {
		w.refused = time.Now()
	}
	delay := time.Millisecond
	switch w.apiState {
	case "slow":
		delay = 3 * time.Second
	case "silent":
		delay = time.Hour
	}
	select {
	case <-time.After(delay):
	case <-request.Context().Done():
		return nil, request.Context().Err()
	}
	if request.Body == nil {
		request.Body = http.NoBody
	}
	recorder := httptest.NewRecorder()
	code, err := strconv.Atoi(w.apiState)
	switch {
	case w.apiState == "away":
		return nil, syscall.ECONNREFUSED
	case err == nil:
		if code == http.StatusTooManyRequests {
			recorder.Header().Set("Retry-After", "1")
		}
		kubeapi.WriteStatus(recorder, request, code, reasons[code], "as the history says")
	case strings.Contains(request.URL.Path, "/events"):
		w.serveEvent(recorder, request)
		if w.losesAnswer && request.Method == http.MethodPost && strings.Contains(request.URL.Path, "/shop/") {
			w.losesAnswer, w.refused = false, time.Now()
			w.reach("the answer about an Event is lost")
			return nil, syscall.ECONNRESET
		}
	default:
		w.api.ServeHTTP(recorder, request)
	}
	response := recorder.Result()
	response.Request = request
	if w.apiState == "half" {
		content := recorder.Body.Bytes()
		response.Body = io.NopCloser(io.MultiReader(bytes.NewReader(content[:len(content)/2]), brokenReader{}))
	}
	return response, nil
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("the connection was reset") }
