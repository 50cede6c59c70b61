// SPDX-License-Identifier: Apache-2.0

package podlookup

import (
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/record"
)

var wanted = record.PodRef{Namespace: "shop", Name: "web", UID: "6c1f8c3e-0b7a-4f0e-9d53-2f1f5a1d9f01"}

func podWithUID(uid string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = wanted.Namespace, wanted.Name, kubetypes.UID(uid)
	return pod
}

// site is an API server and a node's credentials for it.
type site struct {
	*kubeapi.Server
	dir string
}

func newSite(t *testing.T, opts ...kubeapi.Option) site {
	t.Helper()
	lab.RequireRoot(t)
	api, err := kubeapi.Start(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	dir := t.TempDir()
	if _, err := api.WriteKubeconfig(dir); err != nil {
		t.Fatal(err)
	}
	return site{api, dir}
}

// lookup reads the wanted pod with a budget of two seconds.
func (s site) lookup(t *testing.T) (*corev1.Pod, error) {
	t.Helper()
	const budget = 2 * time.Second
	start := time.Now()
	pod, err := Lookup{Directory: s.dir, Timeout: budget, Log: slog.New(slog.DiscardHandler)}.Pod(t.Context(), wanted)
	// Not a measurement: a budget that is not held would be many times this.
	if took := time.Since(start); took > 4*budget {
		t.Errorf("the budget of %s was not held: %s", budget, took)
	}
	return pod, err
}

// firstly misbehaves for the first n requests.
func firstly(n int64, fault kubeapi.Fault) kubeapi.Fault {
	var count atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) bool {
		return count.Add(1) <= n && fault(w, r)
	}
}

const always = 1 << 40

func answer(code int, reason metav1.StatusReason, message string) kubeapi.Fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		kubeapi.WriteStatus(w, r, code, reason, message)
		return true
	}
}

// TestFaults is what can go wrong with an API server, and what the plugin makes of it.
func TestFaults(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }
	for _, test := range []struct {
		name     string
		arrange  func(t *testing.T, s site)
		want     string // a part of the error, "" for a pod that is found
		requests int    // exactly, where not 0
	}{
		{"well", func(*testing.T, site) {}, "", 1},
		{"500, then well", func(_ *testing.T, s site) {
			s.Misbehave(firstly(2, answer(500, metav1.StatusReasonInternalError, "etcd is tired")))
		}, "", 3},
		{"500", func(_ *testing.T, s site) { s.Misbehave(firstly(always, answer(500, "", "etcd is tired"))) }, "lookupTimeout of 2s is used up", 0},
		{"429, then well", func(_ *testing.T, s site) {
			s.Misbehave(firstly(1, func(w http.ResponseWriter, r *http.Request) bool {
				w.Header().Set("Retry-After", "1")
				return answer(429, metav1.StatusReasonTooManyRequests, "slow down")(w, r)
			}))
		}, "", 2},
		{"429", func(_ *testing.T, s site) {
			s.Misbehave(firstly(always, answer(429, metav1.StatusReasonTooManyRequests, "slow down")))
		}, "slow down", 0},
		{"no answer", func(_ *testing.T, s site) { s.Misbehave(firstly(always, hang)) }, "context deadline exceeded", 0},
		{"slow", func(_ *testing.T, s site) {
			s.Misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
				select {
				case <-r.Context().Done():
				case <-time.After(5 * time.Second):
				}
				return false
			})
		}, "context deadline exceeded", 0},
		{"down", func(_ *testing.T, s site) { _ = s.Close() }, "connection refused", 0},
		{"401", func(_ *testing.T, s site) { s.SetToken("other") }, "renewing them?", 0},
		{"401, until the token is renewed", func(t *testing.T, s site) {
			s.SetToken("renewed")
			time.AfterFunc(300*time.Millisecond, func() { _ = os.WriteFile(s.dir+"/token", []byte("renewed"), 0o600) })
		}, "", 0},
		{"403", func(_ *testing.T, s site) {
			s.Misbehave(firstly(always, answer(403, metav1.StatusReasonForbidden, "pods is forbidden")))
		}, `needs the permission "get pods"`, 1},
		{"404, then found", func(_ *testing.T, s site) {
			s.Misbehave(firstly(1, answer(404, metav1.StatusReasonNotFound, "not found")))
		}, "", 2},
		{"404", func(_ *testing.T, s site) { s.Delete(wanted.Namespace, wanted.Name) }, "not found", 0},
		{"a namesake from before", func(_ *testing.T, s site) {
			s.Put(podWithUID("old"))
			time.AfterFunc(300*time.Millisecond, func() { s.Put(podWithUID(wanted.UID)) })
		}, "", 0},
		{"a namesake", func(_ *testing.T, s site) { s.Put(podWithUID("old")) }, "with UID old, the runtime wants " + wanted.UID, 0},
		{"an answer without an end", func(_ *testing.T, s site) { s.Misbehave(firstly(always, endless)) }, "is larger than 4 MiB", 1},
		{"an error without an end", func(_ *testing.T, s site) {
			s.Misbehave(firstly(always, func(w http.ResponseWriter, r *http.Request) bool {
				w.WriteHeader(http.StatusInternalServerError)
				return endless(w, r)
			}))
		}, "is larger than 4 MiB", 1},
		{"a header without a sane size", func(_ *testing.T, s site) {
			s.Misbehave(firstly(always, func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Warning", strings.Repeat("x", 1<<20))
				return false
			}))
		}, "exceeded 65536 bytes", 0},
		{"wrong CA", func(t *testing.T, s site) { writeFile(t, s.dir+"/ca.crt", string(newSite(t).Cert.PEM)) }, "is the certificate authority in the kubeconfig that of", 0},
		{"no kubeconfig", func(t *testing.T, s site) { remove(t, s.dir+"/kubeconfig") }, "is the node agent running", 0},
		{"no token file", func(t *testing.T, s site) { remove(t, s.dir+"/token") }, "token: reading", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.Put(podWithUID(wanted.UID))
			test.arrange(t, s)
			pod, err := s.lookup(t)
			expectFault(t, err, test.want)
			if test.want == "" && (pod == nil || string(pod.UID) != wanted.UID) {
				t.Errorf("got %v", pod)
			}
			if got := s.Requests(); test.requests != 0 && got != test.requests {
				t.Errorf("%d requests, want %d", got, test.requests)
			}
		})
	}
}

