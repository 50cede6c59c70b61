// SPDX-License-Identifier: Apache-2.0

package lookup_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/capture-cni-lookup/apiclient"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

var wanted = capture.PodRef{Namespace: "shop", Name: "web", UID: "6c1f8c3e-0b7a-4f0e-9d53-2f1f5a1d9f01"}

func podWithUID(uid string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = wanted.Namespace, wanted.Name, kubetypes.UID(uid)
	pod.Spec.RuntimeClassName = new("runc")
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", Controller: new(true)}}
	return pod
}

// TestMain makes this test's executable capture-cni-lookup where it is called by that
// name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != config.LookupProgram {
		os.Exit(m.Run())
	}
	if len(os.Environ()) > 0 {
		panic("the program has an environment")
	}
	var request lookup.Request
	err := json.NewDecoder(os.Stdin).Decode(&request)
	document, encodeErr := json.Marshal(apiclient.Answer(context.Background(), request))
	_, writeErr := os.Stdout.Write(document)
	if errors.Join(err, encodeErr, writeErr) != nil {
		os.Exit(1)
	}
}

// node has credentials for an API server, and the program.
type node struct {
	*kubeapi.Server
	dir string
}

// budget is the timeout of lookups that use it up, patience of those that end before,
// however slowly this machine starts programs.
const (
	budget   = 2 * time.Second
	patience = 30 * time.Second
)

// settings are those of a lookup without an agent.
func (n node) settings() lookup.Lookup {
	return lookup.Lookup{
		Agent: lookup.Agent{AcceptTimeout: patience}, Program: filepath.Join(n.dir, config.LookupProgram), Directory: n.dir,
		Timeout: budget, Log: slog.New(slog.DiscardHandler),
	}
}

func newNode(t *testing.T, opts ...kubeapi.Option) node {
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
	executable, err := os.Executable()
	if err == nil {
		err = os.Symlink(executable, filepath.Join(dir, config.LookupProgram))
	}
	if err != nil {
		t.Fatal(err)
	}
	return node{api, dir}
}

// lookup looks up the wanted pod within a timeout.
func (n node) lookup(t *testing.T, timeout time.Duration) (lookup.Answer, error) {
	t.Helper()
	settings := n.settings()
	settings.Timeout = timeout
	start := time.Now()
	answer, err := settings.Pod(t.Context(), wanted)
	// Without the timeout, the lookup would take many times this.
	if took := time.Since(start); took > 4*timeout {
		t.Errorf("the lookup took %s, with a timeout of %s", took, timeout)
	}
	return answer, err
}

