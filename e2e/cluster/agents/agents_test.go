// SPDX-License-Identifier: Apache-2.0

// Package agents tests node agents and guards on a cluster: faults of what they
// depend on, repairs and evictions, reboots, and what they report.
package agents

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

var c suite.Suite

func TestMain(m *testing.M) { os.Exit(c.Main(m)) }

// removeAgents removes the agents from all nodes; restoreAgents undoes that.
func removeAgents(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { restoreAgents(t) })
	kubectl(t, "patch", "daemonset", "capture-cni-node", "--patch", `{"spec": {"template": {"spec": {"nodeSelector": {"nowhere": "yes"}}}}}`)
	kubectl(t, "wait", "--for=jsonpath={.status.desiredNumberScheduled}=0", suite.KubectlTimeout, "daemonset/capture-cni-node") // else the controller creates new pods
	kubectl(t, "delete", "pods", "--all", "--force", "--grace-period=0")
	lab.Eventually(t, func() error {
		for _, node := range c.Nodes {
			sandboxes, err := node.Sandboxes(t.Context())
			if err != nil {
				return err
			}
			for _, found := range sandboxes {
				if found.Namespace == cluster.Namespace {
					return fmt.Errorf("%s still runs %s", node.Name, found.Name)
				}
			}
		}
		return nil
	})
}

func restoreAgents(t *testing.T) {
	t.Helper()
	kubectl(t, "patch", "daemonset", "capture-cni-node", "--patch", `{"spec": {"template": {"spec": {"nodeSelector": {"nowhere": null}}}}}`)
	kubectl(t, "rollout", "status", "daemonset/capture-cni-node", suite.KubectlTimeout)
}

// kubectl runs kubectl in the agents' namespace, in cleanups too.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(context.WithoutCancel(t.Context()), "", append([]string{"--namespace", cluster.Namespace}, args...)...)
	lab.Check(t, err)
	return out
}

func agentOn(t *testing.T, node *cluster.Node) string {
	t.Helper()
	return kubectl(t, "get", "pods", "--field-selector=spec.nodeName="+node.Name, "-o", "jsonpath={.items[0].metadata.name}")
}

// waitForEvent waits for an Event on a pod.
func waitForEvent(t *testing.T, n suite.Namespace, pod, reason, what string) {
	t.Helper()
	selector := "reason=" + reason + ",involvedObject.name=" + pod
	lab.Eventually(t, func() error {
		messages := n.Kubectl(t, "", "get", "events", "--field-selector", selector, "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(messages, what) {
			return fmt.Errorf("no Event %s of %s contains %q: %q", reason, pod, what, messages)
		}
		return nil
	})
}

// unpackReport runs report in a container of an agent and returns the archive's files.
func unpackReport(t *testing.T, agent, container string) map[string]string {
	t.Helper()
	packed, err := c.Kubectl(context.WithoutCancel(t.Context()), "", "--namespace", cluster.Namespace, "exec", agent, "--container="+container, "--", "/capture-cni-node", "report")
	lab.Check(t, err)
	unzipped, err := gzip.NewReader(strings.NewReader(packed))
	lab.Check(t, err)
	files := map[string]string{}
	for archive := tar.NewReader(unzipped); ; {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		lab.Check(t, err)
		content, err := io.ReadAll(archive)
		lab.Check(t, err)
		files[strings.TrimPrefix(head.Name, "capture-cni/")] = string(content)
	}
}
