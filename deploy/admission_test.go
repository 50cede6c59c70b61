// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"maps"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestProxyImages accepts repositories with or without a tag or digest, and no
// prefix that another repository could share.
func TestProxyImages(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for image, allowed := range map[string]bool{
		"docker.io/istio/proxyv2": true, "istio/proxyv2": true, "registry.test:5000/proxyv2:1.29": true, "registry.test/proxyv2" + digest: true,
		"registry.test/": false, "registry.test:5000": false, "registry.test/proxyv2:": false, "proxyv2": false, "registry.test/Proxy": false, "registry.test/proxyv2@sha256:0": false,
	} {
		out, err := render(t, "admission.identity.enabled=true", "admission.identity.proxyImages={"+image+"}")
		if allowed != (err == nil) {
			t.Errorf("%q is allowed: %v\n%.300s", image, err == nil, out)
		}
	}
}

// TestAgentsPolicies renders a policy for each permission that it restricts, if the
// API server supports policies.
func TestAgentsPolicies(t *testing.T) {
	for _, tt := range []struct {
		values                string
		events, evict, tokens bool
	}{
		{"", true, false, true},
		{"events.enabled=false", false, false, true},
		{"guard.policy=evict", true, true, true},
		{"token.onNode=false", true, false, false},
	} {
		all := objects(t, tt.values)
		for name, want := range map[string]bool{"capture-cni-events": tt.events, "capture-cni-evict": tt.evict, "capture-cni-tokens": tt.tokens} {
			_, policy := find[admissionv1.ValidatingAdmissionPolicy](t, all, "ValidatingAdmissionPolicy", name)
			_, bound := find[admissionv1.ValidatingAdmissionPolicyBinding](t, all, "ValidatingAdmissionPolicyBinding", name)
			if policy != want || bound != want {
				t.Errorf("%q: %s is rendered: %v, bound: %v, want %v", tt.values, name, policy, bound, want)
			}
		}
	}
	out, err := helm(t, "template", "capture-cni", chart, "--kube-version", "1.29.0", "--set", "guard.policy=evict")
	if err != nil || strings.Contains(out, "kind: ValidatingAdmissionPolicy") {
		t.Errorf("a policy is rendered for Kubernetes 1.29 (%v)", err)
	}
	for version, unbound := range map[string]bool{"1.30.9": true, "1.31.0-gke.1": false} {
		out, err := helm(t, "template", "capture-cni", chart, "--kube-version", version)
		if err != nil || strings.Contains(out, "|| object.spec.?boundObjectRef.?kind.orValue('') == ''") != unbound {
			t.Errorf("Kubernetes %s: unbound tokens are allowed: %v (%v)", version, !unbound, err)
		}
	}
}

// TestNetworksAnnotation requires the annotation that names the chart's attachment
// if Multus executes the plugin.
func TestNetworksAnnotation(t *testing.T) {
	for mode, want := range map[string]bool{"multus": true, "multus-chain": false, "insert": false} {
		all := objects(t, "admission.settings.enabled=true", "admission.fence.enabled=true", "mode="+mode)
		for _, name := range []string{"settings", "fence"} {
			policy, _ := find[admissionv1.ValidatingAdmissionPolicy](t, all, "ValidatingAdmissionPolicy", "capture-cni-"+name)
			found := slices.ContainsFunc(policy.Spec.Validations, func(v admissionv1.Validation) bool {
				return strings.Contains(v.Message, "network default/istio-cni")
			})
			if found != want {
				t.Errorf("%s, %s: required: %v", mode, name, found)
			}
		}
		network, rendered := find[struct{ Metadata struct{ Namespace string } }](t, all, "NetworkAttachmentDefinition", "istio-cni")
		if rendered != want || want && network.Metadata.Namespace != "default" {
			t.Errorf("%s: the attachment is rendered: %v, in %q", mode, rendered, network.Metadata.Namespace)
		}
	}
}

