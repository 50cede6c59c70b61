// SPDX-License-Identifier: Apache-2.0

package pods

import "testing"

// testNetworksPolicy expects the policy to require the network by which Multus
// calls the plugin, in every form of the annotation that Multus reads.
func testNetworksPolicy(t *testing.T) {
	newNamespace(t, namespaceAlone("settings"), "capture-cni.io/admission=enforce")
	newNamespace(t, namespaceOutside)
	const missing = "the pod does not name the network default/istio-cni in k8s.v1.cni.cncf.io/networks"
	ours := `{"name": "istio-cni", "namespace": "default"}`
	attempts := []attempt{{name: "none", refused: missing}}
	for _, networks := range []string{
		"", "istio-cni", "other/istio-cni", "default/istio-cni2", "default/istio-cnı", "Default/istio-cni", "default/istio-cni/x", "default;istio-cni",
		`[]`, `[{"name": "istio-cni"}]`, `[{"name": "istio-cni", "namespace": "other"}]`,
		`[{"name": "istio-cni", "namespace": "default", "name": "other"}]`,               // the last one counts
		`[{"name": "istio-cni", "namespace": "default", "Name": "other"}]`,               // keys in any case
		`[{"name": "other", "cni-args": {"name": "istio-cni", "namespace": "default"}}]`, // not a network's own keys
		`[{"name": "other", "cni-args": {"a": [{"name": "istio-cni", "namespace": "default"}]}}]`,
		`[{"name": "other", "mac": "a,default/istio-cni,b"}]`,
		`[{"name": "other", "mac": "{\"name\": \"istio-cni\", \"namespace\": \"default\"}"}]`,
		`{"networks": [` + ours + `]}`,
	} {
		attempts = append(attempts, attempt{name: networks, change: annotate(annotationNetworks, networks), refused: missing})
	}
	for _, networks := range []string{
		"default/istio-cni", "storage, default/istio-cni", "default/istio-cni@net1,storage",
		`[` + ours + `]`, `[{"namespace":"default","name":"istio-cni"}]`, `[ {"name": "storage", "ips": ["10.0.0.1/24"], "mac": "c2:b0:57:49:47:f1"}, ` + ours + ` ]`,
	} {
		attempts = append(attempts, attempt{name: networks, change: annotate(annotationNetworks, networks)})
	}
	for i := range attempts {
		attempts[i].policy = "settings"
	}
	testAttempts(t, attempts)
}
