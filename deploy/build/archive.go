// SPDX-License-Identifier: Apache-2.0

package build

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
)

// Files maps paths in an archive to files.
type Files map[string]File

// File is a file of an archive.
type File struct {
	Mode    int64
	Content []byte
}

// Directory returns the files of a directory, with their paths in an archive below another directory.
func Directory(directory, below string) (Files, error) {
	files := Files{}
	tree := os.DirFS(directory)
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(tree, name)
		files[path.Join(below, name)] = File{0o644, content}
		return err
	})
	return files, err
}

// add writes the files to an archive, sorted by name. begin begins a file in the archive, and returns
// the writer for its content.
func (f Files) add(begin func(name string, file File) (io.Writer, error)) error {
	for _, name := range slices.Sorted(maps.Keys(f)) {
		w, err := begin(name, f[name])
		if err == nil {
			_, err = w.Write(f[name].Content)
		}
		if err != nil {
			return fmt.Errorf("adding %s: %w", name, err)
		}
	}
	return nil
}

// withDirectories returns the files, and entries for their directories, whose names end with a slash.
// Without such entries, the program that extracts the archive chooses the directories' modes.
func (f Files) withDirectories() Files {
	all := maps.Clone(f)
	for name := range f {
		for parent := path.Dir(name); parent != "."; parent = path.Dir(parent) {
			all[parent+"/"] = File{Mode: 0o755}
		}
	}
	return all
}

// Tar returns a tar archive without times and owners, so that it depends only on the files.
func (f Files) Tar() ([]byte, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err := f.withDirectories().add(func(name string, file File) (io.Writer, error) {
		return w, w.WriteHeader(&tar.Header{Name: name, Mode: file.Mode, Size: int64(len(file.Content)), Format: tar.FormatPAX})
	})
	if err == nil {
		err = w.Close()
	}
	return archive.Bytes(), err
}

// TarGzip returns a compressed tar archive.
func (f Files) TarGzip() ([]byte, error) {
	content, err := f.Tar()
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	w := gzip.NewWriter(&archive)
	_, err = w.Write(content)
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("compressing the archive: %w", err)
	}
	return archive.Bytes(), nil
}

// Zip returns a zip archive, which users of Windows expect.
func (f Files) Zip() ([]byte, error) {
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	err := f.add(func(name string, _ File) (io.Writer, error) { return w.Create(name) })
	if err == nil {
		err = w.Close()
	}
	return archive.Bytes(), err
}
