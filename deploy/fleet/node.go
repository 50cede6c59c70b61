// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/install/report"
)

// node returns the state of a node, concluded from the Node, its agent and its Lease.
func (o *observed) node(name string, agent *Agent, lease *coordination.Lease) Node {
	node := Node{Name: name, Kind: kindOf(o.nodes[name]), agent: agent}
	if agent != nil {
		node.Agent = agent.name
	}
	var published report.NodeState
	var err error
	var lasts time.Duration
	if lease != nil {
		published, err = report.DecodeNode(lease.Annotations[report.NodeAnnotation])
		node.Version, node.Mode, node.Backend, node.Notes, node.pods = published.Version, published.Mode, published.Backend,
			published.Findings.Of(report.Note).Each(func(note report.Finding) string { return note.Code.Mark(note.Reason) }), published.Pods
		node.podVersion = published.PodVersion
		if lease.Spec.RenewTime != nil {
			node.Reported = lease.Spec.RenewTime.Time
		}
		if lease.Spec.LeaseDurationSeconds != nil {
			lasts = time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
		}
	}
	age, leaving := o.now.Sub(node.Reported), o.release.leaves(agent, o.nodes[name])
	set := func(state NodeState, code report.Code, reason, next string) {
		node.State = state
		node.Findings = report.Findings{{Code: code, Severity: report.FaultSeverity(state == Waiting), Reason: reason, Next: next}}
	}
	down := whyDown(o.nodes[name])
	switch {
	case down != "":
		set(Faulty, report.NodeNotReady, "the Node is not ready: "+down, report.Command("kubectl", "describe", "node", name))
	case agent == nil && o.podsFault == nil:
		o.explainNoAgent(&node, lease != nil, published.Desired == absent && published.Good())
	case leaving != "":
		set(Waiting, report.AgentEnding, fmt.Sprintf("DaemonSet %s does not select the node any more, and its agent still runs", leaving), "")
	case agent != nil && agent.fault.blocks(o.now.Sub(agent.created)):
		set(Faulty, report.AgentFailing, agent.fault.reason, agent.fault.step(agent))
	case agent != nil && agent.fault.in(starting):
		set(Waiting, report.AgentStarting, agent.fault.reason, "")
	case lease == nil:
		set(Unreported, report.AgentSilent, "the agent has written no Lease", "")
	case age < -maxAhead || lasts > maxLeaseDuration: // otherwise, such a Lease would hide that the agent no longer reports
		set(Faulty, report.LeaseWrong, fmt.Sprintf("its Lease was renewed at %s, for %.0f s: no agent writes that",
			node.Reported.UTC().Format(time.RFC3339), lasts.Seconds()), "")
	case lasts == 0 || age > lasts:
		set(Stale, report.AgentStale, "the agent stopped reporting", "")
		if agent != nil && agent.fault != nil {
			node.Findings = append(node.Findings, report.Finding{Code: report.AgentFailing, Severity: report.Problem, Reason: agent.fault.reason})
		}
	case errors.Is(err, report.ErrNodeFormat):
		set(Faulty, report.LeaseWrong, err.Error()+": use the kubectl plugin of the agents' version", "")
	case err != nil:
		set(Faulty, report.LeaseWrong, err.Error(), "")
	case agent != nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != agent.name:
		set(Waiting, report.AgentStarting, "the new agent has not reported yet", "")
	case !published.Good():
		node.State, node.Findings = Waiting, published.Findings.Faults()
		if len(node.Findings.Of(report.Problem)) > 0 {
			node.State = Faulty
		}
	case agent != nil && agent.fault != nil:
		set(Faulty, report.AgentFailing, agent.fault.reason, "")
	case len(published.Findings.Of(report.Warning)) > 0:
		node.State, node.Findings = Faulty, published.Findings.Of(report.Warning)
	case agent != nil && agent.guarded && published.Pods == nil && cmp.Or(published.Backend, nftables) == nftables:
		set(Waiting, report.GuardSilent, "the guard has not reported the states of pods", "")
	case o.release.replaces(agent) == appsv1.OnDeleteDaemonSetStrategyType:
		set(Outdated, report.AgentOutdated, "the agent is of an older specification, and updateStrategy is OnDelete",
			report.Command("kubectl", "-n", agent.namespace, "delete", "pod", agent.name))
	case o.release.replaces(agent) != "":
		set(Waiting, report.AgentOutdated, "the agent is of an older specification, and is replaced", "")
	case published.Desired == absent:
		node.State = Removed
	default:
		node.State = Ready
	}
	if len(node.Findings) > 0 { // a next step for a finding is more exact than one for the state
		node.Findings[0].Next = cmp.Or(node.Findings.Next(), o.adviseNode(node))
	}
	return node
}

