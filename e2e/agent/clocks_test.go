// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// TestClocksFarApart has an API server whose clock differs from the node's. The agent
// says so, requests no token after the other, and pods start: the API server decides
// by its own clock. Once the clocks agree, and a token is requested, all is good.
func TestClocksFarApart(t *testing.T) {
	for name, ahead := range map[string]time.Duration{
		"the node is 13 h ahead": -13 * time.Hour, "the node is 30 h ahead": -30 * time.Hour, "the node is 13 h behind": 13 * time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.API.SetClock(ahead)
			n.PutPod("web", true)
			a := n.Start(t, "--mode", "insert")
			lab.Eventually(t, func() error {
				if status, body := a.Get("/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "check the clocks") {
					return fmt.Errorf("status %d: %s", status, body)
				}
				return nil
			})
			for range 100 { // each is a reason to check the node
				n.Write(t, machine.PrimaryName, machine.Kindnet)
				time.Sleep(100 * time.Millisecond)
			}
			if requests := n.API.TokenRequests(); len(requests) != 1 {
				t.Errorf("%d tokens were requested", len(requests))
			}
			if out, err := n.Call("ADD", "web", machine.Sandbox(t).Path(), "5s"); err != nil {
				t.Errorf("%v: %s", err, out)
			}
			n.API.SetClock(0)
			a.Stop(t)
			if ahead > 0 {
				n.API.ChangeKeys() // or it would be requested once the token expires
			}
			n.Start(t, "--mode", "insert").Ready(t)
		})
	}
}

// TestTokenRequestsBackOff has an API server that issues no tokens for a while: the
// pauses between requests grow, and the agent is ready soon after the first token.
func TestTokenRequestsBackOff(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	var requests atomic.Int64
	n.API.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		refused := strings.HasSuffix(r.URL.Path, "/token")
		if refused {
			requests.Add(1)
			kubeapi.WriteStatus(w, r, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "no tokens today")
		}
		return refused
	})
	a := n.Start(t, "--mode", "insert")
	a.WaitForLog(t, "no tokens today")
	for range 150 {
		n.Write(t, machine.PrimaryName, machine.Kindnet)
		time.Sleep(100 * time.Millisecond)
	}
	if sent := requests.Load(); sent < 3 || sent > 7 {
		t.Errorf("%d requests in 15 s", sent)
	}
	n.API.Misbehave(nil)
	a.Ready(t)
}
