// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// TestGuardEvicts has early pods evicted instead of repaired: one that somebody
// makes anew comes back captured. One that nobody would make anew stays, as does
// one that a PodDisruptionBudget protects.
func TestGuardEvicts(t *testing.T) {
	uninstall(t)
	s := newSpace(t, restricted, cluster.Injected)
	node := c.Nodes[0].Name
	s.kubectl(t, deployment(t, server("owned", node)), "apply", "--filename=-")
	s.kubectl(t, deployment(t, server("protected", node)), "apply", "--filename=-")
	s.kubectl(t, "", "create", "poddisruptionbudget", "protected", "--selector=app=protected", "--min-available=1")
	s.run(t, server("alone", node))
	s.kubectl(t, "", "rollout", "status", "deployment/owned", patience)
	s.kubectl(t, "", "rollout", "status", "deployment/protected", patience)
	owned, protected := s.only(t, "owned"), s.only(t, "protected")
	install(t, append(slices.Clone(attentive), "guard.policy=evict")...)
	eventually(t, func() error {
		for _, pod := range s.of(t, "owned") {
			if pod != owned {
				if rules, err := s.sandbox(t.Context(), pod); err != nil || rulesOf(t, rules).Backend == "" {
					return fmt.Errorf("%s is not captured (%v)", pod, err)
				}
				return nil
			}
		}
		return fmt.Errorf("%s is still there", owned)
	})
	for _, pod := range []string{protected, "alone"} {
		s.eventSays(t, pod, "CaptureMissing", "not captured as it should be")
		if rules := s.rules(t, pod); rules.Backend != "" {
			t.Errorf("%s holds %+v", pod, rules)
		}
	}
	s.eventSays(t, "alone", "CaptureMissing", "nobody would make it anew")
	if now := s.only(t, "protected"); now != protected {
		t.Errorf("%s has gone, in spite of the PodDisruptionBudget", protected)
	}
	s.deniesOtherNodes(t)
}

// deniesOtherNodes has a record ask the first node's agent for a pod of the
// second one, which the API server would let it evict.
func (s space) deniesOtherNodes(t *testing.T) {
	t.Helper()
	s.kubectl(t, deployment(t, server("elsewhere", c.Nodes[1].Name)), "apply", "--filename=-")
	s.kubectl(t, "", "rollout", "status", "deployment/elsewhere", patience)
	name := s.only(t, "elsewhere")
	asked := record.Record{Verdict: record.Doomed, Reason: record.Uncaptured, Pod: record.PodRef{
		Namespace: s.name, Name: name, UID: s.kubectl(t, "", "get", "pod", name, "-o", "jsonpath={.metadata.uid}"),
	}}
	agent := agentOn(t, c.Nodes[0])
	eventually(t, func() error {
		if !record.Send(c.Nodes[0].Path("/run/capture-cni/agent.sock"), asked) {
			return fmt.Errorf("the agent does not listen")
		}
		if log := agents(t, "logs", agent, "--container=installer"); lineWith(log, "the agent does not evict the pod", "pod="+s.name+"/"+name) == "" {
			return fmt.Errorf("the agent does not deny it: %s", log)
		}
		return nil
	})
	if now := s.only(t, "elsewhere"); now != name {
		t.Errorf("%s was evicted by the agent of another node", name)
	}
	if metrics := unpack(t, agent, "installer")["metrics.txt"]; lineWith(metrics, `capture_cni_evictions_total{result="denied"}`) == "" {
		t.Errorf("the metrics are\n%s", metrics)
	}
}

// TestGuardLeavesOthers has pods that istio-cni captured, and pods that we
// captured for another configuration: they are told of, and stay as they are.
func TestGuardLeavesOthers(t *testing.T) {
	withIstioCNI(t)
	s := newSpace(t, restricted, cluster.Injected)
	s.run(t, server("theirs", c.Nodes[0].Name), server("theirs-too", c.Nodes[1].Name))
	theirs, theirsToo := s.rules(t, "theirs"), s.rules(t, "theirs-too")
	if theirs.Foreign == "" || theirsToo.Foreign == "" {
		t.Fatalf("they hold %+v and %+v", theirs, theirsToo)
	}
	check(t, c.StopIstioCNI())
	install(t, append(slices.Clone(attentive), "netconf.mesh.inboundPort=15106")...)
	s.run(t, server("older", c.Nodes[0].Name))
	older := s.rules(t, "older")
	install(t, attentive...)
	s.guardSays(t, "theirs", "state=foreign")
	s.guardSays(t, "theirs-too", "state=foreign")
	s.guardSays(t, "older", "state=outdated")
	s.eventSays(t, "older", "CaptureWarning", "a restart renews them")
	s.run(t, server("ours", c.Nodes[0].Name)) // some rounds later
	s.isCaptured(t, "ours")
	for pod, before := range map[string]any{"theirs": theirs, "theirs-too": theirsToo, "older": older} {
		if after := s.rules(t, pod); after != before {
			t.Errorf("%s held %+v and holds %+v", pod, before, after)
		}
	}
}

