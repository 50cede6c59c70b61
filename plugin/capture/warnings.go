// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"maps"
	"slices"

	"github.com/capture-cni/capture-cni/config"
)

// warnEarlyContainers warns about init containers that start before the proxy, except those in own and
// those whose traffic is never captured. The traffic of the other ones is redirected to a port at which
// no proxy listens yet. If the proxy is a native sidecar, the warning says to move the proxy before
// these init containers.
func (d *decider) warnEarlyContainers(in *Intent, own ...string) {
	if !capturesOutbound(in) {
		return
	}
	var lines []string
	for _, c := range d.pod.Containers {
		if !c.Init || c.Name == d.proxy.Name {
			break // no later init container starts before the proxy
		}
		hasProxyID := c.UID.Number == int64(in.ProxyUID) || in.ProxyGID != 0 && c.GID.Number == int64(in.ProxyGID)
		if !slices.Contains(own, c.Name) && !hasProxyID && !in.exemptsAll(c) {
			until, remedy := "", fmt.Sprintf("make %s a native sidecar before it", d.proxy.Name)
			if d.proxy.Init && d.proxy.KeepsRunning {
				remedy = fmt.Sprintf("move %s before it", d.proxy.Name)
			}
			if c.KeepsRunning { // with the proxy's uid, this container would escape capture while the pod runs
				until = " until the proxy listens"
			} else if !d.refusesShared() {
				remedy += fmt.Sprintf(", or run it with the proxy's uid %d", in.ProxyUID)
			}
			line := fmt.Sprintf("init container %s starts before %s, so its captured connections fail%s: %s", c.Name, d.proxy.Name, until, remedy)
			lines = append(lines, line)
		}
	}
	d.warnings = append(d.warnings, config.Few(lines, "init containers start before the proxy")...)
}

// exemptsAll reports whether a container's uid is known and exempt, so that nothing that the container
// sends is captured.
func (in *Intent) exemptsAll(c Container) bool {
	exempt := func(protocol Protocol) bool {
		return slices.ContainsFunc(in.Exempt, func(e Exempt) bool {
			return e.Protocol == protocol && e.UIDs != nil && e.UIDs.Contains(uint32(c.UID.Number)) && len(e.Ports)+len(e.Ranges) == 0
		})
	}
	toProxy := func(t Translation) bool { return t.To.Addr().IsLoopback() } // comes before exemptions
	return c.UID.Number != 0 && exempt(TCP) && (exempt(UDP) || !in.CaptureDNS) && !slices.ContainsFunc(in.Translations, toProxy)
}

func capturesOutbound(in *Intent) bool {
	return in.OutboundRanges.All || len(in.OutboundRanges.Only) > 0 || len(in.IncludeOutboundPorts) > 0 || in.CaptureDNS
}

// warnUnknownAnnotations warns about annotations with the mesh's prefix, or misspelt ones, that do not
// decide about capture.
func (d *decider) warnUnknownAnnotations() {
	var lines []string
	for _, key := range d.unknownKeys() {
		line := fmt.Sprintf("annotation %s is not known and has no effect", key)
		if meant := d.mesh.misspelt(key); meant != "" {
			line += ": write " + meant
		}
		lines = append(lines, line)
	}
	d.warnings = append(d.warnings, config.Few(lines, "annotations are not known and have no effect")...)
}

func (d *decider) unknownKeys() (unknown []string) {
	for _, key := range slices.Sorted(maps.Keys(d.pod.Annotations)) {
		if kept, _ := d.mesh.keeps(key); kept && !d.mesh.decides(key) {
			unknown = append(unknown, key)
		}
	}
	return unknown
}
