// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// disk fails the agent's operations on the node's files, and ends the agent at one of them. The
// operations of an agent that was killed all fail: no deferred function changes a file after a kill.
type disk struct {
	writes, reads failing
	standing      map[string]syscall.Errno // of writes, by directory
	killAt        int                      // the write at which the agent ends, if it is positive
	killBelow     string                   // the directory of these writes
	killRenamed   bool                     // the agent ends at the write after its next rename in the network directory
	powerFails    bool                     // then
	killed        bool
	mkdirFails    bool // the next one

	synced   bool // the content of the temporary file
	unsynced []lost
}

// failing is the error of one call, and which of the next ones that is.
type failing struct {
	at    int
	fault syscall.Errno
}

// lost is a change of a directory that a power cut undoes.
type lost struct {
	path    string
	content []byte
	existed bool
}

var errKilled = errors.New("the agent was killed")

// operation is called before each operation of the agent on a file.
func (w *world) operation(operation, path string) error {
	d := &w.disk
	if d.killed {
		return errKilled
	}
	if w.generation != w.examined {
		w.examineFiles("before " + operation)
	}
	if w.runtime.name == "containerd" {
		w.watch() // it may load the directory between any two calls of the agent
	}
	isWrite := operation != "open" && operation != "opendir" && operation != "list"
	next := &d.reads
	if isWrite {
		next = &d.writes
		w.generation++
		if strings.HasPrefix(path, w.netDir) {
			w.rivalAt--
		}
		if w.rivalAt <= 0 && w.rivalAt > -50 && operation != "rename" { // a rename can't be told from the other program's
			w.rivalAt, w.calledUs = -100, false
			w.reach("a list is written while the agent writes")
			w.rewrite()
			w.generation++
		}
		if strings.HasPrefix(path, d.killBelow) {
			if d.killAt--; d.killAt == 0 {
				w.reach("kill at " + operation)
				d.killed = true
				w.agent.cancel()
				w.atKill = w.tree(w.root)
				return errKilled
			}
		}
	}
	if operation == "mkdir" && d.mkdirFails {
		*next, d.mkdirFails = failing{1, syscall.EIO}, false
	}
	if next.at--; next.at == 0 {
		w.reach(next.fault.Error() + " at " + operation)
		w.mayChoose = true // as a drop-in can't be written
		w.disturb()
		return next.fault
	}
	for directory, fault := range d.standing {
		// A full disk takes removals, and the names of what was written before.
		isFull := fault == syscall.ENOSPC && (operation == "remove" || operation == "rename" || operation == "syncdir" || operation == "sync")
		if isWrite && strings.HasPrefix(path, directory) && !isFull {
			w.reach(fault.Error() + " in " + filepath.Base(directory))
			w.mayChoose = true
			return fault
		}
	}
	if _, err := os.Lstat(path); isWrite && filepath.Dir(path) == w.netDir && operation != "syncdir" && (operation != "remove" || err == nil) {
		w.runtime.events++
	}
	switch operation {
	case "create":
		d.synced = false
	case "sync":
		d.synced = true
	case "rename", "remove":
		if d.killRenamed && operation == "rename" && strings.HasPrefix(path, w.netDir) {
			d.killAt, d.killBelow, d.killRenamed = 1, w.root, false
		}
		content, err := os.ReadFile(path)
		d.unsynced = append(d.unsynced, lost{path, content, err == nil})
		if operation == "rename" && !d.synced {
			w.fail("a file is renamed to %s before its content is synced", path)
		}
	case "syncdir":
		kept := d.unsynced[:0]
		for _, change := range d.unsynced {
			directory := filepath.Dir(change.path)
			_, gone := os.Lstat(directory) // its removal is synced with its parent
			if directory != path && (gone == nil || filepath.Dir(directory) != path) {
				kept = append(kept, change)
			}
		}
		d.unsynced = kept
	}
	return nil
}

// unsynced returns a file whose change a power cut would undo, or "". The agent does without the copy of
// a program that works, and logs it.
func (w *world) unsynced() string {
	for _, change := range w.disk.unsynced {
		name, isKept := filepath.Base(change.path), !strings.HasPrefix(change.path, w.runDir) // which a boot empties
		if isKept && !strings.HasPrefix(name, ".capture-cni-tmp-") && filepath.Ext(name) != ".last-good" {
			return change.path
		}
	}
	return ""
}

// cutPower undoes what was not synced.
func (w *world) cutPower() {
	for i := len(w.disk.unsynced) - 1; i >= 0; i-- {
		change := w.disk.unsynced[i]
		w.reach("a lost change")
		if !change.existed {
			_ = os.Remove(change.path)
		} else {
			w.check(os.MkdirAll(filepath.Dir(change.path), 0o755))
			w.check(os.WriteFile(change.path, change.content, 0o755))
		}
	}
	w.disk.unsynced = nil
}

// tree returns all files below a directory that are no temporary ones.
func (w *world) tree(directory string) map[string]string {
	found := map[string]string{}
	_ = filepath.WalkDir(directory, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Type() == os.ModeSocket || strings.HasPrefix(entry.Name(), ".capture-cni-tmp-") {
			return nil //nolint:nilerr // files come and go
		}
		content, _ := os.ReadFile(path)
		found[strings.TrimPrefix(path, directory+"/")] = string(content)
		return nil
	})
	return found
}
