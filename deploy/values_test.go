// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var (
	commentLine = regexp.MustCompile(`^ *# -- (.+)$`)
	keyLine     = regexp.MustCompile(`^( *)([A-Za-z][\w./-]*):`)
)

// readDocumented returns the paths of the values with a comment "# -- ..." above them.
func readDocumented(text string) [][]string {
	var found [][]string
	var path []string
	meaning := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if match := commentLine.FindStringSubmatch(line); match != nil {
			meaning = match[1]
			continue
		}
		match := keyLine.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		depth := len(match[1]) / 2
		path = append(path[:min(depth, len(path))], match[2])
		if meaning != "" {
			found = append(found, slices.Clone(path))
			meaning = ""
		}
	}
	return found
}

// TestValuesAreDocumented expects a description of each value in values.yaml, to which the
// documents send their readers.
func TestValuesAreDocumented(t *testing.T) {
	text := read(t, chart+"/values.yaml")
	var values map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, path := range readDocumented(text) {
		at(t, values, path)
		known[strings.Join(path, ".")] = true
	}
	expectDocumented(t, "", values, known)
	if !strings.Contains(read(t, "README.md"), "(chart/values.yaml)") {
		t.Error("README.md has no link to the values")
	}
}

func at(t *testing.T, values map[string]any, path []string) any {
	t.Helper()
	var value any = values
	for _, key := range path {
		object, ok := value.(map[string]any)
		if !ok {
			t.Fatalf("values.yaml has no value %q", path)
		}
		value = object[key]
	}
	return value
}

// expectDocumented wants a comment on every value or on an object around it.
func expectDocumented(t *testing.T, prefix string, values map[string]any, known map[string]bool) {
	t.Helper()
	for key, value := range values {
		name := prefix + key
		if known[name] {
			continue
		}
		if nested, ok := value.(map[string]any); ok && len(nested) > 0 {
			expectDocumented(t, name+".", nested, known)
		} else {
			t.Errorf("values.yaml has no comment on %s", name)
		}
	}
}