// TestGuardBeforeJob starts a Job that may not fail once, where nothing is
// installed yet. Its first connection is captured all the same: validation waits
// for the guard.
func TestGuardBeforeJob(t *testing.T) {
	settings := append(slices.Clone(attentive), "admission.istioInit.enabled=true", "admission.istioInit.replaceBy=validate")
	install(t, settings...)
	// The policy stays, and agents come as soon as they are wanted: validation does not wait for long.
	wanted := installed
	installed = nil
	check(t, c.Install(t.Context(), append(slices.Clone(wanted), "state=absent", "force=true")...))
	check(t, c.Install(t.Context(), append(slices.Clone(wanted), "nodeSelector.nowhere=yes")...))
	s := newSpace(t, restricted, cluster.InjectedWithInit)
	s.kubectl(t, "", "label", "namespace", s.name, "capture-cni.io/admission=enforce")
	s.run(t, unmeshed(server("target", c.Nodes[1].Name)))
	v4, _ := s.addresses(t, "target")
	pod := newPod("once", c.Nodes[0].Name, "ask", "tcp", address(v4, 8080))
	pod.Annotations["sidecar.istio.io/nativeSidecar"] = "true"
	eventually(t, func() error { return s.tryCreate(t.Context(), server("probe", c.Nodes[0].Name)) }) // the policy holds
	s.kubectl(t, job(t, pod), "apply", "--filename=-")
	eventually(t, func() error {
		status := s.kubectl(t, "", "get", "pods", "--selector=job-name=once", "-o", "jsonpath={.items[*].status.initContainerStatuses[0].state.running}")
		if status == "" {
			return fmt.Errorf("validation does not run")
		}
		return nil
	})
	bringAgents(t)
	installed = wanted
	s.kubectl(t, "", "wait", "--for=condition=complete", "job/once", patience)
	if said := s.kubectl(t, "", "logs", "job/once", "--container=app"); !strings.Contains(said, "/outbound") || strings.Count(said, "\n") != 2 {
		t.Errorf("on the way of its only connection were\n%s", said)
	}
	s.eventSays(t, s.only(t, "once"), "CaptureRepaired", "is captured now")
}

func template(pod *corev1.Pod) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec}
}

// deployment keeps one such pod.
func deployment(t *testing.T, pod *corev1.Pod) (manifest string) {
	t.Helper()
	return encoded(t, appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}, Template: template(pod)},
	})
}

// job runs such a pod once.
func job(t *testing.T, pod *corev1.Pod) (manifest string) {
	t.Helper()
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	return encoded(t, batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
		Spec: batchv1.JobSpec{BackoffLimit: new(int32), Template: template(pod)},
	})
}

func encoded(t *testing.T, object any) string {
	t.Helper()
	text, err := json.Marshal(object)
	check(t, err)
	return string(text)
}

// of names the pods of an application.
func (s space) of(t *testing.T, app string) []string {
	t.Helper()
	return strings.Fields(s.kubectl(t, "", "get", "pods", "--selector=app="+app, "-o", "jsonpath={.items[*].metadata.name}"))
}

// only names the one pod of an application.
func (s space) only(t *testing.T, app string) string {
	t.Helper()
	pods := s.of(t, app)
	if len(pods) != 1 {
		t.Fatalf("the pods of %s are %q", app, pods)
	}
	return pods[0]
}

// eventSays waits for an Event on a pod.
func (s space) eventSays(t *testing.T, pod, reason, what string) {
	t.Helper()
	selector := "reason=" + reason + ",involvedObject.name=" + pod
	eventually(t, func() error {
		messages := s.kubectl(t, "", "get", "events", "--field-selector", selector, "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(messages, what) {
			return fmt.Errorf("no Event %s of %s says %q: %q", reason, pod, what, messages)
		}
		return nil
	})
}
