// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// TestProxyImages takes repositories, tags and digests, and no bare prefix that
// another repository could begin with.
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

// TestAgentsPolicies are there with the rights that they bind, where the API
// server knows policies.
func TestAgentsPolicies(t *testing.T) {
	for _, tt := range []struct {
		values        string
		events, evict bool
	}{
		{"", true, false},
		{"events.enabled=false", false, false},
		{"guard.policy=evict", true, true},
	} {
		all := objects(t, tt.values)
		for name, want := range map[string]bool{"capture-cni-events": tt.events, "capture-cni-evict": tt.evict} {
			_, policy := find[admissionv1.ValidatingAdmissionPolicy](t, all, "ValidatingAdmissionPolicy", name)
			_, bound := find[admissionv1.ValidatingAdmissionPolicyBinding](t, all, "ValidatingAdmissionPolicyBinding", name)
			if policy != want || bound != want {
				t.Errorf("%q: %s is there: %v, bound: %v, want %v", tt.values, name, policy, bound, want)
			}
		}
	}
	out, err := helm(t, "template", "capture-cni", chart, "--kube-version", "1.29.0", "--set", "guard.policy=evict")
	if err != nil || strings.Contains(out, "kind: ValidatingAdmissionPolicy") {
		t.Errorf("Kubernetes 1.29 knows no policy (%v)", err)
	}
}

// TestNetworksAnnotation wants the annotation where Multus calls the plugin, by
// the name of the chart's own attachment.
func TestNetworksAnnotation(t *testing.T) {
	for mode, want := range map[string]bool{"multus": true, "insert": false} {
		all := objects(t, "admission.settings.enabled=true", "mode="+mode)
		policy, _ := find[admissionv1.ValidatingAdmissionPolicy](t, all, "ValidatingAdmissionPolicy", "capture-cni-settings")
		asked := false
		for _, validation := range policy.Spec.Validations {
			asked = asked || strings.Contains(validation.Message, "network default/istio-cni")
		}
		network, there := find[struct{ Metadata struct{ Namespace string } }](t, all, "NetworkAttachmentDefinition", "istio-cni")
		if asked != want || there != want || want && network.Metadata.Namespace != "default" {
			t.Errorf("%s: asked for %v, the attachment is there: %v, in %q", mode, asked, there, network.Metadata.Namespace)
		}
	}
}
