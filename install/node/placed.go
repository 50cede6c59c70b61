// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/host"
)

// placedName is a file in the state directory. It records that the node has had an entry, so pods of
// the mesh rely on the entry.
const placedName = "placed"

// isMarked reports whether an agent has recorded that the node has had an entry. Clean removes the
// record.
func (n *Node) isMarked() (marked bool, err error) {
	err = n.inDirectory(n.Settings.StateDir, func(state *host.Dir) (err error) {
		marked, err = state.Has(placedName)
		return err
	})
	return marked, err
}

// withholdsEntry reports whether the agent must not write the entry. While the backend does not work, or
// the node has no valid credentials, the agent neither changes an existing entry nor gives a node its
// first one. But it restores an entry that the node has lost, because pods of the mesh would otherwise
// start uncaptured.
func (n *Node) withholdsEntry(net *host.Dir) (bool, error) {
	if n.Settings.BackendFault() == nil && n.Credentials.Kubeconfig != "" {
		return false, nil
	}
	placed, err := conflist.IsPlaced(conflist.Net{Dir: net})
	if err != nil || placed {
		return true, err
	}
	marked, err := n.isMarked()
	return !marked, err
}
