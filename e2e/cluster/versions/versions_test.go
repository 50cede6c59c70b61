// SPDX-License-Identifier: Apache-2.0

// Package versions tests earlier releases and today's on one cluster.
package versions

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/guides"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

var c suite.Suite

func TestMain(m *testing.M) { os.Exit(c.Main(m)) }

// first is the release whose agents write no Lease, and whose chart has one path of the
// runtime's socket for all nodes.
const first = "v0.1.0"

// removedValues are values of earlier charts that this one refuses.
var removedValues = map[string]string{first: "refresh", "v0.2.0": "tryKernel"}

// each runs a test with each earlier release's image on the nodes, and no chart installed.
func each(t *testing.T, test func(t *testing.T, version string)) {
	t.Helper()
	lab.RequireHistory(t, "../../..")
	for _, version := range lab.EarlierVersions {
		t.Run(version, func(t *testing.T) {
			c.UninstallChart(t)
			lab.Check(t, c.LoadEarlierImage(t.Context(), version))
			if version == first {
				linkSocket(t)
			}
			t.Cleanup(func() { c.Installed = nil })
			test(t, version)
		})
	}
}

// TestVersions installs an earlier release by its own chart, upgrades to this chart, goes
// back to the earlier one and upgrades again, with other settings. Meanwhile pods start and
// end as fast as the machine starts them, and the plugin is called up to 20 times a second.
// No ADD fails, and each meshed pod has the rules of one of the two releases. At last, the
// earlier release's pods get today's rules by the guide.
func TestVersions(t *testing.T) { each(t, testVersions) }

func testVersions(t *testing.T, version string) {
	oneByOne := []string{"maxUnavailable=1", "guard.round=2s"}
	lab.Check(t, c.InstallEarlier(t.Context(), version, oneByOne...))
	if version == first {
		expectUnreported(t)
	}
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	earlier := runOnEachNode(t, n, "earlier")

	turnover := suite.StartTurnover(t, n, 2, suite.SandboxRuns, dualStackServer)
	var ends []func() []suite.Call
	for i, node := range c.Nodes {
		caller := suite.NewCaller(t, node, n.Get(t, earlier.pods[i]))
		ends = append(ends, caller.Every(t, time.Second*time.Duration(len(c.Nodes))/20))
	}
	expectReuse(t, removedValues[version])
	today := append([]string{"image.tag=v1"}, oneByOne...)
	timed(t, "upgrade", func() error { return c.Install(t.Context(), today...) })
	later := runOnEachNode(t, n, "later")
	c.ExpectStates(t, map[string]int{"outdated": len(earlier.pods), "captured": len(later.pods)})
	timed(t, "downgrade", func() error { return c.InstallEarlier(t.Context(), version, oneByOne...) })
	c.ExpectStates(t, map[string]int{"outdated": len(later.pods), "captured": len(earlier.pods)})
	timed(t, "upgrade", func() error { return c.Install(t.Context(), append(today, "netconf.logLevel=debug")...) })

	turnover.End(t)
	digests := map[string]int{}
	for _, life := range turnover.Lives() {
		digests[life.Digest]++
	}
	for _, end := range ends {
		for _, call := range end() {
			if digests[call.Digest]++; call.Err != nil {
				t.Error(call.Err)
			}
		}
	}
	if got := slices.Sorted(maps.Keys(digests)); !slices.Equal(got, slices.Sorted(slices.Values([]string{earlier.digest, later.digest}))) {
		t.Errorf("pods had the rules %v, want those of %s, %s, and those of today, %s", digests, version, earlier.digest, later.digest)
	}
	earlier.expectUnchanged(t, n)
	later.expectUnchanged(t, n)
	c.ExpectStates(t, map[string]int{"outdated": len(earlier.pods), "captured": len(later.pods)})
	expectFewEvents(t, version, n, turnover)
	earlier.expectUpdates(t, n, later.digest)
}

// expectUpdates follows the last step of the upgrade guide. The pods then have the rules of
// fresh ones, and an Event each, and a connection between them stays open.
func (p pair) expectUpdates(t *testing.T, n suite.Namespace, fresh string) {
	t.Helper()
	from, to := p.pods[0], p.pods[1]
	proxies, alive := n.Hold(t, from, to)
	if want := fmt.Sprintf("%s/outbound %s/inbound", from, to); proxies != want {
		t.Errorf("the proxies of a connection are %q, want %q", proxies, want)
	}
	guide := guides.Run{Guide: "guides/upgrade.md", Section: "3. See that it worked", Want: append(p.pods, fmt.Sprintf("%d annotations, %[1]d rules", len(p.pods)))}
	c.NewOperator(t).Follow(t, guide, nil)
	c.ExpectStates(t, map[string]int{"outdated": 0, "captured": 2 * len(p.pods)})
	alive()
	p.digest = fresh
	p.expectUnchanged(t, n)
	for _, pod := range p.pods {
		lab.Eventually(t, func() error {
			events := n.Kubectl(t, "", "get", "events", "--field-selector=reason=CaptureUpdated,involvedObject.name="+pod, "-o", "jsonpath={.items[*].message}")
			if stamps := strings.Count(events, " rules v"); stamps != 2 {
				return fmt.Errorf("the Events about the update of %s have %d stamps, want one from an earlier version to today's: %s", pod, stamps, events)
			}
			return nil
		})
	}
}

