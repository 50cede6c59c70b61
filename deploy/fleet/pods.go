// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podfields"
)

// seenPod is what is used of a pod: as an agent, if the release owns it, else as one of the
// mesh. Most pods are neither.
type seenPod struct {
	metav1.ObjectMeta // namespace, name and UID
	node              string
	agent             *Agent
	mesh              map[config.MeshName]capture.Exemption // by the meshes that mark it, nil for a pod of none
	istioInit, fenced bool
	noSandbox         bool // it was scheduled, and its network is not set up
	scheduled         time.Time
	running           time.Time // since when its sandbox is known to exist; zero while that is not known
}

// inMesh reports whether a pod is one of the meshes', and has a network of its own.
func inMesh(pod *corev1.Pod, meshes []config.MeshName) bool {
	return capture.Meshed(pod.Annotations, meshes) && !pod.Spec.HostNetwork
}

func newSeenPod(pod *corev1.Pod) *seenPod {
	s := &seenPod{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, node: pod.Spec.NodeName, agent: asAgent(pod),
		istioInit: slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == "istio-init" }),
		fenced:    capture.Fenced(pod.Annotations), scheduled: pod.CreationTimestamp.Time,
	}
	if inMesh(pod, config.Meshes()) {
		s.mesh = map[config.MeshName]capture.Exemption{}
	}
	for _, mesh := range config.Meshes() {
		if s.mesh != nil && capture.MarkedBy(mesh, pod.Annotations) {
			s.mesh[mesh] = capture.Exclusion(podfields.Of(pod), []config.MeshName{mesh})
		}
	}
	for _, condition := range pod.Status.Conditions {
		switch condition.Type {
		case corev1.PodScheduled:
			s.scheduled = condition.LastTransitionTime.Time
		case corev1.PodReadyToStartContainers: // Kubernetes 1.29
			s.noSandbox = condition.Status == corev1.ConditionFalse
			if !s.noSandbox && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				s.running = condition.LastTransitionTime.Time
			}
		}
	}
	s.noSandbox = s.noSandbox && pod.Status.Phase == corev1.PodPending
	return s
}

// by returns which of the meshes captures a pod, else one by which it is exempt; "" for a pod
// of none.
func (s *seenPod) by(meshes []config.MeshName) (mesh config.MeshName, exemption capture.Exemption) {
	for _, name := range meshes {
		if found, marked := s.mesh[name]; marked && (mesh == "" || found.Cause == "") {
			mesh, exemption = name, found
		}
	}
	return mesh, exemption
}
