// SPDX-License-Identifier: Apache-2.0

package entry

import (
	"bytes"

	"github.com/capture-cni/capture-cni/install/host"
)

// multus writes a configuration that network attachments refer to.
type multus struct{}

// wanted returns the entry as a configuration of its own.
func (multus) wanted(entry []byte) []byte {
	return Indented(append([]byte(`{"cniVersion":"1.0.0","name":"capture-cni",`), bytes.TrimSpace(entry)[1:]...))
}

func (m multus) Fault(net *host.Dir, entry []byte) error {
	return FileFault(net, dropInName, m.wanted(entry))
}

func (m multus) Place(net *host.Dir, entry []byte) error {
	return net.Ensure(dropInName, m.wanted(entry))
}

func (multus) Found(net *host.Dir) (bool, error) { return net.Has(dropInName) }

func (multus) Remove(net *host.Dir) error { return net.Remove(dropInName) }
