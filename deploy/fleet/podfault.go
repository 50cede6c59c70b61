// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/install/report"
)

// fault is the reason for which a pod is not ready, as the scheduler or the kubelet reports it.
type fault struct {
	phase     phase
	reason    string
	container string // the container that ended, or ""
}

// phase says how far the start of a pod has progressed when a fault occurs.
type phase int

const (
	starting phase = iota // the runtime is creating the containers, or init containers run
	stopped               // the pod is not scheduled, or a container does not run
	unready               // no container waits, and none has failed
)

// in reports whether f is not nil and is in this phase.
func (f *fault) in(p phase) bool { return f != nil && f.phase == p }

// startTime is the time that the start of an agent's containers may take, including the pull of the
// image.
const startTime = 3 * time.Minute

// blocks reports whether a pod of this age probably does not start by itself, because it is in the phase
// stopped, or has been starting for more than startTime.
func (f *fault) blocks(age time.Duration) bool {
	return f.in(stopped) || f.in(starting) && age > startTime
}

// step returns the next step for an agent with this fault.
func (f *fault) step(a *Agent) string {
	if f.container != "" {
		return cmp.Or(report.SkewAdvice(f.reason), report.Command("kubectl", "-n", a.namespace, "logs", a.name, "-c", f.container))
	}
	return report.Command("kubectl", "-n", a.namespace, "describe", "pod", a.name)
}

// faultOf returns the reason for which a pod is not ready, or nil if it is ready.
func faultOf(pod *corev1.Pod) *fault {
	isReady := func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }
	if slices.ContainsFunc(pod.Status.Conditions, isReady) {
		return nil
	}
	if message := conditionMessage(pod, corev1.PodScheduled); message != "" {
		return &fault{phase: stopped, reason: "Pending: " + message}
	}
	f := &fault{
		phase:  unready,
		reason: "the agent's pod is not ready: " + cmp.Or(conditionMessage(pod, corev1.PodReady), "no reason is known"),
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		waiting, ended := status.State.Waiting, status.State.Terminated
		switch {
		case waiting != nil && slices.Contains([]string{"ContainerCreating", "PodInitializing"}, waiting.Reason):
			f = &fault{phase: starting, reason: "container " + status.Name + ": " + waiting.Reason}
		case waiting != nil:
			f = &fault{phase: stopped, reason: fmt.Sprintf("container %s: %s: %s", status.Name, waiting.Reason, waiting.Message)}
			if last := status.LastTerminationState.Terminated; last != nil {
				f.container = status.Name
				f.reason += lastWords(last)
			}
			return f
		case ended != nil && ended.ExitCode != 0:
			return &fault{
				phase:     stopped,
				reason:    fmt.Sprintf("container %s: %s: exit status %d%s", status.Name, ended.Reason, ended.ExitCode, lastWords(ended)),
				container: status.Name,
			}
		}
	}
	return f
}

// lastWords returns a colon and the last line of the message that a container left when it ended, or "".
func lastWords(ended *corev1.ContainerStateTerminated) string {
	lines := strings.Split(strings.TrimSpace(ended.Message), "\n")
	if last := lines[len(lines)-1]; last != "" {
		return ": " + last
	}
	return ""
}
