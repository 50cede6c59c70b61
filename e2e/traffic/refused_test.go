// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"net/netip"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestIPv6Refused captures a pod that has only an IPv4 address at its ADD, and then
// gives it an IPv6 address, as a neighbour's router advertisement would.
func TestIPv6Refused(t *testing.T) {
	for _, test := range []struct {
		name        string
		annotations map[string]string
		settings    config.IPv6Policy
	}{
		{"REDIRECT", nil, config.IPv6Mesh},
		{"TPROXY", tproxy(nil), config.IPv6Mesh},
		{"always", nil, config.IPv6Always},
		{"never", nil, config.IPv6Never},
		{"INVALID_DROP", nil, config.IPv6Mesh},
	} {
		t.Run(test.name, func(t *testing.T) {
			forEachBackend(t, func(t *testing.T, backend config.Backend) {
				settings := config.DefaultSettings()
				settings.IPv6 = test.settings
				annotations := spelled(test.annotations)
				annotations["traffic.sidecar.istio.io/excludeInterfaces"] = "net1"
				env := map[string]string{}
				if test.name == "INVALID_DROP" {
					env["INVALID_DROP"] = "true"
				}
				decision, err := lab.Decide(injected(annotations, env), settings, netip.MustParseAddr(podIP[ipv4]), netip.MustParseAddr("fe80::1"))
				check(t, err)
				if len(decision.Warnings) > 0 {
					t.Errorf("warnings %q", decision.Warnings)
				}
				w := newWorld(t, []int{80, 8080, 15006, 15020}, config.Mesh{OutboundPort: 25001, InboundPort: 25006, DNSPort: 25053})
				check(t, open(t, w.pod, backend).Apply(capture.Rules(decision.Intent)))
				for _, p := range []probe{
					out(app, external, 80, refused), out(rootUser, external, 80, refused), out(app, external, 15020, direct),
					out(proxy, external, 80, direct), out(app, secondPeer, 80, direct),
					out(app, podIP, 8080, direct), out(app, localhost, 8080, direct), out(proxy, podIP, 8080, direct),
					in(podIP, 8080, dropped), in(podIP, 15006, dropped), in(podIP, 15020, dropped), in(secondIP, 8080, direct),
					udp(out(app, external, 80, direct)),
				} {
					w.probe(t, p, ipv6)
				}
			})
		})
	}
}
