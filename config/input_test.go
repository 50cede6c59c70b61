// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

// TestExcludesNamespace has both readers match names and prefixes alike. An empty prefix,
// which would exclude every pod, matches nothing.
func TestExcludesNamespace(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		excluded  []string
		namespace string
		want      bool
	}{
		{[]string{"kube-system"}, "kube-system", true},
		{[]string{"kube-system"}, "kube-system-2", false},
		{[]string{"openshift-*", "kube-*"}, "kube-system", true},
		{[]string{"openshift-*", "kube-*"}, "openshift-dns", true},
		{[]string{"openshift-*"}, "openshift", false},
		{[]string{"openshift-*"}, "my-openshift-dns", false},
		{[]string{"*"}, "shop", false},
		{[]string{"**", "s*p"}, "shop", false},
		{nil, "shop", false},
	} {
		list, err := json.Marshal(test.excluded)
		if err != nil {
			t.Fatal(err)
		}
		if got := input(t, entry("excludeNamespaces", string(list))).ExcludesNamespace(test.namespace); got != test.want {
			t.Errorf("%s, on stdin: %q excludes %s: %v", test.namespace, test.excluded, test.namespace, got)
		}
		if got := (NetConf{ExcludeNamespaces: test.excluded}).ExcludesNamespace(test.namespace); got != test.want {
			t.Errorf("%s, validated: %q excludes %s: %v", test.namespace, test.excluded, test.namespace, got)
		}
	}
}

// TestLenientReaders passes values of every JSON type to each reader: only the
// documented form has an effect, and no other is an error.
func TestLenientReaders(t *testing.T) {
	t.Parallel()
	forms := []string{"null", "true", "5", `""`, `"x"`, "[]", `["x"]`, `[5]`, `["x", 5]`, "{}", `{"x": "y"}`, `{"x": 5}`}
	for _, reader := range []struct {
		key, form, want string // the one form with an effect, and the effect
		read            func(Input) string
	}{
		{"cniVersion", `"x"`, "x", Input.CNIVersion},
		{"excludeNamespaces", `["x"]`, "yes", func(in Input) string { return yes(in.ExcludesNamespace("x")) }},
		{"status", `"strict"`, "yes", func(in Input) string { return yes(in.StrictStatus()) }},
		{"agentSocket", `""`, "yes", func(in Input) string { return yes(in.AgentSocket() == "") }},
		{"logLevel", `"warn"`, "yes", func(in Input) string { return yes(in.LogLevel() == slog.LevelWarn) }},
		{"runtimeConfig", `{"io.kubernetes.cri.pod-annotations": {}}`, "yes", func(in Input) string { return yes(in.PodAnnotations() != nil) }},
	} {
		if got := reader.read(input(t, entry(reader.key, reader.form))); got != reader.want {
			t.Errorf("%s = %s: got %q, want %q", reader.key, reader.form, got, reader.want)
		}
		for _, form := range forms {
			if got := reader.read(input(t, entry(reader.key, form))); got != "" && form != reader.form {
				t.Errorf("%s = %s: has the effect %q", reader.key, form, got)
			}
		}
	}
	for _, form := range forms[1:] { // a previous plugin's result is not validated
		if got := string(input(t, entry("prevResult", form)).PrevResult()); got != form {
			t.Errorf("prevResult %s became %q", form, got)
		}
	}
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return ""
}

// TestPodAnnotations accepts annotations only if every value is a string.
func TestPodAnnotations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{}`: "",
		`{"runtimeConfig": {"ips": ["10.0.0.1"], "mac": 5}}`:                               "",
		`{"runtimeConfig": {"io.kubernetes.cri.pod-annotations": {}}}`:                     "map[]",
		`{"runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"a": "b"}, "ips": [5]}}`: "map[a:b]",
		`{"runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"a": "b", "c": 5}}}`:     "",
		`{"runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"a": "b", "c": {}}}}`:    "",
		`{"runtimeConfig": {"io.kubernetes.cri.pod-annotations": "a"}}`:                    "",
		`{"runtimeConfig": {"IO.Kubernetes.cri.pod-annotations": {"a": "b"}}}`:             "",
		`{"runtimeconfig": {"io.kubernetes.cri.pod-annotations": {"a": "b"}}}`:             "",
		`{"args": {"io.kubernetes.cri.pod-annotations": {"a": "b"}}}`:                      "",
	} {
		annotations := input(t, text).PodAnnotations()
		got := ""
		if annotations != nil {
			got = fmt.Sprint(annotations)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// TestStandardKeys wants no warning of keys that CNI, runtimes and cnitool write.
func TestStandardKeys(t *testing.T) {
	t.Parallel()
	_, warnings, err := input(t, `{"cniVersion": "1.1.0", "cniVersions": [], "name": "n", "type": "capture-cni",
		"capabilities": {}, "runtimeConfig": {}, "prevResult": {}, "args": {"cni": {}}, "ipam": {}, "dns": {},
		"cni.dev/valid-attachments": [], "cni.dev/attachments": []}`).NetConf()
	if err != nil || len(warnings) > 0 {
		t.Errorf("got %q, %v", warnings, err)
	}
	_, warnings, _ = input(t, `{"Mesh": {}, "cni.device": 1, "mesh": {"unknown": 1, "name": "n", "InboundPort": 1}}`).NetConf()
	for _, key := range []string{`"Mesh"`, `"cni.device"`, `"mesh.unknown"`, `"mesh.name"`, `"mesh.InboundPort"`} {
		if !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, key) }) {
			t.Errorf("no warning of %s in %q", key, warnings)
		}
	}
}

// FuzzRead compares Read with a plain use of encoding/json.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"cniVersion":"1.1.0","prevResult":{"ips":[]},"excludeNamespaces":["a"],"status":"strict","logLevel":"warn"}`))
	f.Add([]byte(`{"prevResult": null, "runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"a":"b"}}}`))
	f.Add([]byte(`{"prevResult":{"a":1e400},"PREVRESULT":{}}`))
	f.Add([]byte(`null`))
	f.Add([]byte("\xff{}"))
	f.Fuzz(func(t *testing.T, stdin []byte) {
		var object map[string]any
		decoder := json.NewDecoder(bytes.NewReader(stdin))
		decoder.UseNumber() // Read accepts numbers that no float64 holds
		decodes := decoder.Decode(&object) == nil && object != nil && !decoder.More()
		in, err := Read(stdin)
		if err != nil {
			if decodes && json.Valid(stdin) {
				t.Errorf("%q was refused: %v", stdin, err)
			}
			return
		}
		if !json.Valid(stdin) || object == nil {
			t.Fatalf("%q was read", stdin)
		}
		if got, _ := object["cniVersion"].(string); got != in.CNIVersion() {
			t.Errorf("cniVersion %q, want %q", in.CNIVersion(), got)
		}
		previous, ok := object["prevResult"]
		if raw := in.PrevResult(); (raw != nil) != (ok && previous != nil) || raw != nil && !bytes.Contains(stdin, raw) {
			t.Errorf("prevResult %q of %q", raw, stdin)
		}
	})
}
