// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// conclude sets state, cause and next step of a pod of the mesh, or of one that is gone.
func (e *Explanation) conclude(pod *corev1.Pod, events podEvents, node nodeEvidence) {
	switch {
	case pod == nil:
		if node.add.verdict == "failed" {
			e.Cause += "; its last ADD failed: " + node.add.message
		}
	case newMeshPod(pod).noSandbox:
		if node.uid != string(pod.UID) {
			node.add = lastADD{} // of a pod of the same name before it
		}
		e.State = NotStarted
		e.Cause, e.Next = whyNotStarted(events, node)
	case node.state != "":
		e.setState(node.state, node.because)
	case e.State == Exempt:
	case node.add.verdict == "captured":
		e.Cause = "no guard examined the running pod; its ADD captured it by " + cmp.Or(node.add.backend, "an unknown backend")
		e.Next = "for proof from inside the pod: the container istio-validation"
	case node.guarded:
		e.Cause, e.Next = "the guard did not explain the pod: see the evidence", "correct what the evidence names; kubectl capture-cni status shows its node"
	default:
		e.Cause = "no guard examines the pods of this node, and no record of its ADD is known"
		e.Next = "guard.enabled=true; the guard needs backend nftables and a CRI socket"
	}
}

// setState sets what the guard found. Of an exempt pod, the pod's own fields may have
// said what to do.
func (e *Explanation) setState(state, because string) {
	if state != Exempt || e.State != Exempt {
		e.Next = ""
	}
	e.State, e.Cause = state, because
	switch {
	case state == Captured:
		e.Cause, e.Next = cmp.Or(because, "its network namespace holds the rules that it asked for"), "none"
	case state == Exempt:
		e.Next = cmp.Or(e.Next, adviseExempt("namespace_excluded"))
	case state == Uncaptured || state == Drifted:
		e.Next = "with guard.policy=inPlace the guard repairs it; else restart the pod. If the state returns: find out which process changes the rules"
	case state == Later:
		e.Next = advisePod(Pod{State: Later})
	case state == Obstructed:
		e.Next = "remove NET_ADMIN from the container that adds the table"
	case state == Unknown:
		e.Next = "run this again in a minute; if the state stays: kubectl capture-cni status"
	}
}

// whyNotStarted returns why the network of a pod is not set up. The plugin's own record
// says most, the kubelet's Event least.
func whyNotStarted(events podEvents, node nodeEvidence) (cause, next string) {
	switch {
	case node.add.verdict == "failed":
		return "its ADD fails: " + node.add.message, adviseFailure(node.add.reason)
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
func adviseFailure(reason string) string {
	switch reason {
	case "annotations":
		return "correct the annotations that the cause names, and restart the pod"
	case "refused":
		return "remove what the cause names: the pod would run without capture"
	case "lookup":
		return "kubectl capture-cni status: neither the agent nor the API server returned the pod; the runtime retries"
	case "configuration", "input":
		return "correct netconf in the chart's values; the runtime retries"
	case "kernel":
		return "load the kernel module that the cause names, or choose another backend; the runtime retries"
	}
	return "the runtime retries"
}
