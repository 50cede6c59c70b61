// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capture-cni/capture-cni/install/report"
)

// podEvents contains the facts in the Events about a pod.
type podEvents struct {
	node    string // node of the agent or kubelet that posted the last Event that names one
	failed  string // message of the last failed ADD
	sandbox string // the kubelet's last message about the sandbox
}

// captureFailed is the reason of the agents' Events about failed ADDs.
const captureFailed = "CaptureFailed"

// maxEvents limits the Events in an explanation.
const maxEvents = 5

// readEvents reads the Events about a pod, without those about an earlier pod of the same name. pod is nil
// if no such pod exists.
func (x Explainer) readEvents(ctx context.Context, e *Explanation, pod *corev1.Pod, namespace, name string) (found podEvents) {
	var about []*corev1.Event
	ofPod := metav1.ListOptions{FieldSelector: "involvedObject.kind=Pod,involvedObject.name=" + name}
	err := Each(ctx, x.Client, namespace, &corev1.EventList{}, ofPod, func(event *corev1.Event) {
		if event.InvolvedObject.Name == name && (pod == nil || isAbout(event, uidOnNode(pod))) &&
			(strings.HasPrefix(event.Reason, "Capture") || event.Reason == "FailedCreatePodSandBox") {
			about = append(about, event)
		}
	})
	if err != nil {
		e.missing("events", fmt.Sprintf("listing the Events of pod %s/%s: %s", namespace, name, err))
		return found
	}
	slices.SortStableFunc(about, func(a, b *corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	for _, event := range about {
		switch event.Reason {
		case "FailedCreatePodSandBox":
			found.sandbox = event.Message
		case captureFailed:
			found.failed = event.Message
		}
		found.node = cmp.Or(event.Source.Host, found.node)
	}
	for _, event := range about[max(0, len(about)-maxEvents):] {
		e.Evidence.Events = append(e.Evidence.Events, EventEvidence{
			Type: event.Type, Reason: event.Reason, Count: max(1, event.Count), Last: event.LastTimestamp.UTC(), Message: event.Message,
		})
	}
	return found
}

// isAbout reports whether an agent's or kubelet's Event is about the pod with this UID on its node, and not
// about an earlier pod of the same name.
func isAbout(event *corev1.Event, uid types.UID) bool {
	return event.InvolvedObject.UID == "" || event.InvolvedObject.UID == uid
}

// readNode adds the node's state and its agent's explanation of the pod to the evidence. It reports
// whether the agent has a guard.
func (x Explainer) readNode(ctx context.Context, e *Explanation, namespace, name string) (guarded bool) {
	o, agent, err := x.Client.observeNode(ctx, x.Namespace, e.Node)
	if err != nil {
		e.missing("node", "its agent is not known: "+err.Error())
	}
	known := &corev1.Node{}
	if err := x.Client.Get(ctx, metav1.NamespaceNone, e.Node, known); err == nil {
		o.nodes[e.Node] = known
	}
	lease, leaseErr := read(ctx, x.Client, "Lease", x.Namespace, e.Node, &coordination.Lease{})
	switch {
	case leaseErr != nil && !apierrors.IsNotFound(leaseErr):
		e.missing("node", "its Lease is not known: "+leaseErr.Error())
	case err == nil:
		node := o.node(e.Node, agent, lease)
		e.Evidence.Node = &NodeEvidence{State: node.State, Findings: node.Findings, Version: node.Version}
	}
	if agent == nil { // the evidence already contains the node's state or the error
		return false
	}
	container := InstallerContainer
	if agent.guarded {
		container = GuardContainer
	}
	found := AgentEvidence{Agent: agent.name, Container: container}
	if err := x.ask(ctx, *agent, container, &found.Answer, "explain", "--output=json", namespace+"/"+name); err != nil {
		node := cmp.Or(e.Evidence.Node, &NodeEvidence{})
		e.missing("agent "+agent.name+", container "+container, x.withVersions(err, node.Version).Error())
	} else {
		e.Evidence.Agent = &found
	}
	return agent.guarded
}

// ask executes a command of the agent's program in a container of the agent's pod, and decodes the
// output.
func (x Explainer) ask(ctx context.Context, agent Agent, container string, into any, args ...string) error {
	answer, err := x.Exec.output(ctx, agent, container, explainTimeout, report.MaxExplanation, args...)
	if err != nil {
		return err
	}
	return report.DecodeAnswer(answer, into)
}

// withVersions adds the versions of agent and kubectl plugin to an error, if they differ and the
// difference can be the cause.
func (x Explainer) withVersions(err error, agent string) error {
	failed, _ := errors.AsType[commandFailed](err)
	if agent == "" || agent == x.Version || report.SkewAdvice(string(failed)) == "" && !errors.Is(err, report.ErrAnswer) {
		return err
	}
	return fmt.Errorf("%w. The agent is %s and this plugin %s: use the plugin of the agent's version", err, agent, x.Version)
}
