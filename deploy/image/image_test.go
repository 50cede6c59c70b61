// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/deploy/build"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

const (
	module  = "github.com/capture-cni/capture-cni/"
	name    = "registry.test/capture-cni:1"
	version = "1.2.3"
	limit   = 40 << 20 // bytes, both platforms
)

// TestImage has tiny programs in the places of the product's.
func TestImage(t *testing.T) {
	const tiny = module + "deploy/build/testdata/tiny"
	expectImage(t, "sigs.k8s.io/yaml", []string{"linux/amd64"}, tiny, tiny, tiny)
}

// TestBothArchitectures builds the image of `make image`, which takes minutes.
func TestBothArchitectures(t *testing.T) {
	lab.RequireTime(t)
	expectImage(t, "k8s.io/client-go", []string{"linux/amd64", "linux/arm64"}, module+"install/capture-cni-node", module+"plugin/capture-cni", module+"plugin/capture-cni-lookup")
}

// expectImage builds an image twice, which has the licence of a module.
func expectImage(t *testing.T, licensed string, platforms []string, agent, plugin, lookup string) {
	t.Helper()
	programs, err := parse([]string{"/capture-cni-node=" + agent, "/opt/capture-cni/capture-cni=" + plugin, "/opt/capture-cni/capture-cni-lookup=" + lookup})
	lab.Check(t, err)
	dir := t.TempDir()
	var tarballs [2][]byte
	for i := range tarballs {
		out := filepath.Join(dir, "image.tar")
		lab.Check(t, write(t.Context(), out, name, version, platforms, programs))
		tarballs[i], err = os.ReadFile(out)
		lab.Check(t, err)
	}
	if !bytes.Equal(tarballs[0], tarballs[1]) {
		t.Error("two builds of the same sources differ")
	}
	if size := len(tarballs[0]); size > limit {
		t.Errorf("the tarball has %d bytes, more than %d", size, limit)
	}
	index := unpack(t, tarballs[0])
	manifest, err := index.IndexManifest()
	lab.Check(t, err)
	if got := manifest.Manifests[0].Annotations; got[annotationContainerd] != name || got[annotationOCI] != name {
		t.Errorf("the image's name is %v, want %s", got, name)
	}
	images, err := index.ImageIndex(manifest.Manifests[0].Digest)
	lab.Check(t, err)
	expectPlatforms(t, images, platforms, licensed)
}

// unpack reads a tarball as a registry's client does.
func unpack(t *testing.T, tarball []byte) v1.ImageIndex {
	t.Helper()
	dir := t.TempDir()
	for r := tar.NewReader(bytes.NewReader(tarball)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		lab.Check(t, err)
		if header.Typeflag == tar.TypeDir {
			continue
		}
		path := filepath.Join(dir, header.Name)
		lab.Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
		content, err := io.ReadAll(r)
		lab.Check(t, err)
		lab.Check(t, os.WriteFile(path, content, 0o644))
	}
	index, err := layout.ImageIndexFromPath(dir)
	lab.Check(t, err)
	return index
}

func expectPlatforms(t *testing.T, index v1.ImageIndex, platforms []string, module string) {
	t.Helper()
	manifest, err := index.IndexManifest()
	lab.Check(t, err)
	var built []string
	for _, found := range manifest.Manifests {
		image, err := index.Image(found.Digest)
		lab.Check(t, err)
		file, err := image.ConfigFile()
		lab.Check(t, err)
		built = append(built, found.Platform.String())
		expectVersion(t, file.Config.Labels, image)
		if file.Platform().String() != found.Platform.String() || !slices.Equal(file.Config.Entrypoint, []string{"/capture-cni-node"}) {
			t.Errorf("%s: configuration %+v", found.Platform, file)
		}
		licensed := map[string]bool{}
		want := map[string]int64{"opt": 0o755, "opt/capture-cni": 0o755, "capture-cni-node": 0o755, "opt/capture-cni/capture-cni": 0o755, "opt/capture-cni/capture-cni-lookup": 0o755}
		for r := tar.NewReader(mutate.Extract(image)); ; {
			header, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			lab.Check(t, err)
			header.Name = path.Clean(header.Name)
			if header.Name == build.Licenses || strings.HasPrefix(header.Name, build.Licenses+"/") {
				licensed[strings.TrimPrefix(header.Name, build.Licenses+"/")] = true
				continue
			}
			if mode, ok := want[header.Name]; !ok || mode != header.Mode || header.Uid != 0 {
				t.Errorf("%s: %s is in the image, mode %o, uid %d", found.Platform, header.Name, header.Mode, header.Uid)
			}
			delete(want, header.Name)
		}
		if len(want) > 0 {
			t.Errorf("%s: missing in the image: %v", found.Platform, want)
		}
		for _, module := range []string{"github.com/capture-cni/capture-cni", "go", module} {
			if !licensed[module+"/LICENSE"] {
				t.Errorf("%s: no licence of %s among %v", found.Platform, module, licensed)
			}
		}
	}
	if !slices.Equal(built, platforms) {
		t.Errorf("built for %q", built)
	}
}

// expectVersion wants git's commit in the labels and in all programs, or the given version.
func expectVersion(t *testing.T, labels map[string]string, image v1.Image) {
	t.Helper()
	commit := stampedCommit(t)
	if labels["org.opencontainers.image.revision"] != commit {
		t.Errorf("commit %q, labels %v", commit, labels)
	}
	for r := tar.NewReader(mutate.Extract(image)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		lab.Check(t, err)
		if header.Typeflag == tar.TypeDir || strings.HasPrefix(header.Name, build.Licenses+"/") {
			continue
		}
		content, err := io.ReadAll(r)
		lab.Check(t, err)
		info, err := buildinfo.Read(bytes.NewReader(content))
		lab.Check(t, err)
		stamped := "v" + version
		if commit != "" {
			stamped = commit[:12]
		}
		if own := config.Version(info); !strings.Contains(own, stamped) || labels["org.opencontainers.image.version"] != strings.Fields(own)[0] {
			t.Errorf("%s is of version %s and of commit %s, labels %v", header.Name, own, commit, labels)
		}
	}
}

// stampedCommit returns the commit that Go stamps, "" for sources that are no git
// checkout. In a worktree .git is a file, which Go takes for none.
func stampedCommit(t *testing.T) string {
	t.Helper()
	if info, err := os.Stat("../../.git"); err != nil || !info.IsDir() {
		return ""
	}
	revision, _ := exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD").Output() // nothing where git refuses the directory
	return strings.TrimSpace(string(revision))
}

func TestParse(t *testing.T) {
	for _, args := range [][]string{nil, {"capture-cni"}, {"capture-cni=./plugin/capture-cni"}} {
		if programs, err := parse(args); err == nil {
			t.Errorf("%q: got %v", args, programs)
		}
	}
}
