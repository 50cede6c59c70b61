// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/host"
)

// placedName is the file of the state directory that shows that the node has had an entry:
// pods of the mesh rely on it.
const placedName = "placed"

// isMarked reports whether an agent has noted that the node has an entry, which no agent
// has removed since.
func (n *Node) isMarked() (marked bool, err error) {
	err = n.inDirectory(n.Settings.StateDir, func(state *host.Dir) (err error) {
		marked, err = state.Has(placedName)
		return err
	})
	return marked, err
}

// withholdsEntry reports whether the agent must not write the entry, because the backend does
// not work. Where the node has had one, its loss is worse: pods of the mesh would start
// uncaptured. An entry that is there stays as it is.
func (n *Node) withholdsEntry(net *host.Dir) (bool, error) {
	if n.Settings.BackendFault() == nil {
		return false, nil
	}
	placed, err := conflist.IsPlaced(conflist.Net{Dir: net})
	if err != nil || placed {
		return true, err
	}
	marked, err := n.isMarked()
	return !marked, err
}
