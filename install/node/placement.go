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

// placement is one way to get our entry before the runtime. Its methods work in
// the folder of lists.
type placement interface {
	// fault says why the entry is not where and what it should be, nil if it is.
	fault(net *host.Dir, entry []byte) error

	// place puts it there; a second time, it changes nothing.
	place(net *host.Dir, entry []byte) error

	// found tells whether there is anything that remove would take away.
	found(net *host.Dir) (bool, error)

	// remove takes it away; nothing there is success.
	remove(net *host.Dir) error
}

var placements = map[Mode]placement{DropIn: dropIn{}, Insert: inserted{}, Owned: owned{}, Multus: multus{}}

// inserted edits the list of the primary.
type inserted struct{}

func (inserted) fault(net *host.Dir, entry []byte) error {
	p, err := findPrimary(net)
	if err != nil {
		return err
	}
	if p.conf || !p.list.Has(entry) {
		return fmt.Errorf("%s, which the runtime loads, has not our entry as it should be", p.file)
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
		return net.Replace(p.file, text, host.Kept(0o600), unchanged(net, p.file, p.text))
	}
	// The list first: until the plain file is out of the way, it still counts.
	if err := net.Replace(listName(p.file), text, host.As(0o600), nil); err != nil {
		return err
	}
	return net.Rename(p.file, p.file+originalSuffix)
}

// unchanged looks at the last moment whether somebody has written the file that
// was edited: what came meanwhile must not be lost. No lock is shared with its
// writer, so that this narrows the window to what a rename takes.
func unchanged(net *host.Dir, name string, edited []byte) func(string) error {
	return func(string) error {
		current, err := net.Read(name)
		if err == nil && !bytes.Equal(current, edited) {
			err = waiting(name + " was written by its owner at this moment")
		}
		return err
	}
}

// found looks, as remove does, into every list.
func (inserted) found(net *host.Dir) (bool, error) {
	names, err := net.Names()
	for _, name := range names {
		if strings.HasSuffix(name, originalSuffix) {
			return true, nil
		}
		if list, _ := readOurs(net, name); list != nil {
			return true, nil
		}
	}
	return false, err
}

// readOurs reads a list with entries of ours, other than the one that is all
// ours; nil for any other file, or one that can't be read.
func readOurs(net *host.Dir, name string) (*conflist.List, []byte) {
	text, err := net.Read(name)
	if err != nil || name == ownedName {
		return nil, nil // or a link that leads elsewhere, and so not of our making
	}
	list, err := conflist.Parse(text)
	if err != nil || list.Ours() == 0 {
		return nil, nil
	}
	return list, text
}

// remove looks into every list: the primary may have changed since.
func (inserted) remove(net *host.Dir) error {
	names, err := net.Names()
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, removeFrom(net, name))
	}
	return errors.Join(errs...)
}

func removeFrom(net *host.Dir, name string) error {
	if original, ok := strings.CutSuffix(name, originalSuffix); ok {
		return restoreOriginal(net, original)
	}
	list, text := readOurs(net, name)
	if list == nil {
		return nil
	}
	without, err := list.Without()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if wasMade(net, name, without) {
		return net.Remove(name)
	}
	return net.Replace(name, without, host.Kept(0o600), unchanged(net, name, text))
}

// wasMade tells a list that came in the place of a plain configuration, which
// has its place back already: an earlier removal got no further.
func wasMade(net *host.Dir, name string, list []byte) bool {
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

// restoreOriginal gives a plain configuration its place back. It counts before
// the list that came in its place, which goes last.
func restoreOriginal(net *host.Dir, conf string) error {
	if _, err := net.Read(conf); errors.Is(err, fs.ErrNotExist) {
		if err := net.Rename(conf+originalSuffix, conf); err != nil {
			return err
		}
	} else if err := net.Remove(conf + originalSuffix); err != nil { // its owner wrote a new one
		return err
	}
	if list, _ := readOurs(net, listName(conf)); list != nil {
		return net.Remove(listName(conf))
	}
	return nil
}

// owned keeps a list of our own that does what the primary's does.
type owned struct{}

func (owned) wanted(net *host.Dir, entry []byte) ([]byte, error) {
	p, err := findPrimary(net)
	if err != nil {
		return nil, err
	}
	if p.file < ownedName {
		return nil, fmt.Errorf("%s sorts before %s: a list of our own would not be loaded; use mode %q", p.file, ownedName, Insert)
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
		return fmt.Errorf("%s may be stale, it embeds %s: %w", ownedName, conflist.SourceOf(current), err)
	case !bytes.Equal(current, want):
		return fmt.Errorf("%s is stale: the primary's list has changed", ownedName)
	}
	return nil
}

// place follows the primary. While that is missing, or half written, what was
// embedded last stays.
func (o owned) place(net *host.Dir, entry []byte) error {
	want, err := o.wanted(net, entry)
	if err != nil {
		return err
	}
	if current, err := net.Read(ownedName); err == nil && bytes.Equal(current, want) {
		return nil
	}
	return net.Replace(ownedName, want, host.As(0o600), nil)
}

func (owned) found(net *host.Dir) (bool, error) { return net.Has(ownedName) }

func (owned) remove(net *host.Dir) error { return net.Remove(ownedName) }
