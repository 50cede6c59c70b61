// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
)

// file is a file of an archive.
type file struct {
	name    string
	content []byte
}

// Limits of an agent's archive, in bytes. maxFile is also the agent's own limit. maxArchive, the limit
// of the archive and of its unpacked content, is lower than the agent's own.
const (
	maxFile    = 1 << 20
	maxArchive = 8 << 20
)

// unpack returns the files of an agent's archive. If the archive is damaged or too large, it also
// returns an error.
func unpack(archive io.Reader) (files []file, err error) {
	zipped, err := gzip.NewReader(archive)
	if err != nil {
		return nil, fmt.Errorf("reading the agent's archive: %w", err)
	}
	total := 0
	for entries := tar.NewReader(zipped); ; {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return files, fmt.Errorf("reading the agent's archive: %w", err)
		}
		name, ours := strings.CutPrefix(header.Name, "capture-cni/")
		if !ours || header.Typeflag != tar.TypeReg || path.Clean("/"+name) != "/"+name || strconv.Quote(name) != `"`+name+`"` {
			return files, fmt.Errorf("reading the agent's archive: %.100q is not the name of a part", header.Name)
		}
		content, err := io.ReadAll(io.LimitReader(entries, maxFile))
		if err != nil {
			return files, fmt.Errorf("reading the agent's archive: %w", err)
		}
		if total += len(content); total > maxArchive {
			return files, fmt.Errorf("reading the agent's archive: it has more than %d bytes, and is cut", maxArchive)
		}
		files = append(files, file{name, content})
	}
}
