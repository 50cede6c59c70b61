// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/metrics"
)

type transported func() (*http.Response, error)

func (f transported) RoundTrip(*http.Request) (*http.Response, error) { return f() }

// TestRefusals answers requests, one every ten seconds, and wants a fault of the last one or
// not. A code of 0 is no answer.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const (
		watch, lease = "/api/v1/pods", "/apis/coordination.k8s.io/v1/namespaces/mesh/leases/node-1"
		token, pods  = "refuses the agent's token (401)", "forbids the agent to watch its node's pods (403)"
	)
	type answer struct {
		path string
		code int
	}
	row := func(n int, of ...answer) (all []answer) {
		for range n {
			all = append(all, of...)
		}
		return all
	}
	join := func(rows ...[]answer) (all []answer) {
		for _, r := range rows {
			all = append(all, r...)
		}
		return all
	}
	for name, test := range map[string]struct {
		answers []answer
		want    string
	}{
		"none":                               {nil, ""},
		"accepted":                           {row(20, answer{watch, 200}), ""},
		"401 for 50 s":                       {row(6, answer{lease, 401}), ""},
		"401 for 60 s":                       {row(7, answer{lease, 401}), token},
		"401 of several requests":            {row(4, answer{lease, 401}, answer{watch, 401}), token},
		"401 since the start, then accepted": {append(row(20, answer{watch, 401}), answer{lease, 200}), ""},
		"401, and accepted now and then":     {row(20, answer{lease, 401}, answer{lease, 401}, answer{lease, 200}), ""},
		"a Lease is forbidden":               {row(20, answer{lease, 403}), ""},
		"a Lease is forbidden after 401":     {append(row(20, answer{lease, 401}), answer{lease, 403}), ""},
		"pods are forbidden":                 {row(20, answer{watch, 403}), pods},
		"pods are, and a Lease is not":       {row(20, answer{watch, 403}, answer{lease, 200}), pods},
		"pods were forbidden":                {join(row(20, answer{watch, 403}), row(1, answer{watch, 200})), ""},
		"one pod is forbidden":               {row(20, answer{"/api/v1/namespaces/shop/pods/web", 403}), ""},
		"no answer for long":                 {row(200, answer{watch, 0}), ""},
		"errors for long":                    {row(200, answer{watch, 503}, answer{lease, 500}), ""},
		"an outage that begins with a 401":   {join(row(1, answer{watch, 401}), row(200, answer{watch, 0}, answer{watch, 503})), ""},
		"refused before and after an outage": {join(row(1, answer{watch, 401}), row(20, answer{watch, 0}), row(1, answer{watch, 401})), token},
		"refused before and after errors":    {join(row(1, answer{watch, 401}), row(20, answer{watch, 500}), row(1, answer{watch, 401})), token},
		"pods are, before and after a 401":   {join(row(1, answer{watch, 403}), row(6, answer{watch, 401}), row(1, answer{watch, 403})), pods},
		"an outage after a refusal":          {join(row(20, answer{watch, 401}), row(20, answer{watch, 0})), token},
		"throttled":                          {row(20, answer{watch, 429}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				registry := prometheus.NewRegistry()
				r := NewRefusals(metrics.NewFactory(registry))
				var next answer
				transport := r.Observe(transported(func() (*http.Response, error) {
					if next.code == 0 {
						return nil, errors.New("connection refused")
					}
					return &http.Response{StatusCode: next.code}, nil
				}))
				for _, next = range test.answers {
					request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api"+next.path, nil)
					if err != nil {
						t.Fatal(err)
					}
					response, err := transport.RoundTrip(request)
					if (err != nil) != (next.code == 0) || err == nil && response.StatusCode != next.code {
						t.Fatalf("%+v became %v, %v", next, response, err)
					}
					_ = r.Fault() // the last one counts
					time.Sleep(10 * time.Second)
				}
				got := r.Fault()
				if (got == nil) != (test.want == "") || got != nil && !strings.Contains(got.Error(), test.want) {
					t.Errorf("got %v, want %q", got, test.want)
				}
				families, err := registry.Gather()
				if err != nil || families[1].GetName() != "capture_cni_api_refused" || (families[1].GetMetric()[0].GetGauge().GetValue() == 1) != (test.want != "") {
					t.Errorf("metrics: %v, %v", families, err)
				}
				answers := slices.ContainsFunc(test.answers, func(a answer) bool { return a.code != 0 && a.code < 500 })
				if at := families[0].GetMetric()[0].GetGauge().GetValue(); (at != 0) != answers {
					t.Errorf("the last answer was at %v: %v", at, families[0])
				}
			})
		})
	}
}

// TestNoRefusals passes every answer on where no Refusals observe them.
func TestNoRefusals(t *testing.T) {
	t.Parallel()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api/api/v1/pods", nil)
	lab.Check(t, err)
	var none *Refusals
	transport := none.Observe(transported(func() (*http.Response, error) { return &http.Response{StatusCode: http.StatusUnauthorized}, nil }))
	if response, err := transport.RoundTrip(request); err != nil || response.StatusCode != http.StatusUnauthorized {
		t.Errorf("%v, %v", response, err)
	}
}
