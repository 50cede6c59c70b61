// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

func requireCluster(t *testing.T) {
	t.Helper()
	lab.RequireRoot(t)
	lab.RequireTime(t)
}

// KubectlTimeout is kubectl's flag for how long to wait.
var KubectlTimeout = "--timeout=" + cluster.Timeout.String()

// LineWith returns the first line that contains all of these.
func LineWith(text string, all ...string) string {
	for line := range strings.Lines(text) {
		has := true
		for _, want := range all {
			has = has && strings.Contains(line, want)
		}
		if has {
			return line
		}
	}
	return ""
}
