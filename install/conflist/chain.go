// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"errors"
	"fmt"
	"path/filepath"
)

// ChainedName is the name of the entry's file in mode multus-chain. It differs from DropInName, because
// each mode removes the files of the other modes.
const ChainedName = "capture-cni-chain.conf"

// chained writes the entry into the directory of Multus's auxiliary chain. Multus reads the directory
// at each ADD, and calls the chain after the pod's networks.
type chained struct{ file }

func (c chained) Fault(net Net, entry []byte) error {
	return errors.Join(c.file.Fault(net, entry), ChainFault(net))
}

// Place writes the entry even if another file breaks the chain. Multus then calls the plugin as soon as
// the other file is corrected.
func (c chained) Place(net Net, entry []byte) error {
	return errors.Join(c.file.Place(net, entry), ChainFault(net))
}

// ChainFault returns an error that names other programs' invalid files in the directory of the
// auxiliary chain. Multus loads every .conf file there. If one of them is invalid, Multus skips the
// whole chain, and starts pods without capture.
func ChainFault(net Net) error {
	names, err := net.Names()
	errs := []error{err}
	for _, name := range names {
		if filepath.Ext(name) != ".conf" {
			continue
		}
		text, err := net.Read(name)
		if err == nil {
			err = checkPlugin(text)
		}
		if err != nil && name != ChainedName {
			errs = append(errs, fmt.Errorf("%s/%s, which another program wrote, is no plugin's configuration (%w): "+
				"Multus skips the whole chain, and pods start uncaptured; correct or delete that file", net.Path(), name, err))
		}
	}
	return errors.Join(errs...)
}