// firstRequests has the fault apply to the first n requests.
func firstRequests(n int64, fault kubeapi.Fault) kubeapi.Fault {
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

// TestFaults looks up a pod from API servers with faults.
func TestFaults(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }
	for _, test := range []struct {
		name     string
		arrange  func(t *testing.T, n node)
		want     string // part of the error, "" for none
		requests int    // exactly, where not 0
	}{
		{"healthy", func(*testing.T, node) {}, "", 1},
		{"500, then healthy", func(_ *testing.T, n node) {
			n.Misbehave(firstRequests(2, answer(500, metav1.StatusReasonInternalError, "etcd is slow")))
		}, "", 3},
		{"500", func(_ *testing.T, n node) { n.Misbehave(firstRequests(always, answer(500, "", "etcd is slow"))) }, "lookupTimeout of 2s leaves no time for a retry", 0},
		{"429, then healthy", func(_ *testing.T, n node) {
			n.Misbehave(firstRequests(1, func(w http.ResponseWriter, r *http.Request) bool {
				w.Header().Set("Retry-After", "1")
				return answer(429, metav1.StatusReasonTooManyRequests, "slow down")(w, r)
			}))
		}, "", 2},
		{"429", func(_ *testing.T, n node) {
			n.Misbehave(firstRequests(always, answer(429, metav1.StatusReasonTooManyRequests, "slow down")))
		}, "slow down", 0},
		{"no answer", func(_ *testing.T, n node) { n.Misbehave(firstRequests(always, hang)) }, "context deadline exceeded", 0},
		{"slow", func(_ *testing.T, n node) {
			n.Misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
				select {
				case <-r.Context().Done():
				case <-time.After(5 * time.Second):
				}
				return false
			})
		}, "context deadline exceeded", 0},
		{"down", func(_ *testing.T, n node) { _ = n.Close() }, "connection refused", 0},
		{"401", func(_ *testing.T, n node) { n.SetToken("other") }, "runs and renews them", 0},
		{"401, until the token is renewed", func(t *testing.T, n node) {
			n.SetToken("renewed")
			time.AfterFunc(300*time.Millisecond, func() { _ = os.WriteFile(n.dir+"/token", []byte("renewed"), 0o600) })
		}, "", 0},
		{"403", func(_ *testing.T, n node) {
			n.Misbehave(firstRequests(always, answer(403, metav1.StatusReasonForbidden, "pods is forbidden")))
		}, `needs the permission "get pods"`, 1},
		{"404, then found", func(_ *testing.T, n node) {
			n.Misbehave(firstRequests(1, answer(404, metav1.StatusReasonNotFound, "not found")))
		}, "", 2},
		{"404", func(_ *testing.T, n node) { n.Delete(wanted.Namespace, wanted.Name) }, "not found", 0},
		{"another UID, then the pod's", func(_ *testing.T, n node) {
			n.Put(podWithUID("old"))
			time.AfterFunc(300*time.Millisecond, func() { n.Put(podWithUID(wanted.UID)) })
		}, "", 0},
		{"another UID", func(_ *testing.T, n node) { n.Put(podWithUID("old")) }, "has UID old, expected " + wanted.UID, 0},
		{"an endless response", func(_ *testing.T, n node) { n.Misbehave(firstRequests(always, endless)) }, "is larger than 4 MiB", 1},
		{"an endless error", func(_ *testing.T, n node) {
			n.Misbehave(firstRequests(always, func(w http.ResponseWriter, r *http.Request) bool {
				w.WriteHeader(http.StatusInternalServerError)
				return endless(w, r)
			}))
		}, "is larger than 4 MiB", 1},
		{"a header of 1 MiB", func(_ *testing.T, n node) {
			n.Misbehave(firstRequests(always, func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Warning", strings.Repeat("x", 1<<20))
				return false
			}))
		}, "exceeded 65536 bytes", 0},
		{"wrong CA", func(t *testing.T, n node) { writeFile(t, n.dir+"/ca.crt", string(newNode(t).Cert.PEM)) }, "check that the kubeconfig has the certificate authority of", 0},
		{"no kubeconfig", func(t *testing.T, n node) { remove(t, n.dir+"/kubeconfig") }, "check that the node agent runs", 0},
		{"no token file", func(t *testing.T, n node) { remove(t, n.dir+"/token") }, "token: reading", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.Put(podWithUID(wanted.UID))
			test.arrange(t, n)
			timeout := budget
			if test.want == "" || test.requests > 0 {
				timeout = patience
			}
			found, err := n.lookup(t, timeout)
			expectFault(t, err, test.want)
			if test.want == "" && (found.UID != wanted.UID || !found.HasController || found.Version != capture.PodVersion || found.Pod.RuntimeClass != "runc") {
				t.Errorf("got %+v", found)
			}
			if got := n.Requests(); test.requests != 0 && got != test.requests {
				t.Errorf("%d requests, want %d", got, test.requests)
			}
		})
	}
}

// endless writes a response until the client closes the connection.
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
	} else if _, ok := errors.AsType[lookup.Error](err); !ok {
		t.Errorf("got %T, want Error", err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// TestClock expects a hint for certificates that are not valid yet, or expired.
func TestClock(t *testing.T) {
	for _, offset := range []time.Duration{time.Hour, -3 * time.Hour} {
		n := newNode(t, kubeapi.WithValidity(time.Now().Add(offset), time.Now().Add(offset+time.Hour)))
		n.Put(podWithUID(wanted.UID))
		_, err := n.lookup(t, budget)
		expectFault(t, err, "check the clocks")
	}
}

// TestBlackHole connects to a server that accepts connections and never responds.
func TestBlackHole(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	n := newNode(t)
	n.URL = "https://" + listener.Addr().String()
	if _, err := n.WriteKubeconfig(n.dir); err != nil {
		t.Fatal(err)
	}
	_, err = n.lookup(t, budget)
	expectFault(t, err, "looking up pod")
}

// TestEnvironmentIsIgnored sets variables that client libraries read.
func TestEnvironmentIsIgnored(t *testing.T) {
	n := newNode(t)
	n.Put(podWithUID(wanted.UID))
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "https_proxy"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	t.Setenv("KUBECONFIG", "/nonexistent")
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	_, err := n.lookup(t, patience)
	expectFault(t, err, "")
}

// TestFirstReadIsCached records the resource versions of the requests.
func TestFirstReadIsCached(t *testing.T) {
	n := newNode(t)
	var versions []string
	n.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		versions = append(versions, r.URL.Query().Get("resourceVersion"))
		return len(versions) < 3 && answer(404, metav1.StatusReasonNotFound, "")(w, r)
	})
	n.Put(podWithUID(wanted.UID))
	if _, err := n.lookup(t, patience); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(versions, ","); got != "0,," {
		t.Errorf("resource versions %q, want one read from the cache, then quorum reads", got)
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
