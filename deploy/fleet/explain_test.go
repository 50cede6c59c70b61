// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// explainCase contains the answers of an API server and an agent about the pod shop/web, and the
// expected explanation.
type explainCase struct {
	pod    *corev1.Pod
	events []corev1.Event
	agent  []string            // the containers of the agent's pod; nil means no agent
	answer *report.Explanation // the agent's answer
	says   string              // the output of the command in the agent's pod, if it is not an answer
	fails  error
	denied string // a resource for which the permission is missing
	meshes string // the enabled meshes, as JSON
	node   *corev1.Node

	state             report.Code
	cause, next       string
	evidence, without []string
	container         string // the container in which the command is executed; empty means none
}

func (c *explainCase) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	var answer any = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound}
	switch {
	case c.denied != "" && strings.HasSuffix(r.URL.Path, "/"+c.denied):
		w.WriteHeader(http.StatusForbidden)
		answer = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden}
	case strings.HasSuffix(r.URL.Path, "/pods/web") && c.pod != nil:
		c.pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		answer = c.pod
	case strings.HasSuffix(r.URL.Path, "/events"):
		answer = corev1.EventList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"}, Items: c.events}
	case r.URL.Path == "/apis/apps/v1/namespaces/capture-cni/daemonsets":
		set := daemonSet
		set.Spec.Template.Spec.Containers = []corev1.Container{{Name: InstallerContainer, Env: []corev1.EnvVar{{Name: NetConfVariable, Value: c.meshes}}}}
		answer = appsv1.DaemonSetList{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSetList"}, Items: []appsv1.DaemonSet{set}}
	case strings.HasSuffix(r.URL.Path, "/nodes/node-1") && c.node != nil:
		c.node.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
		answer = c.node
	case r.URL.Path == "/api/v1/namespaces/capture-cni/pods":
		all := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
		if c.agent != nil {
			all.Items = []corev1.Pod{newAgent("other", corev1.ConditionTrue), newAgent("node-1", corev1.ConditionTrue, c.agent...), newAgent("another", corev1.ConditionTrue)}
		}
		for _, poser := range posers("node-1") {
			all.Items = append(all.Items, poser)
		}
		answer = all
	case strings.HasSuffix(r.URL.Path, "/namespaces/capture-cni/leases/node-1"):
		lease := newLease("node-1", 0, good(&report.Pods{}))
		lease.TypeMeta = metav1.TypeMeta{APIVersion: coordination.SchemeGroupVersion.String(), Kind: "Lease"}
		answer = lease
	default:
		w.WriteHeader(http.StatusNotFound)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func event(reason, message string) corev1.Event {
	return corev1.Event{
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "web"}, Type: "Warning", Reason: reason, Message: message, Count: 3,
		Source: corev1.EventSource{Host: "node-1"},
	}
}

// earlier returns Events of several failed attempts, the last attempt first.
func earlier(attempts int) (all []corev1.Event) {
	for attempt := range attempts {
		one := event("CaptureFailed", fmt.Sprint("attempt ", attempt))
		one.LastTimestamp = metav1.Date(2026, 1, 2, 3, attempt, 0, 0, time.UTC)
		all = slices.Insert(all, 0, one)
	}
	return all
}

// aboutAnother is an Event about another pod, whose name begins with the name of this pod.
var aboutAnother = func() corev1.Event {
	other := event("CaptureFailed", "of another")
	other.InvolvedObject.Name, other.LastTimestamp = "web-2", metav1.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC)
	return other
}()

// aboutEarlier is an Event about an earlier pod of the same name.
var aboutEarlier = func() corev1.Event {
	before := event("CaptureFailed", "of an earlier pod")
	before.InvolvedObject.UID, before.LastTimestamp = "earlier", metav1.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC)
	return before
}()

// notStarted returns a pod of the mesh that has no sandbox yet.
func notStarted() *corev1.Pod {
	pod := newPod("node-1", "web", func(pod *corev1.Pod) {
		pod.UID, pod.Status.Phase = "uid-1", corev1.PodPending
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse}}
	})
	return &pod
}

func meshed(change func(*corev1.Pod)) *corev1.Pod {
	pod := newPod("node-1", "web", change)
	return &pod
}

