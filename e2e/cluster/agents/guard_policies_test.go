// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// TestGuardEvicts has early pods evicted instead of repaired. A pod with a
// controller is recreated, captured. One without a controller stays, as does one
// that a PodDisruptionBudget protects.
func TestGuardEvicts(t *testing.T) {
	c.UninstallChart(t)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	node := c.Nodes[0].Name
	n.Kubectl(t, deployment(t, suite.Server("owned", node)), "apply", "--filename=-")
	n.Kubectl(t, deployment(t, suite.Server("protected", node)), "apply", "--filename=-")
	n.Kubectl(t, "", "create", "poddisruptionbudget", "protected", "--selector=app=protected", "--min-available=1")
	n.Run(t, suite.Server("alone", node))
	n.Kubectl(t, "", "rollout", "status", "deployment/owned", suite.KubectlTimeout)
	n.Kubectl(t, "", "rollout", "status", "deployment/protected", suite.KubectlTimeout)
	owned, protected := podOf(t, n, "owned"), podOf(t, n, "protected")
	c.InstallChart(t, append(slices.Clone(frequentRounds), "guard.policy=evict")...)
	lab.Eventually(t, func() error {
		for _, pod := range podsOf(t, n, "owned") {
			if pod != owned {
				found, err := n.TryGet(t.Context(), pod)
				if err != nil {
					return err
				}
				return n.CheckCaptured(t.Context(), found)
			}
		}
		return fmt.Errorf("%s is still there", owned)
	})
	for _, pod := range []string{protected, "alone"} {
		waitForEvent(t, n, pod, "CaptureMissing", "the pod is not captured")
		if rules := n.Rules(t, pod); rules.Backend != "" {
			t.Errorf("%s has the rules %+v", pod, rules)
		}
	}
	waitForEvent(t, n, "alone", "CaptureMissing", "it has no controller that would replace it")
	if now := podOf(t, n, "protected"); now != protected {
		t.Errorf("%s was evicted, in spite of the PodDisruptionBudget", protected)
	}
	expectOtherNodesDenied(t, n)
}

// expectOtherNodesDenied sends the first node's agent a request to evict a pod of
// the second node, which the API server would allow.
func expectOtherNodesDenied(t *testing.T, n suite.Namespace) {
	t.Helper()
	n.Kubectl(t, deployment(t, suite.Server("elsewhere", c.Nodes[1].Name)), "apply", "--filename=-")
	n.Kubectl(t, "", "rollout", "status", "deployment/elsewhere", suite.KubectlTimeout)
	name := podOf(t, n, "elsewhere")
	request := record.Record{Verdict: telemetry.EvictionRequested, Reason: telemetry.Uncaptured, Pod: capture.PodRef{
		Namespace: n.Name, Name: name, UID: n.Kubectl(t, "", "get", "pod", name, "-o", "jsonpath={.metadata.uid}"),
	}}
	agent := agentOn(t, c.Nodes[0])
	lab.Eventually(t, func() error {
		if !record.Send(c.Nodes[0].Path("/run/capture-cni/agent.sock"), request) {
			return fmt.Errorf("the agent does not listen")
		}
		if log := kubectl(t, "logs", agent, "--container=installer"); suite.LineWith(log, "not evicting the pod: the agent may not", "pod="+n.Name+"/"+name) == "" {
			return fmt.Errorf("the agent does not deny it: %s", log)
		}
		return nil
	})
	if now := podOf(t, n, "elsewhere"); now != name {
		t.Errorf("%s was evicted by the agent of another node", name)
	}
	if metrics := unpackReport(t, agent, "installer")["metrics.txt"]; suite.LineWith(metrics, `capture_cni_evictions_total{result="denied"}`) == "" {
		t.Errorf("the metrics are\n%s", metrics)
	}
}

// TestGuardKeepsOtherRules has pods that istio-cni captured, and pods that this
// plugin captured with another configuration: the guard reports them, and does not
// change them.
func TestGuardKeepsOtherRules(t *testing.T) {
	c.ReplaceByIstioCNI(t)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	before := map[string]netfilter.State{}
	for _, node := range c.Nodes {
		pod := "theirs-" + node.Name
		n.Run(t, suite.Server(pod, node.Name))
		if before[pod] = n.Rules(t, pod); before[pod].Foreign == "" {
			t.Fatalf("%s has the rules %+v", pod, before[pod])
		}
	}
	lab.Check(t, keepIstioCNI(t, crioNode(t), func() error { return c.UninstallIstioCNI(t.Context()) }))
	c.InstallChart(t, append(slices.Clone(frequentRounds), "netconf.mesh.inboundPort=15106")...)
	n.Run(t, suite.Server("older", c.Nodes[0].Name))
	theirs := slices.Collect(maps.Keys(before))
	before["older"] = n.Rules(t, "older")
	c.InstallChart(t, frequentRounds...)
	for _, pod := range theirs {
		waitForGuardLog(t, n, pod, "state=foreign")
	}
	waitForGuardLog(t, n, "older", "state=outdated")
	waitForEvent(t, n, "older", "CaptureNote", "a restart renews them")
	n.Run(t, suite.Server("ours", c.Nodes[0].Name)) // some rounds later
	n.ExpectCaptured(t, "ours")
	for pod, rules := range before {
		if after := n.Rules(t, pod); after != rules {
			t.Errorf("%s had the rules %+v and has %+v", pod, rules, after)
		}
	}
	for _, pod := range theirs {
		n.Kubectl(t, "", "delete", "pod", pod, suite.KubectlTimeout)
	}
}

