// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestSeenPod expects the time at which a pod was scheduled, the time since which its sandbox exists,
// and the mesh that captures the pod.
func TestSeenPod(t *testing.T) {
	t.Parallel()
	made, placed, begun := time.Unix(1000, 0), time.Unix(2000, 0), time.Unix(3000, 0)
	at := func(kind corev1.PodConditionType, status corev1.ConditionStatus, when time.Time) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: metav1.NewTime(when)}
	}
	scheduled := at(corev1.PodScheduled, corev1.ConditionTrue, placed)
	sandbox, none := at(corev1.PodReadyToStartContainers, corev1.ConditionTrue, begun), at(corev1.PodReadyToStartContainers, corev1.ConditionFalse, begun)
	for name, tt := range map[string]struct {
		phase      corev1.PodPhase
		conditions []corev1.PodCondition
		ends       bool
		noSandbox  bool
		scheduled  time.Time
		running    time.Time
	}{
		"new":                   {corev1.PodPending, nil, false, true, made, time.Time{}},
		"placed":                {corev1.PodPending, []corev1.PodCondition{scheduled}, false, true, placed, time.Time{}},
		"without a sandbox":     {corev1.PodPending, []corev1.PodCondition{scheduled, none}, false, true, placed, time.Time{}},
		"with a sandbox":        {corev1.PodPending, []corev1.PodCondition{scheduled, sandbox}, false, false, placed, time.Time{}},
		"running":               {corev1.PodRunning, []corev1.PodCondition{scheduled, sandbox}, false, false, placed, begun},
		"running, and lost its": {corev1.PodRunning, []corev1.PodCondition{scheduled, none}, false, false, placed, time.Time{}},
		"ending":                {corev1.PodRunning, []corev1.PodCondition{scheduled, sandbox}, true, false, placed, time.Time{}},
	} {
		pod := newPod("n1", "web", func(pod *corev1.Pod) {
			pod.CreationTimestamp, pod.Status = metav1.NewTime(made), corev1.PodStatus{Phase: tt.phase, Conditions: tt.conditions}
			if tt.ends {
				pod.DeletionTimestamp = &metav1.Time{Time: begun}
			}
		})
		s := newSeenPod(&pod)
		if s.noSandbox != tt.noSandbox || !s.scheduled.Equal(tt.scheduled) || !s.running.Equal(tt.running) {
			t.Errorf("%s: %+v", name, s)
		}
	}
	for name, change := range map[string]func(pod *corev1.Pod){
		"an address, and no condition, as before Kubernetes 1.29": func(pod *corev1.Pod) { pod.Status.PodIP = "10.0.0.1" },
		"no node": func(pod *corev1.Pod) { pod.Spec.NodeName = "" },
		"ended":   func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed },
	} {
		pod := newPod("n1", "web", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending })
		change(&pod)
		if newSeenPod(&pod).noSandbox {
			t.Errorf("%s: it has no sandbox", name)
		}
	}
	both := []config.MeshName{config.Istio, config.Linkerd}
	exempt := capture.Exemption{Cause: capture.NoProxy}
	for name, tt := range map[string]struct {
		mesh  map[config.MeshName]capture.Exemption
		want  config.MeshName
		cause capture.ExemptionCause
	}{
		"none":          {nil, "", ""},
		"one":           {map[config.MeshName]capture.Exemption{config.Linkerd: {}}, config.Linkerd, ""},
		"exempt":        {map[config.MeshName]capture.Exemption{config.Linkerd: exempt}, config.Linkerd, capture.NoProxy},
		"exempt of one": {map[config.MeshName]capture.Exemption{config.Istio: exempt, config.Linkerd: {}}, config.Linkerd, ""},
		"of the first":  {map[config.MeshName]capture.Exemption{config.Istio: {}, config.Linkerd: exempt}, config.Istio, ""},
		"of both":       {map[config.MeshName]capture.Exemption{config.Istio: exempt, config.Linkerd: {Cause: capture.InitContainer}}, config.Istio, capture.NoProxy},
	} {
		if mesh, exemption := (&seenPod{mesh: tt.mesh}).by(both); mesh != tt.want || exemption.Cause != tt.cause {
			t.Errorf("%s: %s, %s", name, mesh, exemption.Cause)
		}
	}
}

