// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
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
	t.Parallel()
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
			for range 3 { // each is a reason to check the node
				n.Write(t, machine.PrimaryName, machine.Kindnet)
				n.expectEntrySoon(t, a)
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

// TestTokenRequestsBackOff has an API server that issues no tokens for a while: checks of
// the node do not shorten the pause after a request, and the agent is ready soon after the
// first token. install/credentials.TestPauses has the later pauses, which grow.
func TestTokenRequestsBackOff(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	var first, pause atomic.Int64 // the time of the first request, and from that until the second
	n.API.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		refused := strings.HasSuffix(r.URL.Path, "/token")
		if refused {
			if now := time.Now().UnixNano(); !first.CompareAndSwap(0, now) {
				pause.CompareAndSwap(0, now-first.Load())
			}
			kubeapi.WriteStatus(w, r, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "no tokens today")
		}
		return refused
	})
	a := n.Start(t, "--mode", "insert")
	a.WaitForLog(t, "no tokens today")
	lab.Eventually(t, func() error {
		n.Write(t, machine.PrimaryName, machine.Kindnet)
		if pause.Load() == 0 {
			return errors.New("the agent has not requested a token again")
		}
		return nil
	})
	if took := time.Duration(pause.Load()); took < time.Second {
		t.Errorf("the second request came after %s", took)
	}
	n.API.Misbehave(nil)
	a.Ready(t)
}
