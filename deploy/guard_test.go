// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		if probe := guard.LivenessProbe; probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != "/healthz" || probe.HTTPGet.Port.String() != guard.Ports[0].Name {
			t.Errorf("%s: liveness probe %+v of ports %+v", platform, probe, guard.Ports)
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
	for _, values := range []string{"guard.enabled=false", "state=absent", "paths.criSocket=none", "netconf.backend=iptables-legacy", "netconf.agentSocket="} {
		if pod := daemonSet(t, values).Spec.Template.Spec; len(pod.Containers) != 1 || slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "netns" }) {
			t.Errorf("%s: there is a guard", values)
		}
	}
}

// TestGuardHasNoCredentials wants no volume of the guard's with an access to the API
// server, neither the agent's nor the plugin's, and the sockets where the guard looks
// for them.
func TestGuardHasNoCredentials(t *testing.T) {
	for values, want := range map[string]struct{ sockets, adds, guard string }{
		"":                    {"/run/capture-cni/sockets", "/run/capture-cni/adds", "/run/capture-cni/guard"},
		"paths.runDir=/run/x": {"/run/x/sockets", "/run/x/adds", "/run/x/guard"},
		"netconf.agentSocket=/var/lib/capture-cni/agent.sock": {"/var/lib/capture-cni/sockets", "/var/lib/capture-cni/adds", "/run/capture-cni/guard"},
	} {
		pod := daemonSet(t, values, "paths.criSocket=/run/runtime/r.sock").Spec.Template.Spec
		guard := pod.Containers[1]
		mounted := map[string]string{}
		for _, mount := range guard.VolumeMounts {
			i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
			switch volume := pod.Volumes[i]; {
			case volume.HostPath != nil:
				mounted[mount.MountPath] = volume.HostPath.Path
				if *volume.HostPath.Type != corev1.HostPathDirectoryOrCreate {
					t.Errorf("%s: %s is of type %s", values, mount.MountPath, *volume.HostPath.Type)
				}
			default:
				t.Errorf("%s: %s is no directory of the node", values, mount.MountPath)
			}
		}
		if diff := cmp.Diff(map[string]string{
			want.sockets: want.sockets, want.adds: want.adds, want.guard: want.guard,
			"/run/capture-cni/lock": "/run/capture-cni/lock", "/var/run/netns": "/var/run/netns", "/host/run/runtime": "/run/runtime",
		}, mounted); diff != "" {
			t.Errorf("%s: the guard's directories (-want +got):\n%s", values, diff)
		}
		for _, variable := range guard.Env {
			if variable.ValueFrom != nil && variable.ValueFrom.SecretKeyRef != nil {
				t.Errorf("%s: variable %s is of a Secret", values, variable.Name)
			}
		}
	}
}
