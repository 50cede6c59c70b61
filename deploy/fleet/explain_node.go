// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// podEvents are the Events about a pod.
type podEvents struct {
	node    string // of the agent that posted one
	failed  string // the last message of an ADD that failed
	sandbox string // the last message of the kubelet about the sandbox
}

// maxEvents is how many Events are shown.
const maxEvents = 5

// readEvents adds the last Events about the pod.
func (x Explainer) readEvents(ctx context.Context, e *Explanation, namespace, name string) (found podEvents) {
	all, err := x.Client.events(ctx, namespace, name)
	if err != nil {
		e.add("events", "not known: %v", err)
		return found
	}
	about := slices.DeleteFunc(all, func(event corev1.Event) bool {
		return event.InvolvedObject.Name != name || !strings.HasPrefix(event.Reason, "Capture") && event.Reason != "FailedCreatePodSandBox"
	})
	slices.SortStableFunc(about, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	for _, event := range about {
		switch event.Reason {
		case "FailedCreatePodSandBox":
			found.sandbox = event.Message
		case "CaptureFailed":
			found.failed = event.Message
		}
		found.node = cmp.Or(event.Source.Host, found.node)
	}
	for _, event := range about[max(0, len(about)-maxEvents):] {
		e.add("event", "%s %s, %d times, last at %s: %s", event.Type, event.Reason, max(1, event.Count), event.LastTimestamp.UTC().Format("2006-01-02T15:04:05Z"), event.Message)
	}
	return found
}

// nodeEvidence is what the node says of a pod.
type nodeEvidence struct {
	uid            string // of the pod that the agent knows
	state, because string
	add            lastADD
	guarded        bool
}

// lastADD is the record of a pod's last ADD.
type lastADD struct{ verdict, reason, backend, message string }

// readNode adds the node's state, and what the agent there explains.
func (x Explainer) readNode(ctx context.Context, e *Explanation, namespace, name string) (found nodeEvidence) {
	agent, err := x.Client.agentOn(ctx, x.Namespace, e.Node)
	if err != nil {
		e.add("node", "its agent is not known: %v", err)
	}
	lease, leaseErr := x.Client.lease(ctx, x.Namespace, e.Node)
	if apierrors.IsNotFound(leaseErr) {
		lease, leaseErr = nil, nil
	}
	switch {
	case leaseErr != nil:
		e.add("node", "its Lease is not known: %v", leaseErr)
	case agent != nil || lease != nil && err == nil:
		node := leaseEvidence(lease, agent)
		e.add("node", "%s, agent %s", strings.Join(append([]string{string(node.State)}, node.Reasons...), ": "), cmp.Or(node.Version, "of an unknown version"))
	}
	switch {
	case err != nil:
		return found
	case agent == nil:
		e.add("agent", "none runs on the node: nothing was examined there")
		return found
	}
	found.guarded = agent.guarded
	container := InstallerContainer
	if found.guarded {
		container = GuardContainer
	}
	return x.askAgent(ctx, e, *agent, container, namespace, name, found)
}

// askAgent executes explain in a container of the agent's pod.
func (x Explainer) askAgent(ctx context.Context, e *Explanation, agent Agent, container, namespace, name string, found nodeEvidence) nodeEvidence {
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	var out strings.Builder
	err := x.Exec(ctx, agent, container, []string{"/capture-cni-node", "explain", namespace + "/" + name}, &limitedWriter{&out, maxOutput})
	source := "agent " + agent.name + ", container " + container
	if text := strings.TrimSpace(out.String()); text != "" {
		e.add(source, "%s", text)
	}
	if err != nil {
		e.add(source, "%v", err)
	}
	found.read(out.String())
	return found
}

// Lines of what the agent explains.
var (
	uidLine     = regexp.MustCompile(`(?m)^pod +\S+, UID (\S+)$`)
	stateLine   = regexp.MustCompile(`(?m)^state +(\S+)$`)
	becauseLine = regexp.MustCompile(`(?m)^because +(.*)$`)
	addLine     = regexp.MustCompile(`(?m)^last ADD +\S+Z: (captured|passed|failed)(?: \(([^)]+)\))?(?: by ([^\s:;]+))?(?:: (.*))?$`)
)

// read reads what the agent explains. The text of an ADD comes last, and may quote the
// pod's annotations: nothing else is read from there.
func (n *nodeEvidence) read(text string) {
	before, _, _ := strings.Cut(text, "\nlast ADD")
	n.uid, n.state, n.because = submatch(uidLine, before), submatch(stateLine, before), submatch(becauseLine, before)
	if m := addLine.FindStringSubmatch(text); m != nil {
		n.add = lastADD{m[1], m[2], m[3], m[4]}
	}
}

func submatch(expression *regexp.Regexp, text string) string {
	if m := expression.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

// maxOutput is the most that is read of a command's output.
const maxOutput = 256 << 10

// limitedWriter drops what exceeds a limit.
type limitedWriter struct {
	out  *strings.Builder
	left int
}

// Write implements io.Writer.
func (w *limitedWriter) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.out.Write(p[:n])
	w.left -= n
	return len(p), nil
}
