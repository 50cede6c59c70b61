// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestTaintRemoval renders objects, flags and capabilities for the removal of taints
// only if it is enabled.
func TestTaintRemoval(t *testing.T) {
	for _, tt := range []struct {
		values  []string
		objects int
		untaint []string
	}{
		{nil, 0, nil},
		{[]string{"taint.remove=true"}, 6, []string{"capture-cni.io/not-ready"}},
		{[]string{"taint.remove=true", "state=absent"}, 6, nil},
		{
			[]string{"taint.remove=true", "taint.key=startup-taint.cluster-autoscaler.kubernetes.io/capture-cni"},
			6,
			[]string{"startup-taint.cluster-autoscaler.kubernetes.io/capture-cni"},
		},
	} {
		found := 0
		for _, o := range objects(t, tt.values...) {
			if strings.Contains(o.name, "taint") {
				found++
			}
			if o.kind == "ValidatingAdmissionPolicy" && o.name == "capture-cni-taint" && tt.untaint != nil && strings.Count(string(o.text), tt.untaint[0]) < 2 {
				t.Errorf("%q: the policy does not name the taint:\n%s", tt.values, o.text)
			}
		}
		if found != tt.objects {
			t.Errorf("%q: %d objects, want %d", tt.values, found, tt.objects)
		}
		set := daemonSet(t, tt.values...)
		installer := set.Spec.Template.Spec.Containers[0]
		if got := flagValues(set, "untaint"); !slices.Equal(got, tt.untaint) {
			t.Errorf("%q: --untaint is %q", tt.values, got)
		}
		if got := installer.SecurityContext.Capabilities; len(got.Add) > 0 || !slices.Equal(got.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%q: capabilities %v", tt.values, got)
		}
		expectCanary(t, installer, tt.untaint != nil)
	}
}

// expectCanary wants what the canary ADD needs: the UID of the agent's own pod in the environment,
// and read-only mounts of the plugin's credentials and socket at the node's paths.
func expectCanary(t *testing.T, installer corev1.Container, wanted bool) {
	t.Helper()
	if slices.ContainsFunc(installer.Env, func(e corev1.EnvVar) bool { return e.Name == "POD_UID" }) != wanted {
		t.Errorf("POD_UID is set: %v, want %v", !wanted, wanted)
	}
	for _, directory := range []string{"/var/lib/capture-cni", "/run/capture-cni"} {
		mounted := slices.ContainsFunc(installer.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == directory && m.ReadOnly })
		if mounted != wanted {
			t.Errorf("%s is mounted: %v", directory, mounted)
		}
	}
}
