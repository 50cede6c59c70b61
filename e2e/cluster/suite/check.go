// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

func requireCluster(t *testing.T) {
	t.Helper()
	lab.RequireRoot(t)
	lab.RequireTime(t)
}

// Check fails the test at an error.
func Check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// KubectlTimeout is kubectl's flag for how long to wait.
var KubectlTimeout = "--timeout=" + cluster.Timeout.String()

// Eventually repeats a condition until it returns no error, at most for cluster.Timeout.
func Eventually(t *testing.T, condition func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(cluster.Timeout); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if err = condition(); err == nil {
			return
		}
	}
	t.Fatalf("not within %s: %v", cluster.Timeout, err)
}

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
