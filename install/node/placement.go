// SPDX-License-Identifier: Apache-2.0

package node

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

// placement is one way to add the entry to the runtime's CNI configuration. Its
// methods take the directory of conflists.
type placement interface {
	// fault returns why the entry is missing or outdated.
	fault(net *host.Dir, entry []byte) error

	// place writes the entry unless it is up to date.
	place(net *host.Dir, entry []byte) error

	// found reports whether remove would remove anything.
	found(net *host.Dir) (bool, error)

	// remove removes the entry. A missing one is no error.
	remove(net *host.Dir) error
}

var placements = map[Mode]placement{DropIn: dropIn{}, Insert: inserted{}, Owned: owned{}, Multus: multus{}, MultusChain: chained{}}

// inserted writes the entry into the primary conflist.
type inserted struct{}

func (inserted) fault(net *host.Dir, entry []byte) error {
	p, err := findPrimary(net)
	if err != nil {
		return err
	}
	if p.conf || !p.list.Has(entry) {
		return fmt.Errorf("%s, which the runtime loads, lacks an up-to-date capture-cni entry", p.file)
	}
	return nil
}

func (inserted) place(net *host.Dir, entry []byte) error {
	p, err := findPrimary(net)
	if err != nil {
		return err
	}
	if !p.conf && p.list.Has(entry) {
		return nil
	}
	text, err := p.list.With(entry)
	if err != nil {
		return err
	}
	if !p.conf {
		return net.Replace(p.file, text, host.Kept(0o600), checkUnchanged(net, p.file, p.text))
	}
	// The list first: the runtime loads the plain file until that is renamed.
	if err := net.Replace(listName(p.file), text, host.As(0o600), nil); err != nil {
		return err
	}
	return net.Rename(p.file, p.file+originalSuffix)
}

// checkUnchanged fails if another program wrote the file since it was read, so that its
// change is not lost. The agent shares no lock with that program: the window narrows to
// the time of a rename.
func checkUnchanged(net *host.Dir, name string, edited []byte) func(string) error {
	return func(string) error {
		current, err := net.Read(name)
		if err == nil && !bytes.Equal(current, edited) {
			err = waiting(name + " was written by its owner while the agent edited it")
		}
		return err
	}
}

// found reads every list, as remove does.
func (inserted) found(net *host.Dir) (bool, error) {
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
	if err != nil || name == ownedName {
		return nil, nil // or a link out of the directory, which the agent never makes
	}
	list, err := conflist.Parse(text)
	if err != nil || list.Ours() == 0 {
		return nil, nil
	}
	return list, text
}

// remove reads every list: the primary may have changed since. First it restores plain
// configurations, which deletes the lists that were made of them.
func (inserted) remove(net *host.Dir) error {
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

// owned writes a conflist of the agent's own that embeds the primary one.
type owned struct{}

func (owned) wanted(net *host.Dir, entry []byte) ([]byte, error) {
	p, err := findPrimary(net)
	if err != nil {
		return nil, err
	}
	if p.file < ownedName {
		return nil, fmt.Errorf("%s sorts before %s, which the runtime therefore would not load: use mode %q", p.file, ownedName, Insert)
	}
	return conflist.Embed(p.list, conflist.Source(p.file, p.text), entry)
}

func (o owned) fault(net *host.Dir, entry []byte) error {
	want, err := o.wanted(net, entry)
	current, readErr := net.Read(ownedName)
	switch {
	case readErr != nil:
		return errors.Join(err, readErr)
	case err != nil:
		return fmt.Errorf("%s may be outdated, it embeds %s: %w", ownedName, conflist.SourceOf(current), err)
	case !bytes.Equal(current, want):
		return fmt.Errorf("%s is outdated: the primary list has changed", ownedName)
	}
	return nil
}

// place embeds the primary as it is now. While that is missing or incomplete, the
// outdated list stays.
func (o owned) place(net *host.Dir, entry []byte) error {
	want, err := o.wanted(net, entry)
	if err != nil {
		return err
	}
	return ensureFile(net, ownedName, want)
}

func (owned) found(net *host.Dir) (bool, error) { return net.Has(ownedName) }

func (owned) remove(net *host.Dir) error { return net.Remove(ownedName) }
