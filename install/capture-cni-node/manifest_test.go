// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// TestReadPod takes one pod or one template from stdin.
func TestReadPod(t *testing.T) {
	t.Parallel()
	const one = "kind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {containers: [{name: app}], newer: 1}}}\n"
	var warnings strings.Builder
	pod, err := readPod("-", strings.NewReader("kind: Service\n---\n"+one), &warnings)
	if err != nil || pod.Spec.Containers[0].Name != "app" || warnings.String() != "warning: -: Deployment web: unknown field \"spec.newer\", which has no effect here\n" {
		t.Errorf("%+v, %q, %v", pod, warnings.String(), err)
	}
	for content, want := range map[string]string{
		one + "---\n" + one: "- has 2 pods and templates, and 0 other objects: expected one pod",
		"kind: Service":     "- has 0 pods and templates, and 1 other objects",
		"a: [":              "reading the manifests in -: yaml: ",
	} {
		if _, err := readPod("-", strings.NewReader(content), &warnings); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", content, err, want)
		}
	}
}
