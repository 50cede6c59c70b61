// SPDX-License-Identifier: Apache-2.0

// Package project tests the project itself: the direction of its imports, and its
// documents against its code.
package project

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/capture-cni/capture-cni"

// allowed maps each package to those of our packages that it may import. Only tests
// and e2e itself import e2e.
var allowed = map[string][]string{
	"config":                              {},
	"plugin/capture":                      {"config"},
	"plugin/podfields":                    {"config", "plugin/capture"},
	"plugin/nlsocket":                     {},
	"plugin/nfnetlink":                    {"plugin/capture", "plugin/nlsocket"},
	"plugin/dump":                         {"plugin/capture", "plugin/nfnetlink"},
	"plugin/nftables":                     {"config", "plugin/capture", "plugin/dump", "plugin/nfnetlink"},
	"plugin/xtables":                      {"plugin/capture", "plugin/nfnetlink"},
	"plugin/iptables":                     {"config", "plugin/capture", "plugin/dump", "plugin/nfnetlink", "plugin/xtables"},
	"plugin/netfilter":                    {"config", "plugin/capture", "plugin/dump", "plugin/iptables", "plugin/nfnetlink", "plugin/nftables", "plugin/xtables"},
	"plugin/podnet":                       {"config", "plugin/capture", "plugin/dump", "plugin/iptables", "plugin/netfilter", "plugin/nfnetlink", "plugin/trust"},
	"plugin/record":                       {"plugin/capture", "plugin/trust"},
	"plugin/httplimit":                    {},
	"plugin/trust":                        {"config"},
	"plugin/lookup":                       {"config", "plugin/capture", "plugin/trust"},
	"plugin/capture-cni-lookup/apiclient": {"config", "plugin/capture", "plugin/httplimit", "plugin/lookup", "plugin/podfields", "plugin/trust"},
	"plugin/verbs":                        {"config", "plugin/capture", "plugin/lookup", "plugin/podnet", "plugin/record", "plugin/trust"},
	"plugin/capture-cni":                  {"config", "plugin/verbs"},
	"plugin/capture-cni-lookup":           {"config", "plugin/capture", "plugin/capture-cni-lookup/apiclient", "plugin/lookup", "plugin/trust"},
	"install/host":                        {"plugin/trust"},
	"install/backend":                     {"config", "install/host", "install/report", "plugin/capture", "plugin/nfnetlink", "plugin/podnet"},
	"install/metrics":                     {},
	"install/trace":                       {"plugin/capture"},
	"install/manifest":                    {},
	"install/kernel":                      {"config", "install/trace", "plugin/capture", "plugin/dump", "plugin/iptables", "plugin/netfilter", "plugin/nfnetlink", "plugin/nftables", "plugin/nlsocket", "plugin/podnet", "plugin/xtables"},
	"install/report":                      {"config", "install/trace", "plugin/capture", "plugin/record"},
	"install/conflist":                    {"config", "install/backend", "install/host", "install/report"},
	"install/cri":                         {"install/host", "install/report"},
	"install/kube":                        {"config", "install/metrics", "install/report", "plugin/capture", "plugin/httplimit"},
	"install/credentials":                 {"config", "install/host", "install/kube", "plugin/capture"},
	"install/pods":                        {"config", "install/host", "install/kube", "install/metrics", "plugin/capture", "plugin/capture-cni-lookup/apiclient", "plugin/lookup"},
	"install/telemetry":                   {"config", "install/host", "install/kube", "install/metrics", "install/report", "plugin/capture", "plugin/record"},
	"install/guard":                       {"config", "install/cri", "install/host", "install/kernel", "install/metrics", "install/report", "install/telemetry", "install/trace", "plugin/capture", "plugin/lookup", "plugin/nfnetlink", "plugin/podnet", "plugin/record"},
	"install/node":                        {"config", "install/backend", "install/conflist", "install/credentials", "install/cri", "install/host", "install/kube", "install/metrics", "install/report", "install/telemetry", "plugin/capture", "plugin/lookup", "plugin/record"},
	"install/validate":                    {"install/report", "plugin/capture"},
	"install/capture-cni-node":            {"config", "install/backend", "install/conflist", "install/credentials", "install/cri", "install/guard", "install/host", "install/kube", "install/manifest", "install/metrics", "install/node", "install/pods", "install/report", "install/telemetry", "install/trace", "install/validate", "plugin/capture", "plugin/iptables", "plugin/lookup", "plugin/podfields", "plugin/podnet", "plugin/record"},
	"deploy":                              {}, // tests alone
	"deploy/build":                        {},
	"deploy/image":                        {"config", "deploy/build"},
	"deploy/release":                      {"deploy/build"},
	"deploy/fleet":                        {"config", "install/manifest", "install/report", "plugin/capture", "plugin/podfields", "plugin/record"},
	"deploy/precheck":                     {"deploy/fleet", "install/report"},
	"deploy/capturetest":                  {"config", "deploy/fleet", "install/report"},
	"deploy/kubectl-capture_cni":          {"config", "deploy/capturetest", "deploy/fleet", "deploy/precheck", "install/manifest", "install/report"},
}

