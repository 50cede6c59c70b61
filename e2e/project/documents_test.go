// SPDX-License-Identifier: Apache-2.0

package project

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/install/node"
	"github.com/capture-cni/capture-cni/install/pods"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

var update = flag.Bool("update", false, "rewrite the tables of the documents from the code")

const root = "../.."

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestTables compares the tables of the reference with the code, and with what make bench
// measured.
func TestTables(t *testing.T) {
	measured := readResults(t)
	for _, tt := range []struct{ document, name, table string }{
		{"annotations.md", "annotations", annotationTable(config.Istio)},
		{"sidecars.md", "linkerd", annotationTable(config.Linkerd)},
		{"sidecars.md", "consul", annotationTable(config.Consul)},
		{"sidecars.md", "kuma", annotationTable(config.Kuma)},
		{"sidecars.md", "own", annotationTable(config.OwnKeys)},
		{"configuration.md", "netconf", keyTable()},
		{"metrics.md", "metrics", metricTable()},
		{"findings.md", "findings", findingTable()},
		{"numbers.md", "machine", measured.Machine},
		{"numbers.md", "instead", resultTable(t, measured, "", "INSTEAD OF", "p50 ms", "CPU ms", "PEAK MiB", "PROGRAMS", "REQUESTS", "x FIRST")},
		{"numbers.md", "asked", resultTable(t, measured, "", "3 AGENTS", "REQUESTS", "SENT KiB", "RECEIVED KiB")},
		{"numbers.md", "herd", resultTable(t, measured, "", "OUTAGE", "REQUESTS A SECOND MEANWHILE", "GREATEST SECOND AFTER IT", "ALL WATCH AGAIN AFTER s")},
		{"numbers.md", "agent", resultTable(t, measured, "", "AGENT", "MEASURED")},
		{"numbers.md", "lists", resultTable(t, measured, "iptables|excludeOutboundPorts", "LENGTH", "ADD p50 ms", "x NONE", "CONNECT, CAPTURED us")},
	} {
		path := "deploy/reference/" + tt.document
		begin, end := "<!-- "+tt.name+" -->\n", "<!-- /"+tt.name+" -->"
		before, rest, found := strings.Cut(read(t, path), begin)
		got, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			t.Fatalf("%s has no table %s", path, tt.name)
		}
		if got == tt.table {
			continue
		}
		if !*update {
			t.Errorf("the table %s of %s differs from the code: run make golden", tt.name, path)
			continue
		}
		if err := os.WriteFile(filepath.Join(root, path), []byte(before+begin+tt.table+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// findingTable lists the codes of all findings.
func findingTable() string {
	var table strings.Builder
	table.WriteString("|code|meaning|cause|next step|\n|---|---|---|---|\n")
	for _, code := range report.Codes() {
		next := strings.ToUpper(code.Advice[:1]) + code.Advice[1:] + "."
		fmt.Fprintf(&table, "|`%s`|%s|%s|%s|\n", code.Code, code.Means, code.Cause, next)
	}
	return table.String()
}

// TestReadmeIsShort expects a document that is read in ten minutes. Samples of output are
// looked at, not read.
func TestReadmeIsShort(t *testing.T) {
	prose := regexp.MustCompile("(?s)```text.*?```").ReplaceAllString(read(t, "README.md"), "")
	if lines := strings.Count(prose, "\n"); lines > 100 {
		t.Errorf("README.md has %d lines, more than 100: details belong in deploy/reference", lines)
	}
}

func annotationTable(mesh config.MeshName) string {
	table := "| annotation | form | if absent | meaning |\n|---|---|---|---|\n"
	for _, a := range capture.Annotations(mesh) {
		table += fmt.Sprintf("| `%s` | %s | %s | %s |\n", a.Key, a.Form, a.Default, a.Meaning)
	}
	return table
}

func metricTable() string {
	table := "| metric | meaning |\n|---|---|\n"
	for _, m := range slices.Concat(node.KeeperMetrics(), kube.Metrics(), pods.Metrics(), telemetry.Metrics(), guard.Metrics(), kube.EvictorMetrics()) {
		table += fmt.Sprintf("| `%s` | %s |\n", m.Name, m.Help)
	}
	return table
}

func keyTable() string {
	return "| key | type | default | meaning |\n|---|---|---|---|\n" + keyRows("", config.Keys(new(config.NetConf)))
}

func keyRows(prefix string, keys []config.Key) string {
	var rows string
	for _, key := range keys {
		if key.Keys != nil {
			rows += keyRows(prefix+key.Name+".", key.Keys)
			continue
		}
		rows += fmt.Sprintf("| `%s` | %s | `%s` | %s |\n", prefix+key.Name, key.Type, key.Default, key.Meaning)
	}
	return rows
}

// TestMakeTargets expects every make target that a document names in the Makefile.
func TestMakeTargets(t *testing.T) {
	var targets []string
	for _, match := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets = append(targets, match[1])
	}
	for _, document := range []string{"README.md", "CONTRIBUTING.md", "DECISIONS.md", "e2e/README.md"} {
		for _, match := range regexp.MustCompile("make ([a-z][a-z-]*)").FindAllStringSubmatch(codeOf(read(t, document)), -1) {
			if !slices.Contains(targets, match[1]) {
				t.Errorf("%s names %q, which is not in the Makefile", document, match[0])
			}
		}
	}
}

// codeOf returns the code spans and blocks: prose may say "make sure".
func codeOf(markdown string) string {
	spans := regexp.MustCompile("(?s)```.*?```|`[^`\n]+`").FindAllString(markdown, -1)
	return strings.Join(spans, "\n")
}

// TestDependenciesHaveReasons expects a comment with its purpose at each direct dependency in go.mod.
func TestDependenciesHaveReasons(t *testing.T) {
	t.Parallel()
	direct, _, _ := strings.Cut(read(t, "go.mod"), "\n)")
	for _, match := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(direct, -1) {
		t.Errorf("go.mod names no purpose of %s", match[1])
	}
}

// TestNamedFilesExist expects each Go file that CONTRIBUTING.md names with its directory, in
// full or below plugin or install.
func TestNamedFilesExist(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile("`([a-z0-9_-]+(?:/[a-z0-9_-]+)*/[a-z0-9_]+\\.go)`").FindAllStringSubmatch(read(t, "CONTRIBUTING.md"), -1)
	if len(named) < 10 {
		t.Errorf("it names %d files", len(named))
	}
	for _, file := range named {
		if !slices.ContainsFunc([]string{"", "plugin", "install"}, func(below string) bool {
			_, err := os.Stat(filepath.Join(root, below, file[1]))
			return err == nil
		}) {
			t.Errorf("%s does not exist", file[1])
		}
	}
}

// commented are the kinds of files with an SPDX line, plain those without. The
// repository has no other kinds.
var (
	commented = []string{".go", ".yaml", ".tpl", ".sh", ".svg", "Makefile", "Dockerfile", "run", "kubectl_complete-capture_cni"}
	plain     = []string{".md", ".json", ".txt", ".mod", ".sum", ".errcheck", ".gitignore", "LICENSE"}
)

// TestLicence expects an SPDX line at the head of every file that can have one.
func TestLicence(t *testing.T) {
	skipped := []string{".git", ".idea", ".vscode", "bin", "dist", "testdata"}
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains(skipped, entry.Name()):
			return filepath.SkipDir
		case entry.IsDir():
			return nil
		}
		kind := filepath.Ext(path)
		if kind == "" {
			kind = entry.Name()
		}
		if slices.Contains(plain, kind) {
			return nil
		}
		if !slices.Contains(commented, kind) {
			t.Errorf("%s is of an unknown kind", path)
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if head := content[:min(len(content), 200)]; !strings.Contains(string(head), "SPDX-License-Identifier: Apache-2.0") {
			t.Errorf("%s does not begin with the SPDX line", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
