// SPDX-License-Identifier: Apache-2.0

package capturetest

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

type podState struct {
	running     bool                             // all containers run, and the pod's addresses are known
	application *corev1.ContainerStateTerminated // how the application ended, or nil
	ended       string                           // the first container that has ended, with its status and last line
	waiting     string                           // why the runtime can't start a container of a pod that has its network
	progress    string                           // how far the start of the pod is, in a few words
}

func stateOf(pod *corev1.Pod) podState {
	s := podState{running: len(pod.Status.ContainerStatuses) == len(pod.Spec.Containers) && len(pod.Status.PodIPs) > 0}
	for _, status := range pod.Status.ContainerStatuses {
		s.running = s.running && status.State.Running != nil
		if ended := status.State.Terminated; ended != nil {
			lines := strings.Split(strings.TrimSpace(ended.Message), "\n")
			s.ended = cmp.Or(s.ended, fmt.Sprintf("container %s ended with status %d: %s", status.Name, ended.ExitCode, lines[len(lines)-1]))
		}
		if status.Name == application {
			s.application = status.State.Terminated
		}
		if waiting := status.State.Waiting; waiting != nil && waiting.Reason != "ContainerCreating" && waiting.Reason != "PodInitializing" {
			s.waiting = cmp.Or(s.waiting, fmt.Sprintf("container %s: %s: %s", status.Name, waiting.Reason, waiting.Message))
		}
	}
	s.progress = cmp.Or(s.waiting, "its network is being set up")
	if s.waiting == "" && len(pod.Status.PodIPs) > 0 {
		s.progress = "its network is set up"
	}
	return s
}

func (s podState) isRunning() bool { return s.running }

// hasEnded reports whether the application has ended without an error.
func (s podState) hasEnded() bool { return s.application != nil && s.application.ExitCode == 0 }

func podAddresses(pod *corev1.Pod) map[string]netip.Addr {
	var ips []string
	for _, ip := range pod.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	return addresses(ips)
}
