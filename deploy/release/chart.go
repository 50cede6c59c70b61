// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/capture-cni/capture-cni/deploy/build"
)

// chart packs a chart's directory. Helm's own package command writes the current
// time into it.
func chart(directory string) ([]byte, error) {
	tree := os.DirFS(directory)
	var files []build.File
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(tree, name)
		files = append(files, build.File{Name: path.Join("capture-cni", name), Mode: 0o644, Content: content})
		return err
	})
	if err != nil {
		return nil, err
	}
	return build.TarGzip(files)
}

// sumsFile has the form that `sha256sum --check` reads.
const sumsFile = "SHA256SUMS"

// checksums returns those of all files in a directory.
func checksums(directory string) ([]byte, error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, err
	}
	var sums strings.Builder
	for _, entry := range entries {
		if entry.Name() == sumsFile {
			continue
		}
		content, err := os.ReadFile(filepath.Join(directory, entry.Name()))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), entry.Name())
	}
	return []byte(sums.String()), nil
}
