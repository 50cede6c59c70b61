// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const istioCNI = "reference/istio-cni.md"

// TestIstioCNIValues compares the table of values with Istio's chart, and with ours.
func TestIstioCNIValues(t *testing.T) {
	istio := os.DirFS(istioSources(t))
	content, err := fs.ReadFile(istio, "manifests/charts/istio-cni/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var theirs, ours map[string]any
	if err := yaml.Unmarshal(content, &theirs); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(read(t, chart+"/values.yaml")), &ours); err != nil {
		t.Fatal(err)
	}
	names := leaves("", theirs["_internal_defaults_do_not_set"].(map[string]any))
	rows := tableRows(t, "Values")
	for _, name := range names {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(rows)), func(row string) bool { return within(name, row) }) {
			t.Errorf("%s: no row for istio-cni's value %s", istioCNI, name)
		}
	}
	for row, values := range rows {
		if !slices.ContainsFunc(names, func(name string) bool { return within(name, row) }) {
			t.Errorf("%s: istio-cni has no value %s", istioCNI, row)
		}
		for _, value := range values {
			if !hasValue(ours, value) {
				t.Errorf("%s: the chart has no value %s", istioCNI, value)
			}
		}
	}
}

// TestIstioCNIMetrics compares the table of metrics with Istio's sources, and with ours.
func TestIstioCNIMetrics(t *testing.T) {
	metric := regexp.MustCompile(`"((?:istio_cni|nodeagent|ztunnel)_[a-z_]+)"`)
	theirs := map[string]bool{}
	sources := os.DirFS(istioSources(t))
	err := fs.WalkDir(sources, "cni/pkg", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		content, err := fs.ReadFile(sources, name)
		if !strings.Contains(string(content), "monitoring.New") {
			return err
		}
		for _, match := range metric.FindAllStringSubmatch(string(content), -1) {
			theirs[match[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := tableRows(t, "Metrics")
	for name := range theirs {
		if _, ok := rows[name]; !ok {
			t.Errorf("%s: no row for istio-cni's metric %s", istioCNI, name)
		}
	}
	for name, ours := range rows {
		if !theirs[name] {
			t.Errorf("%s: istio-cni has no metric %s", istioCNI, name)
		}
		for _, metric := range ours {
			expectMetrics(t, istioCNI, metric)
		}
	}
}

// TestIstioCNIAgents looks for what the table of agents and nodes names in Istio's sources,
// and among our values and objects.
func TestIstioCNIAgents(t *testing.T) {
	sources := os.DirFS(istioSources(t))
	var theirs strings.Builder
	for _, name := range []string{"manifests/charts/istio-cni/templates/daemonset.yaml", "pilot/pkg/features/pilot.go"} {
		content, err := fs.ReadFile(sources, name)
		if err != nil {
			t.Fatal(err)
		}
		theirs.Write(content)
	}
	var values map[string]any
	if err := yaml.Unmarshal([]byte(read(t, chart+"/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	rendered, err := render(t)
	if err != nil {
		t.Fatal(err)
	}
	rows := tableRows(t, "Agents and nodes")
	if len(rows) < 6 {
		t.Errorf("%s: the table of agents and nodes has %d rows", istioCNI, len(rows))
	}
	for name, ours := range rows {
		if !strings.Contains(theirs.String(), name) {
			t.Errorf("%s: istio-cni has no %s", istioCNI, name)
		}
		for _, value := range ours {
			if !hasValue(values, value) && !strings.Contains(rendered, value) {
				t.Errorf("%s: the chart has no %s", istioCNI, value)
			}
		}
	}
}

// istioSources returns the directory of Istio's module, of the version that the test
// cluster runs.
func istioSources(t *testing.T) string {
	t.Helper()
	return moduleDirectory(t, "../e2e/parts/istio", "istio.io/istio")
}

// within reports whether a value is the row's, or part of it.
func within(name, row string) bool { return name == row || strings.HasPrefix(name, row+".") }

// leaves returns the names of values that are no objects with values of their own.
func leaves(prefix string, values map[string]any) (names []string) {
	for name, value := range values {
		if nested, ok := value.(map[string]any); ok && len(nested) > 0 {
			names = append(names, leaves(prefix+name+".", nested)...)
			continue
		}
		names = append(names, prefix+name)
	}
	return names
}

// tableRows returns the counterparts of the names that a section has: in the second column of
// its table for those in the first, themselves for those that both charts have, and none for
// those that a list gives a reason for.
func tableRows(t *testing.T, section string) map[string][]string {
	t.Helper()
	_, text, _ := strings.Cut(read(t, istioCNI), "## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	code := regexp.MustCompile("`([^`]+)`")
	rows := map[string][]string{}
	for line := range strings.Lines(text) {
		first, second := "", ""
		cells := strings.Split(line, "|")
		switch {
		case len(cells) >= 4 && strings.HasPrefix(line, "| `"):
			first, second = cells[1], cells[2]
		case strings.HasPrefix(line, "Both charts have "):
			for _, match := range code.FindAllStringSubmatch(line, -1) {
				rows[match[1]] = []string{match[1]}
			}
		case strings.HasPrefix(line, "- `"):
			first, _, _ = strings.Cut(line, ": ")
		}
		var ours []string
		for _, match := range code.FindAllStringSubmatch(second, -1) {
			ours = append(ours, match[1])
		}
		for _, match := range code.FindAllStringSubmatch(first, -1) {
			rows[match[1]] = ours
		}
	}
	return rows
}
