// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Memory is the folder of the last record of each pod's ADDs, beside the
// socket. The agent writes it.
func Memory(socket string) string { return filepath.Join(filepath.Dir(socket), "adds") }

// Limits of a History, in pods and in bytes; some times what a node runs. The
// pods whose ADDs were the longest ago go first.
const (
	historySize  = 1024
	historyBytes = 4 << 20
)

// History keeps the last record of each pod's ADDs, in a directory that is
// root's alone. It knows what is there, and so need not list it at each record.
type History struct {
	dir   string
	files []file            // from the oldest to the youngest
	byPod map[string]string // names of files, by markOf
	bytes int64
}

// OpenHistory reads what a directory holds. Of a pod that has two records, as
// two agents may leave them, the younger one stays.
func OpenHistory(dir string) (h *History, err error) {
	root, err := openRing(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	h = &History{dir: dir, byPod: map[string]string{}}
	for _, file := range list(root) {
		h.add(root, file)
	}
	h.prune(root)
	return h, nil
}

// Record keeps a record in the place of an older one of the same pod. One that
// comes after a younger one is dropped.
func (h *History) Record(r Record) (err error) {
	if r.Pod.UID == "" {
		return nil
	}
	if err := r.fault(); err != nil {
		return fmt.Errorf("remembering an ADD: %w", err)
	}
	root, err := openRing(h.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	name := nameOf(r, r.Pod.UID)
	if h.byPod[r.Pod.UID+finished] >= name+finished {
		return nil
	}
	size := write(root, name, r)
	if size == 0 {
		return fmt.Errorf("remembering an ADD of pod %s/%s: it can't be written", r.Pod.Namespace, r.Pod.Name)
	}
	h.add(root, file{name + finished, size})
	h.prune(root)
	return nil
}

// add notes a file in its order, and deletes the older one of its pod.
func (h *History) add(root *os.Root, f file) {
	if older, ok := h.byPod[markOf(f.name)]; ok {
		if i, found := h.find(older); found {
			h.remove(root, i)
		}
	}
	i, _ := h.find(f.name)
	h.files = slices.Insert(h.files, i, f)
	h.byPod[markOf(f.name)] = f.name
	h.bytes += f.size
}

func (h *History) find(name string) (int, bool) {
	return slices.BinarySearchFunc(h.files, name, func(f file, name string) int { return strings.Compare(f.name, name) })
}

func (h *History) prune(root *os.Root) {
	for len(h.files) > historySize || h.bytes > historyBytes && len(h.files) > 1 {
		h.remove(root, 0)
	}
}

func (h *History) remove(root *os.Root, i int) {
	f := h.files[i]
	_ = root.Remove(f.name) // another agent may have
	delete(h.byPod, markOf(f.name))
	h.files = slices.Delete(h.files, i, i+1)
	h.bytes -= f.size
}

// isOf tells whether a file holds a pod's record: its name is nameOf's.
func isOf(name, uid string) bool { return markOf(name) == uid+finished }

// markOf returns what follows the time in the name of a file; of one that is not
// ours, the name.
func markOf(name string) string {
	if _, mark, ok := strings.Cut(name, "-"); ok {
		return mark
	}
	return name
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
	for _, file := range list(root) {
		if !wanted(file.name) {
			continue
		}
		document, err := readSome(root, file.name)
		if err != nil {
			continue
		}
		if r, err := Read(document); err == nil {
			records = append(records, r)
		}
	}
	return records, nil
}
