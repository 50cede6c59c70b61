// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"io"
	"runtime/debug"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/capture-cni/capture-cni/deploy/build"
)

// licences is the directory of the licence texts in the image.
const licences = "licenses" // as container tools expect it

// image returns that of one platform: a layer with the programs and the licences of
// all that they consist of, and the first of them as the entrypoint.
func image(ctx context.Context, platform *v1.Platform, programs []program) (v1.Image, error) {
	binaries, err := compile(ctx, platform, programs)
	if err != nil {
		return nil, err
	}
	content, err := layer(ctx, programs, binaries)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.Read(bytes.NewReader(binaries[0]))
	if err != nil {
		return nil, fmt.Errorf("reading the version of %s: %w", programs[0].path, err)
	}
	compressed, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("creating the layer: %w", err)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(base, compressed)
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

func compile(ctx context.Context, platform *v1.Platform, programs []program) ([][]byte, error) {
	binaries := make([][]byte, len(programs))
	for i, p := range programs {
		var err error
		if binaries[i], err = build.Program(ctx, platform.OS, platform.Architecture, p.source); err != nil {
			return nil, err
		}
	}
	return binaries, nil
}

// layer returns the tar archive of an image's files.
func layer(ctx context.Context, programs []program, binaries [][]byte) ([]byte, error) {
	var files []build.File
	for i, p := range programs {
		files = append(files, build.File{Name: p.path[1:], Mode: 0o755, Content: binaries[i]})
	}
	texts, err := build.Licences(ctx, binaries...)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	err = build.Tar(&archive, append(files, build.Texts(licences, texts)...))
	return archive.Bytes(), err
}
