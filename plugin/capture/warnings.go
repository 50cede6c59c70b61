// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
)

// warnEarlyContainers names the init containers that start before the proxy: the
// rules are there already, and what they send goes to where no proxy listens yet.
func (d *decision) warnEarlyContainers(in *Intent) {
	if !capturesOutbound(in) {
		return
	}
	var lines []string
	for _, c := range d.earlyContainers() {
		if c.Name != containerValidation && c.Name != containerInit && !d.passesForProxy(&c, in) {
			lines = append(lines, fmt.Sprintf("init container %s has no network for what is captured: it starts before %s; a native sidecar or the proxy's uid %d would give it one",
				c.Name, containerProxy, in.ProxyUID))
		}
	}
	d.warnings = append(d.warnings, config.Few(lines, "init containers have no network for what is captured")...)
}

// earlyContainers are the init containers, up to a proxy that is a native sidecar:
// what follows finds it.
func (d *decision) earlyContainers() []corev1.Container {
	containers := d.pod.Spec.InitContainers
	if i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == containerProxy }); i >= 0 {
		return containers[:i]
	}
	return containers
}

// passesForProxy tells whether what a container sends is taken for the proxy's.
func (d *decision) passesForProxy(c *corev1.Container, in *Intent) bool {
	uid, _ := effectiveID(d.pod, c, runAsUser)
	gid, _ := effectiveID(d.pod, c, runAsGroup)
	return uid == int64(in.ProxyUID) || gid == int64(in.ProxyGID)
}

func capturesOutbound(in *Intent) bool {
	return in.OutboundRanges.All || len(in.OutboundRanges.Only) > 0 || len(in.IncludeOutboundPorts) > 0 || in.CaptureDNS
}
