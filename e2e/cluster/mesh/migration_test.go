// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestMigration migrates a cluster from istio-cni to this plugin and back by the commands
// of the guide, while pods start and stop. In mode owned, this plugin's list replaces the one
// with istio-cni at one moment: no pod waits, and each is captured once.
func TestMigration(t *testing.T) {
	turnover := startWithIstioCNI(t)
	defer turnover.End(t)
	expect(t, turnover, "istio-cni alone", theirs)
	c.MustKubectl(t, "delete", "namespace", cluster.Namespace, "--ignore-not-found")
	guide := migrator{c.NewOperator(t)}
	guide.hold(t)
	guide.follow(t, "3. Install, for no node yet", nil)
	guide.node(t, c.Nodes[0])
	expect(t, turnover, "one node migrated", func(l suite.Life) bool { return l.Ours() == (l.Node == c.Nodes[0].Name) })
	guide.node(t, c.Nodes[1])
	expect(t, turnover, "both migrated", ours)
	guide.follow(t, "5. When all nodes are done", nil)
	c.InstallChart(t, "mode=auto")
	expect(t, turnover, "capture-cni alone", ours)

	guide.follow(t, "First, use only capture-cni's list", nil)
	lab.Check(t, c.InstallIstioCNI(t.Context(), "cniConfFileName="+cluster.NetworkConf))
	guide.follow(t, "Then install istio-cni", nil)
	waitForIstioEntry(t)
	expect(t, turnover, "both installed again", ours)
	guide.follow(t, "Then remove capture-cni", nil)
	expect(t, turnover, "istio-cni alone again", theirs)
	expectEachCapturedOnce(t, turnover)
	for event := range strings.Lines(turnover.Kubectl(t, "", "get", "events", "--field-selector", "reason=FailedCreatePodSandBox", "--no-headers", "--ignore-not-found")) {
		if strings.Contains(event, refused) {
			t.Errorf("an ADD was refused: %s", event)
		}
	}
}

// TestMigrationInOneList has both plugins in one list for some time: meshed pods
// wait, and start once one of the two is gone.
func TestMigrationInOneList(t *testing.T) {
	turnover := startWithIstioCNI(t)
	defer turnover.End(t)
	expect(t, turnover, "istio-cni alone", theirs)
	c.InstallChart(t, beside)
	expectWaiting(t, turnover, "this-way", func() { lab.Check(t, c.UninstallIstioCNI(t.Context())) })
	expect(t, turnover, "capture-cni alone", ours)
	lab.Check(t, c.InstallIstioCNI(t.Context()))
	for _, node := range c.Nodes { // the agent moves its entry behind istio-cni, which checks for no other plugin
		suite.WaitForLastPlugin(t, node, "capture-cni")
	}
	expectWaiting(t, turnover, "back", func() { c.UninstallChart(t) })
	expect(t, turnover, "istio-cni alone again", theirs)
	expectEachCapturedOnce(t, turnover)
}

func ours(l suite.Life) bool   { return l.Ours() }
func theirs(l suite.Life) bool { return l.Theirs() }

// expectEachCapturedOnce expects that one plugin alone captured each pod, before Istio's
// validation saw it: one that fails is started again.
func expectEachCapturedOnce(t *testing.T, turnover *suite.Turnover) {
	t.Helper()
	for _, l := range turnover.Lives() {
		if l.Ours() == l.Theirs() || l.Validations > 1 {
			t.Errorf("a pod on %s, validated %d times, was captured twice, late or by other rules: %+v: %v", l.Node, l.Validations, l.Rules, l.Fault)
		}
	}
}

// startWithIstioCNI starts pods on nodes with istio-cni alone.
func startWithIstioCNI(t *testing.T) *suite.Turnover {
	t.Helper()
	c.ReplaceByIstioCNI(t)
	return suite.StartTurnover(t, c.NewNamespace(t, suite.Restricted, cluster.Injected), 1, suite.Ready, suite.Server)
}

// expect checks the first meshed pods that are created after a step.
func expect(t *testing.T, turnover *suite.Turnover, step string, captured func(suite.Life) bool) {
	t.Helper()
	for _, l := range turnover.Next(t) {
		t.Logf("%s: a pod on %s was ready after %s", step, l.Node, l.Took.Round(time.Millisecond))
		if !captured(l) {
			t.Errorf("%s: a pod on %s has the rules %+v: %v", step, l.Node, l.Rules, l.Fault)
		}
	}
}

// expectWaiting creates a pod on each node that waits until a step is done.
func expectWaiting(t *testing.T, turnover *suite.Turnover, name string, step func()) {
	t.Helper()
	var waiting []*corev1.Pod
	for _, node := range c.Nodes {
		waiting = append(waiting, suite.Server(name+"-"+node.Name, node.Name))
	}
	turnover.Create(t, waiting...)
	for _, pod := range waiting {
		lab.Eventually(t, func() error {
			return turnover.CheckRefused(t, pod.Name, refused)
		})
	}
	started := time.Now()
	step()
	turnover.WaitReady(t, waiting...)
	t.Logf("%s: waiting pods were ready %s after the step", name, time.Since(started).Round(time.Millisecond))
	for _, pod := range waiting {
		if rules := turnover.Rules(t, pod.Name); (rules.Backend == "") == (rules.Foreign == "") {
			t.Errorf("%s has the rules %+v", pod.Name, rules)
		}
	}
}
