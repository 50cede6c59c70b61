// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"

	"github.com/capture-cni/capture-cni/config"
)

// proxyIdentity finds the uid and gid whose traffic is the proxy's own, and
// whoever else would pass for the proxy by them.
func (d *decider) proxyIdentity(in *Intent) {
	mesh := d.settings.Mesh
	in.ProxyUID = d.proxyID("uid", Container.uid, mesh.ProxyUID)
	in.ProxyGID = d.proxyID("gid", Container.gid, mesh.ProxyGID)
}

// proxyID is the container's id, else the pod's, else the mesh's. Root (0) is
// never exempt, as in Istio: it falls back to the mesh's.
func (d *decider) proxyID(kind string, pick func(Container) ID, otherwise uint32) uint32 {
	id := pick(*d.proxy)
	if id.Number == 0 {
		id = ID{Number: int64(otherwise)}
	}
	d.sharedID(kind, pick, id)
	return uint32(id.Number)
}

// sharedID looks for others that run with the proxy's uid or gid: their
// traffic could not be told from the proxy's, and would not be captured.
func (d *decider) sharedID(kind string, pick func(Container) ID, proxy ID) {
	var refused, warned []string
	for _, c := range d.pod.Containers {
		if c.Name == containerProxy || isValidation(c) {
			continue
		}
		id := pick(c)
		if id.Number != proxy.Number {
			continue
		}
		if proxy.FromPod || id.FromPod || d.settings.SharedProxyUID == config.SharedUIDRefuse {
			refused = append(refused, fmt.Sprintf("container %s runs with the proxy's %s %d and would escape capture: give one of them another one in its security context", c.Name, kind, id.Number))
		} else {
			warned = append(warned, fmt.Sprintf("container %s runs with the proxy's %s %d and escapes capture", c.Name, kind, id.Number))
		}
	}
	d.refusals = append(d.refusals, config.Few(refused, "containers run with the proxy's "+kind+" and would escape capture")...)
	d.warnings = append(d.warnings, config.Few(warned, "containers run with the proxy's "+kind+" and escape capture")...)
}

// isValidation reports whether a container is Istio's validation, which has the
// proxy's uid on purpose and ends before the application starts. One that does not
// end by then only bears the name.
func isValidation(c Container) bool {
	return c.Name == containerValidation && c.Init && !c.KeepsRunning
}

func (c Container) uid() ID { return c.UID }
func (c Container) gid() ID { return c.GID }
