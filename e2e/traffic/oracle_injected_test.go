// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestOracleInjected has `capture-cni-node render` and Istio's own plugin decide about
// each pod that Istio's injector makes in its own tests, and compares packets for those
// that are captured. A pod with istio-init is compared with what that container does, and
// without it by the plugin.
func TestOracleInjected(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	plugin, node := newIstioCNI(t), buildNode(t)
	inMesh, compared := 0, map[string]bool{}
	compare := func(pod *corev1.Pod, name, requested string, istio func(*lab.Host) error, also ...difference) {
		intent := intentOf(t, pod, config.DefaultSettings())
		if key := requested + capture.Rules(intent).String(); !compared[key] {
			compared[key] = true
			o := &oracle{intent: intent, mesh: config.DefaultSettings().Mesh, theirs: istio, also: also, ports: portsOf(intent), owners: proxyOwners(intent)}
			t.Run(name, func(t *testing.T) { t.Parallel(); o.compare(t) })
		}
	}
	pods := injectedByIstio(t)
	for _, pod := range pods {
		captured := expectSameDecision(t, plugin, node, pod)
		asked := pod.Pod
		if init := pod.init; init != nil && capture.Meshed(pod.Annotations, config.Meshes()) {
			captured, asked = true, pod.withoutInit()
			compare(asked, pod.file+", istio-init", fmt.Sprint(init.Args, init.Env), func(host *lab.Host) error {
				return istioInit(t, host, environmentFrom(init.Env), init.Args[1:]...)
			}, initDifferences(init.Args)...)
		}
		if captured {
			inMesh++
			compare(asked, pod.file+", istio-cni", "", func(host *lab.Host) error { return plugin.add(host, asked) })
		}
	}
	t.Logf("%d pods, %d of them captured, in %d ways", len(pods), inMesh, len(compared))
	t.Run("enough", func(t *testing.T) {
		if inMesh < 100 || len(compared) < 20 {
			t.Error("expected 100 captured pods, and 20 ways")
		}
	})
}

// initDifferences are those of istio-init from Istio's plugin, with which ours agrees.
func initDifferences(args []string) []difference {
	told, _ := strconv.Atoi(args[slices.Index(args, "-u")+1])
	differs := func(in capture.Intent) bool { return told != int(in.ProxyUID) || told != int(in.ProxyGID) }
	return []difference{
		{
			why:    "the plugin excludes port 15020 by itself, in both directions",
			holds:  func(_ capture.Intent, p probe) bool { return p.port == 15020 },
			allows: [][2]string{{direct, inbound}, {direct, outbound}},
			shown:  func(in capture.Intent) bool { return in.InboundPorts.All || in.OutboundRanges.All },
		},
		{
			why: "istio-init is told a user, which counts as the proxy's group, too; under TPROXY the proxy's container has another",
			holds: func(in capture.Intent, p probe) bool {
				uid, gid := int(in.ProxyUID), int(in.ProxyGID)
				return told != uid && (p.by.UID == told || p.by.UID == uid) || told != gid && (p.by.GID == told || p.by.GID == gid)
			},
			allows: [][2]string{{direct, outbound}, {inbound, direct}, {inbound, outbound}},
			shown:  differs,
		},
	}
}

// refusedByIstio are the pods for which Istio's plugin returns an error.
var refusedByIstio = map[string]string{
	"init-no-intercept-no-native-sidecar.yaml.injected 0.0": "its interceptionMode is NONE, which is a reason not to capture it",
}

// expectSameDecision compares whether a pod is captured, by render and by Istio's plugin,
// and makes sure that render prints the rules that the packets meet.
func expectSameDecision(t *testing.T, plugin istioCNI, node string, pod injectedPod) (captured bool) {
	t.Helper()
	scratch, err := captureByIstio(func() world {
		host := lab.StartHost(t)
		lab.Check(t, host.AddAddresses("lo", podIP[ipv4]+"/32", podIP[ipv6]+"/128"))
		return world{pod: host}
	}, func(host *lab.Host) error { return plugin.add(host, pod.Pod) })
	if why, expected := refusedByIstio[pod.file]; (err != nil) != expected {
		t.Errorf("%s: Istio's plugin: %v, expected an error: %q", pod.file, err, why)
	}
	istios := list(t, scratch.pod, "ruleset") != ""
	manifest := filepath.Join(t.TempDir(), "pod.json")
	text, err := json.Marshal(pod.Pod)
	lab.Check(t, err)
	lab.Check(t, os.WriteFile(manifest, text, 0o600))
	out, err := exec.CommandContext(t.Context(), node, "render", "--pod", manifest, "--address", podIP[ipv4]+","+podIP[ipv6]).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: render: %v\n%s", pod.file, err, out)
	}
	captured = !strings.HasPrefix(string(out), "not captured: ")
	if captured != istios {
		t.Errorf("%s: captured: %v, by Istio's plugin: %v\n%s", pod.file, captured, istios, out)
	}
	if captured {
		intent := intentOf(t, pod.Pod, config.DefaultSettings())
		if !strings.Contains(string(out), capture.Rules(intent).String()) {
			t.Errorf("%s: render prints other rules:\n%s", pod.file, out)
		}
	}
	return captured
}

// proxyOwners are processes with both, one or the other of the proxy's ids.
func proxyOwners(in capture.Intent) (owners []lab.Owner) {
	uid, gid := int(in.ProxyUID), int(in.ProxyGID)
	for _, owner := range []lab.Owner{{UID: uid, GID: gid}, {UID: uid, GID: app.GID}, {UID: app.UID, GID: gid}} {
		if !slices.Contains(oracleOwners, owner) {
			owners = append(owners, owner)
		}
	}
	return owners
}

// portsOf are those that the annotations name.
func portsOf(in capture.Intent) (ports []int) {
	only := append(capture.Ports(in.InboundPorts.Only...), capture.Ports(in.IncludeOutboundPorts...)...)
	for _, r := range slices.Concat(only, in.ExcludeInboundPorts, in.ExcludeOutboundPorts) {
		ports = append(ports, int(r.First))
	}
	return ports
}
