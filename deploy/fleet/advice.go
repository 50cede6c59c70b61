// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capture-cni/capture-cni/install/report"
)

// withRole appends the missing permission, and the chart's role that grants it, to an error about a
// missing permission. It returns any other error unchanged, and also an error for which the chart has no
// role, such as that about DaemonSets in all namespaces.
func withRole(err error, verb, resource, namespace string) error {
	role := ""
	switch resource {
	case "pods", "nodes", "events", "services":
		role = "ClusterRole capture-cni-operator"
	case "daemonsets", "leases":
		role = "Role capture-cni-operator"
	case "pods/exec":
		role = "Role capture-cni-operator-exec"
	}
	if !apierrors.IsForbidden(err) || role == "" || strings.HasPrefix(role, "Role") && namespace == "" {
		return err
	}
	return fmt.Errorf("%w. The chart's %s has the missing permission (%s %s): bind it", err, role, verb, resource)
}

// withNamespace adds the flag --agent-namespace to the kubectl capture-cni commands in a next step,
// unless the agents' namespace is the default.
func withNamespace(step, namespace string) string {
	if namespace == DefaultNamespace {
		return step
	}
	return strings.ReplaceAll(step, "kubectl capture-cni ", report.Command("kubectl", "capture-cni", "--agent-namespace", namespace)+" ")
}

// adviseNode returns the next step for a node in this state, or "".
func (o *observed) adviseNode(n Node) string {
	logs := "read the log of the node's agent"
	if n.Agent != "" {
		logs = report.Command("kubectl", "-n", o.release.namespace, "logs", n.Agent, "-c", InstallerContainer)
	}
	switch n.State {
	case Stale:
		return report.Command("kubectl", "get", "node", n.Name) + "; if the node is up: " + logs
	case Unreported:
		return "if lease.enabled is true and the agent is not older than this plugin: " + logs
	case Faulty:
		return logs
	}
	return ""
}

func advisePod(p Pod) string {
	explain := report.Command("kubectl", "capture-cni", "explain", p.Namespace+"/"+p.Name)
	switch p.State {
	case report.Uncaptured, report.Drifted:
		return explain + "; with guard.policy=report, restart the pod"
	case report.Exempt:
		return cmp.Or(report.Code(p.Cause).Advice(), explain)
	case report.InjectedLater, report.Outdated, report.Changed, report.Foreign:
		return p.State.Advice()
	}
	return explain
}
