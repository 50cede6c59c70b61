// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// check executes the command check for a file with this content, without a cluster.
func check(t *testing.T, content string, flags ...string) (out, errors string, exit int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pods.yaml")
	lab.Check(t, os.WriteFile(file, []byte(content), 0o600))
	var stdout, stderr strings.Builder
	args := append([]string{"check", file, "--kubeconfig", "/none"}, flags...)
	exit = execute(t.Context(), args, newScreen(&stdout), newScreen(&stderr))
	return stdout.String(), stderr.String(), exit
}

// deployment returns the YAML of a Deployment whose pods have these annotations and containers.
func deployment(annotations, containers string) string {
	return "kind: Deployment\nmetadata: {name: web, namespace: shop}\nspec: {template: {metadata: {annotations: {" + annotations + "}}, spec: {" + containers + "}}}\n"
}

const (
	notInjected = "containers: [{name: app}]"
	injected    = "containers: [{name: app}, {name: istio-proxy, args: [proxy, sidecar]}]"
	marked      = `sidecar.istio.io/status: "{}"`
	ownPod      = `capture-cni.io/proxy: proxy, capture-cni.io/outbound-port: "15001"`
)

// TestCheck expects each possible result, with its code and exit status.
func TestCheck(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		content string
		flags   []string
		want    string // the column RESULT, and the code
		exit    int
	}{
		"injected":                {deployment(marked, injected), nil, "ok captured", 0},
		"a template before":       {deployment("", notInjected), nil, "unknown not_injected", 2},
		"a pod before":            {"kind: Pod\nmetadata: {name: web}\nspec: {" + notInjected + "}", nil, "unknown not_injected", 2},
		"a pod of the API server": {"kind: Pod\nmetadata: {name: web, uid: u}\nspec: {" + notInjected + "}", nil, "note not_injected", 0},
		"a template with a fence": {deployment(`capture-cni.io/fence: "true"`, notInjected), nil, "unknown not_injected", 2},
		"a pod with a fence": {
			`{"kind": "Pod", "metadata": {"uid": "u", "annotations": {"capture-cni.io/fence": "true"}}, "spec": {"containers": []}}`, nil, "problem add-refused", 1,
		},
		"never injected": {deployment(`sidecar.istio.io/inject: "false"`, notInjected), nil, "note inject_false", 0},
		"a label that overrides": {
			strings.Replace(deployment(`sidecar.istio.io/inject: "false"`, notInjected), "metadata: {annotations", `metadata: {labels: {sidecar.istio.io/inject: "true"}, annotations`, 1), nil,
			"unknown not_injected", 2,
		},
		"of the node":          {deployment(marked, injected+", hostNetwork: true"), nil, "note host-network", 0},
		"an exemption":         {deployment(marked+", sidecar.istio.io/interceptionMode: NONE", injected), nil, "note interception_none", 0},
		"bad annotations":      {deployment(marked+", traffic.sidecar.istio.io/excludeOutboundPorts: http", injected), nil, "problem add-annotations", 1},
		"the proxy's user":     {deployment(marked, injected+", securityContext: {runAsUser: 1337}"), nil, "problem add-refused", 1},
		"a warning":            {deployment(marked+`, traffic.sidecar.istio.io/excludeOutboundPort: "80"`, injected), nil, "warning add-warned", 0},
		"another mesh":         {deployment(ownPod, notInjected), []string{"--netconf", `{"meshes": ["istio"]}`}, "note mesh-off", 0},
		"an excluded one":      {deployment(marked, injected), []string{"--netconf", `{"excludeNamespaces": ["sh*"]}`}, "note namespace_excluded", 0},
		"another one excluded": {deployment(marked, injected), []string{"--namespace=other", "--netconf", `{"excludeNamespaces": ["other"]}`}, "ok captured", 0},
		"the flag's namespace": {
			strings.Replace(deployment(marked, injected), ", namespace: shop", "", 1),
			[]string{"--namespace=other", "--netconf", `{"excludeNamespaces": ["other"]}`},
			"note namespace_excluded", 0,
		},
	} {
		out, errors, exit := check(t, test.content, append(test.flags, "-o", "json")...)
		var result checked
		if err := json.Unmarshal([]byte(out), &result); err != nil || exit != test.exit || len(result.Results) == 0 {
			t.Errorf("%s: exit status %d, %v: %s%s", name, exit, err, out, errors)
			continue
		}
		if last := result.Results[len(result.Results)-1]; string(last.Severity)+" "+string(last.Code) != test.want {
			t.Errorf("%s: %+v, want %s", name, last, test.want)
		}
	}
}

