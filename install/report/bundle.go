// SPDX-License-Identifier: Apache-2.0

package report

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

// BundlePart is a file of a bundle.
type BundlePart struct {
	Name  string // path in the archive
	Write func(context.Context, io.Writer) error
}

// These limits keep a bundle small enough to send, and keep one part from blocking the others.
const (
	maxPart     = 1 << 20
	maxParts    = 1024
	maxTotal    = 32 << 20
	maxFault    = 1 << 10
	partTimeout = 20 * time.Second
)

const faultsName = "missing.txt"

// WriteBundle writes a gzipped tar archive. If a part fails or is cut, WriteBundle lists the part in
// missing.txt, and returns no error.
func WriteBundle(ctx context.Context, out io.Writer, now time.Time, parts []BundlePart) error {
	zipped := gzip.NewWriter(out)
	archive := tar.NewWriter(zipped)
	var faults bytes.Buffer
	total := 0
	for i, part := range parts {
		if i == maxParts || total >= maxTotal {
			fmt.Fprintf(&faults, "%d parts are left out: a bundle ends after %d parts or %d bytes\n", len(parts)-i, maxParts, maxTotal)
			break
		}
		content, err := collect(ctx, part)
		if err != nil {
			fmt.Fprintf(&faults, "%s: %s\n", Plain(part.Name), oneLine(err))
		}
		if len(content) == 0 || !isValidName(part.Name) {
			continue
		}
		if err := add(archive, part.Name, now, content); err != nil {
			return err
		}
		total += len(content)
	}
	if err := add(archive, faultsName, now, faults.Bytes()); err != nil {
		return err
	}
	if err := errors.Join(archive.Close(), zipped.Close()); err != nil {
		return fmt.Errorf("writing a bundle: %w", err)
	}
	return nil
}

func collect(ctx context.Context, part BundlePart) ([]byte, error) {
	if !isValidName(part.Name) {
		return nil, errors.New("the name is not a path in an archive")
	}
	ctx, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	var content limitedBuffer
	err := part.Write(ctx, &content)
	return content.bytes, err
}

// isValidName reports whether an archive may contain a file of this name. The names of some parts
// contain pods' names, which the runtime does not validate.
func isValidName(name string) bool {
	return Plain(name) == name && name == path.Clean(name) && !path.IsAbs(name) && !strings.HasPrefix(name, "..")
}

func oneLine(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if len(text) > maxFault {
		return fmt.Sprintf("%s… (cut after %d bytes)", strings.ToValidUTF8(text[:maxFault], ""), maxFault)
	}
	return text
}

type limitedBuffer struct{ bytes []byte }

// Write implements io.Writer.
func (l *limitedBuffer) Write(p []byte) (int, error) {
	n := min(len(p), maxPart-len(l.bytes))
	l.bytes = append(l.bytes, p[:n]...)
	if n < len(p) {
		return n, fmt.Errorf("cut after %d bytes", maxPart)
	}
	return n, nil
}

func add(archive *tar.Writer, name string, now time.Time, content []byte) error {
	err := archive.WriteHeader(&tar.Header{Name: "capture-cni/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: now})
	if err == nil {
		_, err = archive.Write(content)
	}
	if err != nil {
		return fmt.Errorf("writing a bundle: %w", err)
	}
	return nil
}

const (
	maxPlain        = 256
	plainCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+~:/@*()[], "
)

// Plain returns a name, a version, a path or a number unchanged. It returns a placeholder for any other
// text, because the text's author may have written a secret into the field.
func Plain(text string) string {
	if len(text) > maxPlain || strings.Trim(text, plainCharacters) != "" {
		return "(not of the expected form, not shown)"
	}
	return text
}
