// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// defaultClaim matches a sentence that says what a default is.
var defaultClaim = regexp.MustCompile(`(?i)\bby default\b|, the default\b|is the default\b`)

// defaultClaims has a part of each such sentence, and what holds it to the code: values of the chart
// as JSON, a variable of the agent with values, a row of the keys, which is generated, or a test.
var defaultClaims = map[string][]string{
	"are off by default": {
		"value admission.istioInit.enabled=false", "value admission.capabilities.enabled=false", "value admission.identity.enabled=false",
		"value admission.settings.enabled=false",
	},
	"With `{Deny}`, the default":                            {`value admission.validationActions=["Deny"]`},
	"`inPlace`, the default":                                {`value guard.policy="inPlace"`},
	"`never`, the default":                                  {`value guard.update="never"`},
	"The default mode is `auto`":                            {"variable CAPTURE_CNI_MODE=auto"},
	"`multus`, the default":                                 {"variable CAPTURE_CNI_MODE=multus platform=openshift"},
	"which is empty by default":                             {"row | `excludeNamespaces` | list of namespaces | `[]` |"},
	"the default of this value is":                          {"test install/conflist.TestEntry"},
	"agents tolerate all taints":                            {`value tolerations=[{"operator":"Exists"}]`, `value seccompProfile={"type":"RuntimeDefault"}`},
	"`nftables` is the default":                             {"row | `backend` | `nftables`, `iptables`, `iptables-nft`, `iptables-legacy` | `nftables` |"},
	"captures IPv6 if the inbound or the outbound variable": {"test plugin/capture.TestLinkerdListens"},
	"containerd grants `NET_RAW` by":                        {}, // no default of ours
	"By default, the agents' account may":                   {"test deploy.TestPermissions"},
	"and by default a [guard]":                              {"value guard.enabled=true"},
}

// TestDefaults expects each sentence of the operators' documents about a default to be true.
func TestDefaults(t *testing.T) {
	t.Parallel()
	var values map[string]any
	if err := yaml.Unmarshal([]byte(read(t, chart+"/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	unused := map[string]bool{}
	for part := range defaultClaims {
		unused[part] = true
	}
	for _, pattern := range []string{"*.md", "*/*.md"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			for line := range strings.Lines(read(t, path)) {
				found := false
				for part := range defaultClaims {
					if strings.Contains(line, part) {
						found = true
						delete(unused, part)
					}
				}
				if !found && defaultClaim.MatchString(line) {
					t.Errorf("%s: no claim is %q", path, line)
				}
			}
		}
	}
	for part := range unused {
		t.Errorf("no document says %q", part)
	}
	for _, claims := range defaultClaims {
		for _, claim := range claims {
			kind, text, _ := strings.Cut(claim, " ")
			name, want, _ := strings.Cut(text, "=")
			switch kind {
			case "value":
				if got, err := json.Marshal(at(t, values, strings.Split(name, "."))); err != nil || string(got) != want {
					t.Errorf("value %s is %s, want %s", name, got, want)
				}
			case "variable":
				want, setting, _ := strings.Cut(want, " ")
				expectVariable(t, name, want, slices.DeleteFunc([]string{setting}, func(s string) bool { return s == "" })...)
			case "row":
				if !strings.Contains(read(t, "reference/configuration.md"), text) {
					t.Errorf("no row %s", text)
				}
			case "test":
				directory, test, _ := strings.Cut(text, ".")
				tests, err := filepath.Glob("../" + directory + "/*_test.go")
				if err != nil || !slices.ContainsFunc(tests, func(path string) bool { return strings.Contains(read(t, path), "func "+test+"(") }) {
					t.Errorf("no test %s (%v)", text, err)
				}
			default:
				t.Errorf("unknown kind of claim: %s", claim)
			}
		}
	}
}

// expectVariable expects a variable of the agent's container with some values of the chart.
func expectVariable(t *testing.T, name, want string, values ...string) {
	t.Helper()
	for _, container := range daemonSet(t, values...).Spec.Template.Spec.Containers {
		for _, variable := range container.Env {
			if variable.Name == name && variable.Value != want {
				t.Errorf("%s is %s, want %s", name, variable.Value, want)
			}
			if variable.Name == name {
				return
			}
		}
	}
	t.Errorf("no container has %s", name)
}
