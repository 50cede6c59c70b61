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

// conclude sets state, cause and next step of the explanation. For a pod in a captured mesh that has a
// network, it prefers the guard's finding to its own conclusions from the pod. pod is nil if no such pod
// exists. meshes are the meshes whose pods are captured, and guarded says whether the node has a guard.
func (e *Explanation) conclude(pod *corev1.Pod, meshes []config.MeshName, events podEvents, guarded bool) {
	var answer report.Explanation // the answer of the node's agent
	if e.Evidence.Agent != nil {
		answer = e.Evidence.Agent.Answer
	}
	add := cmp.Or(answer.Add, &record.Record{})
	set := func(state, code report.Code, cause string) {
		e.State, e.Finding = state, report.Finding{Code: code, Severity: state.Severity(), Reason: cause, Next: code.Advice()}
	}
	if pod == nil || inMesh(pod, meshes) && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed) {
		set(report.Gone, report.Gone, "no such pod runs: it has ended, or was never created")
		if add.Verdict == record.Failed {
			e.Finding.Reason += "; its last ADD failed: " + add.Message
		}
		e.Finding.Next = report.Command("kubectl", "get", "pods", "--namespace", strings.Split(e.Pod, "/")[0])
		return
	}
	asked := newSeenPod(pod)
	_, exemption := asked.by(meshes)
	switch {
	case pod.Spec.NodeName == "" && exemption.Cause == "":
		set(report.NotScheduled, report.NotScheduled, cmp.Or(conditionMessage(pod, corev1.PodScheduled), "the scheduler has not chosen a node"))
	case !inMesh(pod, meshes):
		code, cause := whyNotInMesh(pod)
		set(report.NotInMesh, code, cause)
	// While the kubelet pulls the first image, the API server may not know of the sandbox yet.
	case asked.noSandbox && (!answer.Examined || answer.UID != string(asked.UID)):
		if answer.UID != string(asked.UID) {
			add = &record.Record{} // the record belongs to an earlier pod of the same name
		}
		code, cause := whyNotStarted(events, *add)
		set(report.NotStarted, code, cause)
	case answer.State == report.Exempt:
		set(report.Exempt, report.Code(cmp.Or(exemption.Cause, capture.NamespaceExcluded)), answer.Because)
	case answer.State == report.Captured:
		set(report.Captured, report.Captured, cmp.Or(answer.Because, "its network namespace holds the rules that it asked for"))
	case answer.State != "":
		set(answer.State, answer.State, answer.Because)
	case exemption.Cause != "":
		set(report.Exempt, report.Code(exemption.Cause), exemption.Message)
	case add.Verdict == record.Captured:
		set(report.Unknown, report.NotReported,
			"no guard examined the running pod; its ADD captured it by "+cmp.Or(add.Backend, "an unknown backend"))
		e.Finding.Next = "for proof from inside the pod, see its mesh's validation container, such as istio-validation (Consul has none)"
	case e.Evidence.Node != nil && !e.Evidence.Node.State.Good() && e.Evidence.Agent == nil:
		found := e.Evidence.Node.Findings
		set(report.Unknown, found[0].Code, "the agent of its node did not answer: "+strings.Join(found.Each(report.Finding.Summary), "; "))
		e.Finding.Next = cmp.Or(found.Next(), "kubectl capture-cni status --wait")
	case guarded:
		set(report.Unknown, report.NotExamined, "the guard did not explain the pod: see the evidence")
		e.Finding.Next = "correct what the evidence names; kubectl capture-cni status shows the pod's node"
	default:
		set(report.Unknown, report.NotReported, "no guard's finding about the pod, and no record of its ADD, is known")
	}
}

// whyNotStarted returns the reason for which a pod has no network yet. It prefers the plugin's record,
// which is the most exact source, to the agents' Events, and the agents' Events to the kubelet's.
func whyNotStarted(events podEvents, add record.Record) (code report.Code, cause string) {
	switch {
	case add.Verdict == record.Failed:
		return report.CodeOfAdd(add.Reason), "its ADD fails: " + add.Message
	case events.failed != "":
		return report.CutCode("its ADD fails: "+events.failed, report.AddFailed)
	case strings.Contains(events.sandbox, "capture-cni"):
		return report.AddFailed, "its ADD fails: " + events.sandbox
	case events.sandbox != "":
		return report.SandboxFailed, "its sandbox fails, and not by capture-cni: " + events.sandbox
	}
	return report.Starting, "the runtime sets up its network, and no error is known: an ADD runs, or has not begun"
}
