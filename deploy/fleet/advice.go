// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capture-cni/capture-cni/install/report"
)

// withRole adds to an error for a lack of permission what is missing, and the role of the chart
// that has it, if one has. Roles are of the agents' namespace, ClusterRoles of all.
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

// withNamespace adds the agents' namespace to the commands of a step, unless they find it
// themselves.
func withNamespace(step, namespace string) string {
	if namespace == DefaultNamespace {
		return step
	}
	return strings.ReplaceAll(step, "kubectl capture-cni ", report.Command("kubectl", "capture-cni", "--agent-namespace", namespace)+" ")
}

// adviseNode returns the next step for a node, "" for none.
func (o *observed) adviseNode(n Node) string {
	logs := "read the log of the node's agent"
	if n.Agent != "" {
		logs = report.Command("kubectl", "-n", o.release.namespace, "logs", n.Agent, "-c", InstallerContainer)
	}
	return map[NodeState]string{
		Stale:      report.Command("kubectl", "get", "node", n.Name) + "; if the node is up: " + logs,
		Unreported: "if lease.enabled is true and the agent is not older than this plugin: " + logs,
		Faulty:     logs,
	}[n.State]
}

// advisePod returns the next step for a pod.
func advisePod(p Pod) string {
	explain := report.Command("kubectl", "capture-cni", "explain", p.Namespace+"/"+p.Name)
	restart := explain + "; with guard.policy=report, restart the pod"
	step := map[report.Code]string{report.Uncaptured: restart, report.Drifted: restart, report.Exempt: report.Code(p.Cause).Advice()}[p.State]
	if slices.Contains([]report.Code{report.InjectedLater, report.Outdated, report.Changed, report.Foreign}, p.State) {
		step = p.State.Advice()
	}
	return cmp.Or(step, explain)
}
