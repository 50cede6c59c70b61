// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"io/fs"

	"github.com/capture-cni/capture-cni/config"
)

// Clean takes everything away, in the order in which nothing breaks: first the
// entry, so that no new pod asks for the plugin, then what the plugin needs.
// The binary stays, for pods that were started with it and have yet to end,
// unless purge says that there are none. A missing piece is no error.
func (n *Node) Clean(purge bool) error {
	if err := n.removeEntries(); err != nil {
		return err
	}
	if err := n.credentials.clear(); err != nil {
		return err
	}
	errs := []error{n.removeReports()}
	if purge {
		for _, folder := range n.settings.BinDirs {
			errs = append(errs, n.removeFiles(folder, binaryName, config.DirectoriesFile))
		}
	}
	return errors.Join(append(errs, n.removeFiles(n.settings.StateDir, lastGoodName, ownerName))...)
}

func (n *Node) removeEntries() error {
	net, err := n.open(n.settings.NetDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	errs := []error{net.ClearTemps()}
	for _, placement := range placements {
		errs = append(errs, placement.remove(net))
	}
	return errors.Join(append(errs, net.Close())...)
}

func (n *Node) removeFiles(folder string, names ...string) error {
	dir, err := n.open(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	errs := []error{dir.ClearTemps()}
	for _, name := range names {
		errs = append(errs, dir.Remove(name))
	}
	return errors.Join(append(errs, dir.Close())...)
}
