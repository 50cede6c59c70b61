// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// TestAccidentalRemoval removes the chart's objects before the node is cleaned. Where
// the plugin's account stays, meshed pods start by the token on the node; where it goes,
// the error of the ADD says what to do. Pods outside the mesh start either way.
func TestAccidentalRemoval(t *testing.T) {
	t.Parallel()
	s := startAPIServer(t)
	n := s.node(t, "web")
	s.startAgent(t, n).StopOnceReady(t)
	t.Run("helm uninstall", func(t *testing.T) {
		lab.Check(t, s.Uninstall(t.Context()))
		lab.Check(t, n.StartAndStop(t, "web"))
		lab.Check(t, s.Install(t.Context(), "image.tag=none"))
		lab.Check(t, n.StartAndStop(t, "web"))
	})
	t.Run("another release", func(t *testing.T) { s.testAnotherRelease(t, n) })
	for _, way := range []struct {
		name   string
		remove func() (string, error)
	}{
		{"in the order of the file", func() (string, error) {
			manifest, err := s.Helm(t.Context(), "get", "manifest", cluster.Namespace, "--namespace", cluster.Namespace)
			lab.Check(t, err)
			return s.Kubectl(t.Context(), manifest, "delete", "--wait=false", "-f", "-")
		}},
		{"all at once", s.deleteAll},
		{"the role alone", func() (string, error) { return s.Kubectl(t.Context(), "", "delete", "clusterrole/capture-cni") }},
		{"not an accident: no tokens on the nodes", func() (string, error) {
			return "", s.Install(t.Context(), "image.tag=none", "token.onNode=false")
		}},
		{"the namespace", func() (string, error) {
			s.kubectl(t, "--namespace", cluster.Namespace, "delete", "--force", "pod", "agent") // no kubelet ends it, and pods go first
			return s.Kubectl(t.Context(), "", "delete", "--wait=false", "namespace", cluster.Namespace)
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			lab.Check(t, s.Install(t.Context(), "image.tag=none"))
			s.writeAccess(t, n)
			lab.Check(t, os.Remove(n.StateDir+"/token")) // the API server takes that of a deleted account for some seconds
			s.startAgent(t, n).StopOnceReady(t)
			lab.Check(t, n.StartAndStop(t, "web"))
			_, err := way.remove()
			lab.Check(t, err)
			expectHelp(t, n)
		})
	}
}

// deleteAll deletes what the plugin and the agent need, in no order.
func (s apiServer) deleteAll() (string, error) {
	var deletions errgroup.Group
	for _, object := range []string{"daemonset/capture-cni-node", "serviceaccount/capture-cni", "clusterrole/capture-cni", "clusterrolebinding/capture-cni", "serviceaccount/capture-cni-node"} {
		deletions.Go(func() error {
			_, err := s.Kubectl(context.Background(), "", "--namespace", cluster.Namespace, "delete", "--wait=false", object)
			return err
		})
	}
	return "", deletions.Wait()
}

// expectHelp waits until the ADD of a meshed pod fails and says what to do.
func expectHelp(t *testing.T, n *machine.Node) {
	t.Helper()
	lab.Eventually(t, func() error {
		out, err := n.Call("ADD", "web", machine.Sandbox(t).Path(), "1s")
		if err == nil || !strings.Contains(out, lookup.Uninstalled) {
			return fmt.Errorf("the ADD: %w: %s", err, out)
		}
		return nil
	})
	if out, err := n.Call("ADD", "plain", machine.Sandbox(t).Path(), "1s"); err != nil {
		t.Errorf("a pod outside the mesh: %v: %s", err, out)
	}
}

// testAnotherRelease uninstalls, and installs under another name in another namespace:
// Helm refuses that until the objects that it kept are deleted.
func (s apiServer) testAnotherRelease(t *testing.T, n *machine.Node) {
	lab.Check(t, s.Uninstall(t.Context()))
	chart, err := cluster.Chart(t.Context())
	lab.Check(t, err)
	install := func() error {
		_, err := s.Helm(t.Context(), "install", "mesh", chart, "--namespace", "mesh", "--create-namespace", "--set", "image.tag=none")
		return err
	}
	if err := install(); err == nil || !strings.Contains(err.Error(), "meta.helm.sh/release-name") {
		t.Fatalf("objects of another release are taken: %v", err)
	}
	lab.Check(t, n.StartAndStop(t, "web"))
	s.kubectl(t, "delete", "clusterrole/capture-cni", "clusterrolebinding/capture-cni")
	lab.Check(t, install())
	_, err = s.Helm(t.Context(), "uninstall", "mesh", "--namespace", "mesh", "--wait")
	lab.Check(t, err)
	s.kubectl(t, "delete", "clusterrole/capture-cni", "clusterrolebinding/capture-cni")
}
