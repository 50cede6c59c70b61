// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/xeipuuv/gojsonschema"
	"sigs.k8s.io/yaml"
)

// TestPolicyExceptions validates the manifests for Kyverno and Gatekeeper by the schemas of
// their resources, of which an API server drops what the schema does not have.
func TestPolicyExceptions(t *testing.T) {
	const gatekeeper, crds = "github.com/open-policy-agent/gatekeeper/v3", "config/crds/"
	for header, crd := range map[string]struct{ module, file string }{
		"kyverno.io/v2\nkind: PolicyException":               {kyverno, crds + "kyverno/kyverno.io_policyexceptions.yaml"},
		"policies.kyverno.io/v1beta1\nkind: PolicyException": {kyverno, crds + "policies.kyverno.io/policies.kyverno.io_policyexceptions.yaml"},
		"config.gatekeeper.sh/v1alpha1\nkind: Config":        {gatekeeper, "config/crd/bases/config.gatekeeper.sh_configs.yaml"},
	} {
		found := 0
		for _, document := range strings.Split(read(t, "guides/kyverno.yaml")+"\n---\n"+read(t, "guides/gatekeeper.yaml"), "\n---\n") {
			if strings.Contains(document, "apiVersion: "+header+"\n") {
				found++
				expectResource(t, filepath.Join(moduleDirectory(t, "../e2e/parts/policies", crd.module), crd.file), document)
			}
		}
		if found != 1 {
			t.Errorf("there are %d manifests with %q, want 1", found, header)
		}
	}
}

const kyverno = "github.com/kyverno/kyverno"

// TestExceptedPolicies wants an exception from each policy of Kyverno's chart that the agents
// violate, whether ClusterPolicies or ValidatingPolicies are installed.
func TestExceptedPolicies(t *testing.T) {
	observed := []string{
		"disallow-host-process", "disallow-privilege-escalation", "disallow-privileged-containers", "disallow-proc-mount",
		"restrict-apparmor-profiles", "restrict-seccomp", "restrict-seccomp-strict", "restrict-sysctls",
	}
	templates := filepath.Join(moduleDirectory(t, "../e2e/parts/policies", kyverno), "charts/kyverno-policies/templates")
	files, err := filepath.Glob(templates + "/[br]*/*.yaml") // the directories baseline and restricted
	if err != nil {
		t.Fatal(err)
	}
	violated := map[string]bool{}
	for _, file := range files {
		if name, _, _ := strings.Cut(filepath.Base(file), "."); !slices.Contains(observed, name) {
			violated[name] = true
		}
	}
	for _, document := range strings.Split(read(t, "guides/kyverno.yaml"), "\n---\n") {
		var exception struct {
			Spec struct {
				Exceptions []struct{ PolicyName string }
				PolicyRefs []struct{ Name string }
			}
		}
		if err := yaml.Unmarshal([]byte(document), &exception); err != nil {
			t.Fatal(err)
		}
		excepted := map[string]bool{}
		for _, policy := range exception.Spec.Exceptions {
			excepted[policy.PolicyName] = true
		}
		for _, policy := range exception.Spec.PolicyRefs {
			excepted[policy.Name] = true
		}
		if !maps.Equal(excepted, violated) {
			t.Errorf("excepted: %v, violated: %v", excepted, violated)
		}
	}
}

// expectResource validates a resource by the schema of its version, with no other fields.
func expectResource(t *testing.T, crd, text string) {
	t.Helper()
	var definition struct {
		Spec struct {
			Versions []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema map[string]any }
			}
		}
	}
	var resource map[string]any
	content, err := os.ReadFile(crd)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, &definition); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(text), &resource); err != nil {
		t.Fatal(err)
	}
	delete(resource, "metadata") // the API server's own
	_, version, _ := strings.Cut(resource["apiVersion"].(string), "/")
	for _, v := range definition.Spec.Versions {
		if v.Name != version {
			continue
		}
		forbidOthers(v.Schema.OpenAPIV3Schema)
		result, err := gojsonschema.Validate(gojsonschema.NewGoLoader(v.Schema.OpenAPIV3Schema), gojsonschema.NewGoLoader(resource))
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range result.Errors() {
			t.Errorf("%s: %s\n%s", crd, fault, text)
		}
		return
	}
	t.Errorf("%s has no version %s", crd, version)
}

// forbidOthers makes a schema refuse fields that it does not have.
func forbidOthers(schema map[string]any) {
	for key, value := range schema {
		if nested, ok := value.(map[string]any); ok {
			forbidOthers(nested)
			if key == "properties" {
				schema["additionalProperties"] = false
			}
		}
	}
}

// moduleDirectory returns that of a module which another go.mod requires.
func moduleDirectory(t *testing.T, directory, module string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	command.Dir = directory
	out, err := command.Output()
	var downloaded struct{ Dir string }
	if err != nil || json.Unmarshal(out, &downloaded) != nil || downloaded.Dir == "" {
		t.Fatalf("downloading %s: %v: %s", module, err, out)
	}
	return downloaded.Dir
}
