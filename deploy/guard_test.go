// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestGuard wants a guard with the least privileges on every platform, and no guard
// where it can do nothing.
func TestGuard(t *testing.T) {
	for _, platform := range platforms {
		set := daemonSet(t, "platform="+platform)
		pod := set.Spec.Template.Spec
		if len(pod.Containers) != 2 || pod.Containers[1].Name != "guard" {
			t.Fatalf("%s: %d containers", platform, len(pod.Containers))
		}
		guard := pod.Containers[1]
		c := guard.SecurityContext
		if *c.Privileged || *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem ||
			!slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) || !slices.Equal(c.Capabilities.Add, []corev1.Capability{"SYS_ADMIN", "NET_ADMIN"}) {
			t.Errorf("%s: security context %+v", platform, c)
		}
		for _, mount := range guard.VolumeMounts {
			if !mount.ReadOnly != slices.Contains([]string{"lock", "guard-dir"}, mount.Name) {
				t.Errorf("%s: the guard may write to %s: %v", platform, mount.MountPath, !mount.ReadOnly)
			}
			if propagated := mount.MountPropagation != nil && *mount.MountPropagation == corev1.MountPropagationHostToContainer; propagated != (mount.Name == "netns") {
				t.Errorf("%s: later mounts below %s are propagated: %v", platform, mount.MountPath, propagated)
			}
		}
	}
	const monitored = "metrics.podMonitor.enabled=true,metrics.listen=$(HOST_IP):15015,guard.listen=$(HOST_IP):15016"
	type monitor struct {
		Spec struct{ PodMetricsEndpoints []struct{ Port string } }
	}
	for values, want := range map[string]int{monitored: 2, monitored + ",guard.enabled=false": 1} {
		if found, _ := find[monitor](t, objects(t, values), "PodMonitor", "capture-cni-node"); len(found.Spec.PodMetricsEndpoints) != want {
			t.Errorf("%s: got %+v, want %d endpoints", values, found, want)
		}
	}
	for _, values := range []string{"guard.enabled=false", "state=absent", "paths.criSocket=none", "netconf.backend=iptables-legacy"} {
		if pod := daemonSet(t, values).Spec.Template.Spec; len(pod.Containers) != 1 || slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "netns" }) {
			t.Errorf("%s: there is a guard", values)
		}
	}
}
