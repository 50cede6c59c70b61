// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/report"
)

// inserted writes the entry into each primary list.
type inserted struct{}

func (inserted) Fault(net Net, entry []byte) error {
	return eachPrimary(net, report.Insert, func(p primary) error {
		if p.List.Has(entry) {
			return nil
		}
		return fmt.Errorf("%s, which the runtime loads, lacks an up-to-date capture-cni entry", p.File)
	})
}

func (inserted) Place(net Net, entry []byte) error {
	return eachPrimary(net, report.Insert, func(p primary) error {
		text, err := p.List.With(entry)
		if err != nil || bytes.Equal(text, p.text) {
			return err
		}
		return net.Replace(p.File, bytes.NewReader(text), host.Kept, checkUnchanged(net, p.File, p.text))
	})
}

// checkUnchanged returns a function that fails if another program has written the file since the agent
// read it, so that the agent does not overwrite the change. A change between this check and the
// renaming is still lost, because the two programs share no lock.
func checkUnchanged(net Net, name string, edited []byte) func(string) error {
	return func(string) error {
		current, err := net.Read(name)
		if err == nil && !bytes.Equal(current, edited) {
			err = Waiting(name + " was written by its owner while the agent edited it")
		}
		return err
	}
}

// Found reports whether any list contains the entry, or any original file is left that an earlier
// release renamed.
func (inserted) Found(net Net) (bool, error) {
	names, err := net.Names()
	return slices.ContainsFunc(names, func(name string) bool {
		list, _ := readListWithEntry(net, name)
		return list != nil || strings.HasSuffix(name, originalSuffix)
	}), err
}

// readListWithEntry returns a list that contains the entry, with its text. It returns nil for any other
// file, for a symbolic link, and for the list of mode owned.
func readListWithEntry(net Net, name string) (*List, []byte) {
	text, err := net.Read(name)
	link, linkErr := net.Link(name)
	if err != nil || linkErr != nil || link != "" || name == OwnedName {
		return nil, nil
	}
	list, err := Parse(text)
	if err != nil || !list.HasOurs() {
		return nil, nil
	}
	return list, text
}

// Remove removes the entry from every list, because another list may have been the primary one when the
// agent wrote the entry. It also restores the original files that an earlier release renamed.
func (inserted) Remove(net Net) error {
	names, err := net.Names()
	errs := []error{err}
	for _, original := range originals(net) {
		errs = append(errs, restoreOriginal(net, original))
	}
	for _, name := range names {
		errs = append(errs, removeFromList(net, name))
	}
	return errors.Join(errs...)
}

func removeFromList(net Net, name string) error {
	list, text := readListWithEntry(net, name)
	if list == nil {
		return nil
	}
	without, err := list.Without()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, extension := range []string{".conf", ".json"} {
		conf := stem(name) + extension
		if found, _ := net.Has(conf); found && (isMadeOf(net, without, conf) || isMadeOf(net, without, conf+originalSuffix)) {
			return net.Remove(name)
		}
	}
	return net.Replace(name, bytes.NewReader(without), host.Kept, checkUnchanged(net, name, text))
}
