// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/install/metrics"
)

// refusalTime is the time after which refusals count as a fault. An API server that starts, or has lost
// etcd, also refuses some requests, but for a shorter time.
const refusalTime = time.Minute

// Refusals records whether the API server refuses the agent's token (401) or the watch of the node's
// pods (403). A request that fails otherwise, or gets no answer, is not a refusal.
type Refusals struct {
	fault, answered prometheus.Gauge

	mu          sync.Mutex
	token, pods row
}

// row contains the times of the first and the last refused request since the last accepted one. Both
// are zero if the last request was accepted.
type row struct{ first, last time.Time }

func (r *row) record(refused bool) {
	last := *r
	*r = row{}
	if now := time.Now(); refused {
		*r = row{cmp.Or(last.first, now), now}
	}
}

func (r *row) isLong() bool { return r.last.Sub(r.first) >= refusalTime }

// Metrics describes the metrics of Refusals.
func Metrics() []metrics.Metric { return metrics.Document(NewRefusals) }

// NewRefusals returns Refusals, and creates their metrics.
func NewRefusals(f *metrics.Factory) *Refusals {
	const help = "1 after the API server has refused the agent's token (401) or watch (403) for a minute"
	return &Refusals{
		fault:    f.Gauge("api_refused", help),
		answered: f.Gauge("api_answered_timestamp_seconds", "time of the API server's last answer to the agent, except server errors"),
	}
}

// Observe returns a transport to the API server that records refusals and answers in r. If r is nil, it
// records nothing.
func (r *Refusals) Observe(next http.RoundTripper) http.RoundTripper { return observed{next, r} }

type observed struct {
	next     http.RoundTripper
	refusals *Refusals
}

// RoundTrip implements http.RoundTripper.
func (o observed) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := o.next.RoundTrip(request)
	if o.refusals == nil || err != nil || response.StatusCode >= http.StatusInternalServerError {
		return response, err
	}
	o.refusals.answered.SetToCurrentTime()
	o.refusals.mu.Lock()
	defer o.refusals.mu.Unlock()
	isValid := response.StatusCode != http.StatusUnauthorized
	o.refusals.token.record(!isValid)
	if isValid && strings.HasSuffix(request.URL.Path, "/v1/pods") {
		o.refusals.pods.record(response.StatusCode == http.StatusForbidden)
	}
	return response, nil
}

// Fault returns an error if the API server has refused requests for refusalTime, and sets the metric.
// client-go reads the token's file again within a minute, so a renewed token ends the fault.
func (r *Refusals) Fault() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.token.isLong():
		err = errors.New("the API server refuses the agent's token (401): if its service account was deleted and made again, " +
			"delete the agent's pod, or wait until the kubelet renews the token, within an hour")
	case r.pods.isLong():
		err = errors.New("the API server forbids the agent to watch its node's pods (403): " +
			"restore the ClusterRole and ClusterRoleBinding capture-cni-node")
	}
	r.fault.Set(0)
	if err != nil {
		r.fault.Set(1)
	}
	return err
}
