// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

func newRegistry() *prometheus.Registry { return prometheus.NewRegistry() }

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func newTestCache() *podCache {
	return newPodCache(true, config.DefaultSettings().Meshes, newMetrics(metrics.NewFactory(newRegistry())), discard())
}

// readerFunc implements podReader.
type readerFunc func(context.Context, capture.PodRef) (*corev1.Pod, error)

func (f readerFunc) Pod(ctx context.Context, ref capture.PodRef) (*corev1.Pod, error) {
	return f(ctx, ref)
}

func newAnswers(read readerFunc) *answers {
	cache := newTestCache()
	return &answers{cache: cache, api: read, metrics: cache.metrics, log: discard()}
}

// TestSharedRead asks 100 times for a pod while it is being read: all share the read,
// though the first to ask goes away. Requests without a UID share none.
func TestSharedRead(t *testing.T) {
	t.Parallel()
	for uid, want := range map[string]int64{"u1": 1, "": 100} {
		synctest.Test(t, func(t *testing.T) {
			var reads, answered atomic.Int64
			a := newAnswers(func(ctx context.Context, r capture.PodRef) (*corev1.Pod, error) {
				reads.Add(1)
				select {
				case <-time.After(5 * time.Second):
					return podOn("node2", r.Name, "u1"), nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			})
			request := lookup.Request{Version: capture.PodVersion, Pod: ref("web", uid)}
			ask := func(ctx context.Context) {
				if answer, err := lookup.ParseAnswer(a.answer(ctx, request), request); err == nil && answer.UID == "u1" {
					answered.Add(1)
				}
			}
			first, leave := context.WithCancel(t.Context())
			var asking sync.WaitGroup
			asking.Go(func() { ask(first) })
			synctest.Wait()
			for range 99 {
				asking.Go(func() { ask(t.Context()) })
			}
			synctest.Wait()
			leave()
			asking.Wait()
			if reads.Load() != want || answered.Load() != 99 {
				t.Errorf("UID %q: %d reads, want %d; %d of 99 answered", uid, reads.Load(), want, answered.Load())
			}
		})
	}
}

// TestReadsOfTwoPods reads a pod of a name that has a new pod before the answer comes: the
// request of the new pod shares no read that began before it.
func TestReadsOfTwoPods(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		current := "old"
		a := newAnswers(func(_ context.Context, r capture.PodRef) (*corev1.Pod, error) {
			found := podOn(ownNode, r.Name, current)
			time.Sleep(5 * time.Second)
			return found, nil
		})
		ask := func(uid string) error {
			request := lookup.Request{Version: capture.PodVersion, Pod: ref("web", uid)}
			answer, err := lookup.ParseAnswer(a.answer(t.Context(), request), request)
			if err == nil && answer.UID != uid {
				err = fmt.Errorf("the pod has UID %s", answer.UID)
			}
			return err
		}
		errs := map[string]error{}
		var mu sync.Mutex
		var asking sync.WaitGroup
		for _, uid := range []string{"old", "new"} {
			current = uid
			asking.Go(func() {
				err := ask(uid)
				mu.Lock()
				defer mu.Unlock()
				errs[uid] = err
			})
			synctest.Wait()
		}
		asking.Wait()
		if errs["old"] != nil || errs["new"] != nil {
			t.Errorf("got %v", errs)
		}
	})
}

