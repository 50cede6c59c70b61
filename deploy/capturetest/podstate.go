// SPDX-License-Identifier: Apache-2.0

package capturetest

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// isRunning reports whether all containers of a pod run, and its addresses are known.
func isRunning(pod *corev1.Pod) bool {
	for _, status := range pod.Status.ContainerStatuses {
		if status.State.Running == nil {
			return false
		}
	}
	return len(pod.Status.ContainerStatuses) == len(pod.Spec.Containers) && len(pod.Status.PodIPs) > 0
}

// hasEnded reports whether a pod's application has ended without an error.
func hasEnded(pod *corev1.Pod) bool {
	for _, status := range pod.Status.ContainerStatuses {
		if ended := status.State.Terminated; status.Name == application && ended != nil {
			return ended.ExitCode == 0
		}
	}
	return false
}

// endedTooEarly returns which program of a pod has ended, and its last words.
func endedTooEarly(pod *corev1.Pod) string {
	for _, status := range pod.Status.ContainerStatuses {
		if ended := status.State.Terminated; ended != nil {
			return fmt.Sprintf("container %s ended with status %d: %s", status.Name, ended.ExitCode, lastLine(ended.Message))
		}
	}
	return ""
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func terminationMessage(pod *corev1.Pod, container string) string {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == container && status.State.Terminated != nil {
			return status.State.Terminated.Message
		}
	}
	return ""
}

// waitingContainer returns why the runtime can't start a container of a pod whose network
// is set up.
func waitingContainer(pod *corev1.Pod) string {
	for _, status := range pod.Status.ContainerStatuses {
		if waiting := status.State.Waiting; waiting != nil && waiting.Reason != "ContainerCreating" && waiting.Reason != "PodInitializing" {
			return fmt.Sprintf("container %s: %s: %s", status.Name, waiting.Reason, waiting.Message)
		}
	}
	return ""
}

// describe returns what a pod waits for, in a few words.
func describe(pod *corev1.Pod) string {
	if waiting := waitingContainer(pod); waiting != "" {
		return waiting
	}
	if len(pod.Status.PodIPs) == 0 {
		return "its network is being set up"
	}
	return "its network is set up"
}

func podAddresses(pod *corev1.Pod) map[string]netip.Addr {
	var ips []string
	for _, ip := range pod.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	return addresses(ips)
}
