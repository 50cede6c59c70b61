// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"slices"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestRenamedLoopback gives eth0 the name of lo, which a process with NET_ADMIN can. A check
// reports it; with nftables, the exemptions of lo are not eth0's.
func TestRenamedLoopback(t *testing.T) {
	t.Parallel()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for _, mode := range modes {
			t.Run(mode, func(t *testing.T) {
				w := newProbeWorld(t, []int{80, 8080}, istioMesh)
				pod := injected(map[string]string{"sidecar.istio.io/interceptionMode": mode}, nil)
				rs := decide(t, pod, dualStack())
				netns := open(t, w.pod, backend)
				lab.Check(t, netns.Apply(rs))
				renameLoopback(t, w)
				if differences, err := netns.Check(rs); err != nil || !slices.Contains(differences, `unexpected: the loopback interface is named "lo9"`) {
					t.Errorf("a check finds %q (%v)", differences, err)
				}
				if backend != config.NFTables {
					return // iptables can only match names
				}
				for _, f := range bothFamilies {
					w.probe(t, out(proxy, external, 80, direct), f)
					if answer, _, _ := w.ask(out(app, external, 80, ""), f); answer.Server == direct {
						t.Errorf("%v: the application gets out past the proxy", f)
					}
				}
			})
		}
	})
}

// renameLoopback gives eth0 the name of lo.
func renameLoopback(t *testing.T, w world) {
	t.Helper()
	for _, name := range [][2]string{{"lo", "lo9"}, {"eth0", "lo"}} {
		run("ip", "link", "set", name[0], "down")(t, w.pod)
		run("ip", "link", "set", name[0], "name", name[1])(t, w.pod)
	}
	lab.Check(t, w.pod.AddAddresses("lo9"))
	// The kernel removed the IPv6 addresses; a check looks for one of lo's.
	lab.Check(t, w.pod.AddAddresses("lo", podIP[ipv6]+"/64", proxySource[ipv6]+"/128"))
	lab.Check(t, w.pod.WaitForIPv6())
}
