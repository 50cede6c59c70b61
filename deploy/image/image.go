// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/deploy/build"
)

// image returns the image for one platform. Its layer contains the programs, and the licences of all
// code in them. The image's entrypoint is the first program.
func image(ctx context.Context, version string, platform *v1.Platform, programs []program) (v1.Image, error) {
	sources := map[string]string{}
	for _, p := range programs {
		sources[p.path[1:]] = p.source
	}
	files, err := build.Programs(ctx, version, platform.OS, platform.Architecture, sources)
	if err != nil {
		return nil, err
	}
	content, err := files.Tar()
	if err != nil {
		return nil, err
	}
	entrypoint := programs[0].path
	info, err := buildinfo.Read(bytes.NewReader(files[entrypoint[1:]].Content))
	if err != nil {
		return nil, fmt.Errorf("reading the version of %s: %w", entrypoint, err)
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
	config.Config.Entrypoint = []string{entrypoint}
	config.Config.Labels = labels(info)
	return mutate.ConfigFile(image, config)
}

// labels returns the labels of the OCI image specification: the licence, and values from a program's
// build information. https://specs.opencontainers.org/image-spec/annotations/
func labels(info *debug.BuildInfo) map[string]string {
	const prefix = "org.opencontainers.image."
	version, _, _ := strings.Cut(config.Version(info), " (") // the commit has its own label
	all := map[string]string{prefix + "version": version, prefix + "source": "https://" + info.Main.Path, prefix + "licenses": "Apache-2.0"}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			all[prefix+"revision"] = setting.Value
		}
	}
	return all
}
