// SPDX-License-Identifier: Apache-2.0

// Package history keeps the record of the last ADD of each pod. The agent writes
// it; the guard and the commands read it.
package history

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/install/received"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// Directory returns the directory of the history, next to the agent's socket.
func Directory(socket string) string { return filepath.Join(filepath.Dir(socket), "adds") }

// Limits of a History, in pods and in bytes: several times what a node runs. The
// records of the oldest ADDs are deleted first.
const (
	maxPods  = 1024
	maxBytes = 4 << 20
)

// History is a directory with the last record of each pod's ADDs. It indexes the
// files, so that it does not list them at each record.
type History struct {
	dir   string
	files []record.File          // from the oldest to the youngest
	byPod map[string]record.File // by UID
	bytes int64
}

// Open indexes a directory. Of two records of one pod, as two agents may leave
// them, it keeps the younger one. Errors: fs.ErrNotExist.
func Open(dir string) (*History, error) {
	d, err := record.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	h := &History{dir: dir, byPod: map[string]record.File{}}
	for _, file := range d.Files() {
		h.add(d, file)
	}
	h.prune(d)
	return h, d.Close()
}

// RecordSpooled is Record for a record from the spool: a younger one of the same pod stays.
func (h *History) RecordSpooled(r record.Record) error {
	if h.byPod[r.Pod.UID].Name >= record.FileName(r, r.Pod.UID) {
		return nil
	}
	return h.Record(r)
}

// Record replaces the record of the same pod. That may have a later time: the clock may
// have been set back.
func (h *History) Record(r record.Record) (err error) {
	uid := r.Pod.UID
	if uid == "" {
		return nil
	}
	d, err := record.OpenDir(h.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	file, err := d.Write(uid, r)
	if err != nil {
		return fmt.Errorf("recording an ADD of pod %s: %w", r.Pod, err)
	}
	h.add(d, file)
	h.prune(d)
	return nil
}

// add indexes a file, and deletes the older one of its pod.
func (h *History) add(d *record.Dir, file record.File) {
	if uid, ok := received.Key(file); ok {
		if older, known := h.byPod[uid]; known {
			i, _ := h.find(older)
			h.remove(d, i)
		}
		h.byPod[uid] = file
	}
	i, _ := h.find(file)
	h.files = slices.Insert(h.files, i, file)
	h.bytes += file.Size
}

func (h *History) find(file record.File) (int, bool) {
	return slices.BinarySearchFunc(h.files, file, func(a, b record.File) int { return strings.Compare(a.Name, b.Name) })
}

func (h *History) prune(d *record.Dir) {
	for len(h.files) > maxPods || h.bytes > maxBytes && len(h.files) > 1 {
		h.remove(d, 0)
	}
}

func (h *History) remove(d *record.Dir, i int) {
	file := h.files[i]
	_ = d.Remove(file) // best effort: the next Open indexes it again
	if uid, ok := received.Key(file); ok {
		delete(h.byPod, uid)
	}
	h.files = slices.Delete(h.files, i, i+1)
	h.bytes -= file.Size
}

// Last returns the record of a pod's last ADD. Errors: fs.ErrNotExist.
func Last(dir, uid string) (record.Record, error) {
	d, err := record.OpenDir(dir)
	if err != nil {
		return record.Record{}, err
	}
	defer func() { _ = d.Close() }() // it was only read
	for _, file := range slices.Backward(d.Files()) {
		if key, ok := received.Key(file); !ok || key != uid {
			continue
		}
		if r, err := received.ReadFile(d, file); err == nil {
			return r, nil
		}
	}
	return record.Record{}, fmt.Errorf("reading the last ADD of a pod: %w", fs.ErrNotExist)
}
