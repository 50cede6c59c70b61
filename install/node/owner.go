// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/capture-cni/capture-cni/install/host"
)

// ownerName is the file with the release that the node belongs to.
const ownerName = "owner"

// claim locks the node for this agent. It fails while another agent of the release
// holds the lock, or if the node belongs to another release.
func (n *Node) claim() (io.Closer, error) {
	state, err := host.MakeDir(n.settings.at(n.settings.StateDir))
	if err != nil {
		return nil, err
	}
	defer state.Close()
	owner, err := state.Read(ownerName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if other := strings.TrimSpace(string(owner)); other != "" && other != n.settings.Owner {
		return nil, fmt.Errorf("the node belongs to release %q, and this agent to %q: uninstall that one first", other, n.settings.Owner)
	}
	lock, err := state.TryLock()
	if errors.Is(err, host.ErrLocked) {
		return nil, waiting("another agent of this release still runs on the node")
	}
	if err != nil {
		return nil, err
	}
	if len(owner) == 0 {
		if err := state.Replace(ownerName, []byte(n.settings.Owner+"\n"), host.As(0o600), nil); err != nil {
			n.log.Warn("writing the node's owner failed", "error", err)
		}
	}
	return lock, nil
}
