// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// attempt is an injected pod that its author changed, in a namespace with a single
// policy.
type attempt struct {
	name, policy string
	change       func(*corev1.Pod)
	refused      string // part of the policy's message; "" where the pod is allowed
	invalid      string // part of the API server's own error, "" for none
}

// proxyArgs appends arguments to the proxy's.
func proxyArgs(more ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { proxy(p).Args = append(proxy(p).Args, more...) }
}

// injectedPod returns a new pod as istiod injects it.
func injectedPod(t *testing.T) *corev1.Pod {
	t.Helper()
	content, err := os.ReadFile("testdata/injected.yaml")
	lab.Check(t, err)
	var pod corev1.Pod
	lab.Check(t, yaml.UnmarshalStrict(content, &pod))
	return &pod
}

func validation(p *corev1.Pod) *corev1.Container { return &p.Spec.InitContainers[0] }
func proxy(p *corev1.Pod) *corev1.Container      { return &p.Spec.InitContainers[1] }
func app(p *corev1.Pod) *corev1.Container        { return &p.Spec.Containers[0] }

// namespaceAlone returns the namespace with this policy alone, and no injector.
func namespaceAlone(policy string) string { return "admission-only-" + policy }

const (
	policiesAlone    = "capabilities changes fence identity proxy proxy-image settings"
	namespaceOutside = "admission-outside" // no policy and no injector
)

const bindingAlone = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: test-only-%[1]s}
spec:
  policyName: capture-cni-%[1]s
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {capture-cni.io/admission: only-%[1]s}}}
`

// separatePolicies creates a namespace for each policy, so that only this one can
// refuse a pod.
func separatePolicies(t *testing.T) {
	t.Helper()
	for policy := range strings.FieldsSeq(policiesAlone) {
		binding := write(t, fmt.Sprintf(bindingAlone, policy))
		c.MustKubectl(t, "apply", "-f", binding)
		t.Cleanup(func() { c.MustKubectl(t, "delete", "-f", binding) })
		newNamespace(t, namespaceAlone(policy), "capture-cni.io/admission=only-"+policy)
	}
	newNamespace(t, namespaceOutside)
}

// pod returns the pod that the author creates.
func (a attempt) pod(t *testing.T) *corev1.Pod {
	t.Helper()
	pod := injectedPod(t)
	if a.change != nil {
		a.change(pod)
	}
	return pod
}

// try creates the pod as a dry run.
func (a attempt) try(t *testing.T) error {
	t.Helper()
	_, err := kubectl(t, "create", "-n", namespaceAlone(a.policy), "--dry-run=server", "-f", write(t, suite.JSON(t, a.pod(t))))
	if a.invalid != "" && (err == nil || !strings.Contains(err.Error(), a.invalid)) {
		return fmt.Errorf("got %w, want the API server to say %q", err, a.invalid)
	}
	if a.invalid != "" {
		return nil
	}
	if a.refused == "" {
		return verdict{}.check(err)
	}
	return verdict{a.policy, a.refused}.check(err)
}

// testAttempts tries all of them once the policies are in effect. Outside the mesh
// the same pods are allowed.
func testAttempts(t *testing.T, attempts []attempt) {
	t.Helper()
	waited := map[string]bool{}
	outside := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}}
	for i, a := range attempts {
		if a.refused != "" && !waited[a.policy] {
			waitForPolicy(t, func() error { return a.try(t) })
			waited[a.policy] = true
		}
		if a.invalid == "" {
			pod := a.pod(t)
			pod.Name = fmt.Sprintf("web-%d", i)
			outside.Items = append(outside.Items, *pod)
		}
	}
	for _, a := range attempts {
		t.Run(a.policy+" "+a.name, func(t *testing.T) {
			if err := a.try(t); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("outside the mesh", func(t *testing.T) {
		c.MustKubectl(t, "create", "-n", namespaceOutside, "--dry-run=server", "-f", write(t, suite.JSON(t, outside)))
	})
}
