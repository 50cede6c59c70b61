// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
)

// refused is what a pod's events say while both plugins would capture it.
const refused = "holds another plugin's capture rules: only one of the two may be in the chain"

// TestMigration takes a cluster from istio-cni to this plugin and back, while
// pods come and go. In mode owned, this plugin comes in the moment in which
// istio-cni goes: no pod waits, and each is captured once.
func TestMigration(t *testing.T) {
	ch := startWithIstioCNI(t)
	defer ch.end(t)
	ch.expect(t, "istio-cni alone", life.theirs)
	install(t, "mode=owned")
	ch.expect(t, "both installed", life.ours)
	check(t, c.StopIstioCNI())
	install(t, "mode=auto")
	ch.expect(t, "capture-cni alone", life.ours)
	install(t, "mode=owned")
	check(t, c.StartIstioCNI(t.Context()))
	ch.expect(t, "both installed again", life.ours)
	uninstall(t)
	ch.expect(t, "istio-cni alone again", life.theirs)
	for _, l := range ch.lived() {
		if !l.ours() && !l.theirs() {
			t.Errorf("a pod on %s was captured twice: %+v", l.node, l.rules)
		}
	}
	for event := range strings.Lines(ch.kubectl(t, "", "get", "events", "--field-selector", "reason=FailedCreatePodSandBox", "--no-headers", "--ignore-not-found")) {
		if strings.Contains(event, refused) {
			t.Errorf("a pod had to wait: %s", event)
		}
	}
}

// TestMigrationInOneList has both plugins in one list for a while: pods of the
// mesh wait, and start once either is gone.
func TestMigrationInOneList(t *testing.T) {
	ch := startWithIstioCNI(t)
	defer ch.end(t)
	ch.expect(t, "istio-cni alone", life.theirs)
	install(t)
	ch.expectWaiting(t, "this-way", func() { check(t, c.StopIstioCNI()) })
	ch.expect(t, "capture-cni alone", life.ours)
	check(t, c.StartIstioCNI(t.Context()))
	for _, node := range c.Nodes { // this plugin goes behind istio-cni, which does not look for others
		eventually(t, func() error { return lastPlugin(t, node, "capture-cni") })
	}
	ch.expectWaiting(t, "back", func() { uninstall(t) })
	ch.expect(t, "istio-cni alone again", life.theirs)
}

// startWithIstioCNI is where migrations begin. All is put back after the test.
func startWithIstioCNI(t *testing.T) *churn {
	t.Helper()
	withIstioCNI(t)
	return startChurn(t, newSpace(t, restricted, cluster.Injected))
}

// withIstioCNI has istio-cni's stand-in on the nodes, and nothing of ours.
func withIstioCNI(t *testing.T) {
	t.Helper()
	withoutChart(t)
	for _, node := range c.Nodes {
		list := node.Path("/etc/cni/net.d/" + cluster.NetworkConf)
		text, err := os.ReadFile(list)
		check(t, err)
		t.Cleanup(func() {
			if err := os.WriteFile(list, text, 0o600); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		if err := c.StopIstioCNI(); err != nil {
			t.Error(err)
		}
	})
	check(t, c.StartIstioCNI(t.Context()))
	for _, node := range c.Nodes {
		eventually(t, func() error { return lastPlugin(t, node, "istio-cni") })
	}
}

// expect looks at the first pods of the mesh that come after a step.
func (ch *churn) expect(t *testing.T, step string, captured func(life) bool) {
	t.Helper()
	for _, l := range ch.next(t) {
		t.Logf("%s: a pod on %s was ready after %s", step, l.node, l.took.Round(time.Millisecond))
		if !captured(l) {
			t.Errorf("%s: a pod on %s holds %+v", step, l.node, l.rules)
		}
	}
}

// expectWaiting has a pod on each node wait for a step.
func (ch *churn) expectWaiting(t *testing.T, name string, step func()) {
	t.Helper()
	var waiting []*corev1.Pod
	for _, node := range c.Nodes {
		waiting = append(waiting, server(name+"-"+node.Name, node.Name))
	}
	ch.create(t, waiting...)
	for _, pod := range waiting {
		eventually(t, func() error {
			return ch.expectRefused(t, pod.Name, refused)
		})
	}
	started := time.Now()
	step()
	ch.ready(t, waiting...)
	t.Logf("%s: waiting pods were ready %s after the step", name, time.Since(started).Round(time.Millisecond))
	for _, pod := range waiting {
		if rules := ch.rules(t, pod.Name); (rules.Backend == "") == (rules.Foreign == "") {
			t.Errorf("%s holds %+v", pod.Name, rules)
		}
	}
}

// lastPlugin asks a node's runtime which plugin it would call last.
func lastPlugin(t *testing.T, node *cluster.Node, want string) error {
	t.Helper()
	network, err := loadedNetwork(t.Context(), node)
	if err == nil && network.plugins[len(network.plugins)-1] != want {
		err = fmt.Errorf("%s does not call %s last: %s", node.Name, want, network.plugins)
	}
	return err
}
