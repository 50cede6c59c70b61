// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// documented is a value with a comment "# -- ..." above it.
type documented struct {
	path    []string
	meaning string
}

var (
	commentLine = regexp.MustCompile(`^ *# -- (.+)$`)
	keyLine     = regexp.MustCompile(`^( *)([A-Za-z][\w./-]*):`)
)

func readDocumented(text string) []documented {
	var found []documented
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
			found = append(found, documented{slices.Clone(path), meaning})
			meaning = ""
		}
	}
	return found
}

// TestValuesTable keeps the table of values in README.md up to date.
func TestValuesTable(t *testing.T) {
	text := read(t, chart+"/values.yaml")
	var values map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	table := "| value | default | meaning |\n|---|---|---|\n"
	known := map[string]bool{}
	for _, d := range readDocumented(text) {
		value, err := json.Marshal(at(t, values, d.path))
		if err != nil {
			t.Fatal(err)
		}
		name := strings.Join(d.path, ".")
		known[name] = true
		table += fmt.Sprintf("| `%s` | `%s` | %s |\n", name, value, d.meaning)
	}
	expectDocumented(t, "", values, known)
	readme := read(t, "README.md")
	before, rest, found := strings.Cut(readme, "<!-- values -->\n")
	_, after, closed := strings.Cut(rest, "<!-- /values -->")
	if !found || !closed {
		t.Fatal("README.md has no table of values")
	}
	expectFresh(t, "README.md", before+"<!-- values -->\n"+table+"<!-- /values -->"+after)
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
