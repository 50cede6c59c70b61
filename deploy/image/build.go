// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// build makes the image of one platform: a layer with the programs, and what
// starts the first of them.
func build(ctx context.Context, platform *v1.Platform, programs []program) (v1.Image, error) {
	content, err := pack(ctx, platform, programs)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("making the layer: %w", err)
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
	return mutate.ConfigFile(image, config)
}

// pack builds the programs and makes a tar archive of them, without times and
// owners, so that it is the same every time.
func pack(ctx context.Context, platform *v1.Platform, programs []program) ([]byte, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	folders := map[string]bool{"/": true}
	for _, p := range programs {
		if err := addFolders(w, folders, path.Dir(p.path)); err != nil {
			return nil, err
		}
		binary, err := compile(ctx, platform, p.source)
		if err != nil {
			return nil, err
		}
		header := tar.Header{Name: p.path[1:], Mode: 0o755, Size: int64(len(binary)), Format: tar.FormatPAX}
		if err := w.WriteHeader(&header); err != nil {
			return nil, fmt.Errorf("adding %s: %w", p.path, err)
		}
		if _, err := w.Write(binary); err != nil {
			return nil, fmt.Errorf("adding %s: %w", p.path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("closing the layer: %w", err)
	}
	return archive.Bytes(), nil
}

func addFolders(w *tar.Writer, known map[string]bool, folder string) error {
	if known[folder] {
		return nil
	}
	known[folder] = true
	if err := addFolders(w, known, path.Dir(folder)); err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder[1:] + "/", Mode: 0o755, Format: tar.FormatPAX}); err != nil {
		return fmt.Errorf("adding %s: %w", folder, err)
	}
	return nil
}

// compile builds a program so that only its sources decide what comes out.
func compile(ctx context.Context, platform *v1.Platform, source string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return nil, fmt.Errorf("making a temporary folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, "program")
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=", "-o", out, source)
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS="+platform.OS, "GOARCH="+platform.Architecture)
	command.Stderr = os.Stderr
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("building %s: %w", source, err)
	}
	return os.ReadFile(out)
}
