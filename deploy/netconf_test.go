// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/report"
)

// schema is the part of a JSON schema that the tests read.
type schema struct {
	Properties           map[string]schema
	AdditionalProperties any
	Enum                 []string
}

func readSchema(t *testing.T) schema {
	t.Helper()
	var s schema
	if err := json.Unmarshal([]byte(read(t, chart+"/values.schema.json")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSchemaKnowsKeys compares the schema with the keys that the plugin reads. The
// agent sets kubeconfig, and chooses for backend "auto".
func TestSchemaKnowsKeys(t *testing.T) {
	keys := slices.DeleteFunc(config.Keys(new(config.NetConf)), func(k config.Key) bool { return k.Name == "kubeconfig" })
	for i := range keys {
		if keys[i].Name == "backend" {
			keys[i].Type += ", `auto`"
		}
	}
	expectKeys(t, "netconf", readSchema(t).Properties["netconf"], keys)
}

func expectKeys(t *testing.T, path string, s schema, keys []config.Key) {
	t.Helper()
	if s.AdditionalProperties != false || len(s.Properties) != len(keys) {
		t.Errorf("%s: %d keys, want %d; additionalProperties: %v", path, len(s.Properties), len(keys), s.AdditionalProperties)
	}
	for _, key := range keys {
		at := path + "." + key.Name
		known, ok := s.Properties[key.Name]
		if !ok {
			t.Errorf("%s is not in the schema", at)
		}
		if key.Keys != nil {
			expectKeys(t, at, known, key.Keys)
		}
		if strings.HasPrefix(key.Type, "`") {
			if want := strings.Split(strings.ReplaceAll(key.Type, "`", ""), ", "); !slices.Equal(known.Enum, want) {
				t.Errorf("%s: enum %q, want %q", at, known.Enum, want)
			}
		}
	}
}

// sample returns a value of a key's type.
func sample(t *testing.T, kind string) any {
	t.Helper()
	samples := map[string]any{
		"duration": "1m30s", "port": float64(15101), "id": float64(1000650000), "CIDR": "127.0.0.0/8",
		"absolute path, or empty": "/var/lib/capture-cni/agent.sock", "list of names": []any{"a", "b"}, "list of meshes": []any{"istio", "linkerd"}, "list of namespaces": []any{"a", "kube-*"}, "list of exceptions": []any{"out:udp:53@10.96.0.10/32", "in:tcp:8000-8080@::/0"}, "list of CIDRs": []any{"10.0.0.0/8", "2001:db8::/32"},
		"list of ports": []any{float64(1), float64(65535)}, "list of ids": []any{float64(0), float64(4294967295)},
	}
	if first, _, ok := strings.Cut(strings.TrimPrefix(kind, "`"), "`"); ok {
		return first
	}
	value, ok := samples[kind]
	if !ok {
		t.Fatalf("no sample of type %q", kind)
	}
	return value
}

func samples(t *testing.T, keys []config.Key) map[string]any {
	t.Helper()
	values := map[string]any{}
	for _, key := range keys {
		if key.Keys != nil {
			values[key.Name] = samples(t, key.Keys)
		} else if key.Name != "kubeconfig" {
			values[key.Name] = sample(t, key.Type)
		}
	}
	return values
}

// TestEveryKeyArrives sets every key and finds it in the agent's netconf file and
// in the configuration that Multus passes to the plugin.
func TestEveryKeyArrives(t *testing.T) {
	want := samples(t, config.Keys(new(config.NetConf)))
	netconf, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	all := objects(t, "mode=multus", "netconf="+string(netconf))
	text := netConf(t, all)
	expectJSON(t, text, want)
	if _, err := conflist.ParseEntry([]byte(text), report.Insert, config.StateDirectory, config.RunDirectory); err != nil {
		t.Errorf("the agent refuses the file: %v", err)
	}
	network, _ := find[struct{ Spec struct{ Config string } }](t, all, "NetworkAttachmentDefinition", "istio-cni")
	expectRead(t, "Multus' configuration", []byte(network.Spec.Config))
	maps.Copy(want, map[string]any{
		"cniVersion": "1.0.0", "name": "istio-cni", "type": "capture-cni", "kubeconfig": "/var/lib/capture-cni/kubeconfig",
	})
	expectJSON(t, network.Spec.Config, want)
}

// TestReportsOfMultus wants the agent's socket in the attachment. The agent adds it
// to its own entry itself.
func TestReportsOfMultus(t *testing.T) {
	for values, want := range map[string]string{
		"": "", "paths.runDir=/run/other": `"agentSocket":"/run/other/agent.sock"`,
		`paths.runDir=/run/other,netconf.agentSocket=/run/other/agent.sock`: `"agentSocket":"/run/other/agent.sock"`,
	} {
		network, _ := find[struct{ Spec struct{ Config string } }](t, objects(t, "mode=multus", values), "NetworkAttachmentDefinition", "istio-cni")
		if got := network.Spec.Config; !strings.Contains(got, want) || strings.Count(got, "agentSocket") != min(len(want), 1) {
			t.Errorf("%q: %s", values, got)
		}
	}
}

// TestOnlyKeysThatAreSet renders no key that has its default.
func TestOnlyKeysThatAreSet(t *testing.T) {
	for values, want := range map[string]string{"": "{}", "netconf.ipv6=always": `{"ipv6":"always"}`} {
		if got := netConf(t, objects(t, values)); got != want {
			t.Errorf("%q: %s, want %s", values, got, want)
		}
	}
}

// netConf returns the keys of the plugin's entry, which both containers have.
func netConf(t *testing.T, all []object) string {
	t.Helper()
	set, _ := find[appsv1.DaemonSet](t, all, "DaemonSet", "capture-cni-node")
	texts := map[string]bool{}
	for _, container := range set.Spec.Template.Spec.Containers {
		texts[fleet.NetConf(container)] = true
	}
	if len(texts) != 1 {
		t.Fatalf("the containers differ: %v", texts)
	}
	return slices.Collect(maps.Keys(texts))[0]
}

func expectJSON(t *testing.T, text string, want any) {
	t.Helper()
	var got any
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// expectRead wants the plugin to read an entry without errors and warnings.
func expectRead(t *testing.T, what string, entry []byte) {
	t.Helper()
	input, err := config.Read(entry)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	if _, warnings, err := input.NetConf(); err != nil || len(warnings) > 0 {
		t.Errorf("%s: %v, warnings %q", what, err, warnings)
	}
}
