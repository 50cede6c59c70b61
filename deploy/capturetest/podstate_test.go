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

// TestStates tells pods that run from those that start or have ended, by all of their containers.
func TestStates(t *testing.T) {
	t.Parallel()
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := func(code int32, message string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message}}
	}
	for name, tt := range map[string]struct {
		app, proxy          corev1.ContainerState
		ips                 int
		isRunning, hasEnded bool
		ended               string
	}{
		"running":                {running, running, 1, true, false, ""},
		"without an address":     {running, running, 0, false, false, ""},
		"a container is missing": {running, running, 1, false, false, ""},
		"half":                   {running, corev1.ContainerState{}, 1, false, false, ""},
		"the other half":         {corev1.ContainerState{}, running, 1, false, false, ""},
		"ended":                  {ended(0, "a\nb\n"), running, 1, false, true, "container application ended with status 0: b"},
		"failed":                 {ended(2, "a"), ended(3, "b"), 1, false, false, "container application ended with status 2: a"},
		"the proxy":              {running, ended(3, "b"), 1, false, false, "container proxy ended with status 3: b"},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, 2)}, Status: corev1.PodStatus{
			PodIPs:            make([]corev1.PodIP, tt.ips),
			ContainerStatuses: []corev1.ContainerStatus{{Name: application, State: tt.app}, {Name: "proxy", State: tt.proxy}},
		}}
		if name == "a container is missing" {
			pod.Status.ContainerStatuses = pod.Status.ContainerStatuses[:1]
		}
		if s := stateOf(pod); s.isRunning() != tt.isRunning || s.hasEnded() != tt.hasEnded || s.ended != tt.ended {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
