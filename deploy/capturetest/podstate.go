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

// ended returns how a pod's application has ended, nil if it has not.
func ended(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == application {
			return status.State.Terminated
		}
	}
	return nil
}

// hasEnded reports whether a pod's application has ended without an error.
func hasEnded(pod *corev1.Pod) bool { return ended(pod) != nil && ended(pod).ExitCode == 0 }

// endedTooEarly returns which program of a pod has ended, and its last words.
func endedTooEarly(pod *corev1.Pod) string {
	for _, status := range pod.Status.ContainerStatuses {
		if ended := status.State.Terminated; ended != nil {
			lines := strings.Split(strings.TrimSpace(ended.Message), "\n")
			return fmt.Sprintf("container %s ended with status %d: %s", status.Name, ended.ExitCode, lines[len(lines)-1])
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
