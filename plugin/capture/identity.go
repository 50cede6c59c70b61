// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
)

// proxyIdentity finds the uid and gid whose traffic is the proxy's own, and
// whoever else would pass for the proxy by them.
func (d *decision) proxyIdentity(in *Intent) {
	mesh := d.settings.Mesh
	in.ProxyUID = d.proxyID("uid", runAsUser, mesh.ProxyUID)
	in.ProxyGID = d.proxyID("gid", runAsGroup, mesh.ProxyGID)
}

// proxyID is the container's id, else the pod's, else the mesh's. Root (0) is
// never exempt, as in Istio: it falls back to the mesh's.
func (d *decision) proxyID(kind string, pick func(ids) *int64, otherwise uint32) uint32 {
	id, fromPod := effectiveID(d.pod, d.proxy, pick)
	if id == 0 {
		id, fromPod = int64(otherwise), false
	}
	d.sharedID(kind, pick, id, fromPod)
	return uint32(id)
}

// sharedID looks for others that run with the proxy's uid or gid: their
// traffic could not be told from the proxy's, and would not be captured.
func (d *decision) sharedID(kind string, pick func(ids) *int64, proxyID int64, proxyFromPod bool) {
	var refused, warned []string
	for i, c := range podContainers(d.pod) {
		isInit := i < len(d.pod.Spec.InitContainers)
		if c.Name == containerProxy || isInit && isValidation(&c) {
			continue
		}
		id, fromPod := effectiveID(d.pod, &c, pick)
		if id != proxyID {
			continue
		}
		if proxyFromPod || fromPod || d.settings.SharedProxyUID == config.SharedUIDRefuse {
			refused = append(refused, fmt.Sprintf("container %s runs with the proxy's %s %d and would escape capture: give one of them another one in its security context", c.Name, kind, id))
		} else {
			warned = append(warned, fmt.Sprintf("container %s runs with the proxy's %s %d and escapes capture", c.Name, kind, id))
		}
	}
	d.refusals = append(d.refusals, config.Few(refused, "containers run with the proxy's "+kind+" and would escape capture")...)
	d.warnings = append(d.warnings, config.Few(warned, "containers run with the proxy's "+kind+" and escape capture")...)
}

// isValidation reports whether an init container is Istio's validation, which has
// the proxy's uid on purpose and ends before the application starts. One that
// keeps running only bears the name.
func isValidation(c *corev1.Container) bool {
	keepsRunning := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	return c.Name == containerValidation && !keepsRunning
}

// ids are the numbers that a pod's and a container's security context share.
type ids struct{ user, group *int64 }

func runAsUser(i ids) *int64  { return i.user }
func runAsGroup(i ids) *int64 { return i.group }

// effectiveID gives the id that the kubelet starts a container with, 0 where
// the image decides, and whether it came from the pod's security context.
func effectiveID(pod *corev1.Pod, c *corev1.Container, pick func(ids) *int64) (id int64, fromPod bool) {
	if sc := c.SecurityContext; sc != nil {
		if v := pick(ids{sc.RunAsUser, sc.RunAsGroup}); v != nil {
			return *v, false
		}
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		if v := pick(ids{sc.RunAsUser, sc.RunAsGroup}); v != nil {
			return *v, true
		}
	}
	return 0, false
}