// TestFaults reads pods from an API server that refuses or fails.
func TestFaults(t *testing.T) {
	t.Parallel()
	api := startAPI(t)
	w := newWorld(t, api)
	w.waitReady(t)
	for name, c := range map[string]struct {
		code       int
		reason     metav1.StatusReason
		retryAfter string
		want       lookup.Fault // its message is a part
	}{
		"no pod":       {404, metav1.StatusReasonNotFound, "", lookup.Fault{Kind: lookup.Gone, Message: "the API server has no pod shop/no-pod"}},
		"forbidden":    {403, metav1.StatusReasonForbidden, "", lookup.Fault{Kind: lookup.Refused, Message: `needs the permissions "get", "list" and "watch"`}},
		"unauthorized": {401, metav1.StatusReasonUnauthorized, "", lookup.Fault{Kind: lookup.Failed, Message: "refuses the agent's token"}},
		"bad request":  {400, metav1.StatusReasonBadRequest, "", lookup.Fault{Kind: lookup.Refused, Message: "reading pod shop/bad-request"}},
		"busy":         {429, metav1.StatusReasonTooManyRequests, "7", lookup.Fault{Kind: lookup.Failed, RetryAfter: 7 * time.Second}},
		"timeout":      {408, metav1.StatusReasonTimeout, "", lookup.Fault{Kind: lookup.Failed}},
		"internal":     {500, metav1.StatusReasonInternalError, "", lookup.Fault{Kind: lookup.Failed}},
		"too large":    {200, "", "", lookup.Fault{Kind: lookup.Refused, Message: "is larger than"}},
	} {
		pod := strings.ReplaceAll(name, " ", "-")
		api.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/"+pod) {
				return false
			}
			if c.retryAfter != "" { // an overloaded API server answers in plain text
				w.Header().Set("Retry-After", c.retryAfter)
				http.Error(w, "too many requests", c.code)
				return true
			}
			if c.code == http.StatusOK {
				_, _ = w.Write(make([]byte, 5<<20))
				return true
			}
			kubeapi.WriteStatus(w, r, c.code, c.reason, "as the test wants")
			return true
		})
		_, err := w.askFor(t, ref(pod, "u1"))
		fault, ok := errors.AsType[*lookup.Fault](err)
		if !ok || fault.Kind != c.want.Kind || fault.RetryAfter != c.want.RetryAfter || !strings.Contains(fault.Message, c.want.Message) {
			t.Errorf("%s: got %+v (%v), want %+v", name, fault, err, c.want)
		}
	}
	if faults := w.count(t, "pod_requests_total", sourceFault); faults != 8 {
		t.Errorf("%d faults counted, want 8", faults)
	}
}

// BenchmarkAnswer answers a request of a watched pod, and one of a pod that has not
// changed since.
func BenchmarkAnswer(b *testing.B) {
	a := newAnswers(nil)
	pods := make([]any, 250)
	for i := range pods {
		pods[i] = podOn(ownNode, fmt.Sprintf("web-%d", i), "u1", excludedPorts, "80,443")
	}
	if err := a.cache.Replace(pods, "1"); err != nil {
		b.Fatal(err)
	}
	found, _ := a.cache.find("shop/web-7", "u1")
	for name, digest := range map[string]string{"watched": "", "unchanged": found.digest} {
		document, err := json.Marshal(lookup.Request{Version: capture.PodVersion, Pod: ref("web-7", "u1"), Digest: digest})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				request, err := parseRequest(document)
				if err != nil || len(a.answer(b.Context(), request)) == 0 {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEvent keeps a pod of usual size, as each event of the watch does.
func BenchmarkEvent(b *testing.B) {
	cache, pod := newTestCache(), podOn(ownNode, "web", "u1", excludedPorts, "80,443")
	b.ReportAllocs()
	for b.Loop() {
		if err := cache.Update(pod); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzRequest parses documents: a request that is accepted names a pod or none, and
// has an answer that can be read.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"version":1,"pod":{"namespace":"shop","name":"web","uid":"u1"},"digest":"d"}`))
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":1,"pod":{"namespace":"..","name":"a/b"}}`))
	f.Add([]byte(`{"version":0,"pod":{"name":"%2e"}}`))
	a := newAnswers(func(_ context.Context, r capture.PodRef) (*corev1.Pod, error) {
		return podOn("node2", r.Name, "u1"), nil
	})
	f.Fuzz(func(t *testing.T, document []byte) {
		request, err := parseRequest(document)
		if err != nil {
			return
		}
		for _, name := range []string{request.Pod.Namespace, request.Pod.Name} {
			if request.Pod.Name != "" && (name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/%")) {
				t.Errorf("%q is accepted in %s", name, document)
			}
		}
		var answer lookup.Answer
		if err := json.Unmarshal(a.answer(t.Context(), request), &answer); err != nil || answer.Version != capture.PodVersion {
			t.Errorf("%s: %+v, %v", document, answer, err)
		}
	})
}
