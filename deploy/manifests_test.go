// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/capture-cni/capture-cni/e2e/guides"
)

// manifest is what an object of the guides says about the release.
type manifest struct {
	Kind string
	Spec struct {
		ReleaseName string         // of a HelmRelease
		Values      map[string]any // of a HelmRelease
		Source      struct {       // of an Application
			RepoURL, Chart string
			Helm           struct {
				ReleaseName  string
				ValuesObject map[string]any
			}
		}
		URL string // of an OCIRepository
	}
}

const charts = "ghcr.io/capture-cni/charts"

// TestManifests renders the chart with the values of the manifests for Argo CD and Flux,
// and expects the release's name, on which other objects rely, and the chart's address.
func TestManifests(t *testing.T) {
	blocks, err := guides.Blocks("..")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, block := range blocks {
		if block.Language != "yaml" {
			continue
		}
		for _, document := range strings.Split(dedent(block.Text), "\n---\n") {
			var m manifest
			if err := yaml.Unmarshal([]byte(document), &m); err != nil {
				t.Errorf("%s, section %q: %v\n%s", block.Guide, block.Section, err, document)
			}
			found[m.Kind]++
			source := m.Spec.Source
			switch {
			case m.Kind == "HelmRelease":
				expectRelease(t, block, m.Spec.ReleaseName, m.Spec.Values)
			case m.Kind == "OCIRepository" && m.Spec.URL != "oci://"+charts+"/capture-cni":
				t.Errorf("%s: the chart is at %s", block.Guide, m.Spec.URL)
			case m.Kind == "Application" && (source.RepoURL != charts || source.Chart != "capture-cni"):
				t.Errorf("%s: the chart is %s of %s", block.Guide, source.Chart, source.RepoURL)
			case m.Kind == "Application":
				expectRelease(t, block, source.Helm.ReleaseName, source.Helm.ValuesObject)
			}
		}
	}
	for _, kind := range []string{"Application", "HelmRelease", "OCIRepository", "Namespace"} {
		if found[kind] == 0 {
			t.Errorf("no guide has an object of the kind %s", kind)
		}
	}
}

// expectRelease expects a release's name, and values that the chart accepts.
func expectRelease(t *testing.T, block guides.Block, name string, values map[string]any) {
	t.Helper()
	if name != "capture-cni" || len(values) == 0 {
		t.Errorf("%s, section %q: release %q with %d values", block.Guide, block.Section, name, len(values))
	}
	text, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "values.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := helm(t, "template", name, chart, "--namespace", namespace, "--kube-version", "1.34.0", "--values", file); err != nil {
		t.Errorf("%s, section %q: %v\n%s", block.Guide, block.Section, err, out)
	}
}

// dedent removes the indentation of a block within a list.
func dedent(text string) string {
	indent := regexp.MustCompile(`^ *`).FindString(text)
	return regexp.MustCompile("(?m)^"+indent).ReplaceAllString(text, "")
}

var release = regexp.MustCompile(`(?:capture-cni:|targetRevision: |tag: |export VERSION=)(\d+\.\d+\.\d+)`)

// TestGuidesNameThisRelease expects the chart's version wherever a guide names a release.
func TestGuidesNameThisRelease(t *testing.T) {
	blocks, err := guides.Blocks("..")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, block := range blocks {
		for _, match := range release.FindAllStringSubmatch(block.Text, -1) {
			count++
			if !strings.Contains(read(t, chart+"/Chart.yaml"), "\nversion: "+match[1]+"\n") {
				t.Errorf("%s, section %q: %s is another version than the chart's", block.Guide, block.Section, match[0])
			}
		}
	}
	expectSome(t, count)
}
