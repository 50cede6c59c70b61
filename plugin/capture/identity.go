// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"slices"

	"github.com/capture-cni/capture-cni/config"
)

// proxyID returns the proxy's uid or gid from its container's security context or else the pod's, and
// otherwise meshID. It ignores an id of 0, as Istio does, because all of root's traffic would be exempt.
// A result of 0 means that the proxy has no such id.
func (d *decider) proxyID(kind string, pick func(Container) ID, meshID uint32) uint32 {
	id := pick(*d.proxy)
	if id.Number == 0 {
		id = ID{Number: int64(meshID)}
	}
	if id.Number != 0 {
		d.checkSharedID(kind, pick, id)
	}
	return uint32(id.Number)
}

// checkSharedID refuses the pod, or warns, if another container, except the mesh's validation container,
// has the proxy's uid or gid. Rules can't distinguish that container's traffic from the proxy's, so the
// traffic escapes capture.
func (d *decider) checkSharedID(kind string, pick func(Container) ID, proxy ID) {
	var refused, warned []string
	for _, c := range d.pod.Containers {
		if c.Name == d.proxy.Name || d.isValidation(c) || pick(c).Number != proxy.Number {
			continue
		}
		if proxy.FromPod || pick(c).FromPod || d.refusesShared() {
			refused = append(refused, fmt.Sprintf("container %s runs with the proxy's %s %d and would escape capture: "+
				"set another one in a security context", c.Name, kind, proxy.Number))
		} else {
			warned = append(warned, fmt.Sprintf("container %s runs with the proxy's %s %d and escapes capture", c.Name, kind, proxy.Number))
		}
	}
	d.refusals = append(d.refusals, config.Few(refused, "containers run with the proxy's "+kind+" and would escape capture")...)
	d.warnings = append(d.warnings, config.Few(warned, "containers run with the proxy's "+kind+" and escape capture")...)
}

// checkUnknownIDs refuses the pod, or warns, if another container sets no uid, or root's, so that its
// image or a process of root can choose the proxy's uid or gid, even if the container sets another gid.
// own says that the proxy's uid or gid is not the mesh's default. Without own, checkUnknownIDs does nothing
// unless onlyOwnIDs is set, because images do not use the default ids. A container with a uid may lack a
// gid, because OpenShift sets only uids.
func (d *decider) checkUnknownIDs(own bool) {
	var lines []string
	started := false // the proxy is among the containers so far
	for _, c := range d.pod.Containers {
		started = started || c.Name == d.proxy.Name
		ends := c.Init && !c.KeepsRunning && !started && !d.onlyOwnIDs // the container ends before the proxy starts
		if c.Name == d.proxy.Name || ends || d.isValidation(c) || c.UID.Number != 0 || !own && !d.onlyOwnIDs {
			continue
		}
		lines = append(lines, fmt.Sprintf("container %s sets no uid, or root's, "+
			"so that its processes may have the proxy's uid or gid and escape capture: "+
			"set a uid other than root's and the proxy's in a security context", c.Name))
	}
	d.addEscapes(config.Few(lines, "containers set no uid, or root's, and may have the proxy's uid or gid"))
}

// checkGroups refuses the pod, or warns, if processes of another container can get the proxy's gid from
// the pod's groups, without a capability. If the gid may be one of these groups, they can create and execute
// a program with this group and the set-group-ID bit, unless the container forbids privilege escalation.
// Groups and set-ID programs of the container's image are not known.
func (d *decider) checkGroups(gid uint32) {
	if gid == 0 || !slices.Contains(d.pod.Groups, int64(gid)) && !slices.Contains(d.pod.Groups, AnyGroup) {
		return
	}
	var lines []string
	for _, c := range d.pod.Containers {
		if c.Name != d.proxy.Name && c.GID.Number != int64(gid) && !c.NoNewPrivileges && !d.isValidation(c) {
			lines = append(lines, fmt.Sprintf("container %s can take the proxy's gid %d, which fsGroup or supplementalGroups may grant, "+
				"by a set-group-ID program and escape capture: set allowPrivilegeEscalation to false in its security context", c.Name, gid))
		}
	}
	d.addEscapes(config.Few(lines, "containers can take the proxy's gid and escape capture"))
}

// addEscapes adds the lines as refusals if no container may share the proxy's ids, and otherwise as
// warnings.
func (d *decider) addEscapes(lines []string) {
	if d.refusesShared() {
		d.refusals = append(d.refusals, lines...)
	} else {
		d.warnings = append(d.warnings, lines...)
	}
}

func (d *decider) refusesShared() bool {
	return d.onlyOwnIDs || d.settings.SharedProxyUID == config.SharedUIDRefuse
}

// isValidation reports whether a container is the mesh's validation container, which has the proxy's
// uid by design and ends before the application starts. It must be an init container that does not keep
// running.
func (d *decider) isValidation(c Container) bool {
	return c.Name == d.mesh.validation && c.Init && !c.KeepsRunning
}

func (c Container) uid() ID { return c.UID }
func (c Container) gid() ID { return c.GID }