// TestCheckText expects the assumptions of the results, and lines that fit a terminal. No text of the
// file reaches the terminal as a control sequence.
func TestCheckText(t *testing.T) {
	t.Parallel()
	hostile := `{"kind": "Pod", "metadata": {"name": "a\u001b[2J\nok       Pod b", "annotations": {"sidecar.istio.io/status": "", "traffic.sidecar.istio.io/\u001b]0;x": ""}},
		"spec": {"containers": [{"name": "istio-proxy"}], "\u001b[31m\nnew": 1}}`
	out, errors, exit := check(t, deployment("", notInjected)+"---\nkind: Service\n---\n"+hostile)
	if exit != 2 || strings.ContainsAny(out+errors, "\x1b\r\x07") || strings.Contains(out, "\nok       Pod b") || strings.Count(errors, "\n") != 1 {
		t.Errorf("exit status %d:\n%s%q", exit, out, errors)
	}
	expect(t, out, "unknown  Deployment shop/web", "[not_injected]", "next for Deployment shop/web: check what the injector returns",
		"Note: assumed: netconf {}, pods without IPv6 addresses", "Note: 1 other objects have no pods", "Codes: ")
	expect(t, errors, `warning: Pod a?[2J?ok       Pod b: unknown field`)
	for line := range strings.Lines(out) {
		if utf8.RuneCountInString(line) > 81 && !strings.Contains(line, "kubectl ") && !strings.Contains(line, "https://") {
			t.Errorf("a line of %d columns: %s", utf8.RuneCountInString(line), line)
		}
	}
}

// TestCheckJUnit expects a test case for each finding. Problems are failures, and unknown results are
// skipped.
func TestCheckJUnit(t *testing.T) {
	t.Parallel()
	bad := deployment(marked+", traffic.sidecar.istio.io/excludeOutboundPorts: http", injected)
	out, _, exit := check(t, deployment(marked, injected)+"---\n"+deployment("", notInjected)+"---\n"+bad, "-o", "junit")
	var suite junitSuite
	if err := xml.Unmarshal([]byte(out), &suite); err != nil || exit != 1 || suite.Tests != 3 || suite.Failed != 1 || suite.Skipped != 1 || len(suite.Cases) != 3 {
		t.Fatalf("exit status %d, %v:\n%s", exit, err, out)
	}
	if suite.Cases[0].Failure != nil || suite.Cases[0].Skipped != nil || suite.Cases[1].Skipped == nil || suite.Cases[2].Failure.Code != "add-annotations" {
		t.Errorf("%+v", suite.Cases)
	}
	if one := suite.Cases[0]; suite.Name != "capture-cni check" || !strings.HasPrefix(suite.Notes, "assumed: ") || one.Class != "Deployment shop/web" || one.Name == "" {
		t.Errorf("%+v", suite)
	}
}

// TestCheckFails expects exit status 2 for unreadable files and flags.
func TestCheckFails(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		content, netConf, want string
	}{
		{"kind: Service\n", "{}", "has no pods, and 1 other objects"},
		{"a: [", "{}", "reading the manifests in "},
		{deployment("", notInjected), `{"odd": 1}`, `configuration key "odd" is not known`},
		{deployment("", notInjected), `{"ipv6": 1}`, `configuration key "ipv6" is 1`},
		{deployment("", notInjected), "/none/file", "--netconf: reading"},
	} {
		if out, errors, exit := check(t, test.content, "--netconf", test.netConf); exit != 2 || !strings.Contains(errors, test.want) {
			t.Errorf("%+v: exit status %d: %s%s", test, exit, out, errors)
		}
	}
}
