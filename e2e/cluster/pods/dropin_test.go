// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// TestDropInWithCRIO sets the mode dropin where auto does not take it: CRI-O loads the
// drop-in, and forgets it after its removal, though it watches the directory above alone. It
// takes the list for CHECK and DEL from libcni's cache, which has no drop-ins: neither
// reaches them.
func TestDropInWithCRIO(t *testing.T) {
	c.UninstallChart(t)
	t.Cleanup(func() { c.UninstallChart(t) })
	for _, node := range c.Nodes {
		if node.Runtime != cluster.CRIO {
			continue
		}
		c.InstallChart(t, "mode=dropin", "guard.enabled=false", `nodeSelector.kubernetes\.io/hostname=`+node.Name)
		if primary, err := os.ReadFile(node.Path("/etc/cni/net.d/" + cluster.NetworkConf)); err != nil || string(primary) != node.PrimaryList() {
			t.Errorf("the primary's list of %s is edited: %v\n%s", node.Name, err, primary)
		}
		recorder, dropIn := node.Path("/opt/cni/bin/recorder"), node.Path("/etc/cni/net.d/podnet/recorder.conf")
		t.Cleanup(func() { lab.Check(t, errors.Join(os.RemoveAll(recorder), os.RemoveAll(filepath.Dir(dropIn)))) })
		lab.Check(t, os.Symlink(filepath.Join(c.Dir, "bin", "apps"), recorder))
		lab.Check(t, os.WriteFile(dropIn, []byte(`{"type": "recorder"}`), 0o600))
		lab.Check(t, suite.TriggerReload(node))

		n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
		pod := suite.Server("web", node.Name)
		n.Run(t, pod)
		n.ExpectCaptured(t, pod.Name)
		n.Delete(t, pod)
		for command, called := range map[string]bool{"ADD": true, "CHECK": false, "DEL": false} {
			if _, err := findCall(node, n.Name, pod.Name, command, false); (err == nil) != called {
				t.Errorf("%s of a drop-in is called: %v, want %v", command, err == nil, called)
			}
		}
		c.UninstallChart(t)
		later := suite.Server("later", node.Name)
		n.Run(t, later)
		if rules := n.Rules(t, later.Name); rules != (netfilter.State{}) {
			t.Errorf("after the removal, a new pod has the rules %+v", rules)
		}
		n.Delete(t, later)
	}
}
