// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Explanation contains the state of a pod's capture, the reason, and the evidence.
type Explanation struct {
	Pod      string
	Node     string
	State    report.Code
	Finding  report.Finding // why the pod is in this state
	Evidence Evidence
}

// MarshalJSON returns the explanation in the format that is the same in all releases.
func (e Explanation) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Pod      string      `json:"pod"`
		Node     string      `json:"node,omitempty"`
		State    report.Code `json:"state"`
		Cause    string      `json:"cause,omitempty"`
		Code     report.Code `json:"code"`
		Evidence Evidence    `json:"evidence"`
		Next     string      `json:"nextStep,omitempty"`
	}{e.Pod, e.Node, e.State, e.Finding.Reason, e.Finding.Code, e.Evidence, e.Finding.Next})
}

// Good reports whether the pod needs no attention.
func (e Explanation) Good() bool {
	return e.State.Severity() == report.OK || e.State.Severity() == report.Note
}

// Unanswered returns the number of missing sources that could decide about the pod's state. It returns 0
// if the state is known, or if it is known that the node needs attention.
func (e Explanation) Unanswered() int {
	if e.State != report.Unknown || e.Evidence.Node != nil && !e.Evidence.Node.State.Good() {
		return 0
	}
	return len(e.Evidence.Missing)
}

// explainTimeout limits the duration of a command in the agent's pod.
const explainTimeout = 30 * time.Second

// Explainer explains single pods.
type Explainer struct {
	Client    *Client
	Exec      Exec
	Namespace string // namespace of the agents
	Version   string // version of this program
}

// Explain explains one pod. It reads the pod and its Events. Unless the pod is outside the mesh or its
// node is unknown, Explain also reads the Node and its Lease, and executes the command explain in the
// agent's pod on this node.
func (x Explainer) Explain(ctx context.Context, namespace, name string) (*Explanation, error) {
	e := &Explanation{Pod: namespace + "/" + name}
	pod, err := read(ctx, x.Client, "pod", namespace, name, &corev1.Pod{}) // nil if the pod does not exist
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	events := x.readEvents(ctx, e, pod, namespace, name)
	e.Node = events.node
	if pod != nil {
		e.Node = cmp.Or(pod.Spec.NodeName, e.Node)
		e.Evidence.Pod = &PodEvidence{Phase: pod.Status.Phase, Created: pod.CreationTimestamp.UTC(), UID: pod.UID}
	}
	on := config.Meshes() // all meshes, if the release can't be read
	if release, err := x.Client.release(ctx, x.Namespace); err == nil {
		on = release.meshes()
	}
	guarded := false
	if e.Node != "" && (pod == nil || inMesh(pod, on)) {
		guarded = x.readNode(ctx, e, namespace, name)
	}
	e.conclude(pod, on, events, guarded)
	e.Finding.Subject, e.Finding.Next = e.Pod, withNamespace(e.Finding.Next, x.Namespace)
	return e, nil
}

func conditionMessage(pod *corev1.Pod, kind corev1.PodConditionType) string {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == kind && condition.Status != corev1.ConditionTrue {
			return condition.Message
		}
	}
	return ""
}

// whyNotInMesh returns the reason for which a pod is in none of the captured meshes.
func whyNotInMesh(pod *corev1.Pod) (code report.Code, cause string) {
	const label = "sidecar.istio.io/inject"
	switch {
	case pod.Spec.HostNetwork:
		return report.HostNetwork, "it has the network of its node (hostNetwork), which is never captured"
	case cmp.Or(pod.Labels[label], pod.Annotations[label]) == "false": // the label overrides the annotation
		return report.InjectFalse, label + " is false: it was not injected"
	case slices.ContainsFunc(config.Meshes(), func(mesh config.MeshName) bool { return capture.MarkedBy(mesh, pod.Annotations) }):
		return report.MeshOff, "netconf.meshes does not name its mesh"
	case pod.Labels["istio.io/dataplane-mode"] == "ambient":
		return report.AmbientPod, "istio.io/dataplane-mode is ambient: ztunnel captures its traffic, and no sidecar does"
	}
	return report.NotInjected, "it has no annotation sidecar.istio.io/status, nor one of another mesh: no injector asked to capture it"
}
