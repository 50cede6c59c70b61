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

// meshPod is what the API server says of a pod of the mesh.
type meshPod struct {
	namespace, name, node string
	uid                   string
	exemptions            map[config.MeshName]capture.Exemption // by the meshes that mark it
	istioInit             bool
	noSandbox             bool // it was scheduled, and its network is not set up
	scheduled             time.Time
	running               time.Time // since when its sandbox is known to exist; zero while that is not known
}

// seenPod is what is used of a pod: as an agent, if the release owns it, else as one of the
// mesh. Both are nil for most pods.
type seenPod struct {
	metav1.ObjectMeta // namespace and name
	agent             *Agent
	mesh              *meshPod
}

func newSeenPod(pod *corev1.Pod) *seenPod {
	s := &seenPod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, agent: asAgent(pod)}
	if inMesh(pod, config.Meshes()) && pod.Spec.NodeName != "" {
		m := newMeshPod(pod)
		s.mesh = &m
	}
	return s
}

// inMesh reports whether a pod is one of the meshes', and has a network of its own.
func inMesh(pod *corev1.Pod, meshes []config.MeshName) bool {
	return capture.Meshed(pod.Annotations, meshes) && !pod.Spec.HostNetwork
}

func newMeshPod(pod *corev1.Pod) meshPod {
	m := meshPod{
		namespace: pod.Namespace, name: pod.Name, node: pod.Spec.NodeName, uid: string(pod.UID), exemptions: map[config.MeshName]capture.Exemption{},
		istioInit: slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == "istio-init" }),
		scheduled: pod.CreationTimestamp.Time,
	}
	fields := podfields.Of(pod)
	for _, mesh := range config.Meshes() {
		if only := []config.MeshName{mesh}; capture.Meshed(pod.Annotations, only) {
			m.exemptions[mesh] = capture.Exclusion(fields, only)
		}
	}
	for _, condition := range pod.Status.Conditions {
		switch condition.Type {
		case corev1.PodScheduled:
			m.scheduled = condition.LastTransitionTime.Time
		case corev1.PodReadyToStartContainers: // Kubernetes 1.29
			m.noSandbox = condition.Status == corev1.ConditionFalse
			if !m.noSandbox && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				m.running = condition.LastTransitionTime.Time
			}
		}
	}
	m.noSandbox = m.noSandbox && pod.Status.Phase == corev1.PodPending
	return m
}

// by returns which of the meshes captures a pod, else one by which it is exempt; "" for a pod
// of none.
func (m meshPod) by(meshes []config.MeshName) (mesh config.MeshName, exemption capture.Exemption) {
	for _, name := range meshes {
		if found, marked := m.exemptions[name]; marked && (mesh == "" || found.Cause == "") {
			mesh, exemption = name, found
		}
	}
	return mesh, exemption
}
