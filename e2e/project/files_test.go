// SPDX-License-Identifier: Apache-2.0

package project

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// directReads are the files that open a file by os, and why none of them can be a pipe, which
// would hold the agent or the guard: only the kernel, the kubelet or the person at the
// terminal writes there. All others read by install/host.
var directReads = map[string]string{
	"install/capture-cni-node/lease.go":          "the kubelet's token of this pod",
	"install/capture-cni-node/memory.go":         "cgroup files",
	"install/manifest/manifest.go":               "the manifest that was named, /dev/stdin, too",
	"install/capture-cni-node/report_process.go": "/proc/modules",
	"install/host/denial.go":                     "/proc/self/attr/current",
	"install/node/preflight.go":                  "/sys/fs/selinux/enforce",
	"install/host/read.go":                       "the one that others call",
}

// TestFilesAreOpenedByHost finds files of the agent that open other programs' files without
// checking what they are.
func TestFilesAreOpenedByHost(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	root := filepath.Join("..", "..")
	look := func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		for _, call := range []string{"os.ReadFile(", "os.Open(", "os.OpenFile(", "buildinfo.ReadFile(", "root.ReadFile(", "root.Open("} {
			if strings.Contains(strings.ReplaceAll(string(content), `root.Open(".")`, ""), call) {
				name, _ := filepath.Rel(root, path)
				found[name] = true
				if directReads[name] == "" {
					t.Errorf("%s calls %s): expected host.Open, host.ReadFile or host.OpenIn, which refuse pipes", name, call)
				}
			}
		}
		return err
	}
	for _, directory := range []string{"install", "plugin/record"} {
		if err := filepath.WalkDir(filepath.Join(root, directory), look); err != nil {
			t.Fatal(err)
		}
	}
	for name := range directReads {
		if !found[name] {
			t.Errorf("%s opens no file: it needs no exception", name)
		}
	}
}

// TestColumns holds the lines of the product at a length that an editor and a review show
// whole. A tab counts as one column.
func TestColumns(t *testing.T) {
	t.Parallel()
	const widest = 140
	lines := 0
	for _, area := range []string{"config", "plugin", "install", "deploy"} {
		walk(t, area, func(path string) {
			if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return
			}
			content, err := os.ReadFile(path)
			if err != nil {
				t.Error(err)
			}
			number := 0
			for line := range strings.Lines(string(content)) {
				number++
				lines++
				if columns := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); columns > widest {
					t.Errorf("%s:%d has %d columns: expected at most %d", path, number, columns, widest)
				}
			}
		})
	}
	if lines == 0 {
		t.Error("no line was read")
	}
}
