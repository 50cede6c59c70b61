// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/xeipuuv/gojsonschema"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// expectSBOM expects one that CycloneDX's own schema accepts, with each program as the
// archives have it, and with the modules that Go wrote into the programs.
func expectSBOM(t *testing.T, directory string, archives []archive) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(directory, "capture-cni-1.2.3.cdx.json"))
	lab.Check(t, err)
	expectSchema(t, content)
	var document cyclonedx.BOM
	lab.Check(t, cyclonedx.NewBOMDecoder(bytes.NewReader(content), cyclonedx.BOMFileFormatJSON).Decode(&document))
	hashes, uses := map[string]string{}, map[string][]string{}
	for _, component := range *document.Components {
		if component.Type == cyclonedx.ComponentTypeApplication {
			hashes[component.BOMRef] = (*component.Hashes)[0].Value
		}
	}
	for _, dependency := range *document.Dependencies {
		uses[dependency.Ref] = *dependency.Dependencies
	}
	for _, a := range archives {
		files := unpack(t, filepath.Join(directory, a.name+"_1.2.3_linux_"+a.architecture+".tar.gz"))
		for program := range a.programs() {
			reference := "linux/" + a.architecture + "/" + program
			if want := fmt.Sprintf("%x", sha256.Sum256(files[program])); hashes[reference] != want {
				t.Errorf("the SBOM's hash of %s is %q, want %s", reference, hashes[reference], want)
			}
			delete(hashes, reference)
			info, err := buildinfo.Read(bytes.NewReader(files[program]))
			lab.Check(t, err)
			want := []string{"pkg:golang/stdlib@" + strings.TrimPrefix(info.GoVersion, "go")}
			for _, module := range info.Deps {
				want = append(want, "pkg:golang/"+module.Path+"@"+module.Version)
			}
			if !slices.Equal(uses[reference], want) {
				t.Errorf("by the SBOM %s consists of %q, want %q", reference, uses[reference], want)
			}
		}
	}
	if len(hashes) > 0 {
		t.Errorf("the SBOM has more programs: %v", hashes)
	}
}

// expectSchema validates an SBOM without a network: schemas name others by address.
func expectSchema(t *testing.T, content []byte) {
	t.Helper()
	directory, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}/schema", "github.com/CycloneDX/cyclonedx-go").Output()
	lab.Check(t, err)
	schema := func(name string) gojsonschema.JSONLoader {
		content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(directory)), name))
		lab.Check(t, err)
		return gojsonschema.NewBytesLoader(content)
	}
	loader := gojsonschema.NewSchemaLoader()
	lab.Check(t, loader.AddSchema("http://cyclonedx.org/schema/spdx.schema.json", schema("spdx.schema.json")))
	lab.Check(t, loader.AddSchema("http://cyclonedx.org/schema/jsf-0.82.schema.json", schema("jsf-0.82.schemax.json")))
	compiled, err := loader.Compile(schema("bom-1.6.schema.json"))
	lab.Check(t, err)
	result, err := compiled.Validate(gojsonschema.NewBytesLoader(content))
	lab.Check(t, err)
	for _, fault := range result.Errors() {
		t.Errorf("the SBOM is invalid: %s", fault)
	}
}
