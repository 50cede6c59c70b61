// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
)

// refused is the error of ADD while both plugins would capture the pod.
const refused = "holds another plugin's capture rules: only one of the two may be in the chain"

// TestMigration migrates a cluster from istio-cni to this plugin and back, while
// pods start and stop. In mode owned, this plugin's list replaces the one with
// istio-cni at one moment: no pod waits, and each is captured once.
func TestMigration(t *testing.T) {
	ch := startWithIstioCNI(t)
	defer ch.End(t)
	expect(t, ch, "istio-cni alone", suite.Life.Theirs)
	c.InstallChart(t, "mode=owned")
	expect(t, ch, "both installed", suite.Life.Ours)
	suite.Check(t, c.StopIstioCNI())
	c.InstallChart(t, "mode=auto")
	expect(t, ch, "capture-cni alone", suite.Life.Ours)
	c.InstallChart(t, "mode=owned")
	suite.Check(t, c.StartIstioCNI(t.Context()))
	expect(t, ch, "both installed again", suite.Life.Ours)
	c.UninstallChart(t)
	expect(t, ch, "istio-cni alone again", suite.Life.Theirs)
	for _, l := range ch.Lives() {
		if !l.Ours() && !l.Theirs() {
			t.Errorf("a pod on %s was captured twice, or by other rules: %+v: %v", l.Node, l.Rules, l.Fault)
		}
	}
	for event := range strings.Lines(ch.Kubectl(t, "", "get", "events", "--field-selector", "reason=FailedCreatePodSandBox", "--no-headers", "--ignore-not-found")) {
		if strings.Contains(event, refused) {
			t.Errorf("an ADD was refused: %s", event)
		}
	}
}

// TestMigrationInOneList has both plugins in one list for some time: meshed pods
// wait, and start once one of the two is gone.
func TestMigrationInOneList(t *testing.T) {
	ch := startWithIstioCNI(t)
	defer ch.End(t)
	expect(t, ch, "istio-cni alone", suite.Life.Theirs)
	c.InstallChart(t)
	expectWaiting(t, ch, "this-way", func() { suite.Check(t, c.StopIstioCNI()) })
	expect(t, ch, "capture-cni alone", suite.Life.Ours)
	suite.Check(t, c.StartIstioCNI(t.Context()))
	for _, node := range c.Nodes { // the agent moves its entry behind istio-cni, which checks for no other plugin
		suite.WaitForLastPlugin(t, node, "capture-cni")
	}
	expectWaiting(t, ch, "back", func() { c.UninstallChart(t) })
	expect(t, ch, "istio-cni alone again", suite.Life.Theirs)
}

// startWithIstioCNI starts pods on nodes with istio-cni alone.
func startWithIstioCNI(t *testing.T) *suite.Churn {
	t.Helper()
	c.ReplaceByIstioCNI(t)
	return suite.StartChurn(t, c.NewNamespace(t, suite.Restricted, cluster.Injected))
}

// expect checks the first meshed pods that are created after a step.
func expect(t *testing.T, ch *suite.Churn, step string, captured func(suite.Life) bool) {
	t.Helper()
	for _, l := range ch.Next(t) {
		t.Logf("%s: a pod on %s was ready after %s", step, l.Node, l.Took.Round(time.Millisecond))
		if !captured(l) {
			t.Errorf("%s: a pod on %s has the rules %+v: %v", step, l.Node, l.Rules, l.Fault)
		}
	}
}

// expectWaiting creates a pod on each node that waits until a step is done.
func expectWaiting(t *testing.T, ch *suite.Churn, name string, step func()) {
	t.Helper()
	var waiting []*corev1.Pod
	for _, node := range c.Nodes {
		waiting = append(waiting, suite.Server(name+"-"+node.Name, node.Name))
	}
	ch.Create(t, waiting...)
	for _, pod := range waiting {
		suite.Eventually(t, func() error {
			return expectRefused(t, ch.Namespace, pod.Name, refused)
		})
	}
	started := time.Now()
	step()
	ch.WaitReady(t, waiting...)
	t.Logf("%s: waiting pods were ready %s after the step", name, time.Since(started).Round(time.Millisecond))
	for _, pod := range waiting {
		if rules := ch.Rules(t, pod.Name); (rules.Backend == "") == (rules.Foreign == "") {
			t.Errorf("%s has the rules %+v", pod.Name, rules)
		}
	}
}
