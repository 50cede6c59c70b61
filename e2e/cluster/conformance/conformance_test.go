// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// fetched keeps Debian's packages: another run needs no mirror.
const fetched = "../../../bin/debian"

var c suite.Suite

func TestMain(m *testing.M) { os.Exit(c.Main(m)) }

// expect runs specs, and expects that all pass but those that are failing.
func expect(t *testing.T, command *exec.Cmd, name string, failing ...string) {
	t.Helper()
	began, passed := time.Now(), 0
	outcomes, err := Run(command, c.Dir, name)
	lab.Check(t, err)
	for spec, outcome := range outcomes {
		if outcome.Passed() {
			passed++
		}
		if outcome.Passed() == slices.Contains(failing, spec) {
			t.Errorf("%s %s: %s", spec, outcome.State, outcome.Message)
		}
	}
	t.Logf("%s: %d of %d specs passed, %s", name, passed, len(outcomes), time.Since(began).Round(time.Second))
}

// expectAdds expects that the agents count more ADDs with these labels at the end of the test.
func expectAdds(t *testing.T, labels string) {
	t.Helper()
	before := adds(t, labels)
	t.Cleanup(func() {
		more := adds(t, labels) - before
		if t.Logf("%d ADDs: %s", more, labels); more == 0 {
			t.Errorf("no ADD with %s", labels)
		}
	})
}

// adds counts ADDs with these labels among others.
func adds(t *testing.T, labels string) (count int) {
	t.Helper()
	for _, node := range c.Nodes {
		_, body, err := suite.AskAgent(context.WithoutCancel(t.Context()), node, "/metrics")
		lab.Check(t, err)
		for line := range strings.Lines(body) {
			if name, value, _ := strings.Cut(line, "} "); strings.HasPrefix(name, "capture_cni_adds_total{") && strings.Contains(name, labels) {
				number, err := strconv.Atoi(strings.TrimSpace(value))
				lab.Check(t, err)
				count += number
			}
		}
	}
	return count
}
