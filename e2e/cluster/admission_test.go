// SPDX-License-Identifier: Apache-2.0

package cluster_test

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
)

// kubectl runs kubectl against the cluster. Its error holds what went to stderr.
type kubectl func(t *testing.T, args ...string) (stdout string, err error)

// Namespaces of the tests about admission. All are injected.
const (
	namespaceEnforced  = "admission-enforced" // all policies
	namespaceIstioInit = "admission-istio-init"
	namespaceFree      = "admission-free" // no policy
)

// TestAdmission tries the chart's policies, with an injector that gives pods
// istio-init.
func TestAdmission(t *testing.T) {
	install(t,
		"admission.istioInit.enabled=true", "admission.capabilities.enabled=true", "admission.identity.enabled=true",
		"admission.settings.enabled=true", "admission.changes.enabled=true",
		"admission.identity.proxyImages={local.test/proxy,"+strings.Split(cluster.AppImage, ":")[0]+"}")
	testAdmission(t, func(t *testing.T, args ...string) (string, error) {
		return c.Kubectl(context.WithoutCancel(t.Context()), "", args...)
	})
}

func testAdmission(t *testing.T, run kubectl) {
	run.addNamespace(t, namespaceEnforced, "enforce")
	run.addNamespace(t, namespaceIstioInit, "istio-init")
	run.addNamespace(t, namespaceFree, "none")
	run.must(t, "apply", "-f", "testdata/istio-init-binding.yaml")
	t.Cleanup(func() { run.must(t, "delete", "-f", "testdata/istio-init-binding.yaml") })

	t.Run("istio-init", func(t *testing.T) { testIstioInit(t, run) })
	t.Run("policies", func(t *testing.T) { testPolicies(t, run) })
	separatePolicies(t, run)
	t.Run("proxy", func(t *testing.T) { testAttempts(t, run, proxyAttempts) })
	t.Run("letters", func(t *testing.T) { testAttempts(t, run, letterAttempts) })
	t.Run("images", func(t *testing.T) { testImages(t, run) })
	t.Run("subresources", func(t *testing.T) { testSubresources(t, run) })
}

func (run kubectl) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := run(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (run kubectl) addNamespace(t *testing.T, name, admission string) {
	t.Helper()
	run.newNamespace(t, name, cluster.InjectedWithInit, "capture-cni.io/admission="+admission)
}

func (run kubectl) newNamespace(t *testing.T, name string, labels ...string) {
	t.Helper()
	run.must(t, "create", "namespace", name)
	t.Cleanup(func() { run.must(t, "delete", "namespace", name, "--wait=false") })
	if len(labels) > 0 {
		run.must(t, append([]string{"label", "namespace", name}, labels...)...)
	}
	run.must(t, "wait", "--for=create", patience, "-n", name, "serviceaccount/default")
}

// settle repeats a probe until it finds nothing: policies take effect some
// seconds after they were made.
func settle(t *testing.T, probe func() error) {
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

func testPolicies(t *testing.T, run kubectl) {
	cases := admissionCases(t, "admission")
	waited := map[string]bool{}
	for _, c := range cases {
		for _, policy := range []string{c.create.policy, c.then.policy} {
			if policy != "" && !waited[policy] {
				settle(t, func() error { return c.try(t, run) })
				waited[policy] = true
			}
		}
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if err := c.try(t, run); err != nil {
				t.Error(err)
			}
		})
	}
}

// try goes through the steps of a case. Only a pod that is to be changed is
// really created.
func (c admissionCase) try(t *testing.T, run kubectl) error {
	if c.second == "" {
		_, err := run(t, "create", "-n", namespaceEnforced, "--dry-run=server", "-f", c.file)
		return c.create.check(err)
	}
	file := write(t, c.pod)
	if _, err := run(t, "create", "-n", namespaceEnforced, "-f", file); err != nil {
		return c.create.check(err)
	}
	defer run.must(t, "delete", "-n", namespaceEnforced, "--now", "-f", file)
	return c.then.check(c.apply(t, run, file))
}

// apply tries the second step on the pod that the first one made.
func (c admissionCase) apply(t *testing.T, run kubectl, file string) error {
	switch c.second {
	case "ephemeral":
		return c.addEphemeral(t, run, file)
	case "binding":
		pod := getPod(t, run.must(t, "get", "-n", namespaceEnforced, "-f", file, "-o", "json"))
		binding, err := yaml.YAMLToJSON([]byte(c.change))
		if err != nil {
			t.Fatal(err)
		}
		_, err = run(t, "create", "-f", write(t, string(binding)), "--raw", rawPath(pod, "binding"))
		return err
	}
	args := []string{"patch", "-n", namespaceEnforced, "-f", file, "--dry-run=server", "--patch-file", write(t, c.change)}
	if c.second == "status" {
		args = append(args, "--subresource=status")
	}
	_, err := run(t, args...)
	return err
}

// addEphemeral does what kubectl debug does, which can't be told to add a
// given container.
func (c admissionCase) addEphemeral(t *testing.T, run kubectl, file string) error {
	pod := getPod(t, run.must(t, "get", "-n", namespaceEnforced, "-f", file, "-o", "json"))
	var change corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(c.change), &change); err != nil {
		t.Fatal(err)
	}
	pod.Spec.EphemeralContainers = change.Spec.EphemeralContainers
	content, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	_, err = run(t, "replace", "-f", write(t, string(content)), "--raw", rawPath(pod, "ephemeralcontainers"))
	return err
}

// rawPath is where a pod's subresource is tried.
func rawPath(pod *corev1.Pod, subresource string) string {
	return fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/%s?dryRun=All", pod.Namespace, pod.Name, subresource)
}

// testIstioInit compares what the injector makes of a pod with and without
// the policy: istio-init is the one difference.
func testIstioInit(t *testing.T, run kubectl) {
	cases := admissionCases(t, "istio-init")
	settle(t, func() error {
		if got := create(t, run, namespaceIstioInit, cases[0]); hasIstioInit(got) {
			return fmt.Errorf("%s has istio-init", cases[0].name)
		}
		return nil
	})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			want, got := create(t, run, namespaceFree, c), create(t, run, namespaceIstioInit, c)
			if !hasIstioInit(want) {
				t.Fatal("without the policy, istio-init is not there")
			}
			if c.istioInit == "removed" {
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

// create gives the pod as the API server would store it.
func create(t *testing.T, run kubectl, namespace string, c admissionCase) *corev1.Pod {
	t.Helper()
	return getPod(t, run.must(t, "create", "-n", namespace, "--dry-run=server", "-o", "json", "-f", c.file))
}

func getPod(t *testing.T, text string) *corev1.Pod {
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

// write returns the name of a file without a comma, which kubectl would split.
func write(t *testing.T, content string) string {
	t.Helper()
	file, err := os.CreateTemp("", "admission-*")
	check(t, err)
	t.Cleanup(func() { _ = os.Remove(file.Name()) })
	_, err = file.WriteString(content)
	check(t, errors.Join(err, file.Close()))
	return file.Name()
}
