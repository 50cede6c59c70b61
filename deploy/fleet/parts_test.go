// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// TestRoles expects the chart's role that grants a missing permission.
func TestRoles(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
	for _, tt := range []struct {
		err                       error
		resource, namespace, role string // "" means none
	}{
		{forbidden, "pods", "", "ClusterRole capture-cni-operator "},
		{forbidden, "nodes", "", "ClusterRole capture-cni-operator "},
		{forbidden, "events", "", "ClusterRole capture-cni-operator "},
		{forbidden, "services", "mesh", "ClusterRole capture-cni-operator "},
		{forbidden, "daemonsets", "mesh", "Role capture-cni-operator "},
		{forbidden, "leases", "mesh", "Role capture-cni-operator "},
		{forbidden, "pods/exec", "mesh", "Role capture-cni-operator-exec "},
		{forbidden, "leases", "", ""},
		{forbidden, "secrets", "mesh", ""},
		{errors.New("no"), "pods", "", ""},
	} {
		got := withRole(tt.err, "list", tt.resource, tt.namespace)
		want := fmt.Sprintf("%v. The chart's %shas the missing permission (list %s): bind it", tt.err, tt.role, tt.resource)
		if tt.role == "" && got != tt.err || tt.role != "" && got.Error() != want {
			t.Errorf("%s of %q: %v, want %s", tt.resource, tt.namespace, got, tt.role)
		}
	}
}

// TestAdvice expects a next step for each state of a pod, and for each reason of a failed ADD.
func TestAdvice(t *testing.T) {
	t.Parallel()
	const explain = "kubectl capture-cni explain shop/web"
	for state, want := range map[report.Code]string{
		report.Uncaptured: explain + "; with guard.policy=report, restart the pod", report.Drifted: explain + "; with guard.policy=report, restart the pod",
		report.NotStarted: explain, report.Exempt: report.NoProxy.Advice(),
		report.InjectedLater: report.InjectedLater.Advice(), report.Outdated: report.Outdated.Advice(),
		report.Changed: report.Changed.Advice(), report.Foreign: report.Foreign.Advice(),
	} {
		if got := advisePod(Pod{Namespace: "shop", Name: "web", State: state, Cause: capture.NoProxy}); got != want || got == "" {
			t.Errorf("%s: %s, want %s", state, got, want)
		}
	}
	for reason, want := range map[capture.Reason]string{
		capture.ReasonAnnotations: "correct the annotations", capture.ReasonRefused: "correct the cause", capture.ReasonLookup: "run kubectl capture-cni status",
		capture.ReasonConfiguration: "correct netconf", capture.ReasonInput: "correct the cause", capture.ReasonKernel: "load the module", capture.ReasonGone: "none; the kubelet retries",
	} {
		if got := report.CodeOfAdd(reason).Advice(); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", reason, got, want)
		}
	}
	for text, want := range map[string]report.Code{
		"no answer [add-lookup]": report.AddLookup, "no answer": report.AddFailed, "no answer [later]": report.AddFailed, "a [b] [add-kernel]": report.AddKernel,
	} {
		code, cause := whyNotStarted(podEvents{failed: text}, record.Record{})
		if marked := code.Mark(strings.TrimPrefix(cause, "its ADD fails: ")); code != want || marked != text && code != report.AddFailed {
			t.Errorf("Event %q: %s, %q", text, code, cause)
		}
	}
	for events, want := range map[podEvents]string{
		{failed: "a"}:                       "its ADD fails: a",
		{sandbox: "type=\"capture-cni\" b"}: "its ADD fails: type=\"capture-cni\" b",
		{sandbox: "calico"}:                 "its sandbox fails, and not by capture-cni: calico",
		{}:                                  "the runtime sets up its network",
	} {
		if _, cause := whyNotStarted(events, record.Record{}); !strings.HasPrefix(cause, want) {
			t.Errorf("%+v: %s, want %s", events, cause, want)
		}
	}
}

