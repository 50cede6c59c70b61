// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"io/fs"

	"github.com/capture-cni/capture-cni/install/entry"
	"github.com/capture-cni/capture-cni/install/host"
)

// placedName is the file of the state directory that shows that the node has had an entry:
// pods of the mesh rely on it.
const placedName = "placed"

// hadEntry reports whether the node has an entry, or has had one that this agent did not
// remove.
func (n *Node) hadEntry(net *host.Dir) (bool, error) {
	placed, err := entry.IsPlaced(net)
	if err != nil || placed {
		return placed, err
	}
	err = n.inDirectory(n.Settings.StateDir, func(state *host.Dir) (err error) {
		_, err = state.Read(placedName)
		placed = err == nil
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return placed, err
}

// withholdsEntry returns why the agent does not write the entry: the backend does not work.
// Where the node has had one, its loss is worse: pods of the mesh would start uncaptured.
// An entry that is there stays as it is.
func (n *Node) withholdsEntry(net *host.Dir) (withholds bool, err error) {
	if n.Settings.BackendFault() == nil {
		return false, nil
	}
	placed, err := entry.IsPlaced(net)
	if err != nil || placed {
		return true, err
	}
	had, err := n.hadEntry(net)
	return !had, err
}
