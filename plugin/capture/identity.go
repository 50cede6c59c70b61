// SPDX-License-Identifier: Apache-2.0

package capture

import corev1 "k8s.io/api/core/v1"

// proxyIdentity finds the uid and gid whose traffic is the proxy's own: the
// container's, else the pod's, else the mesh's. Root (0) is never exempt, as
// in Istio: it falls back to the mesh's.
func (d *decision) proxyIdentity(in *Intent) {
	mesh := d.settings.Mesh
	uid, fromPod := effectiveID(d.pod, d.proxy, runAsUser)
	if uid == 0 {
		uid = int64(mesh.ProxyUID)
	}
	gid, _ := effectiveID(d.pod, d.proxy, runAsGroup)
	if gid == 0 {
		gid = int64(mesh.ProxyGID)
	}
	in.ProxyUID, in.ProxyGID = uint32(uid), uint32(gid)
	d.sharedUID(uid, fromPod)
}

// sharedUID looks for others that run with the proxy's uid: their traffic
// could not be told from the proxy's, and would not be captured.
func (d *decision) sharedUID(proxyUID int64, fromPod bool) {
	for _, c := range podContainers(d.pod) {
		if c.Name == containerProxy || c.Name == containerValidation {
			continue
		}
		uid, _ := effectiveID(d.pod, &c, runAsUser)
		if uid != proxyUID {
			continue
		}
		if fromPod || d.settings.SharedProxyUID == SharedUIDRefuse {
			d.refuse("container %s runs with the proxy's uid %d and would escape capture: give one of them another runAsUser", c.Name, uid)
		} else {
			d.warn("container %s runs with the proxy's uid %d and escapes capture", c.Name, uid)
		}
	}
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