// expectUnreported expects that the plugin of kubectl shows agents that write no Lease, on
// a cluster that has never had others.
func expectUnreported(t *testing.T) {
	t.Helper()
	c.MustKubectl(t, "--namespace", cluster.Namespace, "delete", "leases", "--all")
	c.BuildPlugin(t).Expect(t, "status", 1, fmt.Sprintf("%d unreported", len(c.Nodes)), "the agent has written no Lease", "next for "+c.Nodes[0].Name)
}

// linkSocket gives CRI-O's socket the name of containerd's as well, until the test ends: the
// first chart has one path for all nodes.
func linkSocket(t *testing.T) {
	t.Helper()
	const path = "/run/containerd/containerd.sock"
	for _, node := range c.Nodes {
		if node.Runtime != cluster.CRIO {
			continue
		}
		lab.Check(t, os.MkdirAll(node.Path("/run/containerd"), 0o755)) // the chart's mount may have made it
		lab.Check(t, os.Link(node.Socket(), node.Path(path)))
		t.Cleanup(func() { lab.Check(t, os.Remove(node.Path(path))) })
	}
}

// timed logs how long a change of the release took.
func timed(t *testing.T, what string, change func() error) {
	t.Helper()
	began := time.Now()
	lab.Check(t, change())
	t.Logf("%s: %s", what, time.Since(began).Round(time.Second))
}

// pair are pods of one release, one on each node.
type pair struct {
	pods   []string
	digest string // of the rules of each
}

// runOnEachNode starts a meshed pod on each node. A connection to each goes through its
// proxy.
func runOnEachNode(t *testing.T, n suite.Namespace, name string) (p pair) {
	t.Helper()
	for _, node := range c.Nodes {
		pod := dualStackServer(name+"-"+node.Name, node.Name)
		n.Run(t, suite.WithEcho(pod))
		p.pods = append(p.pods, pod.Name)
	}
	p.digest = n.Digest(t, p.pods[0])
	p.expectUnchanged(t, n)
	return p
}

func dualStackServer(name, node string) *corev1.Pod {
	return suite.DualStack(suite.Server(name, node))
}

// expectUnchanged expects the rules that the pods started with, and their proxies on the
// way of connections.
func (p pair) expectUnchanged(t *testing.T, n suite.Namespace) {
	t.Helper()
	for i, pod := range p.pods {
		if digest := n.Digest(t, pod); digest != p.digest {
			t.Errorf("%s has the rules %q, and started with %q", pod, digest, p.digest)
		}
		client := p.pods[(i+1)%len(p.pods)]
		v4, v6 := n.Addresses(t, pod)
		for _, address := range []string{suite.Address(v4, 8080), suite.Address(v6, 8080)} {
			want := fmt.Sprintf("%s/outbound %s/inbound %s/app", client, pod, pod)
			if got := suite.Names(n.Ask(t, client, "tcp", address)); got != want {
				t.Errorf("a connection from %s to %s at %s meets %q, want %q", client, pod, address, got, want)
			}
		}
	}
}

// expectReuse expects that helm can reuse the values that the operator has set, except the
// image's tag, and not the earlier chart's defaults, which lack those of new values.
func expectReuse(t *testing.T, removed string) {
	t.Helper()
	chart, err := cluster.Chart(t.Context())
	lab.Check(t, err)
	upgrade := func(flags ...string) error {
		_, err := c.Helm(t.Context(), append([]string{"upgrade", cluster.Namespace, chart, "--namespace", cluster.Namespace, "--dry-run"}, flags...)...)
		return err
	}
	if err := upgrade("--reuse-values"); err == nil || !strings.Contains(err.Error(), removed) {
		t.Errorf("an upgrade with the earlier defaults: %v", err)
	}
	if err := upgrade("--reset-then-reuse-values"); err == nil || !strings.Contains(err.Error(), "image.tag is v") {
		t.Errorf("an upgrade with the earlier image, which the operator has pinned: %v", err)
	}
	if err := upgrade("--reset-then-reuse-values", "--set", "image.tag="); err != nil {
		t.Errorf("an upgrade with the operator's values, as the guide has it: %v", err)
	}
}

