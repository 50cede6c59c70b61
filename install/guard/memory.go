// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"syscall"
)

// memory keeps the baseline of each sandbox in a file of its own, over a restart
// of the guard. Rules that change while no guard runs are noticed so.
type memory struct{ dir string } // empty for none

// maxBaseline is the size that a file may have: a stamp and a digest take less.
const maxBaseline = 4 << 10

// unfinished ends the name of a file that is being written.
const unfinished = ".part"

// sandboxID is the form of the runtimes' ids, which become names of files.
var sandboxID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// load returns a sandbox's baseline; an unknown one where there is none that can
// be read. Rules of another version or changed ones are judged as at a first
// look then.
func (m memory) load(id string) (b baseline) {
	if m.dir == "" || !sandboxID.MatchString(id) {
		return baseline{}
	}
	root, err := m.open()
	if err != nil {
		return baseline{}
	}
	defer func() { _ = root.Close() }() // nothing was written
	file, err := root.Open(id)
	if err != nil {
		return baseline{}
	}
	defer func() { _ = file.Close() }() // nothing was written
	content, err := io.ReadAll(io.LimitReader(file, maxBaseline+1))
	if err != nil || len(content) > maxBaseline || json.Unmarshal(content, &b) != nil {
		return baseline{}
	}
	return b
}

// save replaces a sandbox's baseline as a whole.
func (m memory) save(id string, b baseline) (err error) {
	if m.dir == "" {
		return nil
	}
	if !sandboxID.MatchString(id) {
		return fmt.Errorf("saving what sandbox %.200q holds: its id is not of the form %s", id, sandboxID)
	}
	content, err := json.Marshal(b)
	if err != nil || len(content) > maxBaseline {
		return errors.Join(fmt.Errorf("saving what sandbox %s holds: %d bytes, and %d are the limit", id, len(content), maxBaseline), err)
	}
	if err := os.Mkdir(m.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the guard's directory: %w", err)
	}
	root, err := m.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if err := root.WriteFile(id+unfinished, content, 0o600); err != nil {
		return fmt.Errorf("saving what sandbox %s holds: %w", id, err)
	}
	if err := root.Rename(id+unfinished, id); err != nil {
		return fmt.Errorf("saving what sandbox %s holds: %w", id, err)
	}
	return nil
}

// keep deletes the baselines of all sandboxes but these, by their ids. They must
// be all that the runtime has.
func (m memory) keep(there map[string]bool) (err error) {
	if m.dir == "" {
		return nil
	}
	root, err := m.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	files, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return fmt.Errorf("listing what sandboxes hold: %w", err)
	}
	for _, file := range files {
		if there[file.Name()] {
			continue
		}
		if err := root.Remove(file.Name()); err != nil {
			return fmt.Errorf("forgetting a sandbox that has ended: %w", err)
		}
	}
	return nil
}

// open refuses a directory that another user can write to: what stands there
// decides what is repaired.
func (m memory) open() (*os.Root, error) {
	seen, err := os.Lstat(m.dir)
	if err != nil {
		return nil, fmt.Errorf("opening the guard's directory: %w", err)
	}
	at, ok := seen.Sys().(*syscall.Stat_t)
	if !ok || !seen.IsDir() || seen.Mode().Perm()&0o022 != 0 || int(at.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("opening the guard's directory: %s must be a directory that only root can write to: remove it", m.dir)
	}
	root, err := os.OpenRoot(m.dir)
	if err != nil {
		return nil, fmt.Errorf("opening the guard's directory: %w", err)
	}
	if opened, err := root.Stat("."); err != nil || !os.SameFile(seen, opened) {
		return nil, errors.Join(fmt.Errorf("opening the guard's directory: %s was replaced meanwhile", m.dir), err, root.Close())
	}
	return root, nil
}
