// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nftables"
)

// TestEarlierPods has a pod that an earlier plugin captured. It is outdated,
// which is reported once, also over a restart of the guard, and left as it is. Once its
// rules are changed it is repaired, and has the rules of today.
func TestEarlierPods(t *testing.T) {
	t.Parallel()
	for _, version := range lab.EarlierVersions {
		for _, mode := range []string{"REDIRECT", "TPROXY"} {
			t.Run(version+", "+mode, func(t *testing.T) { testPodOfEarlierRelease(t, version, mode) })
		}
	}
}

func testPodOfEarlierRelease(t *testing.T, version, mode string) {
	n := newNode()
	n.baselines = t.TempDir()
	conn := n.listen(t)
	p := n.run(t, "web")
	p.sandbox.Annotations["sidecar.istio.io/interceptionMode"] = mode
	n.pods["web"] = meshed(p.sandbox)
	p.captureByEarlierRelease(t, n, version)
	before := p.list(t)
	for _, rounds := range []int{1, 3} { // an agent is replaced before its guard's second round, too
		g := n.newGuard(t, options{})
		for range rounds {
			g.round(t)
		}
		g.expect(t, report.Outdated)
	}
	if after := p.list(t); after != before {
		t.Errorf("an outdated pod was changed:\n%s", after)
	}
	if records := receive(t, conn)["web"]; len(records) != 1 || records[0].Reason != telemetry.Outdated {
		t.Errorf("reported %+v, want once that the pod is outdated", records)
	}

	p.nft(t, "flush", "chain", "inet", "capture-cni", "nat_OUTPUT")
	g := n.newGuard(t, options{})
	g.round(t)
	g.finds(t, report.Captured)
	expectRepair(t, receive(t, conn)["web"], telemetry.Drifted)
	proxy, err := p.host.ServeProxy(lab.Owner{UID: 1337, GID: 1337}, "tcp", fmt.Sprintf(":%d", inboundPort), "proxy")
	lab.Check(t, err)
	defer proxy.Close()
	answer, err := p.peer.Ask(lab.Owner{}, "tcp", "", appAddress)
	if err != nil || answer.Server != "proxy" {
		t.Errorf("a new connection reaches %q, %v", answer.Server, err)
	}
}

// TestEarlierPodsReportedOnce has no agent at first: what no agent received is reported by the
// next guard, once.
func TestEarlierPodsReportedOnce(t *testing.T) {
	t.Parallel()
	n := newNode()
	n.baselines = t.TempDir()
	n.run(t, "web").captureByEarlierRelease(t, n, lab.EarlierVersions[0])
	n.socket = filepath.Join(t.TempDir(), "no agent")
	examine := func() {
		g := n.newGuard(t, options{})
		for range 3 {
			g.round(t)
		}
		g.expect(t, report.Outdated)
	}
	examine()
	conn := n.listen(t)
	examine()
	examine()
	if records := receive(t, conn)["web"]; len(records) != 1 || records[0].Reason != telemetry.Outdated {
		t.Errorf("reported %+v, want once that the pod is outdated", records)
	}
}

// TestReworded has pods whose baselines a guard of 0.3.0 left, also one whose rules have other
// words in their comments, and so another stamp. Their rules are the same, so nothing is
// reported and nothing is changed, until a rule is.
func TestReworded(t *testing.T) {
	t.Parallel()
	for name, why := range map[string]string{"the same words": "", "other words": "in other words"} {
		t.Run(name, func(t *testing.T) {
			n := newNode()
			n.baselines = t.TempDir()
			conn := n.listen(t)
			p := n.run(t, "web")
			p.captureBy(t, reworded{why: why}, nil)
			earlier := fmt.Sprintf(`{"stamp":%q,"backend":"nftables","digest":"2:%064x"}`, p.rules(t).Stamp, 1)
			lab.Check(t, os.WriteFile(filepath.Join(n.baselines, "web"), []byte(earlier), 0o600))
			before := p.list(t)
			if !strings.Contains(before, why) {
				t.Fatalf("no comment has other words:\n%s", before)
			}
			for range 2 {
				n.newGuard(t, options{}).finds(t, report.Captured)
			}
			if after, records := p.list(t), receive(t, conn)["web"]; after != before || len(records) > 0 {
				t.Errorf("reported %+v, the rules are:\n%s", records, after)
			}
			p.nft(t, "insert", "rule", "inet", "capture-cni", "nat_OUTPUT", "return")
			n.newGuard(t, options{}).finds(t, report.Captured)
			expectRepair(t, receive(t, conn)["web"], telemetry.Drifted)
		})
	}
}

// reworded is a backend that gives the first rule another comment.
type reworded struct {
	nftables.Backend
	why string
}

func (r reworded) Apply(ctx context.Context, rs capture.Ruleset) error {
	if r.why != "" {
		rs.Chains[0].Rules[0].Why = r.why
	}
	return r.Backend.Apply(ctx, rs)
}

// captureByEarlierRelease calls the plugin of an earlier release.
func (p *pod) captureByEarlierRelease(t *testing.T, n *node, version string) {
	t.Helper()
	api, err := kubeapi.Start()
	lab.Check(t, err)
	defer api.Close()
	api.Put(n.pods[p.sandbox.ID])
	kubeconfig, err := api.WriteKubeconfig(t.TempDir())
	lab.Check(t, err)
	command := exec.CommandContext(t.Context(), filepath.Join(lab.Part(t, version), "capture-cni"))
	command.Env = []string{
		"PATH=" + os.Getenv("PATH"), "CAPTURE_CNI_DIR=" + filepath.Dir(kubeconfig), "CNI_COMMAND=ADD", "CNI_CONTAINERID=" + p.sandbox.ID, "CNI_NETNS=" + p.host.Path(), "CNI_IFNAME=eth0", "CNI_PATH=/",
		fmt.Sprintf("CNI_ARGS=K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s", p.sandbox.Namespace, p.sandbox.Name, p.sandbox.UID),
	}
	command.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "test", "type": "capture-cni", "kubeconfig": %q, "agentSocket": ""}`, kubeconfig))
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
