// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// ShortLookup is a setting with which an ADD fails soon where no pod can be
// looked up, so that its event comes soon.
const ShortLookup = "netconf.lookupTimeout=3s"

// InstallChart installs the chart with these settings and no others, unless it
// is installed with them already. Tests that run in parallel all need the defaults.
func (c *Suite) InstallChart(t *testing.T, settings ...string) {
	t.Helper()
	requireCluster(t)
	c.installing.Lock()
	defer c.installing.Unlock()
	settings = append([]string{"image.tag=" + release}, settings...)
	if slices.Equal(c.Installed, settings) {
		return
	}
	c.Installed = nil
	lab.Check(t, c.Install(context.WithoutCancel(t.Context()), settings...))
	c.Installed = settings
}

// ApplyChart installs the chart with these settings and does not wait for agents.
func (c *Suite) ApplyChart(t *testing.T, settings ...string) {
	t.Helper()
	c.Installed = nil
	lab.Check(t, c.Apply(t.Context(), append([]string{"image.tag=" + release}, settings...)...))
}

// UninstallChart cleans the nodes and removes the chart, also one that a failed
// test left in an unknown state.
func (c *Suite) UninstallChart(t *testing.T) {
	t.Helper()
	requireCluster(t)
	ctx := context.WithoutCancel(t.Context()) // in cleanups too
	if c.Installed == nil {
		releases, err := c.Helm(ctx, "list", "--all-namespaces", "--short")
		lab.Check(t, err)
		if releases == "" {
			return
		}
		c.InstallChart(t)
	}
	settings := append(c.Installed, "state=absent", "force=true")
	c.Installed = nil
	lab.Check(t, c.Install(ctx, settings...))
	lab.Check(t, c.Uninstall(ctx))
}

// WaitForLastPlugin waits until a node's runtime calls this plugin last.
func WaitForLastPlugin(t *testing.T, node *cluster.Node, plugin string) {
	t.Helper()
	lab.Eventually(t, func() error {
		network, err := LoadedNetwork(t.Context(), node)
		if err == nil && (len(network.Plugins) == 0 || network.Plugins[len(network.Plugins)-1] != plugin) {
			err = fmt.Errorf("%s calls the plugins %q, want %s last", node.Name, network.Plugins, plugin)
		}
		return err
	})
}

// TriggerReload makes a runtime, which watches the directory, read its configuration again.
func TriggerReload(node *cluster.Node) error {
	temporary := node.Path("/etc/cni/net.d/.reload")
	return errors.Join(os.WriteFile(temporary, nil, 0o600), os.Remove(temporary))
}