// TestFaultOf expects the reason for which an agent's pod is not ready, and how far its start has
// progressed.
func TestFaultOf(t *testing.T) {
	t.Parallel()
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "m"}}
	}
	ended := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: code, Message: "a\nlast\n"}}
	}
	scheduled := func(status corev1.ConditionStatus) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: corev1.PodScheduled, Status: status, Message: "full"}}
	}
	notReady := []corev1.PodCondition{
		{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionFalse, Message: "slow"},
	}
	for name, tt := range map[string]struct {
		conditions  []corev1.PodCondition
		init, state corev1.ContainerState
		want        *fault
	}{
		"ready":         {[]corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}, ended(1), ended(1), nil},
		"unready":       {notReady, ended(0), corev1.ContainerState{}, &fault{unready, "the agent's pod is not ready: slow", ""}},
		"mute":          {nil, ended(0), corev1.ContainerState{}, &fault{unready, "the agent's pod is not ready: no reason is known", ""}},
		"not scheduled": {scheduled(corev1.ConditionFalse), ended(0), ended(0), &fault{stopped, "Pending: full", ""}},
		"scheduled":     {scheduled(corev1.ConditionTrue), ended(0), waiting("ContainerCreating"), &fault{starting, "container c: ContainerCreating", ""}},
		"initializing":  {notReady, corev1.ContainerState{}, waiting("PodInitializing"), &fault{starting, "container c: PodInitializing", ""}},
		"no image":      {notReady, ended(0), waiting("ErrImagePull"), &fault{stopped, "container c: ErrImagePull: m", ""}},
		"exited":        {notReady, ended(3), waiting("PodInitializing"), &fault{stopped, "container i: Error: exit status 3: last", "i"}},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{
			Conditions: tt.conditions, InitContainerStatuses: []corev1.ContainerStatus{{Name: "i", State: tt.init}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "c", State: tt.state}},
		}}
		if got := faultOf(pod); (got == nil) != (tt.want == nil) || got != nil && *got != *tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// TestNamedByLeases expects the pods that Leases name, if the permission to list pods is missing.
func TestNamedByLeases(t *testing.T) {
	t.Parallel()
	named := report.Pods{Named: []report.NamedPod{{Namespace: "shop", Name: "web", State: report.Exempt, Cause: capture.NoProxy}}}
	s := &apiServer{forbids: "pods", sets: []appsv1.DaemonSet{daemonSet}}
	s.leases = append(s.leases, newLease("n1", 0, good(&named)))
	f, err := Read(t.Context(), s.start(t), DefaultNamespace)
	lab.Check(t, err)
	want := Pod{Namespace: "shop", Name: "web", Node: "n1", State: report.Exempt, Cause: capture.NoProxy, Next: report.NoProxy.Advice()}
	if !slices.Equal(f.Pods, []Pod{want}) || !slices.Equal(f.Notes, []string{"only the pods that Leases name are known [permission-missing]"}) {
		t.Errorf("%+v, notes %q", f.Pods, f.Notes)
	}
}

// TestNothingInstalled expects a note if a namespace has no DaemonSet of capture-cni, and if the
// DaemonSet selects no node.
func TestNothingInstalled(t *testing.T) {
	t.Parallel()
	client := (&apiServer{}).start(t)
	for namespace, want := range map[string]string{
		"mesh":           "no DaemonSet of capture-cni is in namespace mesh: install capture-cni, or set --agent-namespace to its namespace [not-installed]",
		DefaultNamespace: "no node is selected: compare nodeSelector, affinity and tolerations of the chart with the nodes [no-nodes]",
	} {
		f, err := Read(t.Context(), client, namespace)
		lab.Check(t, err)
		if !slices.Equal(f.Notes, []string{want}) {
			t.Errorf("notes %q, want %q", f.Notes, want)
		}
	}
}

// TestRemovedNodes expects notes about clean nodes with pods of the mesh, about repairs, and about pods
// without a guard. A good node has no note.
func TestRemovedNodes(t *testing.T) {
	t.Parallel()
	f := &Fleet{DaemonSets: []DaemonSet{{}}, Nodes: []Node{
		{Name: "gone", State: Removed, Meshed: 1},
		{Name: "idle", State: Removed},
		{Name: "ready", State: Ready, Meshed: 2},
		{Name: "guarded", State: Ready, Meshed: 1, pods: &report.Pods{}},
		{Name: "mended", State: Ready, pods: &report.Pods{Repaired: 1, Omitted: 1}},
	}}
	want := []string{
		"mended: the guard repaired 1 running pods, or tried to, within the last hour; until then they were not captured as desired [pods-repaired]",
		"pods of the mesh run on nodes without capture-cni, and new ones start there uncaptured unless something else captures them: gone [mesh-outside]",
		"2 nodes have no guard that reports: whether their 3 pods of the mesh are captured is not known [not reported]",
		"1 more pods are not captured as desired: a Lease names 100 at most [pods-unnamed]",
	}
	if got := f.notes(newObserved(DefaultNamespace)); !slices.Equal(got, want) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	f.Nodes = f.Nodes[3:4]
	if got := f.notes(newObserved(DefaultNamespace)); got != nil {
		t.Errorf("of a good node: %q", got)
	}
}

// TestFenceUnknown expects a note that names the nodes whose agents do not support the fence, if a pod
// asks for a fence.
func TestFenceUnknown(t *testing.T) {
	t.Parallel()
	f := &Fleet{DaemonSets: []DaemonSet{{}}, Nodes: []Node{
		{Name: "earlier", State: Ready, Version: "v0.3.0"},
		{Name: "removed", State: Removed, Version: "v0.3.0"},
		{Name: "silent", State: Unreported},
	}}
	o, today := newObserved(DefaultNamespace), good(nil)
	today.PodVersion = capture.PodVersion
	lease := newLease("today", 0, today)
	f.Nodes = append(f.Nodes, o.node("today", nil, &lease))
	for asked, want := range map[string][]string{
		"false": nil,
		"true":  {"pods ask for a fence, and nodes with an earlier release can start them without one: earlier [fence-unknown]"},
	} {
		o.pods = []*seenPod{newSeenPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"capture-cni.io/fence": asked}}})}
		if got := f.notes(o); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", asked, got, want)
		}
	}
}

