// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podfields"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// podKind is what the API server says about a pod.
type podKind string

const (
	meshed  podKind = "a meshed pod"
	other   podKind = "another pod"
	refused podKind = "a refused pod" // a meshed one with an annotation that no plugin understands
)

// pod is one that the kubelet wants to run.
type pod struct {
	*corev1.Pod
	kind    podKind
	sandbox string            // id of the last one
	netns   *namespace        // of its sandbox, nil if it has none
	created map[string]string // annotations at that time
	started time.Time
	damaged time.Time // the last change of its rules by one of its processes
	tries   int
}

func (p *pod) ref() capture.PodRef {
	return capture.PodRef{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)}
}

// outcome is what became of an ADD.
type outcome string

const (
	captured   outcome = "captured"
	uncaptured outcome = "uncaptured"
	failed     outcome = "failed"
)

// maxPods is how many pods the node runs.
const maxPods = 20

// schedule lets the scheduler bind a pod to the node, and the kubelet start it.
func (w *world) schedule(kind podKind) (result outcome, why string) {
	if len(w.pods) == maxPods {
		w.endPods()
	}
	w.runtime.added++
	p := &pod{kind: kind, Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: fmt.Sprint("web-", w.runtime.added), UID: types.UID(fmt.Sprintf("%08d-0000", w.runtime.added)),
			Annotations: map[string]string{"kubernetes.io/config.source": "api"},
		},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "app"}}},
	}}
	if kind != other {
		p.Annotations["sidecar.istio.io/status"] = "{}"
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "istio-proxy", Args: []string{"proxy", "sidecar"}})
	}
	if kind == refused {
		p.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "none"
	}
	w.api.Put(p.Pod)
	if w.agentWatches() {
		w.check(w.agent.pods.Store().Add(p.DeepCopy()))
	}
	w.pods = append(w.pods, p)
	return w.start(p)
}

// retry lets the kubelet try again to start pods. It gives up pods that can't start.
func (w *world) retry() {
	for _, p := range w.pods {
		if p.netns == nil && (p.kind != refused || p.tries < 5) && w.failure == nil {
			w.start(p)
		}
	}
}

// start starts a pod, as the kubelet has the runtime do, and checks what came of it.
func (w *world) start(p *pod) (result outcome, why string) {
	w.watch()
	due, known := w.isDue(), w.isKnown(p)
	result, why = w.run(p)
	p.tries++
	w.reach(string(p.kind) + ": " + string(result))
	isCalled := w.runtime.state == "up" && w.runtime.has.calls()
	switch {
	case result == failed && strings.HasPrefix(why, "our program"):
		if p.kind == other && !w.accident {
			w.fail("%s does not start: %s", p.kind, why)
		}
	case isCalled && p.kind == refused && result != failed:
		w.fail("%s starts, although its annotations have a fault", p.kind)
	case isCalled && p.kind == meshed && result == uncaptured:
		w.fail("%s starts without rules", p.kind)
	case isCalled && p.kind == other && result == captured:
		w.fail("%s has rules", p.kind)
	case isCalled && p.kind != refused && result == failed && known:
		w.fail("%s does not start: %s", p.kind, why)
	case p.kind == meshed && result != captured && due && w.agent != nil && w.agent.state == "present":
		w.fail("%s on a node without a fault: %s %s", p.kind, result, why)
	case p.kind == other && result == failed && due && w.agent != nil && w.agent.state == "present":
		w.fail("%s does not start on a node without a fault: %s", p.kind, why)
	}
	return result, why
}

// isKnown reports whether the plugin can decide about a pod: by the annotations that the runtime passes,
// by the agent, or by the API server.
func (w *world) isKnown(p *pod) bool {
	switch {
	case p.kind == other && !w.runtime.omits:
		return true
	case w.agentServes() && (w.apiState == "ok" || w.agent.pods.Watches(p.ref())):
		return true
	}
	return w.apiState == "ok" && w.credentials() != ""
}

// run makes a pod's sandbox, and calls the plugins.
func (w *world) run(p *pod) (result outcome, why string) {
	switch {
	case w.runtime.state != "up":
		return failed, "the runtime does not answer"
	case w.runtime.has.Network == "":
		return failed, "no network"
	}
	w.runtime.sandboxes++
	p.sandbox, p.created, p.started = fmt.Sprintf("sandbox-%d", w.runtime.sandboxes), maps.Clone(p.Annotations), time.Now()
	netns := &namespace{path: pathOf(p.sandbox), generation: 1}
	if w.runtime.has.calls() {
		if err := w.add(p, netns); err != nil {
			w.del()
			return failed, err.Error()
		}
	}
	p.netns = netns
	about := &runtimeapi.PodSandboxMetadata{Namespace: p.Namespace, Name: p.Name, Uid: string(p.UID)}
	sandbox := &runtimeapi.PodSandbox{Id: p.sandbox, Metadata: about, CreatedAt: p.started.UnixNano()}
	if p.kind != other {
		sandbox.Annotations = p.created
	}
	w.runtime.pods = append(w.runtime.pods, sandbox)
	if netns.rules == nil {
		return uncaptured, ""
	}
	if want := w.want(p); !reflect.DeepEqual(netns.rules, want) {
		w.fail("%s has other rules than those of its annotations: %+v", p.kind, netns.rules)
	}
	return captured, ""
}

// want returns the rules that a pod needs.
func (w *world) want(p *pod) *capture.Ruleset {
	created := p.DeepCopy()
	created.Annotations = p.created
	decision, err := capture.Decide(podfields.Of(created), config.Default().Capture)
	w.check(err)
	decision, err = podnet.Complete(decision, podAddresses)
	w.check(err)
	rules := decision.Rules.WithStamp()
	return &rules
}

// agentWatches reports whether the agent has an open watch of the node's pods.
func (w *world) agentWatches() bool {
	return w.agentServes() && w.agent.synced && (w.apiState == "ok" || w.apiState == "slow" || w.apiState == "half")
}

// endPods ends all pods.
func (w *world) endPods() {
	for _, p := range w.pods {
		if p.netns != nil {
			w.del()
		}
		w.api.Delete(p.Namespace, p.Name)
		if w.agentWatches() {
			w.check(w.agent.pods.Store().Delete(p.Pod))
		}
	}
	w.pods, w.runtime.pods = nil, nil
	w.disturb()
}
