// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// profiles are the values that change permissions.
var profiles = []string{
	"token.onNode=false", "netconf.agentSocket=", "events.enabled=false", "lease.enabled=false", "testRole.enabled=true", "guard.enabled=false", "guard.policy=evict",
	"platform=openshift", "taint.remove=true", "condition.enabled=true", "state=absent",
}

// operatorRoles is the prefix of the roles for people, which the chart does not bind.
const operatorRoles = "capture-cni-operator"

// grant is a role and its subjects.
type grant struct {
	Role  string              `json:"role"`
	To    []string            `json:"to"`
	Rules []rbacv1.PolicyRule `json:"rules"`
}

// profile is the difference between the permissions of some values and the default.
type profile struct {
	Grants  []grant  `json:"grants,omitempty"`
	Without []string `json:"without,omitempty"` // roles
}

// TestPermissions writes all permissions that the chart can grant to one file: those of
// the default values, and for each profile those that it adds and leaves out.
func TestPermissions(t *testing.T) {
	byDefault := grants(t, objects(t))
	text := "# SPDX-License-Identifier: Apache-2.0\n\n# All permissions that the chart grants: with the default values, and what other values add and leave out.\n" +
		"# Made by go test ./deploy -update.\n" + section(t, "default", profile{Grants: byDefault})
	for _, values := range profiles {
		var difference profile
		granted := grants(t, objects(t, values))
		for _, g := range granted {
			if !slices.ContainsFunc(byDefault, func(other grant) bool { return cmp.Equal(g, other) }) {
				difference.Grants = append(difference.Grants, g)
			}
		}
		for _, g := range byDefault {
			if !slices.ContainsFunc(granted, func(other grant) bool { return g.Role == other.Role }) {
				difference.Without = append(difference.Without, g.Role)
			}
		}
		text += section(t, values, difference)
	}
	if strings.Contains(text, `'*'`) {
		t.Error("a rule has a wildcard")
	}
	expectFresh(t, "rbac.golden.yaml", text)
}

func section(t *testing.T, name string, content profile) string {
	t.Helper()
	text, err := yaml.Marshal(map[string]profile{name: content})
	if err != nil {
		t.Fatal(err)
	}
	return "\n" + string(text)
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
		if len(bindings[key]) == 0 && len(role.Rules) > 0 && !strings.HasPrefix(o.name, operatorRoles) {
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

// TestInstallationIsNamed expects the chart to make a ClusterRoleBinding by which precheck
// finds the namespace of an installation.
func TestInstallationIsNamed(t *testing.T) {
	t.Parallel()
	expectNamed(t, chart, append([]string{""}, profiles...)...)
}

func TestEarlierInstallationIsNamed(t *testing.T) {
	for _, version := range lab.EarlierVersions {
		expectNamed(t, filepath.Join(lab.Part(t, version), "chart"), "")
	}
}

func expectNamed(t *testing.T, chart string, all ...string) {
	t.Helper()
	for _, values := range all {
		out, err := helm(t, "template", "any", chart, "--namespace", "mesh", "--kube-version", "1.34.0", "--set", values)
		if err != nil {
			t.Fatal(out)
		}
		names := 0
		for document := range strings.SplitSeq(out, "\n---\n") {
			var binding rbacv1.ClusterRoleBinding
			if yaml.Unmarshal([]byte(document), &binding) != nil || binding.Kind != "ClusterRoleBinding" || !slices.Contains([]string{"capture-cni", "capture-cni-node"}, binding.Name) {
				continue
			}
			names++
			if len(binding.Subjects) != 1 || binding.Subjects[0].Name != binding.Name || binding.Subjects[0].Namespace != "mesh" {
				t.Errorf("%s, %q: %s is for %v", chart, values, binding.Name, binding.Subjects)
			}
		}
		if names == 0 {
			t.Errorf("%s, %q: no ClusterRoleBinding names the namespace", chart, values)
		}
	}
}
