// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestUninstallUnderAgent refuses to clean a node on which an agent runs, says which
// and what to do, and changes nothing. By force it does, and the agent installs again.
func TestUninstallUnderAgent(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	if out, err := n.Command("uninstall"); err != nil {
		t.Fatalf("on a node without an agent: %v: %s", err, out)
	}
	if _, err := os.Stat(n.StateDir); err == nil {
		t.Error("uninstall made the state directory")
	}
	before := files(t, n.NetDir)
	a := n.StartReady(t, "--mode", "insert", "--owner", "mesh")
	installed := files(t, n.Dir)
	out, err := n.Command("uninstall", "--purge")
	for _, part := range []string{`of release "mesh" runs on the node`, "state=absent", "--force"} {
		if err == nil || !strings.Contains(out, part) {
			t.Errorf("%v: %s: does not say %s", err, out, part)
		}
	}
	if diff := cmp.Diff(installed, files(t, n.Dir)); diff != "" {
		t.Errorf("the refused uninstall changed:\n%s", diff)
	}
	if out, err := n.Command("uninstall", "--force"); err != nil {
		t.Errorf("by force: %v: %s", err, out)
	}
	n.expectEntrySoon(t, a)
	a.Stop(t)
	if out, err := n.Command("uninstall", "--purge"); err != nil {
		t.Errorf("after the agent: %v: %s", err, out)
	}
	if diff := cmp.Diff(before, files(t, n.NetDir)); diff != "" {
		t.Errorf("left:\n%s", diff)
	}
}
