// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capture-cni/capture-cni/install/report"
)

// posers returns pods of the mesh that look like a node's agent, but are none. The key of each pod is
// the only property of an agent that the pod lacks.
func posers(node string) map[string]corev1.Pod {
	all := map[string]func(*corev1.Pod){
		"namespace":  func(p *corev1.Pod) { p.Namespace = "shop" },
		"account":    func(p *corev1.Pod) { p.Spec.ServiceAccountName = "default" },
		"owner":      func(p *corev1.Pod) { p.OwnerReferences = nil },
		"controller": func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil },
		"daemonset":  func(p *corev1.Pod) { p.OwnerReferences[0].UID = "another-daemon-set" },
	}
	posers := map[string]corev1.Pod{}
	for lacks, change := range all {
		pod := newAgent(node, corev1.ConditionTrue, InstallerContainer, GuardContainer, "istio-proxy")
		pod.Name, pod.Spec.HostNetwork = "poser-without-"+lacks, false
		pod.Annotations = map[string]string{"sidecar.istio.io/status": "{}"}
		pod.Spec.InitContainers = []corev1.Container{{Name: "istio-init"}} // so that the command list names the pod
		change(&pod)
		posers[lacks] = pod
	}
	return posers
}

// TestPosersAreListed expects pods that only look like agents to count as pods of the mesh, not as the
// agent of their node.
func TestPosersAreListed(t *testing.T) {
	t.Parallel()
	s, a := &apiServer{}, &agents{}
	for _, poser := range posers("node-1") {
		s.pods = append(s.pods, poser)
	}
	another := posers("node-1")["daemonset"]
	another.Name, another.Annotations = "agent-of-another-release", nil // it is outside the mesh
	meshed := len(s.pods)
	s.pods = append(s.pods, another)
	s.leases = append(s.leases, newLease("node-1", 0, good(&report.Pods{})))
	f, err := Read(t.Context(), s.start(t), DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Nodes) != 1 || f.Nodes[0].State != NoAgent || f.Nodes[0].Meshed != meshed || f.Good() {
		t.Errorf("nodes: %+v", f.Nodes)
	}
	for _, poser := range s.pods[:meshed] {
		if !slices.ContainsFunc(f.Pods, func(p Pod) bool { return p.Name == poser.Name }) {
			t.Errorf("%s is not listed: %+v", poser.Name, f.Pods)
		}
	}
	if files, err := reported(t, s, a); err != nil || len(a.asked) != 0 || !strings.Contains(files["missing.txt"], "no agent runs") {
		t.Errorf("the report asked %q: %q, %v", a.asked, files, err)
	}
}

// TestAgentOfRelease expects the pods of each of a release's DaemonSets to count as agents, and Read to
// send requests only for the release's namespace.
func TestAgentOfRelease(t *testing.T) {
	t.Parallel()
	second := daemonSet
	second.UID = "second"
	r := release{DefaultNamespace, map[types.UID]*appsv1.DaemonSet{daemonSet.UID: &daemonSet, second.UID: &second}}
	pod := newAgent("node-1", corev1.ConditionTrue, InstallerContainer)
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&second, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
	if agent := asAgent(&pod); agent == nil || !r.owns(agent) || agent.name != "agent-of-node-1" || agent.node != "node-1" || agent.fault != nil || agent.guarded {
		t.Errorf("%+v", agent)
	}
	s := &apiServer{}
	f, err := Read(t.Context(), s.start(t), "mesh")
	if err != nil || f.Namespace != "mesh" {
		t.Fatalf("%+v, %v", f, err)
	}
	want := []string{"GET /apis/apps/v1/namespaces/mesh/daemonsets", "GET /apis/coordination.k8s.io/v1/namespaces/mesh/leases", "GET /api/v1/pods", "GET /api/v1/nodes"}
	if !slices.Equal(s.asked, want) {
		t.Errorf("asked for %q, want %q", s.asked, want)
	}
}
