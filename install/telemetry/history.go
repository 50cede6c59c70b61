// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/capture-cni/capture-cni/plugin/record"
)

// HistoryDirectory returns the directory of the history, next to the agent's socket.
func HistoryDirectory(socket string) string { return filepath.Join(filepath.Dir(socket), "adds") }

// Limits of the history: pods, and bytes. They are larger than most nodes need. Beyond these limits, the
// agent deletes the records of the oldest ADDs.
const (
	maxPods  = 1024
	maxBytes = 4 << 20
)

// KeepRecord replaces the pod's earlier record by r, unless r has no UID. A record from the spool
// replaces only older records. Any other record also replaces one with a later time, because the clock
// may have been set back. Errors: fs.ErrNotExist.
func KeepRecord(dir string, r record.Record, spooled bool) (err error) {
	uid := r.Pod.UID
	if uid == "" {
		return nil
	}
	d, err := record.OpenDir(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	name, before := record.FileName(r, uid), filesOf(d, uid)
	if spooled && slices.ContainsFunc(before, func(f record.File) bool { return f.Name >= name }) {
		return nil
	}
	if err := d.Write(uid, r); err != nil {
		return fmt.Errorf("recording an ADD of pod %s: %w", r.Pod, err)
	}
	for _, file := range before {
		if file.Name != name {
			_ = d.Remove(file) // the pod's next ADD tries again
		}
	}
	d.Prune(maxPods, maxBytes)
	return nil
}

// filesOf returns the files with records of a pod, the oldest first. There can be several, for example
// after a failed removal.
func filesOf(d *record.Dir, uid string) []record.File {
	return slices.DeleteFunc(d.Files(), func(f record.File) bool {
		key, ok := key(f)
		return !ok || key != uid
	})
}

// LastRecord returns the record of a pod's last ADD. Errors: fs.ErrNotExist.
func LastRecord(dir, uid string) (record.Record, error) {
	d, err := record.OpenDir(dir)
	if err != nil {
		return record.Record{}, err
	}
	defer func() { _ = d.Close() }() // a failed close loses nothing
	for _, file := range slices.Backward(filesOf(d, uid)) {
		if r, err := readFile(d, file); err == nil {
			return r, nil
		}
	}
	return record.Record{}, fmt.Errorf("reading the last ADD of a pod: %w", fs.ErrNotExist)
}