// Values in the states that agents publish.
const (
	absent   = "absent"   // the desired state of a clean node
	nftables = "nftables" // the only backend with which the guard of the chart examines pods
)

// Limits for the times in a Lease. Agents write durations of at most 11 minutes, and clocks can differ.
const (
	maxLeaseDuration = time.Hour
	maxAhead         = time.Hour
)

func kindOf(node *corev1.Node) string {
	if node == nil {
		return ""
	}
	info := node.Status.NodeInfo
	return strings.Join([]string{info.KernelVersion, info.ContainerRuntimeVersion, info.OSImage, info.Architecture}, ", ")
}

// whyDown returns the reason for which a Node is not ready. It returns "" if the Node is ready or could
// not be read.
func whyDown(node *corev1.Node) (reason string) {
	if node == nil {
		return ""
	}
	reason = "its kubelet has not reported"
	for _, condition := range node.Status.Conditions {
		switch {
		case condition.Type != corev1.NodeReady:
		case condition.Status == corev1.ConditionTrue:
			return ""
		default:
			reason = cmp.Or(condition.Message, condition.Reason, reason)
		}
	}
	return reason
}

// explainNoAgent sets the state and the finding of a node without an agent. leased says whether the node
// has a Lease, and clean whether the Lease describes a clean node.
func (o *observed) explainNoAgent(node *Node, leased, clean bool) {
	selected := ""
	if known := o.nodes[node.Name]; known != nil {
		selected = o.release.selects(known)
	}
	describe := report.Command("kubectl", "-n", o.release.namespace, "describe", "daemonset", cmp.Or(selected, "capture-cni-node"))
	node.State = NoAgent
	found := report.Finding{Severity: report.Problem}
	switch {
	case o.ending[node.Name]:
		node.State, found = Waiting, report.Finding{Code: report.AgentEnding, Severity: report.Waiting, Reason: "the agent ends"}
	case selected != "":
		found.Code, found.Reason, found.Next = report.AgentMissing, "DaemonSet "+selected+" selects the node, and has no pod there", describe
	case clean:
		node.State = Removed
		return
	case leased && o.nodesKnown():
		found.Code, found.Reason = report.NodeUnselected, "no DaemonSet selects the node any more: plugin and entry may be left there"
		found.Next = "select it again, or by a pool with state: absent (deploy/guides/nodes.md)"
	default:
		found.Code, found.Reason = report.AgentMissing, "no agent runs on the node"
		found.Next = "compare nodeSelector, affinity and tolerations of the chart with the node: " + describe
	}
	node.Findings = report.Findings{found}
}

// knows reports whether the node's guard counts a pod, which then has a sandbox.
func (n *Node) knows(pod *seenPod) bool {
	return n.pods != nil && slices.Contains(n.pods.Known, report.ShortUID(string(pod.UID)))
}

// lacks reports whether the node's guard should know a pod but does not: the Lease is newer than the pod
// by at least reportGrace, but does not contain the pod.
func (n *Node) lacks(pod *seenPod) bool {
	return n.pods != nil && !pod.running.IsZero() && n.Reported.After(pod.running.Add(reportGrace)) && n.pods.Lacks(string(pod.UID))
}
