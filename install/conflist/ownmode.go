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

// owned writes the agent's own conflist, which embeds the current primary list. While the primary list
// is missing or incomplete, the outdated file stays.
type owned struct{ file }

func embedding(net Net, entry []byte) ([]byte, error) {
	found, err := Primaries(net)
	if err != nil {
		return nil, err
	}
	// While the runtime is unknown, it may load one of several: the file that it loads now stays embedded.
	current, _ := net.Read(OwnedName)
	embedded, _, _ := strings.Cut(sourceOf(current), " sha256:")
	i := slices.IndexFunc(found, func(p primary) bool { return p.File == embedded })
	// That file stays embedded while it is incomplete, if CRI-O may skip the other lists.
	if i < 0 && !net.Runtime.IsContainerd() && net.isFile(embedded) && len(net.unseen(found[len(found)-1], false)) > 0 {
		if _, err := net.read(embedded, false); IsWaiting(err) {
			return nil, err
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
		return fmt.Errorf("%s is outdated: the primary list has changed", OwnedName)
	}
	return nil
}

// removeRenamed removes copies of the agent's list that another program has renamed, as Cilium
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

// CheckMaxConfNum refuses mode owned if the runtime would also load the primary list, in addition to
// the agent's.
func CheckMaxConfNum(mode report.Mode, most *int, source string) error {
	if mode == report.Owned && most != nil && *most != 1 {
		return fmt.Errorf("max_conf_num = %[2]d in %[1]s: in mode owned, the runtime would load the primary list next to the agent's",
			source, *most)
	}
	return nil
}