// expectFewEvents expects at most one Event about a pod and upgrade, counts included, and
// none about pods that fail to start or to end, or that lack rules.
func expectFewEvents(t *testing.T, version string, n suite.Namespace, turnover *suite.Turnover) {
	t.Helper()
	var events corev1.EventList
	lab.Check(t, json.Unmarshal([]byte(n.Kubectl(t, "", "get", "events", "-o", "json")), &events))
	warnings := map[string]int32{}
	for _, event := range events.Items {
		about := event.InvolvedObject.Name
		switch ofPlugin := strings.Contains(event.Message, "capture-cni"); event.Reason {
		case "FailedCreatePodSandBox", "FailedKillPod":
			if ofPlugin {
				t.Errorf("%s of %s: %s", event.Reason, about, event.Message)
			}
		case "CaptureFailed", "CaptureMissing", "CaptureRepaired":
			if version != first || !isFalseAlarm(event, turnover) {
				t.Errorf("%s of %s: %s", event.Reason, about, event.Message)
			}
		case "CaptureWarning", "CaptureNote":
			if strings.Contains(event.Message, "can take the proxy's gid") {
				continue // today's plugin, while an earlier agent can't tell it the pod's groups
			}
			most := int32(1)
			if strings.HasPrefix(about, "earlier-") { // they are captured for the guard of their release, and outdated again after the second upgrade
				most = 2
			}
			if warnings[about] += event.Count; warnings[about] > most {
				t.Errorf("%s is reported %d times, at last: %s", about, warnings[about], event.Message)
			}
		}
	}
	t.Logf("of %d pods there is an Event that they are outdated", len(warnings))
}

// isFalseAlarm reports whether an Event is by the first release's guard, in whose words, about a
// pod that was ending: it takes a pod of CRI-O for uncaptured between DEL and the end of
// its sandbox.
func isFalseAlarm(event corev1.Event, turnover *suite.Turnover) bool {
	const (
		repaired = "the pod ran without capture and is captured now; connections that began before bypass the proxy until they end: "
		failed   = "the pod is not captured as it should be: "
	)
	text := event.Message
	return turnover.WasEnding(event.InvolvedObject.Name, event.FirstTimestamp) &&
		(strings.HasPrefix(text, failed) && strings.HasSuffix(text, "the pod has ended") ||
			strings.HasPrefix(text, repaired) && strings.HasSuffix(text, "nobody's rules are in its network namespace"))
}

// TestCanary has today's release on one node, by a pool, next to an earlier one on the
// others, which OnDelete leaves alone; and goes back. Pods start on all nodes meanwhile,
// with the rules of their node's release.
func TestCanary(t *testing.T) { each(t, testCanary) }

func testCanary(t *testing.T, version string) {
	lab.Check(t, c.InstallEarlier(t.Context(), version))
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	turnover := suite.StartTurnover(t, n, 1, suite.SandboxRuns, dualStackServer)
	before := agentImages(t)
	node := c.Nodes[0].Name
	c.MustKubectl(t, "label", "--overwrite", "node", node, "ring=canary")
	t.Cleanup(func() { c.MustKubectl(t, "label", "node", node, "ring-") })
	lab.Check(t, c.Apply(t.Context(), "image.tag=v1", "updateStrategy.type=OnDelete", "pools[0].name=canary,pools[0].nodeSelector.ring=canary,pools[0].mode=insert,pools[0].updateStrategy.type=RollingUpdate"))
	want := maps.Clone(before)
	want[node] = "test.local/capture-cni/capture-cni:v1"
	expectAgents(t, want)
	canary := turnover.Next(t)
	if canary[0].Digest == canary[1].Digest || canary[1].Digest != canary[2].Digest {
		t.Errorf("pods have the rules %q, %q and %q: want those of today on the first node", canary[0].Digest, canary[1].Digest, canary[2].Digest)
	}
	lab.Check(t, c.InstallEarlier(t.Context(), version))
	expectAgents(t, before)
	for _, life := range turnover.Next(t) {
		if life.Digest != canary[1].Digest {
			t.Errorf("%s has the rules %q", life.Pod, life.Digest)
		}
	}
	turnover.End(t)
	expectFewEvents(t, version, n, turnover)
}

// agentImages returns the images of the ready agents by node.
func agentImages(t *testing.T) map[string]string {
	t.Helper()
	images := map[string]string{}
	out := c.MustKubectl(t, "--namespace", cluster.Namespace, "get", "pods", "-o",
		`jsonpath={range .items[*]}{.spec.nodeName} {.spec.containers[0].image} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
	for line := range strings.Lines(out) {
		if words := strings.Fields(line); len(words) == 3 && words[2] == "True" {
			images[words[0]] = words[1]
		}
	}
	return images
}

// expectAgents waits until the nodes have ready agents of these images.
func expectAgents(t *testing.T, want map[string]string) {
	t.Helper()
	lab.Eventually(t, func() error {
		if got := agentImages(t); !maps.Equal(got, want) {
			return fmt.Errorf("the agents' images are %v, want %v", got, want)
		}
		return nil
	})
}
