// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime/debug"
	"strconv"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// build returns the image of one platform: a layer with the programs, and the first
// of them as the entrypoint.
func build(ctx context.Context, platform *v1.Platform, programs []program) (v1.Image, error) {
	binaries, err := compileAll(ctx, platform, programs)
	if err != nil {
		return nil, err
	}
	content, err := pack(programs, binaries)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.Read(bytes.NewReader(binaries[0]))
	if err != nil {
		return nil, fmt.Errorf("reading the version of %s: %w", programs[0].path, err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("creating the layer: %w", err)
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.AppendLayers(image, layer)
	if err != nil {
		return nil, fmt.Errorf("adding the layer: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the image's configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant = platform.OS, platform.Architecture, platform.Variant
	config.Config.Entrypoint = []string{programs[0].path}
	config.Config.Labels = labels(info)
	return mutate.ConfigFile(image, config)
}

// labels returns those of https://specs.opencontainers.org/image-spec/annotations/
// that a program's build information has.
func labels(info *debug.BuildInfo) map[string]string {
	const prefix = "org.opencontainers.image."
	all := map[string]string{prefix + "version": info.Main.Version, prefix + "source": "https://" + info.Main.Path, prefix + "licenses": "Apache-2.0"}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			all[prefix+"revision"] = setting.Value
		}
	}
	return all
}

func compileAll(ctx context.Context, platform *v1.Platform, programs []program) ([][]byte, error) {
	binaries := make([][]byte, len(programs))
	for i, p := range programs {
		var err error
		if binaries[i], err = compile(ctx, platform, p.source); err != nil {
			return nil, err
		}
	}
	return binaries, nil
}

// pack returns a tar archive of the programs. It has no times and owners, so that
// the image is reproducible.
func pack(programs []program, binaries [][]byte) ([]byte, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	directories := map[string]bool{"/": true}
	for i, p := range programs {
		if err := addDirectories(w, directories, path.Dir(p.path)); err != nil {
			return nil, err
		}
		header := tar.Header{Name: p.path[1:], Mode: 0o755, Size: int64(len(binaries[i])), Format: tar.FormatPAX}
		if err := w.WriteHeader(&header); err != nil {
			return nil, fmt.Errorf("adding %s: %w", p.path, err)
		}
		if _, err := w.Write(binaries[i]); err != nil {
			return nil, fmt.Errorf("adding %s: %w", p.path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("closing the layer: %w", err)
	}
	return archive.Bytes(), nil
}

func addDirectories(w *tar.Writer, known map[string]bool, directory string) error {
	if known[directory] {
		return nil
	}
	known[directory] = true
	if err := addDirectories(w, known, path.Dir(directory)); err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: directory[1:] + "/", Mode: 0o755, Format: tar.FormatPAX}); err != nil {
		return fmt.Errorf("adding %s: %w", directory, err)
	}
	return nil
}

// compile builds a program reproducibly from its sources and their commit.
func compile(ctx context.Context, platform *v1.Platform, source string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return nil, fmt.Errorf("creating a temporary directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, "program")
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs="+strconv.FormatBool(inCheckout(ctx)), "-ldflags", "-s -w -buildid=", "-o", out, source)
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS="+platform.OS, "GOARCH="+platform.Architecture)
	command.Stderr = os.Stderr
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("building %s: %w", source, err)
	}
	return os.ReadFile(out)
}

// inCheckout reports whether the sources are in a git checkout with a commit. Go
// refuses -buildvcs=true anywhere else.
func inCheckout(ctx context.Context) bool {
	return exec.CommandContext(ctx, "git", "rev-parse", "--verify", "HEAD").Run() == nil
}
