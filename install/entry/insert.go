// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/host"
)

// inserted writes the entry into the primary conflist.
type inserted struct{}

func (inserted) Fault(net *host.Dir, entry []byte) error {
	p, err := FindPrimary(net)
	if err != nil {
		return err
	}
	if p.conf || !p.List.Has(entry) {
		return fmt.Errorf("%s, which the runtime loads, lacks an up-to-date capture-cni entry", p.File)
	}
	return nil
}

func (inserted) Place(net *host.Dir, entry []byte) error {
	p, err := FindPrimary(net)
	if err != nil {
		return err
	}
	if !p.conf && p.List.Has(entry) {
		return nil
	}
	text, err := p.List.With(entry)
	if err != nil {
		return err
	}
	if !p.conf {
		return net.Replace(p.File, text, host.Kept(0o600), checkUnchanged(net, p.File, p.text))
	}
	// The list first: the runtime loads the plain file until that is renamed.
	if err := net.Ensure(listName(p.File), text); err != nil {
		return err
	}
	return net.Rename(p.File, p.File+originalSuffix)
}

// checkUnchanged fails if another program wrote the file since it was read, so that its
// change is not lost. The agent shares no lock with that program: the window narrows to
// the time of a rename.
func checkUnchanged(net *host.Dir, name string, edited []byte) func(string) error {
	return func(string) error {
		current, err := net.Read(name)
		if err == nil && !bytes.Equal(current, edited) {
			err = Waiting(name + " was written by its owner while the agent edited it")
		}
		return err
	}
}

// Found reads every list, as remove does.
func (inserted) Found(net *host.Dir) (bool, error) {
	names, err := net.Names()
	for _, name := range names {
		if strings.HasSuffix(name, originalSuffix) {
			return true, nil
		}
		if list, _ := readListWithEntry(net, name); list != nil {
			return true, nil
		}
	}
	return false, err
}

// readListWithEntry returns a list that contains the entry, other than mode owned's;
// nil for any other file.
func readListWithEntry(net *host.Dir, name string) (*conflist.List, []byte) {
	text, err := net.Read(name)
	if err != nil || name == OwnedName {
		return nil, nil // or a link out of the directory, which the agent never makes
	}
	list, err := conflist.Parse(text)
	if err != nil || list.Ours() == 0 {
		return nil, nil
	}
	return list, text
}

// Remove reads every list: the primary may have changed since. First it restores plain
// configurations, which deletes the lists that were made of them.
func (inserted) Remove(net *host.Dir) error {
	names, err := net.Names()
	errs := []error{err}
	for _, name := range names {
		if original, ok := strings.CutSuffix(name, originalSuffix); ok {
			errs = append(errs, restoreOriginal(net, original))
		}
	}
	for _, name := range names {
		errs = append(errs, removeFromList(net, name))
	}
	return errors.Join(errs...)
}

func removeFromList(net *host.Dir, name string) error {
	list, text := readListWithEntry(net, name)
	if list == nil {
		return nil
	}
	without, err := list.Without()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if isConverted(net, name, without) {
		return net.Remove(name)
	}
	return net.Replace(name, without, host.Kept(0o600), checkUnchanged(net, name, text))
}

// isConverted reports whether a list was made of a plain configuration that is
// restored: an earlier removal was interrupted before it deleted the list.
func isConverted(net *host.Dir, name string, list []byte) bool {
	for _, extension := range []string{".conf", ".json"} {
		conf, err := net.Read(strings.TrimSuffix(name, filepath.Ext(name)) + extension)
		if err != nil {
			continue
		}
		if made, err := conflist.FromConf(conf); err == nil && bytes.Equal(made, list) {
			return true
		}
	}
	return false
}

// restoreOriginal restores a plain configuration, and then deletes the list that was
// made of it: the runtime prefers the plain file.
func restoreOriginal(net *host.Dir, conf string) error {
	if _, err := net.Read(conf); errors.Is(err, fs.ErrNotExist) {
		if err := net.Rename(conf+originalSuffix, conf); err != nil {
			return err
		}
	} else if err := net.Remove(conf + originalSuffix); err != nil { // its owner wrote a new file
		return err
	}
	if list, _ := readListWithEntry(net, listName(conf)); list != nil {
		return net.Remove(listName(conf))
	}
	return nil
}
