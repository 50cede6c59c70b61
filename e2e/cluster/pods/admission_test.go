// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// Namespaces of the tests about admission. All are injected.
const (
	namespaceEnforced  = "admission-enforced" // all policies
	namespaceIstioInit = "admission-istio-init"
	namespaceFree      = "admission-free" // no policy
)

// TestAdmission tests the chart's policies, with an injector that adds istio-init.
func TestAdmission(t *testing.T) {
	// Kubernetes before 1.36 has no such policy in v1: no istio-init is removed there.
	injection := cluster.Injected
	mutates := strings.Contains(c.MustKubectl(t, "api-resources", "--api-group=admissionregistration.k8s.io", "--output=name"), "mutatingadmissionpolicies")
	if mutates {
		injection = cluster.InjectedWithInit
	}
	c.InstallChart(t,
		fmt.Sprintf("admission.istioInit.enabled=%v", mutates), "admission.capabilities.enabled=true", "admission.identity.enabled=true",
		"admission.settings.enabled=true", "admission.changes.enabled=true", "admission.fence.enabled=true",
		"admission.fence.exceptions={"+allowedException+"}",
		"admission.identity.proxyImages={local.test/proxy,"+strings.Split(cluster.AppImage, ":")[0]+"}")
	for name, admission := range map[string]string{namespaceEnforced: "enforce", namespaceIstioInit: "istio-init", namespaceFree: "none"} {
		newNamespace(t, name, injection, "capture-cni.io/admission="+admission)
	}
	if mutates {
		c.MustKubectl(t, "apply", "-f", "testdata/istio-init-binding.yaml")
		t.Cleanup(func() { c.MustKubectl(t, "delete", "-f", "testdata/istio-init-binding.yaml") })
		t.Run("istio-init", testIstioInit)
	}
	t.Run("policies", testPolicies)
	separatePolicies(t)
	t.Run("proxy", func(t *testing.T) { testAttempts(t, proxyAttempts) })
	t.Run("letters", func(t *testing.T) { testAttempts(t, letterAttempts) })
	t.Run("lists", func(t *testing.T) { testAttempts(t, listAttempts()) })
	t.Run("lists of the chart", testLists)
	t.Run("final", testFinal)
	t.Run("fence", func(t *testing.T) { testFence(t, mutates) })
	t.Run("images", testImages)
	t.Run("subresources", testSubresources)
}

// kubectl runs kubectl, in cleanups too. Its error contains stderr.
func kubectl(t *testing.T, args ...string) (stdout string, err error) {
	return c.Kubectl(context.WithoutCancel(t.Context()), "", args...)
}

func newNamespace(t *testing.T, name string, labels ...string) {
	t.Helper()
	c.MustKubectl(t, "wait", "--for=delete", suite.KubectlTimeout, "namespace", name) // another test's
	c.MustKubectl(t, "create", "namespace", name)
	t.Cleanup(func() { c.MustKubectl(t, "delete", "namespace", name, "--wait=false") })
	if len(labels) > 0 {
		c.MustKubectl(t, append([]string{"label", "namespace", name}, labels...)...)
	}
	c.MustKubectl(t, "wait", "--for=create", suite.KubectlTimeout, "-n", name, "serviceaccount/default")
}

// waitForPolicy repeats a probe until it returns no error: policies take effect
// some seconds after their creation.
func waitForPolicy(t *testing.T, probe func() error) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		err := probe()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not in effect: %v", err)
		}
	}
}

func testPolicies(t *testing.T) {
	cases := admissionCases(t, "admission")
	waited := map[string]bool{}
	for _, ac := range cases {
		for _, policy := range []string{ac.create.policy, ac.then.policy} {
			if policy != "" && !waited[policy] {
				waitForPolicy(t, func() error { return ac.try(t) })
				waited[policy] = true
			}
		}
	}
	for _, ac := range cases {
		t.Run(ac.name, func(t *testing.T) {
			if err := ac.try(t); err != nil {
				t.Error(err)
			}
		})
	}
}

