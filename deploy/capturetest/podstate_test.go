// SPDX-License-Identifier: Apache-2.0

package capturetest

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestDescribe says what a pod waits for.
func TestDescribe(t *testing.T) {
	t.Parallel()
	addresses := []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "2001:db8::1"}}
	waiting := func(reason string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "no such image"}}}}
	}
	for want, status := range map[string]corev1.PodStatus{
		"its network is being set up":                  {},
		"its network is being set up ":                 {ContainerStatuses: waiting("ContainerCreating")},
		"its network is set up":                        {PodIPs: addresses[:1]},
		"its network is set up ":                       {PodIPs: addresses, ContainerStatuses: waiting("PodInitializing")},
		"container app: ErrImagePull: no such image":   {PodIPs: addresses, ContainerStatuses: waiting("ErrImagePull")},
		"container app: InvalidImage: no such image  ": {ContainerStatuses: waiting("InvalidImage")},
	} {
		if got := stateOf(&corev1.Pod{Status: status}).progress; got != strings.TrimSpace(want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
