// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"errors"

	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/report"
)

// DropInName is the name of the entry's file in the modes dropin and multus.
const DropInName = "capture-cni.conf"

// dropIn writes the entry to a file in the directory that has the network's name. libcni 1.3 and newer
// appends the plugins in that directory to the list. Runtimes watch only the parent directory, so
// dropIn also triggers that watch.
type dropIn struct{}

// in opens, for each primary list that permits drop-ins, the directory of the drop-ins, and calls the
// function do with this directory. With create, it creates missing directories.
func (dropIn) in(net Net, create bool, do func(*host.Dir) error) error {
	return eachPrimary(net, report.DropIn, func(p primary) error {
		directory, err := net.Sub(p.List.Name, create)
		if err != nil {
			return err
		}
		return errors.Join(do(directory), directory.Close())
	})
}

func (d dropIn) Fault(net Net, entry []byte) error {
	return d.in(net, false, func(directory *host.Dir) error { return FileFault(directory, DropInName, Indented(entry)) })
}

func (d dropIn) Place(net Net, entry []byte) error {
	return d.in(net, true, func(directory *host.Dir) error {
		if err := directory.ClearTemps(); err != nil {
			return err
		}
		return errors.Join(directory.Ensure(DropInName, Indented(entry)), net.TriggerWatch())
	})
}

func (dropIn) Found(net Net) (found bool, err error) {
	err = eachSubdirectory(net, func(_ string, directory *host.Dir) error {
		has, err := directory.Has(DropInName)
		found = found || has
		return err
	})
	return found, err
}

func (dropIn) Remove(net Net) error {
	return eachSubdirectory(net, func(name string, directory *host.Dir) error {
		clearErr := directory.ClearTemps()
		if has, err := directory.Has(DropInName); err != nil || !has {
			return errors.Join(clearErr, err)
		}
		return errors.Join(clearErr, directory.Remove(DropInName), net.RemoveDir(name), net.TriggerWatch())
	})
}

// eachSubdirectory calls do with each subdirectory, because the network may have had another name when
// the agent wrote the entry.
func eachSubdirectory(net Net, do func(name string, directory *host.Dir) error) error {
	names, err := net.Directories()
	errs := []error{err}
	for _, name := range names {
		directory, err := net.Sub(name, false)
		if err != nil {
			continue // removed or replaced in the meantime
		}
		errs = append(errs, do(name, directory), directory.Close())
	}
	return errors.Join(errs...)
}
