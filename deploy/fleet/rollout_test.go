// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/install/report"
)

// newNode returns a Node with this status of its condition Ready.
func newNode(name string, ready corev1.ConditionStatus, change func(*corev1.Node)) corev1.Node {
	node := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"mesh": "yes"}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Message: "Kubelet stopped posting node status."}}},
	}
	if change != nil {
		change(&node)
	}
	return node
}

// rollingOut returns the release's DaemonSet during an update, when one agent does not have the newest
// specification yet. The DaemonSet selects nodes with the label mesh=yes.
func rollingOut(strategy appsv1.DaemonSetUpdateStrategyType) appsv1.DaemonSet {
	set := daemonSet
	set.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: "2"}
	set.Spec.UpdateStrategy.Type = strategy
	set.Spec.Template.Spec.NodeSelector = map[string]string{"mesh": "yes"}
	set.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "ours", Operator: corev1.TolerationOpExists}}
	set.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: 9, UpdatedNumberScheduled: 8, NumberReady: 9}
	return set
}

// waiting returns a change of a pod that makes a container wait for a reason. The container has not run
// before.
func waiting(reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions[0].Status = corev1.ConditionFalse
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: InstallerContainer, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}},
		}
	}
}

// TestAgentStates has a node for each state of an agent's pod that scheduler, kubelet and the controller
// of DaemonSets cause, and one for each reason for which a node has no agent. These facts take
// precedence over the Lease, which describes a good node.
func TestAgentStates(t *testing.T) {
	t.Parallel()
	const (
		describe = "kubectl -n capture-cni describe pod agent-of-"
		logs     = "kubectl -n capture-cni logs agent-of-"
		set      = "kubectl -n capture-cni describe daemonset capture-cni-node"
	)
	created := func(ago time.Duration, change func(*corev1.Pod)) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-ago))
			change(pod)
		}
	}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}}
	for name, test := range map[string]struct {
		strategy appsv1.DaemonSetUpdateStrategyType
		agent    func(*corev1.Pod) // nil means no agent
		node     func(*corev1.Node)
		down     bool
		want     string // STATE: REASON -> NEXT STEP; "" if the node is not listed
	}{
		"well": {agent: func(*corev1.Pod) {}, want: "ready:  -> "},
		"pending": {agent: func(pod *corev1.Pod) {
			pod.Spec.NodeName = ""
			pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"pending"}}}}},
			}}}
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available: 1 Insufficient memory."}}
		}, want: "faulty: Pending: 0/3 nodes are available: 1 Insufficient memory. -> " + describe + "pending"},
		"no-image": {
			agent: waiting("ImagePullBackOff", `Back-off pulling image "x"`),
			want:  `faulty: container installer: ImagePullBackOff: Back-off pulling image "x" -> ` + describe + "no-image",
		},
		"crashes": {agent: func(pod *corev1.Pod) {
			waiting("CrashLoopBackOff", "back-off 40s")(pod)
			pod.Status.ContainerStatuses[0].LastTerminationState = ended
		}, want: "faulty: container installer: CrashLoopBackOff: back-off 40s -> " + logs + "crashes -c installer"},
		"ended": {agent: func(pod *corev1.Pod) {
			waiting("PodInitializing", "")(pod)
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "first", State: ended}}
		}, want: "faulty: container first: Error: exit status 3 -> " + logs + "ended -c first"},
		"untested": {agent: func(pod *corev1.Pod) {
			waiting("PodInitializing", "")(pod)
			ended := corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "level=INFO\ncapture-cni-node: testing backend nftables: no memory\n"}
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
				Name: "kernel", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"}},
				LastTerminationState: corev1.ContainerState{Terminated: &ended},
			}}
		}, want: "faulty: container kernel: CrashLoopBackOff: back-off 10s: capture-cni-node: testing backend nftables: no memory -> " + logs + "untested -c kernel"},
		"skewed": {agent: func(pod *corev1.Pod) {
			ended := corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: `capture-cni-node: unknown command "backend" for "capture-cni-node"` + "\n"}
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "kernel", State: corev1.ContainerState{Terminated: &ended}}}
			pod.Status.Conditions[0].Status = corev1.ConditionFalse
		}, want: `faulty: container kernel: Error: exit status 1: capture-cni-node: unknown command "backend" for "capture-cni-node" -> ` +
			"chart and image are of different releases: upgrade with --set image.tag= --set image.digest= and without images of pools, or use the chart of the image's release"},
		"half-crashed": {agent: created(time.Minute, func(pod *corev1.Pod) { // the runtime is creating one container, and the next one has ended
			waiting("ContainerCreating", "")(pod)
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: GuardContainer, LastTerminationState: ended,
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 20s"}},
			})
		}), want: "faulty: container guard: CrashLoopBackOff: back-off 20s -> " + logs + "half-crashed -c guard"},
		"created": {agent: created(time.Minute, waiting("ContainerCreating", "")), want: "waiting: container installer: ContainerCreating -> "},
		"stuck":   {agent: created(time.Hour, waiting("ContainerCreating", "")), want: "faulty: container installer: ContainerCreating -> " + describe + "stuck"},
		"unready": {
			agent: func(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse },
			want:  "faulty: the agent's pod is not ready: containers with unready status: [installer] -> " + logs + "unready -c installer",
		},
		"ends":    {agent: func(pod *corev1.Pod) { pod.DeletionTimestamp = new(metav1.Now()) }, want: "waiting: the agent ends -> "},
		"rolling": {agent: func(pod *corev1.Pod) { pod.Labels[templateGeneration] = "1" }, want: "waiting: the agent is of an older specification, and is replaced -> "},
		"outdated": {
			strategy: appsv1.OnDeleteDaemonSetStrategyType,
			agent:    func(pod *corev1.Pod) { pod.Labels[templateGeneration] = "1" },
			want:     "outdated: the agent is of an older specification, and updateStrategy is OnDelete -> kubectl -n capture-cni delete pod agent-of-outdated",
		},
		"down":     {agent: func(*corev1.Pod) {}, down: true, want: "faulty: the Node is not ready: Kubelet stopped posting node status. -> kubectl describe node down"},
		"moved":    {agent: func(*corev1.Pod) {}, node: func(node *corev1.Node) { node.Labels = nil }, want: "waiting: DaemonSet capture-cni-node does not select the node any more, and its agent still runs -> "},
		"no-pod":   {want: "no agent: DaemonSet capture-cni-node selects the node, and has no pod there -> " + set},
		"tainted":  {node: taint("theirs", corev1.TaintEffectNoSchedule), want: leftBehind},
		"refused":  {node: taint("ours", corev1.TaintEffectNoExecute), want: "no agent: DaemonSet capture-cni-node selects the node, and has no pod there -> " + set},
		"cordoned": {node: taint(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule), want: "no agent: DaemonSet capture-cni-node selects the node, and has no pod there -> " + set},
		"disliked": {node: taint("theirs", corev1.TaintEffectPreferNoSchedule), want: "no agent: DaemonSet capture-cni-node selects the node, and has no pod there -> " + set},
		"left":     {node: func(node *corev1.Node) { node.Labels = nil }, want: leftBehind},
	} {
		ready := corev1.ConditionTrue
		if test.down {
			ready = corev1.ConditionUnknown
		}
		s := &apiServer{sets: []appsv1.DaemonSet{rollingOut(test.strategy)}, nodes: []corev1.Node{newNode(name, ready, test.node), newNode("another", corev1.ConditionTrue, func(n *corev1.Node) { n.Labels = nil })}}
		s.leases = append(s.leases, newLease(name, 0, good(nil)), newLease("deleted", 0, good(nil)))
		if test.agent != nil {
			pod := newAgent(name, corev1.ConditionTrue, InstallerContainer)
			pod.Labels[templateGeneration] = "2"
			test.agent(&pod)
			s.pods = append(s.pods, pod)
		}
		client := s.start(t)
		f, err := Read(t.Context(), client, DefaultNamespace)
		if err != nil || len(f.Nodes) != 1 || f.Good() {
			t.Errorf("%s: %+v, %v", name, f, err)
			continue
		}
		node := f.Nodes[0]
		if got := string(node.State) + ": " + strings.Join(node.Findings.Each(report.Finding.Summary), "; ") + " -> " + node.Findings.Next(); got != test.want {
			t.Errorf("%s: %s\nwant %s", name, got, test.want)
		}
		o, agent, err := client.observeNode(t.Context(), DefaultNamespace, name)
		if err != nil {
			t.Fatal(err)
		}
		o.nodes[name] = &s.nodes[0]
		if alone := o.node(name, agent, &s.leases[0]); alone.State != node.State || !slices.Equal(alone.Findings, node.Findings) {
			t.Errorf("%s: explain has %s, %q, and status %s, %q", name, alone.State, alone.Findings, node.State, node.Findings)
		}
		if notes := strings.Join(f.Notes, "\n"); !strings.Contains(notes, "1 Leases are of Nodes that no longer exist: kubectl -n capture-cni delete lease deleted") {
			t.Errorf("%s: the Lease of a deleted Node: %s", name, notes)
		}
	}
}

