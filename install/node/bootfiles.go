// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"strings"

	"github.com/capture-cni/capture-cni/install/host"
)

// The directory of the auxiliary chain is gone after a boot. systemd-tmpfiles makes it
// anew, with the entry, before the runtime starts.
const (
	// bootName is the agent's file in the directory of systemd-tmpfiles' configuration.
	bootName = "capture-cni.conf"
	// bootEntryName is a copy of the entry in the state directory, which survives a boot.
	bootEntryName = "multus-chain.conf"
)

// keepsBootFiles reports whether the entry is made anew at boot.
func (s Settings) keepsBootFiles() bool { return s.Mode == MultusChain && s.TmpfilesDir != "" }

// bootLines returns the configuration for systemd-tmpfiles, in which % begins a specifier.
func (s Settings) bootLines() []byte {
	text := fmt.Sprintf(`# Written by capture-cni-node: makes the entry in the auxiliary chain of Multus anew at boot.
d %[1]s 0755 root root -
C %[1]s/%[2]s 0600 root root - %[3]s/%[4]s
`, s.NetDir, chainedName, s.StateDir, bootEntryName)
	return []byte(strings.ReplaceAll(text, "%", "%%"))
}

// ensureBootFiles writes the boot files. In other modes, and without a directory for
// them, it removes them.
func (n *Node) ensureBootFiles(entry []byte) error {
	s := n.settings
	if !s.keepsBootFiles() {
		return n.removeBootFiles()
	}
	// The copy first: a line without a copy would make no file.
	return errors.Join(
		n.ensureIn(s.StateDir, bootEntryName, indented(entry)),
		n.ensureIn(s.TmpfilesDir, bootName, s.bootLines()),
	)
}

func (n *Node) ensureIn(directory, name string, content []byte) error {
	dir, err := n.open(directory)
	if err != nil {
		return err
	}
	return errors.Join(dir.ClearTemps(), ensureFile(dir, name, content), dir.Close())
}

// bootFilesFault returns why the entry would not be made anew at boot.
func (n *Node) bootFilesFault(entry []byte) error {
	s := n.settings
	if !s.keepsBootFiles() {
		return nil
	}
	return errors.Join(n.faultIn(s.StateDir, bootEntryName, indented(entry)), n.faultIn(s.TmpfilesDir, bootName, s.bootLines()))
}

func (n *Node) faultIn(directory, name string, want []byte) error {
	dir, err := n.open(directory)
	if err != nil {
		return err
	}
	return errors.Join(fileFault(dir, name, want), dir.Close())
}

// removeBootFiles removes the boot files. systemd-tmpfiles skips the line of a missing
// copy, so that a line in a directory which the agent no longer mounts has no effect.
func (n *Node) removeBootFiles() error {
	s := n.settings
	err := n.inDirectory(s.StateDir, func(dir *host.Dir) error { return dir.Remove(bootEntryName) })
	if s.TmpfilesDir != "" {
		err = errors.Join(err, n.removeFiles(s.TmpfilesDir, bootName))
	}
	return err
}
