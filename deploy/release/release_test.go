// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestRelease has a tiny program in the place of the product's.
func TestRelease(t *testing.T) {
	if got := slices.Sorted(maps.Keys(archives[0].programs())); !slices.Equal(got, []string{"capture-cni", "capture-cni-lookup", "capture-cni-node"}) {
		t.Errorf("a node's archive has %q", got)
	}
	tiny := []string{"./deploy/build/testdata/tiny"}
	expectRelease(t, archive{"capture-cni", "linux", "amd64", tiny, shells})
}

// TestBothArchitectures builds a release, except the programs for other systems than Linux,
// which would take longer still.
func TestBothArchitectures(t *testing.T) {
	lab.RequireTime(t)
	expectRelease(t, slices.DeleteFunc(slices.Clone(archives), func(a archive) bool {
		return a.system != "linux" || a.name != "capture-cni" && a.architecture != "amd64"
	})...)
}

// expectRelease builds a release twice: the same files, whose checksums are right.
func expectRelease(t *testing.T, archives ...archive) {
	t.Helper()
	t.Chdir("../..")
	var sums [2]string
	var directory string
	for i := range sums {
		directory = t.TempDir()
		lab.Check(t, os.WriteFile(filepath.Join(directory, "image.tar"), []byte("an image"), 0o644))
		lab.Check(t, release(t.Context(), directory, "1.2.3", archives))
		content, err := os.ReadFile(filepath.Join(directory, sumsFile))
		lab.Check(t, err)
		sums[i] = string(content)
	}
	if sums[0] != sums[1] {
		t.Errorf("two builds of the same sources differ:\n%s\n%s", sums[0], sums[1])
	}
	var names []string
	for line := range strings.Lines(sums[0]) {
		names = append(names, strings.Fields(line)[1])
	}
	want := []string{"capture-cni-1.2.3.cdx.json", "capture-cni-1.2.3.tgz", "capture-cni-1.2.3.values.schema.json", "capture-cni-1.2.3.yaml", "image.tar"}
	for _, a := range archives {
		want = append(want, a.name+"_1.2.3_linux_"+a.architecture+".tar.gz")
		expectArchive(t, filepath.Join(directory, want[len(want)-1]), a)
	}
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("the release has %q, want %q", names, want)
	}
	verify := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "--quiet", sumsFile)
	verify.Dir = directory
	if out, err := verify.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	expectSBOM(t, directory, archives)
}

// expectArchive expects the programs, and the licence of each module that they
// consist of.
func expectArchive(t *testing.T, path string, a archive) {
	t.Helper()
	files := unpack(t, path)
	want := []string{"licenses/go/LICENSE", "licenses/github.com/capture-cni/capture-cni/LICENSE"}
	for name := range a.programs() {
		info, err := buildinfo.Read(bytes.NewReader(files[name]))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, setting := range info.Settings {
			if setting.Key == "GOARCH" && setting.Value != a.architecture {
				t.Errorf("%s is built for %s, want %s", name, setting.Value, a.architecture)
			}
		}
		for _, module := range info.Deps {
			want = append(want, "licenses/"+module.Path+"/")
		}
	}
	for _, prefix := range want {
		found := false
		for name := range files {
			found = found || strings.HasPrefix(name, prefix)
		}
		if !found {
			t.Errorf("%s lacks %s", path, prefix)
		}
	}
}

// TestOracleChart renders the packed chart with Helm.
func TestOracleChart(t *testing.T) {
	helm, directory := lab.Part(t, "helm"), t.TempDir()
	t.Chdir("../..")
	lab.Check(t, writeChart(directory, "1.2.3"))
	render := func(chart string) string {
		out, err := exec.CommandContext(t.Context(), helm, "template", "capture-cni", chart, "--kube-version", "1.34.0").CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", chart, err, out)
		}
		return string(out)
	}
	if render(filepath.Join(directory, "capture-cni-1.2.3.tgz")) != render("deploy/chart") {
		t.Error("the packed chart renders other manifests than its directory")
	}
}

func unpack(t *testing.T, path string) map[string][]byte {
	t.Helper()
	file, err := os.Open(path)
	lab.Check(t, err)
	defer file.Close()
	compressed, err := gzip.NewReader(file)
	lab.Check(t, err)
	files := map[string][]byte{}
	for r := tar.NewReader(compressed); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		lab.Check(t, err)
		files[header.Name], err = io.ReadAll(r)
		lab.Check(t, err)
	}
}