// TestExplain explains pods in each state, and expects the cause, the evidence and the next step.
func TestExplain(t *testing.T) {
	t.Parallel()
	both, installer := []string{InstallerContainer, GuardContainer}, []string{InstallerContainer}
	answer := func(state report.Code, because string, add *record.Record) *report.Explanation {
		return &report.Explanation{Form: report.ExplanationForm, Namespace: "shop", Name: "web", UID: "uid-1", Examined: state != "", State: state, Because: because, Add: add}
	}
	byBackend := func(backend string) *record.Record {
		return &record.Record{Time: addedAt, Verdict: record.Captured, Backend: backend}
	}
	failed := func(reason capture.Reason, message string) *record.Record {
		return &record.Record{Time: addedAt, Verdict: record.Failed, Reason: reason, Message: message}
	}
	ofEarlier := func(add *record.Record) *report.Explanation {
		p := answer("", "", add)
		p.UID = "uid-0"
		return p
	}
	for name, c := range map[string]*explainCase{
		"captured": {
			pod: meshed(func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(addedAt) }), agent: both, answer: withKernel(answer(report.Captured, "", byBackend("nftables"))),
			state: "captured", cause: "holds the rules", next: "none", evidence: []string{"pod: Running, created at 2026-01-02T03:04:05Z", "node: ready, agent v0.3.0", "agent-of-node-1, container guard: ", "kernel       backend nftables"}, container: GuardContainer,
		},
		"uncaptured": {
			pod: meshed(nil), agent: both, answer: answer(report.Uncaptured, "no rules of the plugin are in its network namespace", nil),
			state: "uncaptured", cause: "no rules of the plugin", next: "guard.policy=inPlace", container: GuardContainer,
		},
		"an ADD that fails": {
			pod: notStarted(), agent: both, answer: answer("", "", failed(capture.ReasonAnnotations, `excludeOutboundPorts is "http": expected ports`)),
			events: []corev1.Event{event("FailedCreatePodSandBox", "plugin type=\"capture-cni\" failed"), event("CaptureFailed", "excludeOutboundPorts"), event("Pulled", "an image")},
			state:  "not started", cause: `its ADD fails: excludeOutboundPorts is "http": expected ports`, next: "correct the annotations",
			evidence: []string{"event: Warning FailedCreatePodSandBox, 3 times"}, without: []string{"an image"}, container: GuardContainer,
		},
		"the record of an earlier pod of that name": {
			pod: notStarted(), agent: both, answer: ofEarlier(failed(capture.ReasonLookup, "an earlier fault")), events: []corev1.Event{aboutEarlier},
			without: []string{"of an earlier pod"},
			state:   "not started", cause: "no error is known", next: "in a minute", container: GuardContainer,
		},
		"an image that the kubelet pulls": {
			pod: notStarted(), agent: both, answer: answer("captured", "", byBackend("nftables")),
			state: "captured", cause: "holds the rules", container: GuardContainer,
		},
		"an earlier pod that still runs": {
			pod: func() *corev1.Pod { pod := notStarted(); pod.UID = "uid-2"; return pod }(), agent: both, answer: answer("captured", "", byBackend("nftables")),
			state: "not started", cause: "no error is known", next: "in a minute", container: GuardContainer,
		},
		"another plugin that fails": {
			pod: notStarted(), agent: both, events: []corev1.Event{event("FailedCreatePodSandBox", "plugin type=\"calico\" failed: no address")}, fails: errors.New("not here"),
			state: "not started", cause: "not by capture-cni: plugin type=\"calico\"", next: "correct", evidence: []string{"container guard: not here"}, container: GuardContainer,
		},
		"many Events, and one of another pod": {
			pod: notStarted(), agent: both, events: slices.Concat(earlier(6), []corev1.Event{aboutAnother}), answer: answer("", "", nil),
			state: "not started", cause: "its ADD fails: attempt 5", next: "the kubelet retries",
			evidence: []string{"attempt 5", "attempt 4", "attempt 1", "last at 2026-01-02T03:05:00Z"}, without: []string{"attempt 0", "of another"}, container: GuardContainer,
		},
		"gone": {
			events: []corev1.Event{event("CaptureFailed", "no answer")}, agent: both, answer: ofEarlier(failed(capture.ReasonLookup, "no answer")),
			state: "gone", cause: "its last ADD failed: no answer", next: "kubectl get pods", evidence: []string{"event: Warning CaptureFailed"}, container: GuardContainer,
		},
		"ended": {
			pod: meshed(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), agent: both, answer: answer("", "", byBackend("nftables")),
			state: "gone", cause: "no such pod runs", next: "kubectl get pods --namespace shop", container: GuardContainer,
		},
		"failed": {
			pod: meshed(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), agent: both, answer: answer("", "", nil),
			state: "gone", cause: "no such pod runs", next: "kubectl get pods --namespace shop", container: GuardContainer,
		},
		"ended, outside the mesh": {
			pod: meshed(func(p *corev1.Pod) { p.Status.Phase, p.Annotations = corev1.PodSucceeded, nil }), state: "not in the mesh", cause: "no injector asked to capture it",
		},
		"static, with an Event and an answer for the kubelet's UID": {
			pod: func() *corev1.Pod {
				pod := notStarted()
				pod.UID = "of-the-mirror"
				metav1.SetMetaDataAnnotation(&pod.ObjectMeta, corev1.MirrorPodAnnotationKey, "earlier")
				return pod
			}(), agent: both, answer: answer("", "", nil), events: []corev1.Event{aboutEarlier},
			state: "not started", cause: "its ADD fails: of an earlier pod", next: "the kubelet retries", container: GuardContainer,
		},
		"never made": {state: "gone", cause: "no such pod runs", next: "kubectl get pods --namespace shop"},
		"not scheduled": {
			pod: meshed(func(p *corev1.Pod) {
				p.Spec.NodeName = ""
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/3 nodes are available"}}
			}),
			state: "not scheduled", cause: "0/3 nodes are available", next: "describe", without: []string{"node"},
		},
		"of a mesh that is off": {
			pod: meshed(nil), agent: both, meshes: `{"meshes":["linkerd"]}`, state: "not in the mesh", cause: "netconf.meshes does not name its mesh",
		},
		"on a node that is down": {
			pod: meshed(nil), agent: both, fails: errNotHere, node: new(newNode("node-1", corev1.ConditionFalse, nil)),
			state: "unknown", cause: "the agent of its node did not answer: the Node is not ready", next: "describe node node-1",
			evidence: []string{"node: faulty"}, container: GuardContainer,
		},
		"without the permission to read the pod": {denied: "pods/web"},
		"without the permission to list Events": {
			pod: meshed(nil), agent: both, denied: "events", answer: answer(report.Captured, "", nil),
			state: "captured", evidence: []string{"events: listing the Events of pod shop/web: "}, container: GuardContainer,
		},
		"without the permission to read the Lease": {
			pod: meshed(nil), agent: both, denied: "leases/node-1", answer: answer(report.Captured, "", nil),
			state: "captured", evidence: []string{"node: its Lease is not known: "}, container: GuardContainer,
		},
		"not injected": {
			pod:   meshed(func(p *corev1.Pod) { p.Annotations = nil }),
			state: "not in the mesh", cause: "no annotation sidecar.istio.io/status", next: "enable injection (istio-injection=enabled",
		},
		"of the node": {
			pod:   meshed(func(p *corev1.Pod) { p.Spec.HostNetwork = true }),
			state: "not in the mesh", cause: "hostNetwork", next: "if intended",
		},
		"left out by a label": {
			pod: meshed(func(p *corev1.Pod) {
				p.Annotations, p.Labels = nil, map[string]string{"sidecar.istio.io/inject": "false"}
			}),
			state: "not in the mesh", cause: "sidecar.istio.io/inject is false", next: "if intended",
		},
		"captured by iptables": {
			pod: meshed(nil), agent: installer, answer: answer("", "", byBackend("iptables-nft")),
			state: "unknown", cause: "its ADD captured it by iptables-nft", next: "istio-validation", container: InstallerContainer,
		},
		"with istio-init": {
			pod: meshed(func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{{Name: "istio-init", SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}}}}
			}),
			agent: both, answer: answer(report.Exempt, "container istio-init sets up the capture itself", nil),
			state: "exempt", cause: "istio-init sets up the capture itself", next: "pilot.cni.enabled=true", container: GuardContainer,
		},
		"in an excluded namespace": {
			pod: meshed(nil), agent: both, answer: answer(report.Exempt, "namespace shop is in excludeNamespaces", nil),
			state: "exempt", cause: "excludeNamespaces", next: "if intended", container: GuardContainer,
		},
		"on a node without an agent": {
			pod: meshed(nil), state: "unknown", cause: "the agent of its node did not answer: no agent runs on the node", next: "describe daemonset capture-cni-node", evidence: []string{"node: no agent"},
		},
		"without the permission to list DaemonSets": {
			pod: meshed(nil), agent: both, denied: "daemonsets", state: "unknown", cause: "no guard's finding", next: "guard.enabled=true",
			evidence: []string{"its agent is not known", "capture-cni-operator"}, without: []string{"none runs on the node"},
		},
		"without the permission to list agents": {
			pod: meshed(nil), agent: both, denied: "pods", state: "unknown", cause: "no guard's finding", next: "guard.enabled=true",
			evidence: []string{"its agent is not known", "capture-cni-operator"}, without: []string{"none runs on the node"},
		},
		"without the permission to execute": {
			pod: meshed(nil), agent: both, fails: errors.New("pods/exec is forbidden"),
			state: "unknown", cause: "see the evidence", next: "what the evidence names", evidence: []string{"pods/exec is forbidden"}, container: GuardContainer,
		},
		"an ADD that failed at another time zone, with several lines": {
			pod: notStarted(), agent: both,
			answer: answer("", "", &record.Record{Time: addedAt.In(time.FixedZone("", 3600)), Verdict: record.Failed, Reason: capture.ReasonAnnotations, Message: "a is wrong\nb is wrong\nstate        captured"}),
			state:  "not started", cause: "a is wrong\nb is wrong\nstate", next: "correct the annotations", evidence: []string{"last ADD     2026-01-02T03:04:05Z: failed (annotations): a is wrong\n             b is wrong\n             state"}, container: GuardContainer,
		},
		"an agent that knows more": {
			pod: meshed(nil), agent: both, says: `{"form":1,"namespace":"shop","name":"web","uid":"uid-1","later":{"a":1},"examined":true,"state":"drifted","because":"a rule is missing","kernel":{"colour":"blue"}}`,
			state: "drifted", cause: "a rule is missing", next: "guard.policy=inPlace", container: GuardContainer,
		},
		"an agent of another form": {
			pod: meshed(nil), agent: both, says: `{"form":2,"state":"captured"}`, state: "unknown", cause: "see the evidence", next: "what the evidence names",
			evidence: []string{"it has form 2, expected 1. The agent is v0.3.0 and this plugin v9: use the plugin of the agent's version"}, container: GuardContainer,
		},
		"an agent before the form": {
			pod: meshed(nil), agent: both, fails: commandFailed("unknown flag: --output"), state: "unknown", cause: "see the evidence", next: "what the evidence names",
			evidence: []string{"unknown flag: --output. The agent is v0.3.0 and this plugin v9"}, container: GuardContainer,
		},
		"an agent that refuses a value": {
			pod: meshed(nil), agent: both, fails: commandFailed(`--to is "foo": expected IP:PORT`), state: "unknown", cause: "see the evidence", next: "what the evidence names",
			evidence: []string{`--to is "foo": expected IP:PORT`}, without: []string{"this plugin"}, container: GuardContainer,
		},
		"an answer that is cut": {
			pod: meshed(nil), agent: both, says: `{"form":1,"state":"captured"`, state: "unknown", cause: "see the evidence", next: "what the evidence names",
			evidence: []string{"reading the agent's answer: "}, container: GuardContainer,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.run(t)
		})
	}
}

