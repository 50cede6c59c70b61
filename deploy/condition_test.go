// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestCondition renders the flag, the permission and the policy only if the condition is enabled, and
// the flag also while the agents remove the plugin, because the condition must become false.
func TestCondition(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		values  []string
		objects int
		canary  bool
	}{
		{nil, 0, false},
		{[]string{"condition.enabled=true"}, 4, true},
		{[]string{"condition.enabled=true", "state=absent"}, 4, false},
	} {
		all := slices.DeleteFunc(objects(t, tt.values...), func(o object) bool { return o.name != "capture-cni-condition" })
		installer := daemonSet(t, tt.values...).Spec.Template.Spec.Containers[0]
		if len(all) != tt.objects || slices.Contains(installer.Args, "--condition") != (tt.objects > 0) {
			t.Errorf("%q: %d objects, %q", tt.values, len(all), installer.Args)
		}
		expectCanary(t, installer, tt.canary)
	}
}

// TestConditionPolicyHasAllFields expects the policy to compare each field of a Node's status.
func TestConditionPolicyHasAllFields(t *testing.T) {
	t.Parallel()
	at := slices.IndexFunc(objects(t, "condition.enabled=true"), func(o object) bool {
		return o.kind == "ValidatingAdmissionPolicy" && o.name == "capture-cni-condition"
	})
	policy := strings.Join(strings.Fields(string(objects(t, "condition.enabled=true")[at].text)), " ")
	for field := range reflect.TypeFor[corev1.NodeStatus]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if want := "object.?status.?" + name + " == oldObject.?status.?" + name; name != "conditions" && !strings.Contains(policy, want) {
			t.Errorf("the policy has no %s:\n%s", want, policy)
		}
	}
}
