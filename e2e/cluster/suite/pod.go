// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"encoding/json"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// NewPod returns a pod that a restricted namespace admits; args are its
// application's. The scheduler chooses the node where node is empty.
func NewPod(name, node string, args ...string) *corev1.Pod {
	grace, yes, no, uid := int64(1), true, false, int64(1000)
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &no,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: &yes, RunAsUser: &uid, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "app", Image: cluster.AppImage, ImagePullPolicy: corev1.PullNever, Args: args,
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}
}

// Server returns a pod that serves TCP on port 8080.
func Server(name, node string) *corev1.Pod { return NewPod(name, node, "serve", "tcp", ":8080") }

// Unmeshed excludes a pod from the mesh, and returns it.
func Unmeshed(pod *corev1.Pod) *corev1.Pod {
	pod.Labels["sidecar.istio.io/inject"] = "false"
	return pod
}

// DualStack has both IP families of a pod captured, and returns the pod: no Event warns
// about it.
func DualStack(pod *corev1.Pod) *corev1.Pod {
	pod.Annotations["proxy.istio.io/config"] = `proxyMetadata: {ISTIO_DUAL_STACK: "true"}`
	return pod
}

// JSON returns a manifest of an object.
func JSON(t *testing.T, object any) string {
	t.Helper()
	text, err := json.Marshal(object)
	lab.Check(t, err)
	return string(text)
}

const staticManifest = "/etc/kubernetes/manifests/static.json"

// WriteStaticPod gives a node's kubelet a static pod, until the test ends. The
// kubelet appends the node's name to the pod's.
func WriteStaticPod(t *testing.T, node *cluster.Node, namespace, name string) {
	t.Helper()
	pod := Server(name, "")
	pod.Namespace = namespace
	path := node.Path(staticManifest)
	t.Cleanup(func() { _ = os.Remove(path) })
	lab.Check(t, os.WriteFile(path, []byte(JSON(t, pod)), 0o600))
}

// RemoveStaticPod takes it away again.
func RemoveStaticPod(t *testing.T, node *cluster.Node) {
	t.Helper()
	lab.Check(t, os.Remove(node.Path(staticManifest)))
}
