// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"strings"

	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/host"
)

// A reboot can empty the directory of Multus's auxiliary chain. At boot, systemd-tmpfiles restores the
// directory and the entry from these files, before the runtime starts.
const (
	// bootName is the name of the agent's file in the configuration directory of systemd-tmpfiles.
	bootName = "capture-cni.conf"
	// bootEntryName is the name of a copy of the entry in the state directory, which survives a reboot.
	bootEntryName = "multus-chain.conf"
)

// bootLines returns the configuration for systemd-tmpfiles. It doubles each %, which would otherwise
// begin a specifier.
func bootLines(s Settings) []byte {
	text := fmt.Sprintf(`# Written by capture-cni-node: recreates the entry in Multus's auxiliary chain at boot.
d %[1]s 0755 root root -
C %[1]s/%[2]s 0600 root root - %[3]s/%[4]s
`, s.NetDir, conflist.ChainedName, s.StateDir, bootEntryName)
	return []byte(strings.ReplaceAll(text, "%", "%%"))
}

// ensureBootFiles writes the boot files. If the mode does not need them, or the directory of
// systemd-tmpfiles is not configured, it removes them.
func (n *Node) ensureBootFiles(text []byte) error {
	s := n.Settings
	if !s.KeepsBootFiles() {
		return n.removeBootFiles()
	}
	// Write the copy first, because systemd-tmpfiles restores the entry from it.
	return errors.Join(
		n.ensureIn(s.StateDir, bootEntryName, conflist.Indented(text)),
		n.ensureIn(s.TmpfilesDir, bootName, bootLines(s)),
	)
}

func (n *Node) ensureIn(directory, name string, content []byte) error {
	return n.within(directory, func(dir *host.Dir) error { return errors.Join(dir.ClearTemps(), dir.Ensure(name, content)) })
}

// bootFilesFault returns an error if the node should have boot files, and one is missing or outdated.
func (n *Node) bootFilesFault(text []byte) error {
	s := n.Settings
	if !s.KeepsBootFiles() {
		return nil
	}
	return errors.Join(n.faultIn(s.StateDir, bootEntryName, conflist.Indented(text)), n.faultIn(s.TmpfilesDir, bootName, bootLines(s)))
}

func (n *Node) faultIn(directory, name string, want []byte) error {
	return n.within(directory, func(dir *host.Dir) error { return conflist.FileFault(dir, name, want) })
}

// removeBootFiles removes the boot files. If TmpfilesDir is empty or not mounted, an earlier agent's file
// stays there, but restores no entry, because the copy of the entry is removed.
func (n *Node) removeBootFiles() error {
	s := n.Settings
	err := n.inDirectory(s.StateDir, func(dir *host.Dir) error { return dir.Remove(bootEntryName) })
	if s.TmpfilesDir != "" {
		err = errors.Join(err, n.removeFiles([]string{s.TmpfilesDir}, bootName))
	}
	return err
}
