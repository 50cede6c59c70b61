// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/report"
)

// Waiting is the error for a state that usually ends without the operator's help, so the agent only waits.
type Waiting string

func (w Waiting) Error() string { return string(w) }

func IsWaiting(err error) bool {
	_, ok := errors.AsType[Waiting](err)
	return ok
}

// Placement is one way to add the entry to the runtime's CNI configuration.
type Placement interface {
	// Fault returns nil if the entry is up to date, and otherwise the reason.
	Fault(net Net, entry []byte) error

	// Place writes the entry, unless it is up to date.
	Place(net Net, entry []byte) error

	// Found reports whether there is anything that Remove would remove.
	Found(net Net) (bool, error)

	// Remove removes the entry. It succeeds if there is no entry.
	Remove(net Net) error
}

// In returns the placement of a mode. The mode must not be Auto.
func In(mode report.Mode) Placement { return placements[mode] }

var placements = map[report.Mode]Placement{
	report.DropIn: dropIn{},
	report.Insert: inserted{},
	report.Owned:  owned{file{OwnedName, embedding}},
	report.Multus: file{DropInName, func(_ Net, entry []byte) ([]byte, error) { // network attachments refer to this file
		return Indented(append([]byte(`{"cniVersion":"1.0.0","name":"capture-cni",`), bytes.TrimSpace(entry)[1:]...)), nil
	}},
	report.MultusChain: chained{file{ChainedName, func(_ Net, entry []byte) ([]byte, error) { return Indented(entry), nil }}},
}

func everyMode() []report.Mode { return slices.Sorted(maps.Keys(placements)) }

// file is the placement that writes the entry to a file of its own in the directory of Net.
type file struct {
	name    string
	content func(net Net, entry []byte) ([]byte, error)
}

func (f file) Fault(net Net, entry []byte) error {
	want, err := f.content(net, entry)
	if err != nil {
		return err
	}
	return FileFault(net.Dir, f.name, want)
}

func (f file) Place(net Net, entry []byte) error {
	want, err := f.content(net, entry)
	if err != nil {
		return err
	}
	return net.Ensure(f.name, want)
}

func (f file) Found(net Net) (bool, error) { return net.Has(f.name) }

func (f file) Remove(net Net) error { return net.Remove(f.name) }

// Fault returns nil if the entry is up to date and, except under Multus, each set of lists that the
// runtime may load contains the plugin. Otherwise it returns the reason. For Auto, the entry may be up to
// date in any mode that Auto can choose.
func Fault(net Net, mode report.Mode, entry []byte) (err error) {
	modes := []report.Mode{mode}
	if mode == report.Auto {
		modes = []report.Mode{report.DropIn, report.Insert, report.Owned, WithoutDropIn(net)} // the last mode's error is returned
	}
	for _, mode := range modes {
		if err = In(mode).Fault(net, entry); err == nil {
			break
		}
	}
	if err != nil || mode.UnderMultus() {
		return err
	}
	return net.Called()
}

// IsPlaced reports whether any mode has something to remove, such as an entry.
func IsPlaced(net Net) (bool, error) {
	for _, mode := range everyMode() {
		if found, err := In(mode).Found(net); err != nil || found {
			return found, err
		}
	}
	return false, nil
}

// RemoveExcept removes the entries of all modes except kept. If kept is "", it removes all, including
// renamed copies of the agent's list.
func RemoveExcept(net Net, kept report.Mode) error {
	var errs []error
	if kept == "" {
		errs = append(errs, removeRenamed(net))
	}
	for _, mode := range everyMode() {
		if mode != kept {
			errs = append(errs, In(mode).Remove(net))
		}
	}
	return errors.Join(errs...)
}

// FileFault returns nil if a file of the agent's own has the desired content, and otherwise the reason.
func FileFault(directory *host.Dir, name string, want []byte) error {
	current, err := directory.Read(name)
	if err == nil && !bytes.Equal(current, want) {
		err = fmt.Errorf("%s/%s is outdated", directory.Path(), name)
	}
	return err
}

// Indented returns a JSON document with indentation. If the document is no JSON, it returns the
// document unchanged.
func Indented(document []byte) []byte {
	var out bytes.Buffer
	if json.Indent(&out, document, "", "  ") != nil {
		return document
	}
	out.WriteByte('\n')
	return out.Bytes()
}