func (c *explainCase) run(t *testing.T) {
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	client, err := NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	executed := ""
	exec := func(_ context.Context, agent Agent, container string, command []string, out io.Writer) error {
		executed = container
		if agent.name != "agent-of-node-1" || !slices.Equal(command, []string{"/capture-cni-node", "explain", "--output=json", "shop/web"}) {
			t.Errorf("%q is executed in %s", command, agent.name)
		}
		return c.execute(out)
	}
	e, err := Explainer{Client: client, Exec: exec, Namespace: DefaultNamespace, Version: "v9"}.Explain(t.Context(), "shop", "web")
	if c.state == "" && err != nil && strings.HasPrefix(err.Error(), "reading pod shop/web: ") {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if e.Finding.Subject != "shop/web" || e.Finding.Code == "" || e.Finding.Severity != e.State.Severity() {
		t.Errorf("%+v", e.Finding)
	}
	if e.State != c.state || !strings.Contains(e.Finding.Reason, c.cause) || !strings.Contains(e.Finding.Next, c.next) || e.Finding.Next == "" {
		t.Errorf("state %q, cause %q, next %q", e.State, e.Finding.Reason, e.Finding.Next)
	}
	if executed != c.container {
		t.Errorf("executed in %q, want %q", executed, c.container)
	}
	evidence := describe(e.Evidence)
	for _, want := range c.evidence {
		if !strings.Contains(evidence, want) {
			t.Errorf("%q is missing in the evidence:\n%s", want, evidence)
		}
	}
	for _, unwanted := range c.without {
		if strings.Contains(evidence, unwanted) {
			t.Errorf("%q is in the evidence:\n%s", unwanted, evidence)
		}
	}
	if good := e.Good(); good == slices.Contains([]report.Code{report.Gone, report.Unknown, report.Uncaptured, report.Drifted, report.NotStarted, report.NotScheduled}, c.state) {
		t.Errorf("%s is good: %v", c.state, good)
	}
}

// addedAt is the time at which the recorded ADDs began.
var addedAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func withKernel(p *report.Explanation) *report.Explanation {
	p.Kernel = &report.Kernel{Backend: "nftables"}
	return p
}

// execute writes the agent's answer.
func (c *explainCase) execute(out io.Writer) error {
	switch {
	case c.fails != nil:
		return c.fails
	case c.answer != nil:
		return json.NewEncoder(out).Encode(c.answer)
	}
	_, err := io.WriteString(out, c.says)
	return err
}

// describe returns the evidence as text, with one line for each source.
func describe(e Evidence) string {
	var out strings.Builder
	for _, event := range e.Events {
		fmt.Fprintf(&out, "event: %s %s, %d times, last at %s: %s\n", event.Type, event.Reason, event.Count, event.Last.Format(time.RFC3339), event.Message)
	}
	if e.Pod != nil {
		fmt.Fprintf(&out, "pod: %s, created at %s\n", e.Pod.Phase, e.Pod.Created.Format(time.RFC3339))
	}
	if e.Node != nil {
		fmt.Fprintf(&out, "node: %s, agent %s\n", e.Node.State, e.Node.Version)
	}
	if e.Agent != nil {
		fmt.Fprintf(&out, "%s, container %s: %s\n", e.Agent.Agent, e.Agent.Container, e.Agent.Answer.Text())
	}
	for _, missing := range e.Missing {
		fmt.Fprintf(&out, "%s: %s\n", missing.Source, missing.Reason)
	}
	return out.String()
}

// TestForm expects the JSON of status, explain and precheck to contain each key of release 0.3, and the
// code.
func TestForm(t *testing.T) {
	t.Parallel()
	one := report.Finding{Code: report.EntryMissing, Severity: report.Problem, Subject: "entry", Reason: "no list", Next: "wait"}
	node := NodeEvidence{State: Faulty, Findings: report.Findings{one}, Version: "v1"}
	for want, value := range map[string]any{
		`{"name":"n","state":"faulty","meshed":0,"reasons":["entry: no list"],"codes":["entry-missing"],"nextStep":"wait"}`: Node{
			Name: "n", State: Faulty, Findings: node.Findings,
		},
		`{"pod":"shop/web","node":"n","state":"drifted","cause":"a rule more","code":"drifted",` +
			`"evidence":{"node":{"state":"faulty","reasons":["entry: no list"],"codes":["entry-missing"],"nextStep":"wait","version":"v1"}},"nextStep":"look"}`: Explanation{
			Pod: "shop/web", Node: "n", State: report.Drifted, Finding: report.Finding{Code: report.Drifted, Reason: "a rule more", Next: "look"}, Evidence: Evidence{Node: &node},
		},
		`{"code":"entry-missing","level":"problem","subject":"entry","text":"no list","nextStep":"wait"}`: one,
	} {
		if got, err := json.Marshal(value); err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}

// TestExemptIsAdvised expects a next step for each cause of an exemption.
func TestExemptIsAdvised(t *testing.T) {
	t.Parallel()
	advice := map[string]string{
		"init_container": "pilot.cni.enabled=true", "no_proxy": "if intended", "disable_envoy": "if intended", "proxy_type": "if intended",
		"inject_false": "correct the label", "interception_none": "correct the annotation", "namespace_excluded": "excludeNamespaces",
	}
	for _, cause := range report.MeshedExemptions() {
		want, known := advice[string(cause)]
		if got := advisePod(Pod{State: report.Exempt, Cause: cause}); !known || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", cause, got, want)
		}
	}
}
