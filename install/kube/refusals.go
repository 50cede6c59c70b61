// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/install/metrics"
)

// refusalTime is how long an API server refuses requests before that is a fault: one that
// starts, or that has lost etcd, refuses some as well.
const refusalTime = time.Minute

// Refusals observes whether the API server refuses what the agent can't do without: its
// token, and the watch of the node's pods. An API server that does not answer, or that
// fails, refuses nothing.
type Refusals struct {
	fault prometheus.Gauge

	mu          sync.Mutex
	token, pods refusal
}

// refusal is a row of refused requests, without an accepted one between them.
type refusal struct{ first, last time.Time }

func (r *refusal) observe(refused bool, now time.Time) {
	switch {
	case !refused:
		*r = refusal{}
	case r.first.IsZero():
		*r = refusal{now, now}
	default:
		r.last = now
	}
}

func (r *refusal) lasts() bool { return r.last.Sub(r.first) >= refusalTime }

// Metrics returns all metrics, in the order of the reference's table.
func Metrics() []metrics.Metric { return metrics.Document(newRefusals) }

// NewRefusals returns Refusals that register their metric with a registry.
func NewRefusals(registry prometheus.Registerer) *Refusals {
	return newRefusals(metrics.NewFactory(registry))
}

func newRefusals(f *metrics.Factory) *Refusals {
	return &Refusals{fault: f.Gauge("api_refused", "1 after a minute in which the API server refused the agent's token (401), or its watch of pods (403)")}
}

// Observe wraps a transport to the API server. It is a transport.WrapperFunc, and the
// transport itself without Refusals.
func (r *Refusals) Observe(next http.RoundTripper) http.RoundTripper {
	if r == nil {
		return next
	}
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err == nil && response.StatusCode < http.StatusInternalServerError {
			r.record(strings.HasSuffix(request.URL.Path, "/v1/pods"), response.StatusCode, time.Now())
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func (r *Refusals) record(ofPods bool, code int, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.token.observe(code == http.StatusUnauthorized, now)
	if ofPods && code != http.StatusUnauthorized {
		r.pods.observe(code == http.StatusForbidden, now)
	}
	r.fault.Set(0)
	if r.token.lasts() || r.pods.lasts() {
		r.fault.Set(1)
	}
}

// Fault returns what the API server refuses, nil for nothing. The agent reads its token again
// for the request after a refused one.
func (r *Refusals) Fault() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.token.lasts():
		return errors.New("the API server refuses the agent's token (401): if its service account was deleted and made again, delete the agent's pod, or wait until the kubelet renews the token, within an hour")
	case r.pods.lasts():
		return errors.New("the API server forbids the agent to watch its node's pods (403): restore the ClusterRole and ClusterRoleBinding capture-cni-node")
	}
	return nil
}
