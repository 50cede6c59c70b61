// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/guides"
)

// TestGuides installs, debugs, upgrades, rolls back and removes by the commands of the
// guides, with a workload in the mesh.
func TestGuides(t *testing.T) {
	c.UninstallChart(t)
	c.MustKubectl(t, "delete", "namespace", cluster.Namespace, "--ignore-not-found")
	c.MustKubectl(t, "delete", "--ignore-not-found", "clusterrole/capture-cni", "clusterrolebinding/capture-cni")
	t.Cleanup(func() { c.Installed = nil })
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	deploy(t, n, suite.Server("web", ""))
	operator := c.NewOperator(t)
	operator.Write(t, "pools.yaml", "pools: [{name: out, nodeSelector: {capture-cni.io/state: absent}, state: absent}]")
	for _, run := range guides.Of("e2e/cluster/pods.TestGuides") {
		if run.Guide == "guides/remove.md" { // which wants the workloads out of the mesh
			n.Kubectl(t, "", "delete", "deployment/web", "--ignore-not-found", "--cascade=foreground")
		}
		operator.Follow(t, run, words(t, n))
	}
}

// deploy creates a Deployment of one pod.
func deploy(t *testing.T, n suite.Namespace, pod *corev1.Pod) {
	t.Helper()
	n.Kubectl(t, suite.JSON(t, appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: pod.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
		},
	}), "create", "--filename=-")
}

// words returns what the guides' words stand for: the workload's newest pod, its node, and
// that node's agent if there is one.
func words(t *testing.T, n suite.Namespace) map[string]string {
	t.Helper()
	values := map[string]string{"NAMESPACE": n.Name, "EARLIER-CHART": "deploy/chart"}
	newest := strings.Fields(n.Kubectl(t, "", "get", "pods", "--sort-by=.metadata.creationTimestamp", "-o", `jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName}{"\n"}{end}`))
	if len(newest) < 2 {
		return values
	}
	values["POD"], values["NODE"] = newest[len(newest)-2], newest[len(newest)-1]
	values["AGENT"] = strings.TrimSpace(c.MustKubectl(t, "--namespace", cluster.Namespace, "get", "pods", "--field-selector=spec.nodeName="+values["NODE"], "-o", "jsonpath={.items[*].metadata.name}"))
	return values
}