// TestNotInMesh expects the reason for which a pod was not injected.
func TestNotInMesh(t *testing.T) {
	t.Parallel()
	const label = "sidecar.istio.io/inject"
	for want, change := range map[string]func(*corev1.Pod){
		"it has the network of its node": func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		label + " is false":              func(p *corev1.Pod) { p.Labels = map[string]string{label: "false"} },
		label + " is false: it was not":  func(p *corev1.Pod) { p.Annotations[label] = "false" },
		"netconf.meshes does not name":   func(*corev1.Pod) {},
		"istio.io/dataplane-mode is ambient": func(p *corev1.Pod) {
			p.Annotations, p.Labels = nil, map[string]string{"istio.io/dataplane-mode": "ambient"}
		},
		"it has no annotation": func(p *corev1.Pod) { p.Annotations = nil },
	} {
		pod := newPod("n1", "web", change)
		if code, cause := whyNotInMesh(&pod); !strings.HasPrefix(cause, want) || code.Advice() == "" {
			t.Errorf("%s: %s, want %s", code, cause, want)
		}
	}
}

// TestFleetIsGood expects a fleet to be good unless DaemonSets, nodes or pods need attention.
func TestFleetIsGood(t *testing.T) {
	t.Parallel()
	ready := []Node{{State: Ready}, {State: Removed}}
	for name, tt := range map[string]struct {
		f    Fleet
		want bool
	}{
		"good":           {Fleet{Nodes: ready, States: map[report.Code]int{report.Captured: 2, report.Exempt: 1, report.Uncaptured: 0}}, true},
		"no node":        {Fleet{}, false},
		"a node":         {Fleet{Nodes: []Node{{State: Ready}, {State: Stale}}}, false},
		"a pod":          {Fleet{Nodes: ready, States: map[report.Code]int{report.Uncaptured: 1}}, false},
		"injected later": {Fleet{Nodes: ready, States: map[report.Code]int{report.InjectedLater: 1}}, true},
		"a DaemonSet":    {Fleet{Nodes: ready, DaemonSets: []DaemonSet{{Observed: true, Desired: 1}}}, false},
		"DaemonSets":     {Fleet{Nodes: ready, DaemonSets: []DaemonSet{{Observed: true, Desired: 1, Updated: 1, Ready: 1}}}, true},
	} {
		if tt.f.Good() != tt.want {
			t.Errorf("%s: good is %v", name, !tt.want)
		}
	}
	for names, want := range map[string]string{"a": "a", "a b c": "a, b, c", "a b c d": "a, b, c and 1 more nodes", "a b c d e": "a, b, c and 2 more nodes"} {
		if got := Some(strings.Fields(names)); got != want {
			t.Errorf("some of %s: %s", names, got)
		}
	}
	for want, e := range map[int]Explanation{
		0: {State: report.Captured, Evidence: Evidence{Missing: make([]Missing, 2)}},
		1: {State: report.Unknown, Evidence: Evidence{Missing: make([]Missing, 1)}},
		2: {State: report.Unknown, Evidence: Evidence{Missing: make([]Missing, 2), Node: &NodeEvidence{State: Ready}}},
	} {
		if got := e.Unanswered(); got != want {
			t.Errorf("%d sources did not answer, want %d", got, want)
		}
	}
	if got := (Explanation{State: report.Unknown, Evidence: Evidence{Missing: make([]Missing, 2), Node: &NodeEvidence{State: Stale}}}).Unanswered(); got != 0 {
		t.Errorf("%d sources did not answer on a node that needs attention", got)
	}
}

