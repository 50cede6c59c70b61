// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// fileImage is an image of files of this host.
type fileImage struct {
	user       string
	entrypoint string
	files      map[string]string // path in the image to path on the host
}

// istioImages returns the images of Istio's charts, by name, with programs and files at
// the paths of Istio's own images. Envoy is a stand-in.
func (c *Cluster) istioImages(ctx context.Context, sources string) (map[string]fileImage, error) {
	program := func(name string) string { return filepath.Join(c.Parts, "istio", name) }
	const bin = "/usr/local/bin/"
	installer, err := iptables(ctx) // which its repair of pods needs
	if err != nil {
		return nil, err
	}
	installer[bin+"install-cni"], installer["/opt/cni/bin/istio-cni"] = program("install-cni"), program("istio-cni")
	return map[string]fileImage{
		"pilot": {user: "1337:1337", entrypoint: bin + "pilot-discovery", files: map[string]string{
			bin + "pilot-discovery": program("pilot-discovery"),
		}},
		"proxyv2": {entrypoint: bin + "pilot-agent", files: map[string]string{
			bin + "pilot-agent": program("pilot-agent"),
			bin + "envoy":       c.path("bin", "apps"),
			"/var/lib/istio/envoy/envoy_bootstrap_tmpl.json": filepath.Join(sources, "tools", "packaging", "common", "envoy_bootstrap.json"),
		}},
		"install-cni": {entrypoint: bin + "install-cni", files: installer},
	}, nil
}

// write writes the image to a tarball that runtimes import.
func (i fileImage) write(out, tag string) error {
	archive, err := i.archive()
	if err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil }, tarball.WithCompression(compression.None))
	if err != nil {
		return fmt.Errorf("creating the layer: %w", err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return fmt.Errorf("adding the layer: %w", err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		return err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = runtime.GOOS, runtime.GOARCH
	file.Config.User, file.Config.WorkingDir = i.user, "/"
	file.Config.Entrypoint = []string{i.entrypoint}
	file.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	if image, err = mutate.ConfigFile(image, file); err != nil {
		return err
	}
	reference, err := name.NewTag(tag)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(out, reference, image)
}

// archive returns a tar archive of the files, with the directories above them and a
// writable /tmp.
func (i fileImage) archive() ([]byte, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	known := map[string]bool{"/": true}
	add := func(header tar.Header, content []byte) error {
		if err := w.WriteHeader(&header); err != nil {
			return fmt.Errorf("adding %s: %w", header.Name, err)
		}
		_, err := w.Write(content)
		return err
	}
	if err := add(tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}, nil); err != nil {
		return nil, err
	}
	for to, from := range i.files {
		for directory := path.Dir(to); !known[directory]; directory = path.Dir(directory) {
			known[directory] = true
			if err := add(tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(directory, "/") + "/", Mode: 0o755}, nil); err != nil {
				return nil, err
			}
		}
		content, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		if err := add(tar.Header{Name: strings.TrimPrefix(to, "/"), Mode: 0o755, Size: int64(len(content))}, content); err != nil {
			return nil, err
		}
	}
	return archive.Bytes(), w.Close()
}