func taint(key string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(node *corev1.Node) { node.Spec.Taints = []corev1.Taint{{Key: key, Effect: effect}} }
}

const leftBehind = "no agent: no DaemonSet selects the node any more: plugin and entry may be left there -> " +
	"select it again, or by a pool with state: absent (deploy/guides/nodes.md)"

// TestDaemonSets expects a good fleet only if each DaemonSet's controller has seen the newest
// specification, and all agents have this specification and are ready.
func TestDaemonSets(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		set  appsv1.DaemonSet
		good bool
	}{
		"done":             {appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 1, UpdatedNumberScheduled: 1, NumberReady: 1}}, true},
		"not seen":         {appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: appsv1.DaemonSetStatus{ObservedGeneration: 1, DesiredNumberScheduled: 1, UpdatedNumberScheduled: 1, NumberReady: 1}}, false},
		"one not updated":  {appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 2, UpdatedNumberScheduled: 1, NumberReady: 2}}, false},
		"one is not ready": {appsv1.DaemonSet{Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 2, UpdatedNumberScheduled: 2, NumberReady: 1, NumberUnavailable: 1}}, false},
	} {
		test.set.ObjectMeta.Name, test.set.UID, test.set.Spec = daemonSet.Name, daemonSet.UID, daemonSet.Spec
		s := &apiServer{sets: []appsv1.DaemonSet{test.set}, pods: []corev1.Pod{newAgent("n1", corev1.ConditionTrue, InstallerContainer)}}
		s.leases = append(s.leases, newLease("n1", 0, good(nil)))
		f, err := Read(t.Context(), s.start(t), DefaultNamespace)
		if err != nil || f.Good() != test.good || f.Nodes[0].State != Ready {
			t.Errorf("%s: %+v, %v", name, f, err)
			continue
		}
		want := DaemonSet{daemonSet.Name, name != "not seen", test.set.Status.DesiredNumberScheduled, test.set.Status.UpdatedNumberScheduled, test.set.Status.NumberReady, test.set.Status.NumberUnavailable}
		if diff := cmp.Diff([]DaemonSet{want}, f.DaemonSets); diff != "" {
			t.Error(name, diff)
		}
	}
}

