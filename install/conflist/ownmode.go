// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/install/report"
)

// owned writes the agent's own list, which is a copy of the current primary list with our entry. While
// the primary list is missing or incomplete, the existing copy stays, although it may be outdated.
type owned struct{ file }

func embedding(net Net, entry []byte) ([]byte, error) {
	found, err := Primaries(net)
	if err != nil {
		return nil, err
	}
	// The runtime may load one of several lists. If the copied file is one of them, keep copying that
	// file.
	current, _ := net.Read(OwnedName)
	embedded, _, _ := strings.Cut(sourceOf(current), " sha256:")
	i := slices.IndexFunc(found, func(p primary) bool { return p.File == embedded })
	if i < 0 && !net.Runtime.IsContainerd() && net.isFile(embedded) {
		switch _, err := net.read(embedded, false); {
		case IsWaiting(err) && len(net.unseen(found[len(found)-1], false)) > 0: // CRI-O may skip the other lists
			return nil, fmt.Errorf("%w: if no program is writing %s, correct or delete it", err, embedded)
		case net.Runtime == (report.Runtime{}) && len(found) > 1: // another list hides the copied file
			return nil, Waiting(fmt.Sprintf("the runtime is unknown, and may load %s or %s", embedded, found[0].File))
		}
	}
	p := found[max(0, i)]
	if err := p.CheckVersion(); err != nil {
		return nil, err
	}
	if p.File < OwnedName {
		return nil, fmt.Errorf("%s sorts before %s, which the runtime therefore would not load: use mode %q", p.File, OwnedName, report.Insert)
	}
	return embed(p.List, source(p.File, p.text), entry)
}

func (o owned) Fault(net Net, entry []byte) error {
	want, err := o.content(net, entry)
	current, readErr := net.Read(OwnedName)
	switch {
	case readErr != nil:
		return errors.Join(err, readErr)
	case err != nil:
		return fmt.Errorf("%s may be outdated, it embeds %s: %w", OwnedName, sourceOf(current), err)
	case !bytes.Equal(current, want):
		return fmt.Errorf("%s is outdated: the primary list, the entry or this file has changed", OwnedName)
	}
	return nil
}

// removeRenamed removes copies of the agent's list to which another program gave a new name, as Cilium
// does with cni.exclusive.
func removeRenamed(net Net) error {
	names, err := net.Names()
	errs := []error{err}
	for _, name := range names {
		text, _ := net.Read(name)
		if strings.HasPrefix(name, OwnedName+".") && sourceOf(text) != "" {
			errs = append(errs, net.Remove(name))
		}
	}
	return errors.Join(errs...)
}

// CheckMaxConfNum returns an error if the mode is owned, and the runtime's max_conf_num (most, nil if
// unset) makes it load the primary list in addition to the agent's list.
func CheckMaxConfNum(mode report.Mode, most *int, source string) error {
	if mode == report.Owned && most != nil && *most != 1 {
		return fmt.Errorf("max_conf_num = %[2]d in %[1]s: in mode owned, the runtime would load the primary list next to the agent's",
			source, *most)
	}
	return nil
}
