// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podfields"
)

// seenPod contains the facts about a pod that this package uses. agent is set if the pod looks like an
// agent's. For most pods, agent and mesh are nil.
type seenPod struct {
	metav1.ObjectMeta // namespace, name and UID
	node              string
	agent             *Agent
	mesh              map[config.MeshName]capture.Exemption // the exemption by each mesh that marks the pod; nil for a pod outside all meshes
	istioInit, fenced bool
	noSandbox         bool // the pod is scheduled, but has no network yet
	scheduled         time.Time
	running           time.Time // time since which the sandbox is known to exist; zero if unknown
}

// inMesh reports whether a pod is in one of the meshes or requests a fence, and has its own network.
func inMesh(pod *corev1.Pod, meshes []config.MeshName) bool {
	return capture.Meshed(pod.Annotations, meshes) && !pod.Spec.HostNetwork
}

func newSeenPod(pod *corev1.Pod) *seenPod {
	s := &seenPod{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: uidOnNode(pod)},
		node:       pod.Spec.NodeName, agent: asAgent(pod),
		istioInit: slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == "istio-init" }),
		fenced:    capture.Fenced(pod.Annotations), scheduled: pod.CreationTimestamp.Time,
	}
	if inMesh(pod, config.Meshes()) {
		s.mesh = map[config.MeshName]capture.Exemption{}
	}
	for _, mesh := range config.Meshes() {
		if s.mesh != nil && capture.MarkedBy(mesh, pod.Annotations) {
			s.mesh[mesh] = capture.ExemptionOf(podfields.Of(pod), []config.MeshName{mesh})
		}
	}
	// Before Kubernetes 1.29, only the missing address shows that a pod has no sandbox.
	s.noSandbox = pod.Spec.NodeName != "" && pod.Status.PodIP == ""
	for _, condition := range pod.Status.Conditions {
		switch condition.Type {
		case corev1.PodScheduled:
			s.scheduled = condition.LastTransitionTime.Time
		case corev1.PodReadyToStartContainers: // since Kubernetes 1.29
			s.noSandbox = condition.Status == corev1.ConditionFalse
			if !s.noSandbox && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				s.running = condition.LastTransitionTime.Time
			}
		}
	}
	s.noSandbox = s.noSandbox && pod.Status.Phase == corev1.PodPending
	return s
}

// uidOnNode returns the UID by which the pod's node knows the pod. For a static pod, this is the UID that
// the kubelet gave it, and not that of its mirror in the API server.
func uidOnNode(pod *corev1.Pod) types.UID {
	return cmp.Or(types.UID(pod.Annotations[corev1.MirrorPodAnnotationKey]), pod.UID)
}

// by returns the mesh that captures a pod. If no mesh captures the pod, by returns a mesh that exempts
// the pod, with the exemption. For a pod in no mesh, by returns "".
func (s *seenPod) by(meshes []config.MeshName) (mesh config.MeshName, exemption capture.Exemption) {
	for _, name := range meshes {
		if found, marked := s.mesh[name]; marked && (mesh == "" || found.Cause == "") {
			mesh, exemption = name, found
		}
	}
	return mesh, exemption
}
