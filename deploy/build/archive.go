// SPDX-License-Identifier: Apache-2.0

package build

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// File is a file of an archive.
type File struct {
	Name    string // with slashes, relative to the archive's root
	Mode    int64
	Content []byte
}

// Texts returns read-only files below a directory of an archive, sorted by name.
func Texts(directory string, texts map[string][]byte) []File {
	var files []File
	for name, text := range texts {
		files = append(files, File{Name: path.Join(directory, name), Mode: 0o644, Content: text})
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return files
}

// Tar writes a tar archive of files and their directories. It has neither times nor
// owners, so that it depends on the files alone.
func Tar(out io.Writer, files []File) error {
	w := tar.NewWriter(out)
	directories := map[string]bool{".": true}
	for _, file := range files {
		if err := addDirectories(w, directories, path.Dir(file.Name)); err != nil {
			return err
		}
		header := tar.Header{Name: file.Name, Mode: file.Mode, Size: int64(len(file.Content)), Format: tar.FormatPAX}
		if err := w.WriteHeader(&header); err != nil {
			return fmt.Errorf("adding %s: %w", file.Name, err)
		}
		if _, err := w.Write(file.Content); err != nil {
			return fmt.Errorf("adding %s: %w", file.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("closing the archive: %w", err)
	}
	return nil
}

func addDirectories(w *tar.Writer, known map[string]bool, directory string) error {
	if known[directory] {
		return nil
	}
	known[directory] = true
	if err := addDirectories(w, known, path.Dir(directory)); err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: directory + "/", Mode: 0o755, Format: tar.FormatPAX}); err != nil {
		return fmt.Errorf("adding %s: %w", directory, err)
	}
	return nil
}

// TarGzip returns a compressed tar archive.
func TarGzip(files []File) ([]byte, error) {
	var archive bytes.Buffer
	w := gzip.NewWriter(&archive)
	if err := Tar(w, files); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compressing the archive: %w", err)
	}
	return archive.Bytes(), nil
}

// Zip returns a zip archive, as users of Windows expect.
func Zip(files []File) ([]byte, error) {
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for _, file := range files {
		entry, err := w.CreateHeader(&zip.FileHeader{Name: file.Name, Method: zip.Deflate})
		if err != nil {
			return nil, fmt.Errorf("adding %s: %w", file.Name, err)
		}
		if _, err := entry.Write(file.Content); err != nil {
			return nil, fmt.Errorf("adding %s: %w", file.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("closing the archive: %w", err)
	}
	return archive.Bytes(), nil
}
