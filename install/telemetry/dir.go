// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// key returns the key in the name of a record's file, which is the text between the first dash and the
// suffix, and whether the file is completely written.
func key(f record.File) (key string, ok bool) {
	_, rest, _ := strings.Cut(f.Name, "-") // empty without a dash
	return strings.CutSuffix(rest, record.Finished)
}

func readFile(d *record.Dir, f record.File) (record.Record, error) {
	document, err := document(d, f)
	if err != nil {
		return record.Record{}, err
	}
	return ParseRecord(document)
}

// document reads a record's file, up to one byte more than the largest record has.
func document(d *record.Dir, f record.File) ([]byte, error) {
	file, err := host.OpenIn(d.Root, f.Name)
	if err != nil {
		return nil, fmt.Errorf("reading a record: %w", err)
	}
	document, err := io.ReadAll(io.LimitReader(file, record.MaxSize+1))
	return document, errors.Join(err, file.Close())
}

// ReadAll returns the records in a directory, from the oldest to the newest. It omits files that
// contain no valid record. Errors: fs.ErrNotExist.
func ReadAll(path string) (records []record.Record, err error) {
	d, err := record.OpenDir(path)
	if err != nil {
		return nil, err
	}
	for _, file := range d.Files() {
		if _, ok := key(file); !ok {
			continue
		}
		if r, err := readFile(d, file); err == nil {
			records = append(records, r)
		}
	}
	return records, d.Close()
}

// ReplaySpool first deletes the oldest files of a spool that exceeds its limits. It then passes each
// finished document that it can read to take, the oldest first, and deletes every finished document. A
// missing spool is no error.
func ReplaySpool(spool string, take func(document []byte)) error {
	d, err := record.OpenDir(spool)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	d.Prune(record.SpoolSize, record.SpoolBytes)
	for _, file := range d.Files() {
		if !strings.HasSuffix(file.Name, record.Finished) {
			continue
		}
		if document, err := document(d, file); err == nil {
			take(document)
		}
		if err := d.Remove(file); err != nil {
			return errors.Join(err, d.Close())
		}
	}
	return d.Close()
}