// TestIntendedNode expects the node for which the controller of DaemonSets created a pod.
func TestIntendedNode(t *testing.T) {
	t.Parallel()
	of := func(key string, nodes ...string) *corev1.Affinity {
		fields := []corev1.NodeSelectorRequirement{{Key: key, Values: nodes}}
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{}, {MatchFields: fields}},
		}}}
	}
	for name, tt := range map[string]struct {
		affinity *corev1.Affinity
		want     string
	}{
		"none": {nil, ""}, "of pods": {&corev1.Affinity{}, ""}, "preferred": {&corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}, ""},
		"a node": {of("metadata.name", "n1"), "n1"}, "two": {of("metadata.name", "n1", "n2"), ""}, "a label": {of("zone", "n1"), ""}, "no node": {of("metadata.name"), ""},
	} {
		if got := intendedNode(&corev1.Pod{Spec: corev1.PodSpec{Affinity: tt.affinity}}); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestReadFailures expects the message of the newest Event about a pod that does not start.
func TestReadFailures(t *testing.T) {
	t.Parallel()
	about := func(reason, pod, message string, age time.Duration) corev1.Event {
		return corev1.Event{
			InvolvedObject: corev1.ObjectReference{Namespace: "shop", Name: pod}, Reason: reason, Message: message,
			LastTimestamp: metav1.NewTime(time.Now().Add(-age)),
		}
	}
	events := []corev1.Event{
		about(captureFailed, "web", "older", time.Hour), about(captureFailed, "web", "newest", time.Minute), about(captureFailed, "web", "oldest", 2*time.Hour),
		about("CaptureWarning", "web", "a warning", 0), about(captureFailed, "runs", "earlier", 0), about(captureFailed, "again", "of an earlier pod", 0),
		about(captureFailed, "web", "of an earlier pod", 0), about(captureFailed, "again", "of this pod", time.Minute),
	}
	for i, uid := range []types.UID{"earlier", "earlier", "1"} {
		events[len(events)-3+i].InvolvedObject.UID = uid
	}
	query, requests := "", 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		if query = r.URL.Query().Get("fieldSelector"); events == nil {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		encode(w, http.StatusOK, &corev1.EventList{Items: events})
	}))
	t.Cleanup(server.Close)
	client, err := NewClient(&rest.Config{Host: server.URL})
	lab.Check(t, err)
	pods := []Pod{
		{Namespace: "shop", Name: "runs", State: report.Uncaptured},
		{Namespace: "shop", Name: "web", State: report.NotStarted, uid: "1"},
		{Namespace: "shop", Name: "again", State: report.NotStarted, uid: "1"},
	}
	f := Fleet{Pods: pods}
	f.ReadFailures(t.Context(), client)
	if f.Pods[0].Failure != "" || f.Pods[1].Failure != "newest" || f.Pods[2].Failure != "of this pod" || f.Notes != nil || query != "involvedObject.kind=Pod,reason=CaptureFailed" {
		t.Errorf("%+v, notes %q, asked for %s", f.Pods, f.Notes, query)
	}
	events = nil
	f.ReadFailures(t.Context(), client)
	if len(f.Notes) != 1 || !strings.HasPrefix(f.Notes[0], "why pods do not start is not known: listing the Events of failed ADDs: ") {
		t.Errorf("notes %q", f.Notes)
	}
	(&Fleet{Pods: pods[:1]}).ReadFailures(t.Context(), client)
	if requests != 2 {
		t.Errorf("%d requests", requests)
	}
}

// TestWhyDown expects the reason for which a Node is not ready.
func TestWhyDown(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		conditions []corev1.NodeCondition
		want       string
	}{
		"ready":    {[]corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}, ""},
		"none":     {nil, "its kubelet has not reported"},
		"another":  {[]corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Message: "enough"}}, "its kubelet has not reported"},
		"a reason": {[]corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "Down"}}, "Down"},
		"mute":     {[]corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}, "its kubelet has not reported"},
	} {
		node := &corev1.Node{Status: corev1.NodeStatus{Conditions: tt.conditions}}
		node.Status.NodeInfo = corev1.NodeSystemInfo{KernelVersion: "6.12", ContainerRuntimeVersion: "containerd://2", OSImage: "Debian", Architecture: "arm64"}
		if got, kind := whyDown(node), kindOf(node); got != tt.want || kind != "6.12, containerd://2, Debian, arm64" {
			t.Errorf("%s: %q, want %q; kind %s", name, got, tt.want, kind)
		}
	}
}
