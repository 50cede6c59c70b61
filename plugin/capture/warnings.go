// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"

	"github.com/capture-cni/capture-cni/config"
)

// warnEarlyContainers names the init containers that start before the proxy: the
// rules are there already, and what they send goes to where no proxy listens yet.
func (d *decider) warnEarlyContainers(in *Intent) {
	if !capturesOutbound(in) {
		return
	}
	var lines []string
	for _, c := range d.pod.Containers {
		if !c.Init || c.Name == containerProxy {
			break // what follows finds the proxy
		}
		passesForProxy := c.UID.Number == int64(in.ProxyUID) || c.GID.Number == int64(in.ProxyGID)
		if c.Name != containerValidation && c.Name != containerInit && !passesForProxy {
			lines = append(lines, fmt.Sprintf("init container %s has no network for what is captured: it starts before %s; a native sidecar or the proxy's uid %d would give it one",
				c.Name, containerProxy, in.ProxyUID))
		}
	}
	d.warnings = append(d.warnings, config.Few(lines, "init containers have no network for what is captured")...)
}

func capturesOutbound(in *Intent) bool {
	return in.OutboundRanges.All || len(in.OutboundRanges.Only) > 0 || len(in.IncludeOutboundPorts) > 0 || in.CaptureDNS
}
