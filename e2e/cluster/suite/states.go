// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// ExpectStates waits until the guards of all nodes count this many outdated pods, at least
// this many captured ones, and none that lack rules.
func (c *Suite) ExpectStates(t *testing.T, want map[string]int) {
	t.Helper()
	lab.Eventually(t, func() error {
		got := map[string]int{}
		for _, node := range c.Nodes {
			_, metrics, err := AskGuard(t.Context(), node, "/metrics")
			if err != nil {
				return err
			}
			for _, state := range []string{"captured", "outdated", "uncaptured", "drifted", "unknown"} {
				label := `capture_cni_pods{mesh="istio",state="` + state + `"} `
				count, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(LineWith(metrics, label), label)))
				if err != nil {
					return fmt.Errorf("the metrics of %s: %s: %w", node.Name, label, err)
				}
				got[state] += count
			}
		}
		if got["outdated"] != want["outdated"] || got["captured"] < want["captured"] || got["uncaptured"]+got["drifted"]+got["unknown"] > 0 {
			return fmt.Errorf("the guards count %v, want %v", got, want)
		}
		return nil
	})
}
