// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// TestClockSteps sets the clock of a node forth or back by hours while its agent runs:
// the agent says so, requests one token at most, and goes on to repair and to answer.
// Once the clock is right again, so is the agent.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	program := filepath.Join(t.TempDir(), "capture-cni-node")
	lab.Check(t, lab.BuildWithClock(t.Context(), program, "github.com/capture-cni/capture-cni/install/capture-cni-node"))
	for name, tt := range map[string]struct {
		step   time.Duration
		says   string
		tokens int
	}{
		"forth": {13 * time.Hour, " ahead of the API server's", 2},
		"back":  {-13 * time.Hour, " behind the API server's", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, kubeapi.WithValidity(time.Now().Add(-24*time.Hour), time.Now().Add(24*time.Hour)))
			n.PreparePods(t)
			clock, err := lab.NewClock(t.TempDir())
			lab.Check(t, err)
			a := n.StartBehind(t, []string{"env", clock.Variable(), "sh", "-c", `shift; exec "$0" "$@"`, program}, "--mode", "insert")
			a.Ready(t)

			lab.Check(t, clock.Set(tt.step))
			lab.Eventually(t, func() error {
				if status, body := a.Get("/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, tt.says) {
					return fmt.Errorf("status %d: %s\n%s", status, body, a.Log)
				}
				return nil
			})
			for range 5 {
				n.Write(t, machine.PrimaryName, machine.Kindnet)
				n.expectEntrySoon(t, a)
			}
			lab.Check(t, n.StartAndStop(t, "web"))
			if got := len(n.API.TokenRequests()); got != tt.tokens {
				t.Errorf("%d tokens were issued, want %d", got, tt.tokens)
			}
			if status, body := a.Get("/healthz"); status != http.StatusOK {
				t.Errorf("/healthz: %s", body)
			}

			lab.Check(t, clock.Set(0))
			a.Ready(t)
			a.Stop(t)
			lab.Check(t, n.StartAndStop(t, "web"))
		})
	}
}
