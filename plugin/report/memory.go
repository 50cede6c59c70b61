// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// Memory is the folder of the last record of each pod's ADDs, beside the
// socket. The agent writes it.
func Memory(socket string) string { return filepath.Join(filepath.Dir(socket), "adds") }

// memorySize is some times what a node runs.
const memorySize = 1024

// Remember keeps a record in the place of an older one of the same pod, in a
// folder that is root's alone. One that comes after a younger one is dropped.
func Remember(dir string, r Record) (err error) {
	if r.Pod.UID == "" || strings.ContainsAny(r.Pod.UID, "/\x00") {
		return nil
	}
	root, err := openRing(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	own := nameOf(r, r.Pod.UID)
	older := slices.DeleteFunc(list(root), func(name string) bool { return !isOf(name, r.Pod.UID) })
	if len(older) > 0 && older[len(older)-1] >= own+finished {
		return nil
	}
	if !write(root, own, r) {
		return fmt.Errorf("remembering an ADD of pod %s/%s: it can't be written", r.Pod.Namespace, r.Pod.Name)
	}
	for _, name := range older {
		_ = root.Remove(name)
	}
	prune(root, memorySize)
	return nil
}

// isOf tells whether a file holds a pod's record: its name is nameOf's.
func isOf(name, uid string) bool {
	_, mark, _ := strings.Cut(name, "-")
	return mark == uid+finished
}

// Recall gives the last record of a pod's ADDs. Errors: fs.ErrNotExist where
// there is none.
func Recall(dir, uid string) (Record, error) {
	records, err := recall(dir, func(name string) bool { return isOf(name, uid) })
	if err == nil && len(records) == 0 {
		err = fmt.Errorf("recalling an ADD: %w", fs.ErrNotExist)
	}
	if err != nil {
		return Record{}, err
	}
	return records[len(records)-1], nil
}

// RecallAll gives all records of a folder, a ring's too, the oldest first, and
// leaves them there. One that can't be read is left out.
func RecallAll(dir string) ([]Record, error) {
	return recall(dir, func(name string) bool { return strings.HasSuffix(name, finished) })
}

func recall(dir string, wanted func(name string) bool) (records []Record, err error) {
	root, err := openRing(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for _, name := range list(root) {
		if !wanted(name) {
			continue
		}
		document, err := readSome(root, name)
		if err != nil {
			continue
		}
		if r, err := Read(document); err == nil {
			records = append(records, r)
		}
	}
	return records, nil
}