var errNotHere = errors.New("not here")

// TestVersions expects the versions in an error that an agent of another version can have caused, and in
// no other error.
func TestVersions(t *testing.T) {
	t.Parallel()
	x := Explainer{Version: "v2"}
	for agent, added := range map[string]bool{"v2": false, "": false, "v1": true} {
		if got := x.withVersions(report.ErrAnswer, agent); strings.Contains(got.Error(), ". The agent is v1 and this plugin v2: ") != added || !added && got != report.ErrAnswer {
			t.Errorf("%s: %v", agent, got)
		}
		if got := x.withVersions(errNotHere, agent); got != errNotHere {
			t.Errorf("%s: %v", agent, got)
		}
	}
}

// TestFleetOfTwo has two nodes: one without a guard but with a pod that has an init container
// istio-init, and one without an agent although a DaemonSet selects the node.
func TestFleetOfTwo(t *testing.T) {
	t.Parallel()
	s := &apiServer{nodes: []corev1.Node{newNode("n1", corev1.ConditionTrue, nil), newNode("n2", corev1.ConditionTrue, nil)}}
	s.nodes[0].Status.NodeInfo.KernelVersion = "6.12"
	s.leases = append(s.leases, newLease("n1", 0, good(nil)))
	s.pods = append(s.pods, newAgent("n1", corev1.ConditionTrue, InstallerContainer), newPod("n1", "web", func(pod *corev1.Pod) {
		pod.Spec.InitContainers = []corev1.Container{{Name: "istio-init"}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Unix(1, 0))}}
	}))
	for i := range 9 {
		set := daemonSet
		set.Name, set.UID = fmt.Sprint("set-", 9-i), types.UID(fmt.Sprint(i))
		s.sets = append(s.sets, set)
	}
	s.sets[8].UID = daemonSet.UID
	f, err := Read(t.Context(), s.start(t), DefaultNamespace)
	lab.Check(t, err)
	want := Pod{
		Namespace: "shop", Name: "web", Mesh: config.Istio, Node: "n1", State: report.NotReported, IstioInit: true,
		Next: "kubectl capture-cni explain shop/web",
	}
	if !slices.Equal(f.Pods, []Pod{want}) {
		t.Errorf("%+v", f.Pods)
	}
	if len(f.Nodes) != 2 || f.Nodes[0].State != Ready || !strings.HasPrefix(f.Nodes[0].Kind, "6.12, ") || f.Nodes[1].State != NoAgent {
		t.Errorf("%+v", f.Nodes)
	}
	if !slices.IsSortedFunc(f.DaemonSets, func(a, b DaemonSet) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("%+v", f.DaemonSets)
	}
}

// TestConclude expects conclusions from the pod alone, because no agent answers.
func TestConclude(t *testing.T) {
	t.Parallel()
	exempt := func(pod *corev1.Pod) { pod.Annotations["sidecar.istio.io/inject"] = "false" }
	notPlaced := func(pod *corev1.Pod) { pod.Spec.NodeName = "" }
	faulty := &NodeEvidence{State: Faulty, Findings: report.Findings{{Reason: "down"}}}
	for name, tt := range map[string]struct {
		change   func(*corev1.Pod)
		evidence Evidence
		state    report.Code
		cause    string
	}{
		"not placed":             {notPlaced, Evidence{}, report.NotScheduled, "the scheduler has not chosen a node"},
		"not placed, not meshed": {func(pod *corev1.Pod) { notPlaced(pod); pod.Annotations = nil }, Evidence{}, report.NotScheduled, "the scheduler"},
		"not placed, exempt":     {func(pod *corev1.Pod) { notPlaced(pod); exempt(pod) }, Evidence{}, report.Exempt, "sidecar.istio.io/inject is false"},
		"exempt":                 {exempt, Evidence{}, report.Exempt, "sidecar.istio.io/inject is false"},
		"no answer":              {nil, Evidence{Node: faulty}, report.Unknown, "the agent of its node did not answer: down"},
		"an empty answer":        {nil, Evidence{Node: faulty, Agent: &AgentEvidence{}}, report.Unknown, "no guard's finding"},
	} {
		pod := newPod("n1", "web", tt.change)
		e := Explanation{Pod: "shop/web", State: report.Unknown, Evidence: tt.evidence}
		if e.conclude(&pod, config.Meshes(), podEvents{}, false); e.State != tt.state || !strings.HasPrefix(e.Finding.Reason, tt.cause) || e.Finding.Next == "" {
			t.Errorf("%s: %s, %+v", name, e.State, e.Finding)
		}
	}
}
