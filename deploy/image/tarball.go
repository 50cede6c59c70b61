// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/capture-cni/capture-cni/deploy/build"
)

// Annotations that contain the name under which a runtime imports the image: containerd's own
// annotation, and that of OCI for other runtimes.
const (
	annotationContainerd = "io.containerd.image.name"
	annotationOCI        = "org.opencontainers.image.ref.name"
)

// writeTarball writes an index as an OCI layout in one tar file.
func writeTarball(out, name string, index v1.ImageIndex) error {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return fmt.Errorf("creating a temporary directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	named := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add:        index,
		Descriptor: v1.Descriptor{Annotations: map[string]string{annotationContainerd: name, annotationOCI: name}},
	})
	if _, err := layout.Write(dir, named); err != nil {
		return fmt.Errorf("writing the OCI layout: %w", err)
	}
	files, err := build.Directory(dir, "")
	if err != nil {
		return err
	}
	content, err := files.Tar()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(out), ".image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }() // after the rename, there is no such file
	_, err = file.Write(content)
	if err := errors.Join(err, file.Chmod(0o644), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), out)
}
