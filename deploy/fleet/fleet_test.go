// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

func good(pods *report.Pods) report.NodeState {
	return report.NodeState{Version: "v0.3.0", Mode: "dropin", Desired: "present", Pods: pods}
}

// TestNodeStates has a node in each state.
func TestNodeStates(t *testing.T) {
	t.Parallel()
	faulty := good(nil)
	faulty.Findings = report.Findings{{Severity: report.Problem, Subject: "entry", Reason: "no conflist"}, {Severity: report.Waiting, Subject: "runtime", Reason: "wait"}}
	waiting := good(nil)
	waiting.Findings = faulty.Findings[1:]
	removed := good(nil)
	removed.Desired = "absent"
	newer := newLease("newer", 0, good(nil))
	newer.Annotations[report.NodeAnnotation] = `{"format":2}`
	replaced := newLease("replaced", 0, good(nil))
	earlier := "an-earlier-agent"
	replaced.Spec.HolderIdentity = &earlier
	lasting := newLease("lasting", 0, good(nil))
	lasting.Spec.LeaseDurationSeconds = new(int32(24 * 60 * 60))
	endless := newLease("endless", -5*time.Minute, good(nil))
	endless.Spec.LeaseDurationSeconds = nil
	past, refused := newLease("past", 4*time.Minute, faulty), newLease("refused", 12*time.Minute, good(nil))
	past.Spec.LeaseDurationSeconds = new(int32(180))
	ahead, left := newLease("ahead", -5*time.Minute, good(nil)), faulty
	ahead.Spec.LeaseDurationSeconds, left.Desired = new(int32(60*60)), "absent"
	ending := newAgent("ending", corev1.ConditionTrue, InstallerContainer)
	ending.DeletionTimestamp, ending.Finalizers = new(metav1.Now()), []string{"example.com/kept"}
	s := &apiServer{}
	s.leases = append(s.leases, past, refused, newer, replaced, lasting, endless, newLease("tomorrow", -25*time.Hour, good(nil)), ahead, newLease("left", 0, left), newLease("ending", 0, good(nil)), newLease("gone", time.Minute, good(nil)), newLease("dead", 12*time.Minute, good(nil)),
		newLease("late", 10*time.Minute, good(nil)), newLease("faulty", 0, faulty), newLease("waiting", 0, waiting), newLease("removed", 0, removed),
		newLease("unready", 0, good(nil)), newLease("unguarded", 0, good(nil)), newLease("silent", 0, good(nil)), newLease("guarded", 0, good(&report.Pods{})))
	for _, node := range []string{"newer", "replaced", "dead", "late", "faulty", "waiting", "removed", "unguarded", "unreported", "lasting", "tomorrow", "ahead", "endless", "past"} {
		s.pods = append(s.pods, newAgent(node, corev1.ConditionTrue, InstallerContainer))
	}
	s.pods = append(s.pods, newAgent("refused", corev1.ConditionFalse, InstallerContainer), newAgent("unready", corev1.ConditionFalse, InstallerContainer), newPod("bare", "web", nil), ending,
		newAgent("silent", corev1.ConditionTrue, InstallerContainer, GuardContainer), newAgent("guarded", corev1.ConditionTrue, InstallerContainer, GuardContainer))
	f, err := Read(t.Context(), s.start(t), DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, node := range f.Nodes {
		got[node.Name] = strings.TrimSpace(string(node.State) + ": " + strings.Join(node.Findings.Each(report.Finding.Summary), "; "))
		if _, times, found := strings.Cut(got[node.Name], "faulty: its Lease was renewed at "); found && strings.HasSuffix(times, " s: no agent writes that") {
			got[node.Name] = "faulty: its Lease"
		}
		for i, one := range node.Findings {
			if one.Code == "" || one.Severity == "" || i == 0 && one.Severity != report.FaultSeverity(node.State == Waiting) {
				t.Errorf("%s: %+v", node.Name, one)
			}
		}
		if needsStep := !node.State.Good() && node.State != Waiting; needsStep != (node.Findings.Next() != "") {
			t.Errorf("%s is %s, and the next step is %q", node.Name, node.State, node.Findings.Next())
		}
	}
	want := map[string]string{
		"newer":      "faulty: reading a node's state: it has format 2, expected 1: use the kubectl plugin of the agents' version",
		"replaced":   "waiting: the new agent has not reported yet",
		"gone":       "no agent: no agent runs on the node",
		"dead":       "stale: the agent stopped reporting",
		"past":       "stale: the agent stopped reporting",
		"refused":    "stale: the agent stopped reporting; the agent's pod is not ready: containers with unready status: [installer]",
		"late":       "ready:",
		"faulty":     "faulty: entry: no conflist; runtime: wait",
		"waiting":    "waiting: runtime: wait",
		"removed":    "removed:",
		"lasting":    "faulty: its Lease",
		"tomorrow":   "faulty: its Lease",
		"ahead":      "ready:",
		"endless":    "stale: the agent stopped reporting",
		"unready":    "faulty: the agent's pod is not ready: containers with unready status: [installer]",
		"unguarded":  "ready:",
		"silent":     "waiting: the guard has not reported the states of pods",
		"guarded":    "ready:",
		"unreported": "unreported: the agent has written no Lease",
		"bare":       "no agent: no agent runs on the node",
		"left":       "no agent: no agent runs on the node",
		"ending":     "waiting: the agent ends",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if f.Good() {
		t.Error("such a fleet is good")
	}
}

// TestLeaseWithoutTimes has Leases that lack fields which agents write. A node whose Lease lacks a time
// is stale, and the other nodes are not affected.
func TestLeaseWithoutTimes(t *testing.T) {
	t.Parallel()
	s := &apiServer{}
	for name, change := range map[string]func(*coordination.LeaseSpec){
		"whole":            func(*coordination.LeaseSpec) {},
		"without a time":   func(spec *coordination.LeaseSpec) { spec.RenewTime = nil },
		"without a length": func(spec *coordination.LeaseSpec) { spec.LeaseDurationSeconds = nil },
		"without a holder": func(spec *coordination.LeaseSpec) { spec.HolderIdentity = nil },
		"empty":            func(spec *coordination.LeaseSpec) { *spec = coordination.LeaseSpec{} },
	} {
		lease := newLease(name, 0, good(nil))
		change(&lease.Spec)
		s.leases = append(s.leases, lease)
		s.pods = append(s.pods, newAgent(name, corev1.ConditionTrue, InstallerContainer))
	}
	f, err := Read(t.Context(), s.start(t), DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]NodeState{}
	for _, node := range f.Nodes {
		got[node.Name] = node.State
	}
	want := map[string]NodeState{
		"whole": Ready, "without a time": Stale, "without a length": Stale, "without a holder": Ready, "empty": Stale,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestPods expects the states of pods, from the guards' reports and from the pods themselves.
func TestPods(t *testing.T) {
	t.Parallel()
	initContainer := func(netAdmin bool) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			c := corev1.Container{Name: "istio-init"}
			if netAdmin {
				c.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}}
			}
			pod.Spec.InitContainers = []corev1.Container{c}
		}
	}
	pending := func(since time.Duration) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Status.Phase = corev1.PodPending
			pod.Status.Conditions = []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-since))},
				{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse},
			}
		}
	}
	s := &apiServer{pods: []corev1.Pod{
		newAgent("n1", corev1.ConditionTrue, InstallerContainer, GuardContainer), newAgent("n2", corev1.ConditionTrue, InstallerContainer),
		newPod("n1", "captured", nil), newPod("n1", "bare", nil), newPod("n1", "old", nil), newPod("n1", "excluded", nil),
		newPod("n1", "ready-made", initContainer(true)), newPod("n1", "by-name", initContainer(false)),
		newPod("n1", "stuck", pending(2*time.Minute)), newPod("n1", "starting", pending(10*time.Second)),
		newPod("n1", "pulls-its-image", func(p *corev1.Pod) { pending(2 * time.Minute)(p); p.UID = "beef0001-a" }),
		newPod("n2", "unseen", nil), newPod("n2", "proxyless", func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }),
		newPod("n2", "of-the-node", func(p *corev1.Pod) { p.Spec.HostNetwork = true }),
		newPod("n2", "not-injected", func(p *corev1.Pod) { p.Annotations = nil }), newPod("", "unscheduled", nil),
	}}
	s.leases = append(s.leases, newLease("n2", 0, good(nil)), newLease("n1", 0, good(&report.Pods{
		States: map[report.Code]int{"captured": 3, "uncaptured": 1, "outdated": 1, "exempt": 2}, Exempt: map[capture.ExemptionCause]int{"namespace_excluded": 1, "init_container": 1},
		Named: []report.NamedPod{
			{Namespace: "shop", Name: "bare", State: "uncaptured"},
			{Namespace: "shop", Name: "old", State: "outdated"},
			{Namespace: "shop", Name: "ended", State: "uncaptured"},
			{Namespace: "shop", Name: "excluded", State: "exempt", Cause: "namespace_excluded"},
			{Namespace: "shop", Name: "unseen", State: "uncaptured"},
		},
		Omitted: 4, Repaired: 3, Updates: map[string]int{"rules": 1}, Known: []string{"beef0001"},
	})))
	f, err := Read(t.Context(), s.start(t), DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, pod := range f.Pods {
		got = append(got, fmt.Sprintf("%s %s %s %s %v", pod.Node, pod.Name, pod.State, pod.Cause, pod.IstioInit))
		if pod.State != report.Captured && pod.Next == "" {
			t.Errorf("%s has no next step", pod.Name)
		}
	}
	want := []string{
		"n1 bare uncaptured  false",
		"n1 stuck not started  false",
		"n1 excluded exempt namespace_excluded false",
		"n2 proxyless exempt no_proxy false",
		"n1 ready-made exempt init_container true",
		"n1 old outdated  false",
		"n1 by-name captured  true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	states := map[report.Code]int{"captured": 3, "uncaptured": 1, "outdated": 1, "exempt": 3, "not started": 1}
	if diff := cmp.Diff(states, f.States); diff != "" {
		t.Error(diff)
	}
	if exempt := map[capture.ExemptionCause]int{"namespace_excluded": 1, "init_container": 1, "no_proxy": 1}; !cmp.Equal(exempt, f.Exempt) {
		t.Errorf("exempt: %v", f.Exempt)
	}
	if f.Updates["rules"] != 1 {
		t.Errorf("updates: %v", f.Updates)
	}
	if !strings.HasPrefix(f.Notes[len(f.Notes)-1], "why pods do not start is not known: ") { // this API server serves no Events
		t.Errorf("notes: %q", f.Notes)
	}
	if notes := strings.Join(f.Notes, "\n"); !strings.Contains(notes, "1 nodes have no guard that reports") || !strings.Contains(notes, "4 more pods") || !strings.Contains(notes, "n1: the guard repaired 3 running pods, or tried to, within the last hour; until then") {
		t.Errorf("notes: %s", notes)
	}
}

// TestForgedState has a Lease with a state that no agent writes. Its node is faulty, and the states of
// other nodes are not affected.
func TestForgedState(t *testing.T) {
	t.Parallel()
	s := &apiServer{}
	for _, node := range []string{"honest", "liar"} {
		s.pods = append(s.pods, newAgent(node, corev1.ConditionTrue, InstallerContainer, GuardContainer))
	}
	liar := newLease("liar", 0, good(&report.Pods{}))
	liar.Annotations[report.NodeAnnotation] = `{"format":1,"version":"v0.3.0","mode":"dropin","pods":{"states":{"uncaptured":-1}}}`
	s.leases = append(s.leases, liar, newLease("honest", 0, good(&report.Pods{States: map[report.Code]int{"uncaptured": 1}})))
	f, err := Read(t.Context(), s.start(t), DefaultNamespace)
	if err != nil || f.States["uncaptured"] != 1 || f.Good() {
		t.Fatalf("%+v, %v", f, err)
	}
	if node := f.Nodes[1]; node.Name != "liar" || node.State != Faulty || !strings.Contains(node.Findings.Summary(), `-1 pods counted as "uncaptured"`) || node.Findings.Next() == "" {
		t.Errorf("%+v", node)
	}
}

// TestPermissions expects the state of the nodes if the permission to list pods or Nodes is missing.
// Without the permission for Leases or DaemonSets, it expects an error that names the role.
func TestPermissions(t *testing.T) {
	t.Parallel()
	s := &apiServer{forbids: "pods"}
	s.leases = append(s.leases, newLease("n1", 0, good(&report.Pods{States: map[report.Code]int{"uncaptured": 1}, Named: []report.NamedPod{{Namespace: "shop", Name: "web", State: "uncaptured"}}})))
	s.leases = append(s.leases, newLease("n2", time.Hour, good(nil)))
	f, err := Read(t.Context(), s.start(t), DefaultNamespace)
	if err != nil || len(f.Nodes) != 2 || f.Nodes[0].State != Ready || f.Nodes[1].State != Stale || len(f.Pods) != 1 || len(f.Unknown) != 1 || !strings.Contains(f.Unknown[0], "capture-cni-operator") {
		t.Errorf("%+v, %v", f, err)
	}
	s = &apiServer{forbids: "nodes", leases: s.leases[:1], pods: []corev1.Pod{newAgent("n1", corev1.ConditionTrue, InstallerContainer, GuardContainer)}}
	f, err = Read(t.Context(), s.start(t), DefaultNamespace)
	if err != nil || len(f.Nodes) != 1 || f.Nodes[0].State != Ready || len(f.Unknown) != 1 || !strings.Contains(f.Unknown[0], "listing the Nodes: nodes is forbidden") {
		t.Errorf("without the permission for Nodes: %+v, %v", f, err)
	}
	for _, resource := range []string{"leases", "daemonsets"} {
		s = &apiServer{forbids: resource}
		if _, err := Read(t.Context(), s.start(t), DefaultNamespace); err == nil || !strings.Contains(err.Error(), "capture-cni-operator") {
			t.Errorf("without the permission for %s: %v", resource, err)
		}
	}
	if _, err := Read(t.Context(), (&apiServer{breaks: "pods"}).start(t), DefaultNamespace); err == nil || !strings.HasPrefix(err.Error(), "listing the pods of all namespaces: ") {
		t.Errorf("pods that can't be listed: %v", err)
	}
}

// TestLargeFleet reads 500 nodes with 10,000 pods, and prints the time and the number of requests.
func TestLargeFleet(t *testing.T) {
	s := &apiServer{}
	for n := range 500 {
		node := fmt.Sprintf("node-%03d", n)
		pods := report.Pods{States: map[report.Code]int{"captured": 18, "exempt": 1, "uncaptured": 1}}
		s.pods = append(s.pods, newAgent(node, corev1.ConditionTrue, InstallerContainer, GuardContainer))
		for p := range 20 {
			s.pods = append(s.pods, newPod(node, fmt.Sprintf("web-%d-%d", n, p), large))
		}
		pods.Named = []report.NamedPod{{Namespace: "shop", Name: fmt.Sprintf("web-%d-0", n), State: "uncaptured"}}
		s.leases = append(s.leases, newLease(node, time.Minute, good(&pods)))
	}
	client := s.start(t)
	began := time.Now()
	f, err := Read(t.Context(), client, DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d nodes, %d pods: %s, in %d requests", len(f.Nodes), len(s.pods), time.Since(began).Round(time.Millisecond), len(s.asked))
	if len(f.Nodes) != 500 || f.States["captured"] != 9000 || len(f.Pods) != 500 || f.Nodes[499].Meshed != 20 {
		t.Errorf("%d nodes, %v, %d pods", len(f.Nodes), f.States, len(f.Pods))
	}
	for _, request := range s.asked {
		if !strings.HasPrefix(request, "GET ") {
			t.Errorf("it asked for %s", request)
		}
	}
}

// TestNotExamined expects the state not examined for running pods that their node's guard does not know,
// although the guard has written its report after their start.
func TestNotExamined(t *testing.T) {
	t.Parallel()
	running := func(name, uid string, since time.Duration, change func(*corev1.Pod)) corev1.Pod {
		return newPod("n1", name, func(pod *corev1.Pod) {
			pod.UID = types.UID(uid)
			pod.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-since)),
			}}
			if change != nil {
				change(pod)
			}
		})
	}
	now := metav1.Now()
	s := &apiServer{pods: []corev1.Pod{
		newAgent("n1", corev1.ConditionTrue, InstallerContainer, GuardContainer),
		running("known", "beef0001-a", time.Hour, nil), running("missing", "beef0002-a", time.Hour, nil),
		running("new", "beef0003-a", 4*time.Minute, nil), // the Lease is two minutes old
		running("ending", "beef0004-a", time.Hour, func(pod *corev1.Pod) {
			pod.DeletionTimestamp, pod.Finalizers = &now, []string{"example.com/kept"}
		}),
		running("exempt", "beef0005-a", time.Hour, func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }),
	}}
	s.leases = append(s.leases, newLease("n1", 2*time.Minute, good(&report.Pods{States: map[report.Code]int{"captured": 1}, Known: []string{"beef0001"}})))
	f, err := Read(t.Context(), s.start(t), DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	if f.Good() || f.States[report.NotExamined] != 1 || len(f.Pods) != 2 || f.Pods[0].Name != "missing" || !f.Pods[0].State.IsMissing() || f.Pods[0].Next == "" {
		t.Errorf("good: %v, %v, %+v", f.Good(), f.States, f.Pods)
	}
}
