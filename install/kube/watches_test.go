// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/rest/fake"
)

// silent answers a request with a body that never has a byte, and ends with the request.
func silent(r *http.Request) (*http.Response, error) {
	body, write := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = write.CloseWithError(r.Context().Err()) })
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}, nil
}

func clientOf(answer func(*http.Request) (*http.Response, error)) rest.Interface {
	return &fake.RESTClient{GroupVersion: corev1.SchemeGroupVersion, NegotiatedSerializer: scheme.Codecs.WithoutConversion(), Client: fake.CreateHTTPClient(answer)}
}

func answerJSON(code int, document string) (*http.Response, error) {
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(document))}, nil
}

// TestWatchLength ends a watch that hears nothing: later than the API server should, and
// sooner where the pods at its beginning do not arrive.
func TestWatchLength(t *testing.T) {
	t.Parallel()
	const server = 5 * time.Minute
	for name, tt := range map[string]struct {
		streaming bool
		timeout   time.Duration   // of the API server; 0: none is asked for
		listed    []time.Duration // when the pods at the beginning have arrived
		want      time.Duration
	}{
		"a watch":                            {false, server, nil, server + 30*time.Second},
		"without a time-out":                 {false, 0, nil, 30 * time.Second},
		"a list that does not arrive":        {true, server, nil, time.Minute},
		"a list that arrives":                {true, server, []time.Duration{50 * time.Second}, 50*time.Second + server + 30*time.Second},
		"a list that arrives, and a second":  {true, server, []time.Duration{50 * time.Second, 55 * time.Second}, 50*time.Second + server + 30*time.Second},
		"a list of an earlier, closed watch": {false, server, []time.Duration{50 * time.Second}, server + 30*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &names{texts: map[string]string{}}
				asked := ""
				api := func(r *http.Request) (*http.Response, error) {
					asked = r.URL.Query().Get("timeoutSeconds")
					return silent(r)
				}
				w := &podWatch{PodStore: store, ctx: t.Context(), pace: rate.NewLimiter(rate.Inf, 1), client: clientOf(api)}
				options := metav1.ListOptions{}
				if tt.streaming {
					options.SendInitialEvents = &tt.streaming
				}
				if tt.timeout > 0 {
					options.TimeoutSeconds = new(int64(tt.timeout / time.Second))
				}
				began := time.Now()
				opened, err := w.watch(t.Context(), options)
				if err != nil {
					t.Fatal(err)
				}
				for _, at := range tt.listed {
					time.Sleep(at - time.Since(began))
					if err := w.Replace(nil, "1"); err != nil {
						t.Fatal(err)
					}
				}
				for range opened.ResultChan() {
				}
				if took := time.Since(began); took != tt.want {
					t.Errorf("it lasted %s, want %s", took, tt.want)
				}
				opened.Stop()
				if tt.timeout > 0 && asked != "300" {
					t.Errorf("the API server is asked to end the watch after %q s, want 300", asked)
				}
				if store.started != 1 || store.replaced != len(tt.listed) {
					t.Errorf("started %d times, replaced %d times", store.started, store.replaced)
				}
			})
		})
	}
}

// TestWatchPace opens no more than a watch each two seconds, after the first five: an API
// server, or a proxy, can end each one after an event. A watch that is stopped ends its
// request, and nothing waits for a reader of its events.
func TestWatchPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &names{texts: map[string]string{}}
		var request *http.Request
		w := newPodWatch(t.Context(), clientOf(func(r *http.Request) (*http.Response, error) {
			request = r
			return answerJSON(http.StatusOK, `{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod"}}`)
		}), ownNode, store)
		began := time.Now()
		for range 20 {
			opened, err := w.watch(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if opened.Stop(); request.Context().Err() == nil {
				t.Fatal("a stopped watch has not ended its request")
			}
		}
		if took := time.Since(began); took != 30*time.Second || store.started != 20 {
			t.Errorf("20 watches took %s", took)
		}
	})
}

// TestWatchRefused tells why a watch was refused, except that the API server can't stream
// lists, and at the end of the agent.
func TestWatchRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		streaming, ended bool
		code             int
		reason           string
		told             bool
	}{
		{true, false, 422, "Invalid", false},
		{true, false, 400, "BadRequest", false},
		{true, false, 403, "Forbidden", true},
		{true, false, 500, "InternalError", true},
		{false, false, 422, "Invalid", true},
		{false, false, 400, "BadRequest", true},
		{false, false, 403, "Forbidden", true},
		{false, true, 403, "Forbidden", false},
	} {
		ctx, end := context.WithCancel(t.Context())
		if tt.ended {
			end()
		}
		store := &names{texts: map[string]string{}}
		var request *http.Request
		w := &podWatch{PodStore: store, ctx: ctx, pace: rate.NewLimiter(rate.Inf, 1), client: clientOf(func(r *http.Request) (*http.Response, error) {
			request = r
			return answerJSON(tt.code, fmt.Sprintf(`{"apiVersion":"v1","kind":"Status","status":"Failure","reason":%q,"code":%d,"message":"no"}`, tt.reason, tt.code))
		})}
		if _, err := w.watch(t.Context(), metav1.ListOptions{SendInitialEvents: &tt.streaming}); err == nil || (store.failure != nil) != tt.told || store.started != 0 {
			t.Errorf("%+v: told %v, %v", tt, store.failure, err)
		}
		if request.Context().Err() == nil {
			t.Errorf("%+v: the request has not ended", tt)
		}
		end()
	}
}
