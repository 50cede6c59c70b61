// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestInstalledBesideIstioCNI installs the chart with its defaults where istio-cni is:
// the agents write nothing and say why, all pods start, and istio-cni captures those in
// the mesh. Once istio-cni is uninstalled, the same agents capture.
func TestInstalledBesideIstioCNI(t *testing.T) {
	c.ReplaceByIstioCNI(t)
	before := lists(t)
	c.ApplyChart(t)
	for _, node := range c.Nodes {
		lab.Eventually(t, func() error {
			status, body, err := suite.AskAgent(t.Context(), node, "/readyz")
			if err == nil && (status == http.StatusOK || !strings.Contains(body, "besideIstioCNI")) {
				err = fmt.Errorf("the agent of %s answers %d: %s", node.Name, status, body)
			}
			return err
		})
	}
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	for _, node := range c.Nodes {
		meshed, plain := suite.Server("meshed-"+node.Name, node.Name), suite.Unmeshed(suite.Server("plain-"+node.Name, node.Name))
		n.Run(t, meshed, plain)
		if rules := n.Rules(t, meshed.Name); rules.Backend != "" || rules.Foreign == "" {
			t.Errorf("%s has the rules %+v, want istio-cni's", meshed.Name, rules)
		}
		if rules := n.Rules(t, plain.Name); rules.Backend != "" || rules.Foreign != "" {
			t.Errorf("%s, which is not in the mesh, has the rules %+v", plain.Name, rules)
		}
	}
	for node, list := range lists(t) {
		if list != before[node] {
			t.Errorf("the lists of %s were\n%s\nand are\n%s", node, before[node], list)
		}
	}
	lab.Check(t, c.UninstallIstioCNI(t.Context()))
	for _, node := range c.Nodes {
		suite.WaitAgentReady(t, node)
		n.Run(t, suite.Server("later-"+node.Name, node.Name))
		n.ExpectCaptured(t, "later-"+node.Name)
	}
}

// lists returns what is in the runtimes' directories of lists, by node.
func lists(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, node := range c.Nodes {
		entries, err := os.ReadDir(node.Path("/etc/cni/net.d"))
		lab.Check(t, err)
		for _, entry := range entries {
			text := "a directory"
			if !entry.IsDir() {
				content, err := os.ReadFile(node.Path("/etc/cni/net.d/" + entry.Name()))
				lab.Check(t, err)
				text = string(content)
			}
			all[node.Name] += entry.Name() + ": " + text + "\n"
		}
	}
	return all
}
