// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xeipuuv/gojsonschema"
	"sigs.k8s.io/yaml"

	"github.com/capture-cni/capture-cni/e2e/guides"
)

// TestPolicyExceptions validates the manifests for Kyverno and Gatekeeper by the schemas of
// their resources, of which an API server drops what the schema does not have.
func TestPolicyExceptions(t *testing.T) {
	blocks, err := guides.Blocks("..")
	if err != nil {
		t.Fatal(err)
	}
	for kind, crd := range map[string]struct{ module, file string }{
		"PolicyException": {"github.com/kyverno/kyverno", "config/crds/kyverno/kyverno.io_policyexceptions.yaml"},
		"Config":          {"github.com/open-policy-agent/gatekeeper/v3", "config/crd/bases/config.gatekeeper.sh_configs.yaml"},
	} {
		found := 0
		for _, block := range blocks {
			if strings.HasSuffix(block.Guide, ".yaml") && strings.Contains(block.Text, "\nkind: "+kind+"\n") {
				found++
				expectResource(t, filepath.Join(moduleDirectory(t, "../e2e/parts/policies", crd.module), crd.file), block.Text)
			}
		}
		if found != 1 {
			t.Errorf("there are %d manifests of %s, want 1", found, kind)
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