// endless answers until the client gives up.
func endless(w http.ResponseWriter, r *http.Request) bool {
	chunk := make([]byte, 1<<20)
	for r.Context().Err() == nil {
		if _, err := w.Write(chunk); err != nil {
			break
		}
	}
	return true
}

func expectFault(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Errorf("got error %v", err)
		}
		return
	}
	if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "looking up pod shop/web") {
		t.Errorf("got error %v, want one with %q", err, want)
	} else if !isA[Error](err) {
		t.Errorf("got %T, want Error", err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// TestClock tells a certificate that is not valid yet, or no longer, from a
// wrong one.
func TestClock(t *testing.T) {
	for _, offset := range []time.Duration{time.Hour, -3 * time.Hour} {
		s := newSite(t, kubeapi.WithValidity(time.Now().Add(offset), time.Now().Add(offset+time.Hour)))
		s.Put(podWithUID(wanted.UID))
		_, err := s.lookup(t)
		expectFault(t, err, "check the clock")
	}
}

// TestBlackHole talks to a server that takes connections and says nothing.
func TestBlackHole(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	s := newSite(t)
	s.URL = "https://" + listener.Addr().String()
	if _, err := s.WriteKubeconfig(s.dir); err != nil {
		t.Fatal(err)
	}
	_, err = s.lookup(t)
	expectFault(t, err, "looking up pod")
}

// TestEnvironmentHasNoSay sets what client libraries like to read.
func TestEnvironmentHasNoSay(t *testing.T) {
	s := newSite(t)
	s.Put(podWithUID(wanted.UID))
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "https_proxy"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	t.Setenv("KUBECONFIG", "/nonexistent")
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	_, err := s.lookup(t)
	expectFault(t, err, "")
}

// TestFirstReadIsCached looks at what is asked of the API server.
func TestFirstReadIsCached(t *testing.T) {
	s := newSite(t)
	var versions []string
	s.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		versions = append(versions, r.URL.Query().Get("resourceVersion"))
		return len(versions) < 3 && answer(404, metav1.StatusReasonNotFound, "")(w, r)
	})
	s.Put(podWithUID(wanted.UID))
	if _, err := s.lookup(t); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(versions, ","); got != "0,," {
		t.Errorf("resource versions %q, want one read from the cache, then quorum reads", got)
	}
}
