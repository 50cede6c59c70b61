// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
)

// refused is the error of ADD while both plugins would capture the pod.
const refused = "holds another plugin's capture rules: only one of the two may be in the chain"

// beside has the agents write their entry next to istio-cni's.
const beside = "besideIstioCNI=true"

// istioAgents is the DaemonSet of istio-cni, as kubectl's arguments.
var istioAgents = []string{"--namespace", cluster.IstioNamespace, "patch", "daemonset", "istio-cni-node", "--type", "merge", "--patch"}

// holdIstioCNI is step 2 of the guide: no agent of istio-cni is restarted by an update,
// and each leaves its node when that is labelled.
func holdIstioCNI(t *testing.T) {
	t.Helper()
	for _, patch := range []string{
		`{"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}}}`,
		`{"spec": {"template": {"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "istio-cni", "operator": "NotIn", "values": ["retired"]}]}]}}}}}}}`,
	} {
		c.MustKubectl(t, append(istioAgents, patch)...)
	}
}

// migrateNode is step 4 of the guide.
func migrateNode(t *testing.T, node *cluster.Node) {
	t.Helper()
	c.MustKubectl(t, "label", "node", node.Name, "capture-cni=yes")
	suite.WaitAgentReady(t, node)
	c.MustKubectl(t, "label", "node", node.Name, "istio-cni=retired")
	suite.Eventually(t, func() error {
		if agents := istioAgentsOn(t, node); agents != "" {
			return fmt.Errorf("%s runs istio-cni's agent %s", node.Name, agents)
		}
		return nil
	})
}

func istioAgentsOn(t *testing.T, node *cluster.Node) string {
	t.Helper()
	return strings.TrimSpace(c.MustKubectl(t, "--namespace", cluster.IstioNamespace, "get", "pods", "--selector=k8s-app=istio-cni-node", "--field-selector=spec.nodeName="+node.Name, "--output=name"))
}

// waitForIstioEntry waits until istio-cni's agents have their entry in the primary's list
// of every node.
func waitForIstioEntry(t *testing.T) {
	t.Helper()
	for _, node := range c.Nodes {
		suite.Eventually(t, func() error {
			text, err := os.ReadFile(node.Path("/etc/cni/net.d/" + cluster.NetworkConf))
			if err == nil && !strings.Contains(string(text), `"istio-cni"`) {
				err = fmt.Errorf("the primary's list of %s lacks istio-cni: %s", node.Name, text)
			}
			return err
		})
	}
}
