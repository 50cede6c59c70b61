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
// the node has no valid credentials, the agent neither changes an entry that the runtime uses nor gives a
// node its first one, and returns an error if only the credentials are missing for that. But it restores
// an entry that the node has lost, because pods of the mesh would otherwise start uncaptured.
func (n *Node) withholdsEntry(net conflist.Net) (bool, error) {
	works := n.Settings.BackendFault() == nil
	if works && n.Credentials.Kubeconfig != "" {
		return false, nil
	}
	placed, err := conflist.IsPlaced(net)
	if err != nil || placed && (n.Settings.Mode.UnderMultus() || net.Called() == nil) {
		return true, err
	}
	marked, err := n.isMarked()
	if err == nil && works && !marked {
		err = conflist.Waiting("the agent writes the first entry once the node has the plugin's credentials")
	}
	return !marked, err
}
