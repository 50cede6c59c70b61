// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// podsSeries matches the states of Istio's pods. Releases before 0.3.0 have no label of the mesh.
var podsSeries = regexp.MustCompile(`(?m)^capture_cni_pods\{(?:mesh="istio",)?state="(\w+)"\} (\S+)$`)

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
			series := podsSeries.FindAllStringSubmatch(metrics, -1)
			if len(series) == 0 {
				return fmt.Errorf("the guard of %s counts no pods:\n%s", node.Name, metrics)
			}
			for _, s := range series {
				count, err := strconv.Atoi(s[2])
				if err != nil {
					return fmt.Errorf("the metrics of %s: %w", node.Name, err)
				}
				got[s[1]] += count
			}
		}
		if got["outdated"] != want["outdated"] || got["captured"] < want["captured"] || got["uncaptured"]+got["drifted"]+got["unknown"] > 0 {
			return fmt.Errorf("the guards count %v, want %v", got, want)
		}
		return nil
	})
}