// impure must not be imported by pure packages, even indirectly.
var impure = []string{"k8s.io/client-go", "github.com/google/nftables", "github.com/vishvananda/netlink", "github.com/mdlayher/netlink"}

type goPackage struct {
	ImportPath    string
	Imports, Deps []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Deps", module+"/...")
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	var packages []goPackage
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

func TestImportsPointOneWay(t *testing.T) {
	checked := 0
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if name == "e2e" || strings.HasPrefix(name, "e2e/") {
			continue
		}
		checked++
		may, ok := allowed[name]
		if !ok {
			t.Errorf("%s is missing in allowed", name)
		}
		for _, imported := range p.Imports {
			if ours, ok := strings.CutPrefix(imported, module+"/"); ok && !slices.Contains(may, ours) {
				t.Errorf("%s imports %s", name, ours)
			}
		}
	}
	if checked != len(allowed) {
		t.Errorf("%d packages exist, allowed has %d", checked, len(allowed))
	}
}

func TestDecidersArePure(t *testing.T) {
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if name != "config" && name != "plugin/capture" {
			continue
		}
		for _, dependency := range p.Deps {
			if slices.ContainsFunc(impure, func(i string) bool { return dependency == i || strings.HasPrefix(dependency, i+"/") }) {
				t.Errorf("%s depends on %s", name, dependency)
			}
		}
		for _, imported := range p.Imports {
			if slices.Contains([]string{"os", "os/exec", "net", "net/http", "syscall"}, imported) {
				t.Errorf("%s imports %s", name, imported)
			}
		}
	}
}

// TestFilesThatExecute expects that only iptables' backends and the lookup by
// capture-cni-lookup execute programs.
func TestFilesThatExecute(t *testing.T) {
	executing := containing(t, "../../plugin", `"os/exec"`, "go-iptables")
	if want := []string{"iptables/programs.go", "iptables/removelegacy.go", "lookup/program.go"}; !slices.Equal(executing, want) {
		t.Errorf("programs are executed by %q, want %q", executing, want)
	}
}

// TestDecidersLinkNoKubernetesTypes expects all decisions to read capture.Pod.
func TestDecidersLinkNoKubernetesTypes(t *testing.T) {
	if importing := containing(t, "../../plugin/capture", `"k8s.io/`, `"sigs.k8s.io/`); len(importing) > 0 {
		t.Errorf("Kubernetes' types are imported by %q", importing)
	}
	for _, p := range listPackages(t) {
		if p.ImportPath != module+"/plugin/capture" {
			continue
		}
		if i := slices.IndexFunc(p.Deps, func(d string) bool { return strings.HasPrefix(d, "k8s.io/") || strings.HasPrefix(d, "sigs.k8s.io/") }); i >= 0 {
			t.Errorf("%s depends on %s", p.ImportPath, p.Deps[i])
		}
	}
}

// TestPluginIsSmall expects that capture-cni links no client of the API server, none of
// Kubernetes' types, no TLS, and no library for nf_tables: each pod start would pay for them.
func TestPluginIsSmall(t *testing.T) {
	tooLarge := []string{"k8s.io/", "github.com/google/nftables", "github.com/mdlayher/"}
	for _, p := range listPackages(t) {
		if p.ImportPath != module+"/plugin/capture-cni" {
			continue
		}
		for _, dependency := range p.Deps {
			isTooLarge := slices.ContainsFunc(tooLarge, func(prefix string) bool { return strings.HasPrefix(dependency, prefix) })
			if isTooLarge || dependency == "crypto/tls" || dependency == "net/http" {
				t.Errorf("%s depends on %s", p.ImportPath, dependency)
			}
		}
	}
}

// containing returns the product files below a directory that contain one of the texts.
func containing(t *testing.T, directory string, texts ...string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(directory, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(string(content), text) }) {
			name, _ := filepath.Rel(directory, path)
			found = append(found, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestTopLevel expects Go code in these top-level directories alone.
func TestTopLevel(t *testing.T) {
	for _, p := range listPackages(t) {
		top, _, _ := strings.Cut(strings.TrimPrefix(p.ImportPath, module+"/"), "/")
		if !slices.Contains([]string{"config", "plugin", "install", "deploy", "e2e"}, path.Clean(top)) {
			t.Errorf("%s: Go code in another top-level directory", p.ImportPath)
		}
	}
}