// keepIstioCNI keeps istio-cni's program on a node of CRI-O, until the test ends, when
// istio-cni is uninstalled: CRI-O calls DEL by the list of the ADD, and a pod does not end
// while a program of that list is missing.
func keepIstioCNI(t *testing.T, node *cluster.Node, uninstall func() error) error {
	t.Helper()
	program := node.Path("/opt/cni/bin/istio-cni")
	t.Cleanup(func() { lab.Check(t, os.Remove(program)) })
	return errors.Join(os.Link(program, program+"-kept"), uninstall(), os.Rename(program+"-kept", program))
}

// TestGuardBeforeJob starts a Job with a back-off limit of 0 before any agent runs.
// Its first connection is captured: validation waits for the guard.
func TestGuardBeforeJob(t *testing.T) {
	settings := append(slices.Clone(frequentRounds), "admission.istioInit.enabled=true", "admission.istioInit.replaceBy=validate")
	c.InstallChart(t, settings...)
	// The policy stays. The agents start as soon as the node selector is removed, before validation gives up.
	wanted := c.Installed
	c.Installed = nil
	lab.Check(t, c.Install(t.Context(), append(slices.Clone(wanted), "state=absent", "force=true")...))
	lab.Check(t, c.Install(t.Context(), append(slices.Clone(wanted), "nodeSelector.nowhere=yes")...))
	n := c.NewNamespace(t, suite.Restricted, cluster.InjectedWithInit)
	n.Kubectl(t, "", "label", "namespace", n.Name, "capture-cni.io/admission=enforce")
	n.Run(t, suite.Unmeshed(suite.Server("target", c.Nodes[1].Name)))
	v4, _ := n.Addresses(t, "target")
	pod := suite.NewPod("once", c.Nodes[0].Name, "ask", "tcp", suite.Address(v4, 8080))
	pod.Annotations["sidecar.istio.io/nativeSidecar"] = "true"
	lab.Eventually(t, func() error { return n.TryCreate(t.Context(), suite.Server("probe", c.Nodes[0].Name)) }) // the policy is in effect
	n.Kubectl(t, job(t, pod), "apply", "--filename=-")
	lab.Eventually(t, func() error {
		status := n.Kubectl(t, "", "get", "pods", "--selector=job-name=once", "-o", "jsonpath={.items[*].status.initContainerStatuses[0].state.running}")
		if status == "" {
			return fmt.Errorf("validation does not run")
		}
		return nil
	})
	restoreAgents(t)
	c.Installed = wanted
	n.Kubectl(t, "", "wait", "--for=condition=complete", "job/once", suite.KubectlTimeout)
	if said := n.Kubectl(t, "", "logs", "job/once", "--container=app"); !strings.Contains(said, "/outbound") || strings.Count(said, "\n") != 2 {
		t.Errorf("the hops of its only connection are\n%s", said)
	}
	waitForEvent(t, n, podOf(t, n, "once"), "CaptureRepaired", "is captured now")
}

func template(pod *corev1.Pod) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec}
}

// deployment returns the manifest of a Deployment of one such pod.
func deployment(t *testing.T, pod *corev1.Pod) (manifest string) {
	t.Helper()
	return suite.JSON(t, appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}, Template: template(pod)},
	})
}

// job returns the manifest of a Job that runs such a pod once.
func job(t *testing.T, pod *corev1.Pod) (manifest string) {
	t.Helper()
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	return suite.JSON(t, batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
		Spec: batchv1.JobSpec{BackoffLimit: new(int32), Template: template(pod)},
	})
}

// podsOf returns the names of an application's pods.
func podsOf(t *testing.T, n suite.Namespace, app string) []string {
	t.Helper()
	return strings.Fields(n.Kubectl(t, "", "get", "pods", "--selector=app="+app, "-o", "jsonpath={.items[*].metadata.name}"))
}

// podOf returns the name of an application's only pod.
func podOf(t *testing.T, n suite.Namespace, app string) string {
	t.Helper()
	pods := podsOf(t, n, app)
	if len(pods) != 1 {
		t.Fatalf("the pods of %s are %q", app, pods)
	}
	return pods[0]
}
