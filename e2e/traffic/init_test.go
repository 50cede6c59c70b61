// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestInitContainers has init containers of a captured pod connect before its proxy is
// up, and after, as behind a native sidecar. Before, a container reaches what is excluded,
// or everything if it runs as the proxy's user or group; nothing else leaves uncaptured.
func TestInitContainers(t *testing.T) {
	t.Parallel()
	noProxy := config.Mesh{OutboundPort: 25001, InboundPort: 25006, DNSPort: 25053}
	annotations := map[string]string{
		"traffic.sidecar.istio.io/excludeOutboundPorts":    "443",
		"traffic.sidecar.istio.io/excludeOutboundIPRanges": excluded[ipv4] + "/32," + excluded[ipv6] + "/128",
	}
	for name, tt := range map[string]struct {
		listening config.Mesh
		captured  string // what captured connections reach
	}{
		"before the proxy":        {noProxy, refused},
		"behind a native sidecar": {istioMesh, outbound},
	} {
		t.Run(name, func(t *testing.T) {
			forEachBackend(t, func(t *testing.T, backend config.Backend) {
				w := newWorld(t, []int{80, 443}, tt.listening)
				lab.Check(t, open(t, w.pod, backend).Apply(decide(t, injected(annotations, nil), dualStack())))
				w.probeAll(t,
					out(app, external, 80, tt.captured), out(rootUser, external, 80, tt.captured), out(app, external, 443, direct),
					out(app, excluded, 80, direct), out(proxyUID, external, 80, direct), out(proxyGID, external, 80, direct))
			})
		})
	}
}
