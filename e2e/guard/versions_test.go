// SPDX-License-Identifier: Apache-2.0

package guard

import (
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
	p.captureByEarlierRelease(t, version)
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
	n.run(t, "web").captureByEarlierRelease(t, lab.EarlierVersions[0])
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

// captureByEarlierRelease calls the plugin of an earlier release.
func (p *pod) captureByEarlierRelease(t *testing.T, version string) {
	t.Helper()
	api, err := kubeapi.Start()
	lab.Check(t, err)
	defer api.Close()
	api.Put(meshed(p.sandbox))
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
