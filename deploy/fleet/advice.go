// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capture-cni/capture-cni/install/terms"
)

// permissionHint names the roles for everything that this package reads.
const permissionHint = "The chart's ClusterRole and Role capture-cni-operator have the permissions: bind them"

// withHint adds the roles to an error for a lack of permission.
func withHint(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w. %s", err, permissionHint)
	}
	return err
}

// withNamespace adds the agents' namespace to the commands of a step, unless they find it
// themselves.
func withNamespace(step, namespace string) string {
	if namespace == DefaultNamespace {
		return step
	}
	return strings.ReplaceAll(step, "kubectl capture-cni ", terms.Command("kubectl", "capture-cni", "--agent-namespace", namespace)+" ")
}

// adviseNode returns the next step for a node, "" for none.
func (o *observed) adviseNode(n Node) string {
	logs := "read the log of the node's agent"
	if n.Agent != "" {
		logs = terms.Command("kubectl", "-n", o.release.namespace, "logs", n.Agent, "-c", InstallerContainer)
	}
	switch n.State {
	case Stale:
		return terms.Command("kubectl", "get", "node", n.Name) + "; if the node is up: " + logs
	case Unreported:
		return "if lease.enabled is true and the agent is not older than this plugin: " + logs
	case Faulty:
		return logs
	}
	return ""
}

// advisePod returns the next step for a pod.
func advisePod(p Pod) string {
	explain := terms.Command("kubectl", "capture-cni", "explain", p.Namespace+"/"+p.Name)
	switch p.State {
	case terms.Uncaptured, terms.Drifted:
		return explain + "; with guard.policy=report, restart the pod"
	case terms.Exempt:
		return terms.AdviceFor(p.Cause)
	case terms.InjectedLater, terms.Outdated, terms.Changed, terms.Foreign:
		return p.State.Advice()
	}
	return explain
}
