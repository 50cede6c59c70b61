// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// conclude sets state, cause and next step. The guard's finding comes before what follows
// from the pod alone. pod is nil for one that is gone; meshes are those that are on.
func (e *Explanation) conclude(pod *corev1.Pod, meshes []config.MeshName, events podEvents, guarded bool) {
	var answer report.Explanation // of the node
	if e.Evidence.Agent != nil {
		answer = e.Evidence.Agent.Answer
	}
	add := cmp.Or(answer.Add, &record.Record{})
	if pod == nil {
		e.State, e.Cause = report.Gone, "no such pod exists: it has ended, or was never created"
		if add.Verdict == record.Failed {
			e.Cause += "; its last ADD failed: " + add.Message
		}
		e.Next = report.Command("kubectl", "get", "pods", "--namespace", strings.Split(e.Pod, "/")[0])
		return
	}
	asked := newSeenPod(pod)
	_, exemption := asked.by(meshes)
	switch {
	case pod.Spec.NodeName == "" && (!inMesh(pod, meshes) || exemption.Cause == ""):
		e.State, e.Cause = report.NotScheduled, cmp.Or(conditionMessage(pod, corev1.PodScheduled), "the scheduler has not chosen a node")
		e.Next = "kubectl describe pod; a taint of nodes that are not ready is in deploy/guides/taint.md"
	case !inMesh(pod, meshes):
		e.State = report.NotInMesh
		e.Cause, e.Next = whyNotInMesh(pod)
	case asked.noSandbox:
		if answer.UID != string(pod.UID) {
			add = &record.Record{} // of a pod of the same name before it
		}
		e.State = report.NotStarted
		e.Cause, e.Next = whyNotStarted(events, *add)
	case answer.State == report.Exempt:
		e.State, e.Cause = report.Exempt, answer.Because
		e.Next = cmp.Or(report.AdviceFor(exemption.Cause), report.AdviceFor(capture.NamespaceExcluded))
	case answer.State != "":
		e.State, e.Cause, e.Next = answer.State, answer.Because, answer.State.Advice()
		if e.State == report.Captured {
			e.Cause = cmp.Or(e.Cause, "its network namespace holds the rules that it asked for")
		}
	case exemption.Cause != "":
		e.State, e.Cause, e.Next = report.Exempt, exemption.Message, report.AdviceFor(exemption.Cause)
	case add.Verdict == record.Captured:
		e.Cause = "no guard examined the running pod; its ADD captured it by " + cmp.Or(add.Backend, "an unknown backend")
		e.Next = "for proof from inside the pod: the container istio-validation or linkerd-network-validator"
	case e.Evidence.Node != nil && !e.Evidence.Node.State.Good() && e.Evidence.Agent == nil:
		e.Cause = "the agent of its node did not answer: " + strings.Join(e.Evidence.Node.Reasons, "; ")
		e.Next = cmp.Or(e.Evidence.Node.Next, "kubectl capture-cni status --wait")
	case guarded:
		e.Cause, e.Next = "the guard did not explain the pod: see the evidence",
			"correct what the evidence names; kubectl capture-cni status shows its node"
	default:
		e.Cause = "no guard examines the pods of this node, and no record of its ADD is known"
		e.Next = "guard.enabled=true; the guard needs backend nftables and a CRI socket"
	}
}

// whyNotStarted returns why the network of a pod is not set up. The plugin's own record
// says most, the kubelet's Event least.
func whyNotStarted(events podEvents, add record.Record) (cause, next string) {
	switch {
	case add.Verdict == record.Failed:
		return "its ADD fails: " + add.Message, adviseFailure(add.Reason)
	case events.failed != "":
		return "its ADD fails: " + events.failed, "correct what the cause names; the runtime retries"
	case strings.Contains(events.sandbox, "capture-cni"):
		return "its ADD fails: " + events.sandbox, "correct what the cause names; the runtime retries"
	case events.sandbox != "":
		return "its sandbox fails, and not by capture-cni: " + events.sandbox, "correct what the cause names"
	}
	return "the runtime sets up its network, and no error is known: an ADD runs, or has not begun", "run this again in a minute"
}

// adviseFailure returns the next step for the reason of an ADD that failed.
func adviseFailure(reason record.Reason) string {
	switch reason {
	case record.Annotations:
		return "correct the annotations that the cause names, and restart the pod"
	case record.Refused:
		return "remove what the cause names: the pod would run without capture"
	case record.Lookup:
		return "kubectl capture-cni status: neither the agent nor the API server returned the pod; the runtime retries"
	case record.Configuration, record.Input:
		return "correct netconf in the chart's values; the runtime retries"
	case record.Kernel:
		return "load the kernel module that the cause names, or choose another backend; the runtime retries"
	}
	return "the runtime retries"
}
