// SPDX-License-Identifier: Apache-2.0

// Package bundle packs what is known of a node into one archive, for whoever
// has to find out from afar what is wrong there. Secrets stay on the node.
package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"time"
)

// Part is a file of a bundle.
type Part struct {
	Name  string // with its folder
	Write func(context.Context, io.Writer) error
}

// Limits: a bundle can be sent, and one part that hangs does not keep the rest.
const (
	maxPart     = 8 << 20
	partTimeout = 20 * time.Second
)

// faultsName is the file that says what is missing.
const faultsName = "missing.txt"

// Write writes a gzipped tar archive, in which every part's secrets are
// scrubbed. A part that can't be had, or is had in part, is named in
// missing.txt; it is no error.
func Write(ctx context.Context, out io.Writer, now time.Time, parts []Part) error {
	zipped := gzip.NewWriter(out)
	archive := tar.NewWriter(zipped)
	var faults bytes.Buffer
	for _, part := range parts {
		content, err := collect(ctx, part)
		if err != nil {
			fmt.Fprintf(&faults, "%s: %s\n", part.Name, Scrub([]byte(err.Error())))
		}
		if len(content) == 0 {
			continue
		}
		if err := add(archive, part.Name, now, content); err != nil {
			return err
		}
	}
	if err := add(archive, faultsName, now, faults.Bytes()); err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("writing a bundle: %w", err)
	}
	if err := zipped.Close(); err != nil {
		return fmt.Errorf("writing a bundle: %w", err)
	}
	return nil
}

func collect(ctx context.Context, part Part) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	var content limited
	err := part.Write(ctx, &content)
	return Scrub(content.taken), err
}

// limited takes no more than a part may be.
type limited struct{ taken []byte }

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), maxPart-len(l.taken))
	l.taken = append(l.taken, p[:n]...)
	if n < len(p) {
		return n, fmt.Errorf("cut after %d bytes", maxPart)
	}
	return n, nil
}

func add(archive *tar.Writer, name string, now time.Time, content []byte) error {
	head := &tar.Header{Name: "capture-cni/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: now}
	err := archive.WriteHeader(head)
	if err == nil {
		_, err = archive.Write(content)
	}
	if err != nil {
		return fmt.Errorf("writing a bundle: %w", err)
	}
	return nil
}
