// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bufio"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// WithEcho adds an echo server to a pod, for Hold, and returns the pod.
func WithEcho(pod *corev1.Pod) *corev1.Pod {
	echo := pod.Spec.Containers[0].DeepCopy()
	echo.Name, echo.Args = "echo", []string{"echo", ":7000"}
	pod.Spec.Containers = append(pod.Spec.Containers, *echo)
	return pod
}

// Hold opens a connection from a pod to another one's echo server and
// keeps it. It returns the names of the proxies in between; alive fails the test
// if the connection has ended.
func (n Namespace) Hold(t *testing.T, from, to string) (proxies string, alive func()) {
	t.Helper()
	v4, _ := n.Addresses(t, to)
	ctx, cancel := context.WithCancel(t.Context())
	command := exec.CommandContext(ctx, filepath.Join(n.suite.Dir, "bin", "kubectl"), "--namespace", n.Name,
		"exec", from, "--container", "app", "--", "/apps", "hold", Address(v4, 7000))
	command.Env = n.suite.Environ()
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.StdoutPipe()
	lab.Check(t, err)
	lab.Check(t, command.Start())
	t.Cleanup(func() { cancel(); _ = command.Wait() })
	lines := bufio.NewScanner(out)
	var said strings.Builder
	for lines.Scan() && lines.Text() != "echo" {
		said.WriteString(lines.Text() + "\n")
	}
	hops, err := ParseHops(said.String())
	lab.Check(t, err)
	beats := make(chan struct{}) // unbuffered: a beat without a waiting reader is dropped
	go func() {
		defer close(beats)
		for lines.Scan() {
			select {
			case beats <- struct{}{}:
			default:
			}
		}
	}()
	return Names(hops), func() {
		t.Helper()
		for range 2 { // the first may be from before the call
			if _, goesOn := <-beats; !goesOn {
				t.Fatalf("the connection has ended: %v: %s", command.Wait(), stderr.String())
			}
		}
	}
}
