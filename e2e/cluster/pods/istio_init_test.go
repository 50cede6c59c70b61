// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestIstioInitReplaced has an injector that adds istio-init. Pod Security refuses
// such pods. With the policy, which removes istio-init, they start captured.
func TestIstioInitReplaced(t *testing.T) {
	c.InstallChart(t, "admission.istioInit.enabled=true")
	n := c.NewNamespace(t, suite.Restricted, cluster.InjectedWithInit)
	web := suite.Server("web", c.Nodes[0].Name)
	if err := n.TryCreate(t.Context(), web); err == nil || !strings.Contains(err.Error(), `violates PodSecurity "restricted`) {
		t.Fatalf("a pod with istio-init: %v", err)
	}
	n.Kubectl(t, "", "label", "namespace", n.Name, "capture-cni.io/admission=enforce")
	lab.Eventually(t, func() error { return n.TryCreate(t.Context(), web) })
	n.WaitReady(t, web)
	expectNoCapability(t, n, "web")
	n.ExpectCaptured(t, "web")
}

// TestIstioInitValidates has the policy replace istio-init by validation. A pod is
// ready only after its init containers have succeeded.
func TestIstioInitValidates(t *testing.T) {
	c.InstallChart(t, "admission.istioInit.enabled=true", "admission.istioInit.replaceBy=validate", "admission.identity.enabled=true")
	n := c.NewNamespace(t, suite.Restricted, cluster.InjectedWithInit)
	n.Kubectl(t, "", "label", "namespace", n.Name, "capture-cni.io/admission=enforce")
	web := suite.Server("web", c.Nodes[0].Name)
	web.Spec.SecurityContext.RunAsGroup = web.Spec.SecurityContext.RunAsUser // the policy identity requires it
	// The API server may still have the last test's policy in effect.
	lab.Eventually(t, func() error {
		out, err := c.Kubectl(t.Context(), suite.JSON(t, web), "--namespace", n.Name, "create", "--dry-run=server", "--filename=-", "-o", "json")
		if err == nil && !strings.Contains(out, "capture-cni-validate") {
			err = fmt.Errorf("the pod has no capture-cni-validate: %s", out)
		}
		return err
	})
	n.Create(t, web)
	n.WaitReady(t, web)
	n.ExpectCaptured(t, "web")
	var names []string
	for _, container := range n.Get(t, "web").Spec.InitContainers {
		names = append(names, container.Name)
	}
	if want := []string{"capture-cni-validate", "istio-validation", "istio-proxy"}; !slices.Equal(names, want) {
		t.Errorf("the init containers are %q, want %q", names, want)
	}
	for container, want := range map[string]string{"capture-cni-validate": "outbound IPv4: captured", "istio-validation": "inbound IPv4: captured"} {
		if said := n.Kubectl(t, "", "logs", "web", "--container", container); !strings.Contains(said, want) {
			t.Errorf("%s prints %q, want %q in it", container, said, want)
		}
	}
}

// TestIstioInitListed runs the guide's command that lists what a migration from
// istio-init has left to restart.
func TestIstioInitListed(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../../deploy/guides/migrate-istio-init.md")
	lab.Check(t, err)
	const list = "kubectl get pods -A -o go-template="
	before, after := c.NewNamespace(t, cluster.InjectedWithInit), c.NewNamespace(t, cluster.Injected)
	for _, n := range []suite.Namespace{before, after} {
		pod := suite.Server("web", "")
		pod.Spec.SchedulerName = "none" // it is not to run
		pod.Spec.InitContainers = []corev1.Container{pod.Spec.Containers[0]}
		pod.Spec.InitContainers[0].Name = "migrate"
		n.Create(t, pod)
	}
	command := exec.CommandContext(t.Context(), "sh", "-c", suite.LineWith(string(guide), list))
	command.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "PATH="+filepath.Join(c.Dir, "bin")+":"+os.Getenv("PATH"))
	out, err := command.Output()
	lab.Check(t, err)
	if got := strings.Fields(string(out)); !slices.Contains(got, before.Name+"/web") || slices.Contains(got, after.Name+"/web") {
		t.Errorf("the command lists %q, want %s/web and not %s/web", got, before.Name, after.Name)
	}
}