// TestTransparentProxies excepts a proxy of Istio alone from the forbidden capabilities: with
// the mark of its pods, with or without a fence, and without those of each other mesh.
func TestTransparentProxies(t *testing.T) {
	policy, _ := find[admissionv1.ValidatingAdmissionPolicy](t, objects(t, "admission.capabilities.enabled=true"), "ValidatingAdmissionPolicy", "capture-cni-capabilities")
	i := slices.IndexFunc(policy.Spec.Variables, func(v admissionv1.Variable) bool { return v.Name == "transparent" })
	if i < 0 {
		t.Fatal("there is no variable transparent")
	}
	conditions := strings.Split(policy.Spec.Variables[i].Expression, "&& ")
	marks := 0
	for _, mesh := range config.Meshes() {
		for _, annotation := range capture.Annotations(mesh) {
			if annotations := map[string]string{annotation.Key: "x"}; !capture.MarkedBy(mesh, annotations) {
				if capture.Fenced(annotations) && !strings.Contains(conditions[len(conditions)-1], "'"+annotation.Key+"'") {
					t.Errorf("the exception takes %s for a mesh's mark", annotation.Key)
				}
				continue
			}
			marks++
			domain, _, _ := strings.Cut(annotation.Key, "/")
			isRead := slices.ContainsFunc(conditions, func(condition string) bool {
				condition = strings.TrimSpace(condition)
				if mesh == config.Istio {
					return condition == "'"+annotation.Key+"' in object.metadata.?annotations.orValue({})"
				}
				return strings.HasPrefix(condition, "!object.metadata.?annotations.orValue({}).exists(key, ") &&
					(strings.Contains(condition, "key == '"+annotation.Key+"'") || strings.Contains(condition, "key.startsWith('"+domain+"/')"))
			})
			if !isRead {
				t.Errorf("the exception does not ask for %s of %s: %q", annotation.Key, mesh, conditions)
			}
		}
	}
	expectSome(t, marks-2)
}

// TestRequiredFences binds the policy that requires fences by the label that the sample which
// sets them has, and by no other.
func TestRequiredFences(t *testing.T) {
	label := map[string]string{"capture-cni.io/require-fence": "true"}
	binding, _ := find[admissionv1.ValidatingAdmissionPolicyBinding](t, objects(t, "admission.fence.enabled=true"), "ValidatingAdmissionPolicyBinding", "capture-cni-fence")
	_, second, _ := strings.Cut(read(t, "guides/fence.yaml"), "\n---\n")
	var sample admissionv1.MutatingAdmissionPolicyBinding
	if err := yaml.UnmarshalStrict([]byte(second), &sample); err != nil {
		t.Fatal(err)
	}
	for kind, resources := range map[string]*admissionv1.MatchResources{"requires": binding.Spec.MatchResources, "sets": sample.Spec.MatchResources} {
		if resources == nil || !maps.Equal(resources.NamespaceSelector.MatchLabels, label) || len(resources.NamespaceSelector.MatchExpressions) > 0 {
			t.Errorf("the policy that %s fences is bound to %v, want %v", kind, resources, label)
		}
	}
	for exception, allowed := range map[string]bool{"out:udp:53@10.96.0.10/32": true, "out:udp:53": false, "*": false, "x'": false} {
		if out, err := render(t, "admission.fence.enabled=true", "admission.fence.exceptions={"+exception+"}"); allowed != (err == nil) {
			t.Errorf("%q is allowed: %v\n%.300s", exception, err == nil, out)
		}
	}
}

// TestPoliciesFailClosed wants each policy to refuse what it can't judge, and a binding
// that denies what it finds.
func TestPoliciesFailClosed(t *testing.T) {
	all := objects(t, "taint.remove=true", "guard.policy=evict", "admission.capabilities.enabled=true",
		"admission.identity.enabled=true", "admission.settings.enabled=true", "admission.changes.enabled=true", "admission.fence.enabled=true")
	found := 0
	for _, o := range all {
		if o.kind != "ValidatingAdmissionPolicy" {
			continue
		}
		found++
		policy, _ := find[admissionv1.ValidatingAdmissionPolicy](t, all, o.kind, o.name)
		if fails := policy.Spec.FailurePolicy; fails == nil || *fails != admissionv1.Fail {
			t.Errorf("%s has failure policy %v", o.name, fails)
		}
		binding, _ := find[admissionv1.ValidatingAdmissionPolicyBinding](t, all, "ValidatingAdmissionPolicyBinding", o.name)
		if actions := binding.Spec.ValidationActions; binding.Spec.PolicyName != o.name || len(actions) != 1 || actions[0] != admissionv1.Deny {
			t.Errorf("%s is bound as %q, with %v", o.name, binding.Spec.PolicyName, actions)
		}
	}
	if found != 12 {
		t.Errorf("%d policies", found)
	}
}
