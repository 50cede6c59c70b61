// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"slices"

	"github.com/capture-cni/capture-cni/config"
)

// warnEarlyContainers warns of init containers that start before the proxy, but for the
// mesh's own: their traffic is redirected to a port on which no proxy listens yet.
func (d *decider) warnEarlyContainers(in *Intent, own ...string) {
	if !capturesOutbound(in) {
		return
	}
	var lines []string
	for _, c := range d.pod.Containers {
		if !c.Init || c.Name == d.proxy.Name {
			break // the following containers start after the proxy
		}
		hasProxyID := c.UID.Number == int64(in.ProxyUID) || in.ProxyGID != 0 && c.GID.Number == int64(in.ProxyGID)
		if !slices.Contains(own, c.Name) && !hasProxyID {
			line := fmt.Sprintf("init container %s starts before %s, so its captured connections fail: use a native sidecar", c.Name, d.proxy.Name)
			if !d.onlyOwnIDs {
				line += fmt.Sprintf(", or the proxy's uid %d for it", in.ProxyUID)
			}
			lines = append(lines, line)
		}
	}
	d.warnings = append(d.warnings, config.Few(lines, "init containers start before the proxy")...)
}

func capturesOutbound(in *Intent) bool {
	return in.OutboundRanges.All || len(in.OutboundRanges.Only) > 0 || len(in.IncludeOutboundPorts) > 0 || in.CaptureDNS
}