// TestWarned has a node whose list contains both plugins. The agent is ready, but the node needs
// attention.
func TestWarned(t *testing.T) {
	t.Parallel()
	warned := good(nil)
	warned.Findings = report.Findings{{Severity: report.Warning, Reason: "10-x.conflist has both", Next: "remove istio-cni"}}
	s := &apiServer{pods: []corev1.Pod{newAgent("n1", corev1.ConditionTrue, InstallerContainer)}}
	s.leases = append(s.leases, newLease("n1", 0, warned))
	f, err := Read(t.Context(), s.start(t), DefaultNamespace)
	if err != nil || f.Good() || f.Nodes[0].State != Faulty || f.Nodes[0].Findings.Next() != "remove istio-cni" {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestNotes expects the agents' notes, with one note for nodes with the same text, and a note about pods
// of the mesh on a clean node that no DaemonSet selects.
func TestNotes(t *testing.T) {
	t.Parallel()
	iptables, cleaned := good(nil), good(nil)
	iptables.Backend, iptables.Findings = "iptables-nft", report.Findings{{Severity: report.Note, Reason: "backend iptables-nft: no guard"}}
	cleaned.Desired, cleaned.Findings = "absent", report.Findings{{Code: report.LeftOnNode, Severity: report.Note, Reason: "left on the node: capture-cni"}}
	s := &apiServer{sets: []appsv1.DaemonSet{rollingOut("")}, nodes: []corev1.Node{
		newNode("n1", corev1.ConditionTrue, nil), newNode("n2", corev1.ConditionTrue, nil), newNode("out", corev1.ConditionTrue, func(n *corev1.Node) { n.Labels = nil }),
	}}
	for _, node := range []string{"n1", "n2"} {
		s.leases = append(s.leases, newLease(node, 0, iptables))
		pod := newAgent(node, corev1.ConditionTrue, InstallerContainer, GuardContainer)
		pod.Labels[templateGeneration] = "2"
		s.pods = append(s.pods, pod)
	}
	s.leases = append(s.leases, newLease("out", time.Hour, cleaned))
	s.pods = append(s.pods, newPod("out", "web", nil))
	f, err := Read(t.Context(), s.start(t), DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []NodeState{Ready, Ready, Removed} {
		if f.Nodes[i].State != want {
			t.Errorf("%s is %s: %q", f.Nodes[i].Name, f.Nodes[i].State, f.Nodes[i].Findings)
		}
	}
	notes := strings.Join(f.Notes, "\n")
	for _, want := range []string{"n1, n2: backend iptables-nft: no guard", "out: left on the node: capture-cni", "new ones start there uncaptured unless something else captures them: out"} {
		if !strings.Contains(notes, want) {
			t.Errorf("%q is not in\n%s", want, notes)
		}
	}
}

// TestUnguarded expects the number of pods on nodes without a guard that reports, and the number of pods
// that Leases omit.
func TestUnguarded(t *testing.T) {
	t.Parallel()
	s := &apiServer{}
	for node, pods := range map[string]int{"n1": 2, "n2": 3, "n3": 4, "idle": 0} {
		s.leases = append(s.leases, newLease(node, 0, good(nil)))
		for i := range pods {
			s.pods = append(s.pods, newPod(node, fmt.Sprint(node, "-", i), nil))
		}
	}
	for node, omitted := range map[string]int{"g1": 5, "g2": 6} {
		s.leases = append(s.leases, newLease(node, 0, good(&report.Pods{Omitted: omitted})))
	}
	f, err := Read(t.Context(), s.start(t), DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	notes := strings.Join(f.Notes, "\n")
	for _, want := range []string{
		"3 nodes have no guard that reports: whether their 9 pods of the mesh are captured is not known",
		"11 more pods are not captured as desired",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("%q is not in\n%s", want, notes)
		}
	}
}

// TestSteps expects the agents' namespace in each command that needs it.
func TestSteps(t *testing.T) {
	t.Parallel()
	step := advisePod(Pod{Namespace: "shop", Name: "web", State: "uncaptured"})
	if got := withNamespace(step, DefaultNamespace); got != step {
		t.Errorf("in the default namespace: %s", got)
	}
	if got := withNamespace(step, "mesh"); !strings.HasPrefix(got, "kubectl capture-cni --agent-namespace mesh explain shop/web") {
		t.Errorf("in another one: %s", got)
	}
}
