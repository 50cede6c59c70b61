// SPDX-License-Identifier: Apache-2.0

package lookup_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// TestRetryAfter has the agent, or the API server, ask for a pause: the next attempt comes
// no earlier.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for _, byAgent := range []bool{true, false} {
		var times []time.Time
		var mu sync.Mutex
		first := func() bool {
			mu.Lock()
			defer mu.Unlock()
			times = append(times, time.Now())
			return len(times) == 1
		}
		n := newNode(t)
		n.Put(podWithUID(wanted.UID))
		asked := n.settings()
		asked.Timeout = patience
		if byAgent {
			asked.Agent.Socket = serve(t, func(conn net.Conn) {
				answer := theAgents()
				if first() {
					answer = lookup.Answer{Version: capture.PodVersion, Fault: &lookup.Fault{Kind: lookup.Gone, Message: "not yet", RetryAfter: 2 * time.Second}}
				}
				answering(answer)(conn)
			}).socket
		} else {
			n.Misbehave(func(w http.ResponseWriter, _ *http.Request) bool {
				if !first() {
					return false
				}
				w.Header().Set("Retry-After", "2")
				http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests) // as an API server with priority and fairness
				return true
			})
		}
		if _, err := asked.Pod(t.Context(), wanted); err != nil {
			t.Fatal(err)
		}
		if pause := times[1].Sub(times[0]); len(times) != 2 || pause < 2*time.Second {
			t.Errorf("by the agent %t: %d requests, the second after %s", byAgent, len(times), pause)
		}
	}
}

// TestPauseBeyondTheTimeout ends at once where the next attempt would come too late.
func TestPauseBeyondTheTimeout(t *testing.T) {
	t.Parallel()
	asked := newNode(t).settings()
	asked.Timeout = 10 * time.Second
	asked.Agent.Socket = serve(t, answering(lookup.Answer{
		Version: capture.PodVersion, Fault: &lookup.Fault{Kind: lookup.Gone, Message: "not yet", RetryAfter: time.Hour},
	})).socket
	_, err := asked.Pod(t.Context(), wanted)
	expectFault(t, err, "(attempt 1, lookupTimeout of 10s leaves no time for a retry): ")
}

// TestCanceled ends a pause with the caller.
func TestCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	asked := newNode(t).settings()
	asked.Timeout = patience
	asked.Agent.Socket = serve(t, func(conn net.Conn) {
		answering(lookup.Answer{Version: capture.PodVersion, Fault: &lookup.Fault{Kind: lookup.Gone, Message: "not yet", RetryAfter: patience / 2}})(conn)
		cancel()
	}).socket
	_, err := asked.Pod(ctx, wanted)
	expectFault(t, err, "(attempt 1, canceled): ")
}

// TestCause has the last attempt end with the timeout: the error is that of the attempt
// before, which says why.
func TestCause(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	asked := newNode(t).settings()
	asked.Timeout = budget
	asked.Agent.Socket = serve(t, func(conn net.Conn) {
		switch requests.Add(1) {
		case 1:
			answering(faulty(lookup.Gone, "the pod has another UID"))(conn)
		case 2:
			answering(faulty(lookup.Gone, "the API server has no pod shop/web"))(conn)
		default:
			_, _ = conn.Write([]byte{lookup.Accepted})
			silent(conn)
		}
	}).socket
	_, err := asked.Pod(t.Context(), wanted)
	expectFault(t, err, "attempt 3")
	expectFault(t, err, "the API server has no pod shop/web")
	if err != nil && (strings.Contains(err.Error(), "deadline exceeded") || strings.Contains(err.Error(), "another UID")) {
		t.Errorf("got %v", err)
	}
}

// TestAttempts counts what one lookup asks.
func TestAttempts(t *testing.T) {
	t.Parallel()
	forbidden := answer(403, metav1.StatusReasonForbidden, "pods is forbidden")
	for _, test := range []struct {
		name       string
		agent      func(net.Conn)
		single     bool
		byAgent    int64
		byAPI      int
		wantsError string
	}{
		{"both refuse", answering(faulty(lookup.Refused, "forbidden")), false, 1, 1, "attempt 1, not retried"},
		{"one attempt", answering(faulty(lookup.Gone, "no pod")), true, 1, 0, "attempt 1, not retried"},
		{"the agent fails after the API server", answeringAfter(3*time.Second, faulty(lookup.Failed, "etcd is slow")), true, 1, 1, "attempt 1, not retried"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			n, a := newNode(t), serve(t, test.agent)
			n.Misbehave(forbidden)
			asked := n.settings()
			asked.Agent.Socket, asked.Timeout, asked.SingleAttempt = a.socket, patience, test.single
			_, err := asked.Pod(t.Context(), wanted)
			expectFault(t, err, test.wantsError)
			if a.requests.Load() != test.byAgent || n.Requests() != test.byAPI {
				t.Errorf("%d requests of the agent, %d of the API server", a.requests.Load(), n.Requests())
			}
		})
	}
}
