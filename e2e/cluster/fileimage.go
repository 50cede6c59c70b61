// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// fileImage is an image of files of this host.
type fileImage struct {
	user       string
	entrypoint string
	command    []string          // its arguments, unless a pod has others
	root       string            // a directory that the image begins with, if any
	files      map[string]string // path in the image to path on the host
}

// write writes the image to a tarball that runtimes import, under names.
func (i fileImage) write(out string, names []string) error {
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
	file.Config.Entrypoint, file.Config.Cmd = []string{i.entrypoint}, i.command
	file.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	if image, err = mutate.ConfigFile(image, file); err != nil {
		return err
	}
	tags := map[name.Tag]v1.Image{}
	for _, text := range names {
		tag, err := name.NewTag(text)
		if err != nil {
			return err
		}
		tags[tag] = image
	}
	return tarball.MultiWriteToFile(out, tags)
}

// archive returns a tar archive of the root and the files, with the directories above them and a
// writable /tmp.
func (i fileImage) archive() ([]byte, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	known := map[string]bool{"/": true}
	if i.root != "" {
		root := os.DirFS(i.root)
		if err := w.AddFS(root); err != nil {
			return nil, fmt.Errorf("adding %s: %w", i.root, err)
		}
		if err := fs.WalkDir(root, ".", func(name string, _ fs.DirEntry, err error) error {
			known["/"+name] = true
			return err
		}); err != nil {
			return nil, err
		}
	}
	add := func(header tar.Header, content []byte) error {
		if err := w.WriteHeader(&header); err != nil {
			return fmt.Errorf("adding %s: %w", header.Name, err)
		}
		_, err := w.Write(content)
		return err
	}
	if !known["/tmp"] {
		if err := add(tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}, nil); err != nil {
			return nil, err
		}
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
