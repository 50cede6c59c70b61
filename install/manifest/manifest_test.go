// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	meta     = "metadata: {name: web, namespace: shop}\n"
	spec     = "spec:\n  containers: [{name: app}]\n"
	pod      = "apiVersion: v1\nkind: Pod\n" + meta
	template = "{metadata: {annotations: {a/b: c}}, spec: {containers: [{name: app}]}}"
)

func workload(kind string) string {
	return "kind: " + kind + "\n" + meta + "spec: {template: " + template + "}\n"
}

// TestRead reads files as the API server would, and names what is wrong with them.
func TestRead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		content, warned, refused string

		pods   string // the owners, where those are not only Pod shop/web
		others int
	}{
		"a pod":                    {content: pod + spec},
		"JSON":                     {content: `{"kind": "Pod", "metadata": {"name": "web", "namespace": "sh\/op"}, "spec": {"containers": [{"name": "app"}]}}`, pods: "Pod sh/op/web"},
		"neither version nor kind": {content: meta + spec},
		"comments and separators":  {content: "# SPDX-License-Identifier: Apache-2.0\n--- # the pod\n" + pod + spec + "---\n# the end\n---\n"},
		"lines of Windows":         {content: strings.ReplaceAll("---\n"+pod+spec+"---\n", "\n", "\r\n")},
		"null":                     {content: strings.Replace(pod, "name: web", "name: web, annotations: {a/b: null}", 1) + spec},
		"a field of a newer API":   {content: pod + spec + "  newer: [{action: x}]\n", warned: `Pod shop/web: unknown field "spec.newer", which has no`},
		"a field in other letters": {
			content: pod + "spec:\n  containers: [{name: app, securitycontext: {runAsUser: 5}}]\n", warned: `unknown field "spec.containers[0].securitycontext"`,
		},

		"workloads": {
			content: workload("Deployment") + "---\n" + workload("StatefulSet") + "---\n" + workload("DaemonSet") + "---\n" + workload("ReplicaSet") + "---\n" +
				workload("Job") + "---\n" + workload("ReplicationController") + "---\n" + workload("Rollout"),
			pods: "Deployment shop/web, StatefulSet shop/web, DaemonSet shop/web, ReplicaSet shop/web, Job shop/web, ReplicationController shop/web, Rollout shop/web",
		},
		"a CronJob": {content: "kind: CronJob\n" + meta + "spec: {jobTemplate: {spec: {template: " + template + "}}}\n", pods: "CronJob shop/web"},
		"lists": {
			content: "kind: List\nitems: [1, {kind: ConfigMap}, {kind: Pod, apiVersion: example.com/v1}, {kind: List, items: [" + template + "]}, {kind: Pod, apiVersion: v1, metadata: {generateName: web-}}]", others: 3,
			pods: "Pod without a name, Pod web-",
		},
		"a list of pods":        {content: "kind: PodList\nitems: [" + template + "]", pods: "Pod without a name"},
		"a list without a kind": {content: "items: [" + template + "]", pods: "Pod without a name"},
		"items of another kind": {content: "kind: Odd\nitems: [" + template + "]", pods: "-", others: 1},
		"as much as is read":    {content: "# " + strings.Repeat("x", maxSize-2), pods: "-"},
		"no pods":               {content: "kind: Deployment\nspec: {template: {}}\n---\nkind: Odd\nspec: [1]\n---\nkind: Odd\nspec: {containers: [a], template: a}\n", others: 3, pods: "-"},
		"nothing":               {content: "# nothing\n", pods: "-"},
		"two values of JSON": {
			content: `{"metadata": {"name": "a"}, "spec": {"containers": []}}` + "\n" + `{"spec": {"containers": []}}`, pods: "Pod a, Pod without a name",
		},
		"an alias": {content: "kind: Pod\n" + "metadata: {name: &n web, namespace: shop, labels: {app: *n}}\n" + spec},

		"no file":                   {refused: "no such file"},
		"no YAML":                   {content: "a: [", refused: "did not find expected"},
		"no YAML in another":        {content: pod + spec + "---\na: [", refused: "did not find expected"},
		"no object":                 {content: "- a\n", refused: "expected objects with a kind"},
		"a field twice":             {content: pod + spec + "spec: {}\n", refused: `key "spec" already set`},
		"a field twice in JSON":     {content: `{"kind": "Pod", "spec": {}, "spec": {}}`, refused: `duplicate field "spec"`},
		"no separator":              {content: pod + spec + "...\n" + pod + spec, refused: "expected a line --- before each further object"},
		"no separator after braces": {content: "{kind: Pod}\n{kind: Pod}", refused: "expected a line --- before"},
		"a number":                  {content: strings.Replace(pod, "name: web", "name: web, annotations: {a/b: 80}", 1), refused: "Pod shop/web: a/b is 80: expected a string, so put it in quotes"},
		"a number in the first pod": {
			content: strings.Replace(pod, "name: web", "name: web, annotations: {a/b: 80}", 1) + "---\n" + pod + spec, refused: "a/b is 80: expected a string",
		},
		"a number in a list": {
			content: "kind: List\nitems: [{kind: Pod, metadata: {labels: {a/b: 80}}}, {kind: Pod}]\n", refused: "a/b is 80: expected a string",
		},
		"two values that are no strings": {
			content: "kind: Pod\nmetadata: {labels: {a/b: true, c/d: {}}}\n", refused: "a/b is true: expected a string, so put it in quotes\nc/d is {}: ",
		},
		"a number for a variable": {
			content: pod + "spec:\n  containers: [{name: app, env: [{name: A, value: 1}]}]\n", refused: "containers.env.value of type string",
		},
		"too much": {content: "# " + strings.Repeat("x", maxSize), refused: "expected at most 8 MiB"},
		"too much by aliases": {
			content: "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", 1<<15) + "]\n", refused: "8 MiB with all aliases",
		},
		"too much by keys": {
			content: "a: &a {" + strings.Repeat("x", 1000) + ": 1}\nb: [" + strings.Repeat("*a,", 1<<14) + "]\n", refused: "8 MiB with all aliases",
		},
		"too much by many": {
			content: strings.Repeat("a: &a "+strings.Repeat("x", 1<<16)+"\nb: ["+strings.Repeat("*a,", 40)+"]\n---\n", 4), refused: "8 MiB with all aliases",
		},
		"aliases of aliases": {
			content: "a: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n" +
				"e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n", refused: "excessive aliasing",
		},
	} {
		file := filepath.Join(t.TempDir(), "pod.yaml")
		if test.content != "" {
			if err := os.WriteFile(file, []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		found, err := Read(file, nil)
		if (err != nil) != (test.refused != "") || err != nil && !strings.Contains(err.Error(), test.refused) {
			t.Errorf("%s: got %v, want %q", name, err, test.refused)
		}
		if err != nil {
			continue
		}
		var owners []string
		for _, pod := range found.Pods {
			owners = append(owners, pod.Owner)
			if pod.Created || len(pod.Spec.Containers) == 1 && pod.Spec.Containers[0].SecurityContext != nil {
				t.Errorf("%s: got %+v", name, pod)
			}
		}
		want := strings.TrimPrefix(map[bool]string{true: "Pod shop/web", false: test.pods}[test.pods == ""], "-")
		if diff := cmp.Diff(want, strings.Join(owners, ", ")); diff != "" || found.Others != test.others {
			t.Errorf("%s: %d others, %s", name, found.Others, diff)
		}
		if warned := strings.Join(found.Warnings, "\n"); (warned != "") != (test.warned != "") || !strings.Contains(warned, test.warned) {
			t.Errorf("%s: warned %q, want %q", name, warned, test.warned)
		}
	}
}

// TestFields reads what a template says, stdin, and which pods the API server created.
func TestFields(t *testing.T) {
	t.Parallel()
	found, err := Read("-", strings.NewReader(workload("Deployment")+"---\nkind: Pod\nmetadata: {uid: u}\n"))
	if err != nil || len(found.Pods) != 2 {
		t.Fatalf("%+v, %v", found, err)
	}
	one, other := found.Pods[0], found.Pods[1]
	if one.Created || one.Namespace != "shop" || one.Annotations["a/b"] != "c" || one.Spec.Containers[0].Name != "app" || !other.Created {
		t.Errorf("%+v, %+v", one, other)
	}
}

// FuzzRead reads any bytes in bounded memory.
func FuzzRead(f *testing.F) {
	f.Fuzz(func(t *testing.T, content []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var found File
		err := found.read(content)
		if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 1<<30 {
			t.Errorf("%d bytes cost %d", len(content), after.TotalAlloc-before.TotalAlloc)
		}
		for _, pod := range found.Pods {
			if pod.Pod == nil || pod.Owner == "" {
				t.Errorf("%+v, %v", pod, err)
			}
		}
	})
}
