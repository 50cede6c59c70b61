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
	"time"

	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// store keeps the baseline of each sandbox in a file of its own, so that the next guard notices changes
// of rules that were made while no guard ran.
type store struct{ dir string }

// maxBaseline limits the bytes of a baseline's file. A stamp and a digest take less.
const maxBaseline = 4 << 10

// maxMode limits the directory's permissions. Other users must not write there, because the files decide
// about repairs.
const maxMode = 0o755

// sandboxID is the form of the sandbox ids that runtimes use. The ids are names of the files.
var sandboxID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$`)

// load returns the baseline of a sandbox. If there is none, or it can't be read, load returns the zero
// value, which means unknown.
func (s store) load(id string) (b baseline) {
	if !sandboxID.MatchString(id) {
		return baseline{}
	}
	content, _, err := readIn(s.dir, id, maxBaseline)
	if err != nil || json.Unmarshal(content, &b) != nil {
		return baseline{}
	}
	return b
}

// readIn reads a file in a store's directory, and returns its content and the time at which it was
// written.
func readIn(dir, name string, most int64) (content []byte, at time.Time, err error) {
	root, err := record.OpenPrivate(dir, maxMode)
	if err != nil {
		return nil, at, err
	}
	defer func() { _ = root.Close() }() // a failed close loses nothing
	file, err := host.OpenIn(root, name)
	if err != nil {
		return nil, at, err
	}
	defer func() { _ = file.Close() }() // a failed close loses nothing
	info, err := file.Stat()
	if err != nil {
		return nil, at, err
	}
	content, err = io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(content)) > most {
		err = fmt.Errorf("%s is larger than %d bytes", name, most)
	}
	return content, info.ModTime(), err
}

// save replaces a sandbox's baseline atomically.
func (s store) save(id string, b baseline) error {
	if !sandboxID.MatchString(id) {
		return fmt.Errorf("storing the baseline of sandbox %.200q: expected an id of the form %s", id, sandboxID)
	}
	content, err := json.Marshal(b)
	if err != nil || len(content) > maxBaseline {
		return errors.Join(fmt.Errorf("storing the baseline of sandbox %s: %d bytes, expected at most %d", id, len(content), maxBaseline), err)
	}
	if err := s.write(id, content); err != nil {
		return fmt.Errorf("storing the baseline of sandbox %s: %w", id, err)
	}
	return nil
}

func (s store) write(name string, content []byte) (err error) {
	if err := os.Mkdir(s.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the guard's directory: %w", err)
	}
	root, err := record.OpenPrivate(s.dir, maxMode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if err := record.WriteFile(root, name, content); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// prune deletes all files in the directory except the baselines of running sandboxes and the summary.
func (s store) prune(running map[string]cri.Sandbox) (err error) {
	root, err := record.OpenPrivate(s.dir, maxMode)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	files, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return fmt.Errorf("listing the baselines: %w", err)
	}
	for _, file := range files {
		if _, runs := running[file.Name()]; runs || file.Name() == summaryFile {
			continue
		}
		if err := root.Remove(file.Name()); err != nil {
			return fmt.Errorf("deleting the baseline of a sandbox that has ended: %w", err)
		}
	}
	return nil
}
