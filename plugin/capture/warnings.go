// SPDX-License-Identifier: Apache-2.0

package capture

import corev1 "k8s.io/api/core/v1"

// warnEarlyContainers names the init containers that start before the proxy: the
// rules are there already, and what they send goes to where nobody listens yet.
func (d *decision) warnEarlyContainers(in *Intent) {
	for i := range d.pod.Spec.InitContainers {
		c := &d.pod.Spec.InitContainers[i]
		if c.Name == containerProxy { // a native sidecar: what follows finds it
			return
		}
		if c.Name != containerValidation && c.Name != containerInit && !d.passesForProxy(c, in) && capturesOutbound(in) {
			d.warn("init container %s has no network for what is captured: it starts before %s; a native sidecar or the proxy's uid %d would give it one",
				c.Name, containerProxy, in.ProxyUID)
		}
	}
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
