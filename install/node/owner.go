// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/host"
)

// Files in the state directory. owner names the Helm release that owns the node, and holder the agent
// that last took the lock.
const (
	ownerName  = "owner"
	holderName = "holder"
)

// Uninstall cleans the node as Clean does. It returns an error if an agent runs on the node, because
// the agent could install everything again. With force, it cleans the node nevertheless.
func (n *Node) Uninstall(purge, force bool) error {
	lock, err := n.lockUnclaimed()
	if err != nil && !force {
		return err
	}
	err = n.Clean(purge)
	if lock != nil {
		err = errors.Join(err, lock.Close())
	}
	return err
}

// lockUnclaimed takes the lock that agents of all releases use. It returns nil if the state directory
// does not exist, and an error while an agent holds the lock.
func (n *Node) lockUnclaimed() (lock io.Closer, err error) {
	err = n.inDirectory(n.Settings.StateDir, func(state *host.Dir) error {
		lock, err = state.TryLock()
		if !errors.Is(err, host.ErrLocked) {
			return err
		}
		return fmt.Errorf("%s of release %q runs on the node and may install again what is removed: "+
			"stop it first, or set its --state to absent (chart: state=absent), or use --force",
			holderOf(state), nameIn(state, ownerName))
	})
	return lock, err
}

// Claim locks the node for this agent. It returns an error while another agent holds the lock, if the
// node belongs to another release, or if it can't use the state directory.
func (n *Node) Claim() (io.Closer, error) {
	state, err := host.MakeDir(n.Settings.At(n.Settings.StateDir), n.Settings.Disk)
	if err != nil {
		return nil, err
	}
	defer state.Close()
	owner, err := state.Read(ownerName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if other := strings.TrimSpace(string(owner)); other != "" && other != n.Settings.Owner {
		return nil, fmt.Errorf("the node belongs to release %q, and this agent to %q: first uninstall the other release", other, n.Settings.Owner)
	}
	lock, err := state.TryLock()
	if errors.Is(err, host.ErrLocked) {
		return nil, conflist.Waiting(holderOf(state) + " still runs on the node")
	}
	if err != nil {
		return nil, err
	}
	if len(owner) == 0 {
		if err := state.Ensure(ownerName, []byte(n.Settings.Owner+"\n")); err != nil {
			n.log.Warn("writing the node's owner failed", "error", err)
		}
	}
	holder := n.Settings.Credentials.Pod.String()
	if n.Settings.Credentials.Pod.Name == "" {
		holder = "outside a pod"
	}
	if err := state.Ensure(holderName, []byte(holder+"\n")); err != nil {
		n.log.Warn("writing the name of the node's agent failed", "error", err)
	}
	return lock, nil
}

// holderOf returns "agent" and the name of the agent that holds the node, or "another agent" if the
// name is unknown.
func holderOf(state *host.Dir) string {
	if name := nameIn(state, holderName); name != "" {
		return "agent " + name
	}
	return "another agent" // Clean has removed the file, or the agent could not write it
}

// nameIn returns the name in a file of the state directory, or "" if it can't read the file.
func nameIn(state *host.Dir, file string) string {
	name, err := state.Read(file)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(name))
}
