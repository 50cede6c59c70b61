// SPDX-License-Identifier: Apache-2.0

package project

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestEveryMesh expects each mesh in every place that has an example, or the name, of each.
func TestEveryMesh(t *testing.T) {
	pods := map[string]string{}
	files, _ := filepath.Glob(filepath.Join(root, "plugin/capture/testdata/*/pod.yaml"))
	for _, file := range files {
		name, _ := filepath.Rel(root, file)
		pods[name] = read(t, name)
	}
	guides, _ := filepath.Glob(filepath.Join(root, "deploy/guides/migrate-*.md"))
	for _, mesh := range config.Meshes() {
		var domain string // of the annotation that marks the mesh's pods
		for _, annotation := range capture.Annotations(mesh) {
			if capture.MarkedBy(mesh, map[string]string{annotation.Key: "x"}) && domain == "" {
				domain, _, _ = strings.Cut(annotation.Key, "/")
			}
		}
		expect := func(place, text, want string) {
			if domain == "" || !strings.Contains(text, want) {
				t.Errorf("%s has no %q of mesh %s", place, want, mesh)
			}
		}
		expect("the schema of the chart", read(t, "deploy/chart/values.schema.json"), `"`+string(mesh)+`"`)
		expect("the page about sidecars", read(t, "deploy/reference/sidecars.md"), "| `"+string(mesh)+"` | ")
		expect("the policy about capabilities", read(t, "deploy/chart/templates/admission/capabilities.yaml"), domain+"/")
		traced := false
		for name, pod := range pods {
			directory := filepath.Base(filepath.Dir(name))
			traced = traced || strings.Contains(pod, domain+"/") && strings.Contains(read(t, "install/trace/trace_test.go"), `"`+directory+`"`)
		}
		if !traced {
			t.Errorf("no trace of a pod of %s", mesh)
		}
		for _, test := range []string{"e2e/protocol/meshes_test.go", "e2e/search/world_test.go"} {
			if mesh != config.Istio {
				expect(test, read(t, test), `"`+domain+"/")
			}
		}
		if mesh == config.OwnKeys { // there is neither an injector nor another plugin
			expect("the test on a cluster", read(t, "e2e/cluster/pods/sidecars_test.go"), `"`+domain+"/")
			continue
		}
		if plugin := string(mesh) + "-cni"; plugin != report.IstioCNI {
			expect("the tests of the guard", read(t, "e2e/guard/meshes_test.go"), `"`+domain+"/")
			expect("the test on a cluster", read(t, "e2e/cluster/pods/sidecars_test.go"), `"`+domain+"/")
			expect("the list of other plugins", strings.Join(report.MeshPlugins(), " "), plugin)
			expect("the precheck", read(t, "deploy/precheck/daemonsets.go"), `"`+plugin+`"`)
			title := strings.ToUpper(string(mesh[:1])) + string(mesh[1:])
			expect("the precheck", read(t, "deploy/precheck/meshes.go"), `"`+title+`", "migrate-`)
		}
		expect("the advice for a pod that is not injected", report.NotInjected.Advice(), strings.TrimPrefix(domain, "sidecar."))
		if !slices.ContainsFunc(guides, func(guide string) bool { return strings.Contains(filepath.Base(guide), string(mesh)) }) {
			t.Errorf("no guide for moving from %s", mesh)
		}
	}
}
