// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

var errNoSandbox = errors.New("no node has a sandbox of the pod")

// Sandbox finds the sandbox of a pod on its node.
func (n Namespace) Sandbox(ctx context.Context, pod string) (cluster.Sandbox, error) {
	for _, node := range n.suite.Nodes {
		sandboxes, err := node.Sandboxes(ctx)
		if err != nil {
			return cluster.Sandbox{}, err
		}
		for _, found := range sandboxes {
			if found.Namespace == n.Name && found.Name == pod {
				return found, nil
			}
		}
	}
	return cluster.Sandbox{}, fmt.Errorf("%w: %s/%s", errNoSandbox, n.Name, pod)
}

// HasSandbox reports whether a node runs a pod.
func (n Namespace) HasSandbox(t *testing.T, pod string) bool {
	t.Helper()
	_, err := n.Sandbox(t.Context(), pod)
	if !errors.Is(err, errNoSandbox) {
		lab.Check(t, err)
	}
	return err == nil
}

// WaitSandbox waits until a node runs a pod.
func (n Namespace) WaitSandbox(t *testing.T, pod string) {
	t.Helper()
	lab.Eventually(t, func() error {
		_, err := n.Sandbox(t.Context(), pod)
		return err
	})
}

// ExpectNoSandbox expects a pod that can't start, and an event that says why.
func (n Namespace) ExpectNoSandbox(t *testing.T, pod, reason string) {
	t.Helper()
	n.WaitSandboxEvent(t, pod, reason)
	if n.HasSandbox(t, pod) {
		t.Errorf("%s has started", pod)
	}
}

// WaitSandboxEvent waits for an event that says why a pod could not start.
func (n Namespace) WaitSandboxEvent(t *testing.T, pod, reason string) {
	t.Helper()
	lab.Eventually(t, func() error {
		events := n.Kubectl(t, "", "get", "events", "--field-selector", "reason=FailedCreatePodSandBox,involvedObject.name="+pod, "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(events, reason) {
			return fmt.Errorf("no event says %q: %s", reason, events)
		}
		return nil
	})
}

// CheckRefused returns an error unless one event about a pod contains all reasons.
func (n Namespace) CheckRefused(t *testing.T, pod string, reasons ...string) error {
	t.Helper()
	events := n.Kubectl(t, "", "get", "events", "--field-selector", "reason=FailedCreatePodSandBox,involvedObject.name="+pod,
		"-o", `jsonpath={range .items[*]}{.message}{"\n"}{end}`)
	for event := range strings.Lines(events) {
		if !slices.ContainsFunc(reasons, func(reason string) bool { return !strings.Contains(event, reason) }) {
			return nil
		}
	}
	return fmt.Errorf("%s: no event says %q: %s", pod, reasons, events)
}

// Rules returns the capture rules in a pod's network namespace: the backend of
// ours ("" for none), and another plugin's.
func (n Namespace) Rules(t *testing.T, pod string) netfilter.State {
	t.Helper()
	sandbox, err := n.Sandbox(t.Context(), pod)
	lab.Check(t, err)
	return Rules(t, sandbox)
}

// ExpectCaptured expects that a pod's network namespace holds exactly the rules that the
// pod asks for.
func (n Namespace) ExpectCaptured(t *testing.T, pod string) {
	t.Helper()
	if err := n.CheckCaptured(t.Context(), n.Get(t, pod)); err != nil {
		t.Error(err)
	}
}

// CheckCaptured is ExpectCaptured for a pod as the API server has it, with an error for
// the caller.
func (n Namespace) CheckCaptured(ctx context.Context, pod *corev1.Pod) error {
	sandbox, err := n.Sandbox(ctx, pod.Name)
	if err != nil {
		return err
	}
	return CheckCaptured(ctx, sandbox, pod)
}

// CheckCaptured returns an error unless a sandbox's network namespace holds exactly the
// rules that its pod asks for, and no other plugin's.
func CheckCaptured(ctx context.Context, sandbox cluster.Sandbox, pod *corev1.Pod) error {
	rules, err := ReadRules(sandbox)
	if err != nil {
		return err
	}
	if rules.Foreign != "" {
		return fmt.Errorf("%s has the rules %+v", pod.Name, rules)
	}
	host, err := sandbox.Host()
	if err != nil {
		return err
	}
	defer host.NetNS.Close()
	return host.CheckRules(ctx, pod)
}

// Rules returns the capture rules in a sandbox's network namespace.
func Rules(t *testing.T, sandbox cluster.Sandbox) netfilter.State {
	t.Helper()
	state, err := ReadRules(sandbox)
	lab.Check(t, err)
	return state
}

// ReadRules is Rules with an error for the caller.
func ReadRules(sandbox cluster.Sandbox) (state netfilter.State, err error) {
	host, err := sandbox.Host()
	if err != nil {
		return state, err
	}
	defer host.NetNS.Close()
	err = host.Do(func() (err error) {
		state, err = netfilter.Inspect(context.Background())
		return err
	})
	return state, err
}
