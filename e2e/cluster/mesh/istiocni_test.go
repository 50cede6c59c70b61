// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/guides"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// refused is the error of ADD while both plugins would capture the pod.
const refused = "holds another plugin's capture rules: only one of the two may capture a pod"

// beside has the agents write their entry next to istio-cni's.
const beside = "besideIstioCNI=true"

// migrator migrates by the commands of the guide.
type migrator struct{ *suite.Operator }

// follow runs the commands of a section of the guide.
func (m migrator) follow(t *testing.T, section string, values map[string]string) {
	t.Helper()
	sections := guides.Of("e2e/cluster/mesh.TestMigration")
	i := slices.IndexFunc(sections, func(run guides.Run) bool { return run.Section == section })
	if i < 0 {
		t.Fatalf("the guide has no section %q to run", section)
	}
	c.Installed = nil // the suite does not know what it changes
	m.Follow(t, sections[i], values)
}

// hold keeps istio-cni's agents as they are.
func (m migrator) hold(t *testing.T) {
	t.Helper()
	m.follow(t, "2. Hold istio-cni's agents", map[string]string{"PRIMARY": cluster.NetworkConf})
}

// node migrates one node, and waits until istio-cni's agent has left it.
func (m migrator) node(t *testing.T, node *cluster.Node) {
	t.Helper()
	m.follow(t, "4. Node by node", map[string]string{"node1": node.Name})
	lab.Eventually(t, func() error {
		if agents := istioAgentsOn(t, node); agents != "" {
			return fmt.Errorf("%s runs istio-cni's agent %s", node.Name, agents)
		}
		return nil
	})
}

func istioAgentsOn(t *testing.T, node *cluster.Node) string {
	t.Helper()
	return istioAgents(t, "--field-selector=spec.nodeName="+node.Name)
}

func istioAgents(t *testing.T, flags ...string) string {
	t.Helper()
	return strings.TrimSpace(c.MustKubectl(t, slices.Concat([]string{"--namespace", cluster.IstioNamespace, "get", "pods", "--selector=k8s-app=istio-cni-node", "--output=name"}, flags)...))
}

// waitForIstioEntry waits until istio-cni's agents have their entry in the primary's list
// of every node.
func waitForIstioEntry(t *testing.T) {
	t.Helper()
	for _, node := range c.Nodes {
		lab.Eventually(t, func() error {
			text, err := os.ReadFile(node.Path("/etc/cni/net.d/" + cluster.NetworkConf))
			if err == nil && !strings.Contains(string(text), `"istio-cni"`) {
				err = fmt.Errorf("the primary's list of %s lacks istio-cni: %s", node.Name, text)
			}
			return err
		})
	}
}
