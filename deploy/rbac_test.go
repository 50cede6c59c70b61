// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// features are those that add permissions, with the values that enable them.
var features = []struct {
	name   string
	values []string
}{
	{"always", []string{"events.enabled=false"}},
	{"events", nil},
	{"guard.policy=evict", []string{"guard.policy=evict"}},
	{"openshift", []string{"platform=openshift"}},
	{"taint.remove", []string{"taint.remove=true"}},
}

// grant is a role and its subjects.
type grant struct {
	Role  string              `json:"role"`
	To    []string            `json:"to"`
	Rules []rbacv1.PolicyRule `json:"rules"`
}

// TestPermissions writes all permissions that the chart can grant to one file, by
// the feature that adds them.
func TestPermissions(t *testing.T) {
	text := "# SPDX-License-Identifier: Apache-2.0\n\n# All permissions that the chart grants, by feature. Made by go test ./deploy -update.\n"
	var granted []string
	for _, feature := range features {
		var added []grant
		for _, g := range grants(t, objects(t, feature.values...)) {
			key, err := yaml.Marshal(g)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(granted, string(key)) {
				granted = append(granted, string(key))
				added = append(added, g)
			}
		}
		section, err := yaml.Marshal(map[string][]grant{feature.name: added})
		if err != nil {
			t.Fatal(err)
		}
		text += "\n" + string(section)
	}
	if strings.Contains(text, `'*'`) {
		t.Error("a rule has a wildcard")
	}
	expectFresh(t, "rbac.golden.yaml", text)
}

// grants joins roles with their bindings. A role without a binding is an error, as
// is a binding of another role.
func grants(t *testing.T, all []object) []grant {
	t.Helper()
	bindings := map[string][]string{}
	for _, o := range all {
		if kind, ok := strings.CutSuffix(o.kind, "Binding"); ok && strings.HasSuffix(kind, "Role") {
			var binding rbacv1.RoleBinding // a ClusterRoleBinding has the same fields
			if err := yaml.Unmarshal(o.text, &binding); err != nil {
				t.Fatal(err)
			}
			if binding.RoleRef.Kind != kind {
				t.Errorf("%s %s binds a %s", o.kind, o.name, binding.RoleRef.Kind)
			}
			for _, subject := range binding.Subjects {
				bindings[kind+" "+binding.RoleRef.Name] = append(bindings[kind+" "+binding.RoleRef.Name],
					subject.Kind+" "+subject.Namespace+"/"+subject.Name)
			}
		}
	}
	var found []grant
	for _, o := range all {
		if o.kind != "Role" && o.kind != "ClusterRole" {
			continue
		}
		var role rbacv1.Role
		if err := yaml.Unmarshal(o.text, &role); err != nil {
			t.Fatal(err)
		}
		key := o.kind + " " + o.name
		if len(bindings[key]) == 0 {
			t.Errorf("%s has no binding", key)
		}
		found = append(found, grant{key, bindings[key], role.Rules})
		delete(bindings, key)
	}
	if len(bindings) != 0 {
		t.Errorf("bindings without a role: %v", bindings)
	}
	return found
}

// TestTokensAreNotMounted wants tokens of the service accounts only in pods that
// mount them themselves, and the agent's only in the installer.
func TestTokensAreNotMounted(t *testing.T) {
	all := objects(t)
	for _, name := range []string{"capture-cni", "capture-cni-node"} {
		account, ok := find[struct{ AutomountServiceAccountToken *bool }](t, all, "ServiceAccount", name)
		if !ok || account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken {
			t.Errorf("service account %s is missing, or mounts its token", name)
		}
	}
	pod := daemonSet(t, "guard.policy=evict").Spec.Template.Spec
	if pod.ServiceAccountName != "capture-cni-node" || *pod.AutomountServiceAccountToken {
		t.Errorf("the agent runs as %s, with its token in each container: %v", pod.ServiceAccountName, *pod.AutomountServiceAccountToken)
	}
	for _, container := range pod.Containers {
		mounted := slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "api-access" })
		if mounted != (container.Name == "installer") {
			t.Errorf("container %s mounts the agent's token: %v", container.Name, mounted)
		}
	}
}
