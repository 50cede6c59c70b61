// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadPod reads a file as the API server would, and names what is wrong with it.
func TestReadPod(t *testing.T) {
	t.Parallel()
	const (
		meta = "metadata:\n  name: web\n"
		pod  = "apiVersion: v1\nkind: Pod\n" + meta
		spec = "spec:\n  containers: [{name: app}]\n"
	)
	for name, test := range map[string]struct {
		content, warned, refused string
	}{
		"a pod":                    {content: pod + spec},
		"JSON":                     {content: `{"kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [{"name": "app"}]}}`},
		"neither version nor kind": {content: meta + spec},
		"comments and separators":  {content: "# SPDX-License-Identifier: Apache-2.0\n--- # the pod\n" + pod + spec + "---\n# the end\n---\n"},
		"lines of Windows":         {content: strings.ReplaceAll("---\n"+pod+spec+"---\n", "\n", "\r\n")},
		"null":                     {content: pod + "  annotations: {a/b: null}\n" + spec},
		"a field of a newer API":   {content: pod + spec + "  newer: [{action: x}]\n", warned: `unknown field "spec.newer", which has no`},
		"a field in other letters": {
			content: pod + "spec:\n  containers: [{name: app, securitycontext: {runAsUser: 5}}]\n",
			warned:  `unknown field "spec.containers[0].securitycontext"`,
		},

		"no file":                        {refused: "no such file"},
		"nothing":                        {content: "# nothing\n", refused: "expected one pod, found 0 documents"},
		"two pods":                       {content: pod + spec + "---\n" + pod + spec, refused: "expected one pod, found 2 documents"},
		"no YAML":                        {content: "a: [", refused: "did not find expected"},
		"no YAML in another":             {content: pod + spec + "---\na: [", refused: "did not find expected"},
		"no object":                      {content: "- a\n", refused: "expected a pod's manifest"},
		"a Deployment":                   {content: "kind: Deployment\nspec: {template: {}}\n", refused: `the kind is "Deployment": expected Pod`},
		"a List":                         {content: "apiVersion: v1\nkind: List\nitems: []\n", refused: `the kind is "List": expected Pod, such as`},
		"a version of another API group": {content: "apiVersion: example.com/v1\nkind: Pod\n", refused: "example.com/v1"},
		"a field twice":                  {content: pod + spec + "spec: {}\n", refused: `key "spec" already set`},
		"a number":                       {content: pod + "  annotations: {a/b: 80}\n", refused: "a/b is 80: expected a string, so put it in quotes"},
		"two values that are no strings": {
			content: pod + "  labels: {a/b: true, c/d: {}}\n", refused: "a/b is true: expected a string, so put it in quotes\nc/d is {}: ",
		},
		"a number for a variable": {
			content: pod + "spec:\n  containers: [{name: app, env: [{name: A, value: 1}]}]\n", refused: "containers.env.value of type string",
		},
	} {
		file := filepath.Join(t.TempDir(), "pod.yaml")
		if test.content != "" {
			if err := os.WriteFile(file, []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var warnings strings.Builder
		pod, err := readPod(file, &warnings)
		switch {
		case (err != nil) != (test.refused != "") || err != nil && !strings.Contains(err.Error(), test.refused):
			t.Errorf("%s: got %v, want %q", name, err, test.refused)
		case (warnings.Len() > 0) != (test.warned != "") || !strings.Contains(warnings.String(), test.warned):
			t.Errorf("%s: warned %q, want %q", name, warnings.String(), test.warned)
		case err == nil && (pod.Name != "web" || len(pod.Spec.Containers) != 1 || pod.Spec.Containers[0].SecurityContext != nil):
			t.Errorf("%s: got %+v", name, pod)
		}
	}
}