// try runs the steps of a case. Without a second step, the pod is created as a dry
// run.
func (ac admissionCase) try(t *testing.T) error {
	if ac.second == "" {
		_, err := kubectl(t, "create", "-n", namespaceEnforced, "--dry-run=server", "-f", ac.file)
		return ac.create.check(err)
	}
	file := write(t, ac.pod)
	if _, err := kubectl(t, "create", "-n", namespaceEnforced, "-f", file); err != nil {
		return ac.create.check(err)
	}
	defer c.MustKubectl(t, "delete", "-n", namespaceEnforced, "--now", "-f", file)
	return ac.then.check(ac.apply(t, file))
}

// apply tries the second step on the pod of the first one.
func (ac admissionCase) apply(t *testing.T, file string) error {
	switch ac.second {
	case "ephemeral":
		return ac.addEphemeral(t, file)
	case "binding":
		pod := parsePod(t, c.MustKubectl(t, "get", "-n", namespaceEnforced, "-f", file, "-o", "json"))
		binding, err := yaml.YAMLToJSON([]byte(ac.change))
		if err != nil {
			t.Fatal(err)
		}
		_, err = kubectl(t, "create", "-f", write(t, string(binding)), "--raw", rawPath(pod, "binding"))
		return err
	}
	args := []string{"patch", "-n", namespaceEnforced, "-f", file, "--dry-run=server", "--patch-file", write(t, ac.change)}
	if ac.second == "status" {
		args = append(args, "--subresource=status")
	}
	_, err := kubectl(t, args...)
	return err
}

// addEphemeral adds a given container, which kubectl debug can't.
func (ac admissionCase) addEphemeral(t *testing.T, file string) error {
	pod := parsePod(t, c.MustKubectl(t, "get", "-n", namespaceEnforced, "-f", file, "-o", "json"))
	var change corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(ac.change), &change); err != nil {
		t.Fatal(err)
	}
	pod.Spec.EphemeralContainers = change.Spec.EphemeralContainers
	content, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	_, err = kubectl(t, "replace", "-f", write(t, string(content)), "--raw", rawPath(pod, "ephemeralcontainers"))
	return err
}

// rawPath returns the path of a pod's subresource, as a dry run.
func rawPath(pod *corev1.Pod, subresource string) string {
	return fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/%s?dryRun=All", pod.Namespace, pod.Name, subresource)
}

// testIstioInit compares injected pods with and without the policy: istio-init is
// the only difference.
func testIstioInit(t *testing.T) {
	cases := admissionCases(t, "istio-init")
	waitForPolicy(t, func() error {
		if got := create(t, namespaceIstioInit, cases[0]); hasIstioInit(got) {
			return fmt.Errorf("%s has istio-init", cases[0].name)
		}
		return nil
	})
	for _, ac := range cases {
		t.Run(ac.name, func(t *testing.T) {
			want, got := create(t, namespaceFree, ac), create(t, namespaceIstioInit, ac)
			if !hasIstioInit(want) {
				t.Fatal("without the policy, istio-init is not there")
			}
			if ac.istioInit == "removed" {
				want.Spec.InitContainers = slices.DeleteFunc(want.Spec.InitContainers, isIstioInit)
			}
			if diff := cmp.Diff(want.Spec.InitContainers, got.Spec.InitContainers, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("init containers (-want +got):\n%s", diff)
			}
			want.Spec.InitContainers, got.Spec.InitContainers = nil, nil
			if diff := cmp.Diff(want.Spec, got.Spec); diff != "" {
				t.Errorf("the rest of the pod (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want.Annotations, got.Annotations); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
		})
	}
}

// create returns the pod as the API server would store it.
func create(t *testing.T, namespace string, ac admissionCase) *corev1.Pod {
	t.Helper()
	return parsePod(t, c.MustKubectl(t, "create", "-n", namespace, "--dry-run=server", "-o", "json", "-f", ac.file))
}

func parsePod(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	var pod corev1.Pod
	if err := json.Unmarshal([]byte(text), &pod); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return &pod
}

func isIstioInit(c corev1.Container) bool { return c.Name == "istio-init" }

func hasIstioInit(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, isIstioInit)
}

// write writes a file whose name has no comma: kubectl splits names at commas.
func write(t *testing.T, content string) string {
	t.Helper()
	file, err := os.CreateTemp("", "admission-*")
	lab.Check(t, err)
	t.Cleanup(func() { _ = os.Remove(file.Name()) })
	_, err = file.WriteString(content)
	lab.Check(t, errors.Join(err, file.Close()))
	return file.Name()
}
