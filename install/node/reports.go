// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/history"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// AgentSocket returns the agent's socket as the agent sees it, "" where the operator
// wants none.
func (s Settings) AgentSocket() string {
	if s.Entry.Conf.AgentSocket == "" {
		return ""
	}
	return s.at(s.Entry.Conf.AgentSocket)
}

// guardName is the guard's directory in the run directory.
const guardName = "guard"

// GuardMemory is where the guard keeps what sandboxes hold, as the agent sees it.
func (s Settings) GuardMemory() string { return s.at(s.RunDir) + "/" + guardName }

// Plugin is the binary that is in place, as the agent sees it.
func (s Settings) Plugin() string { return s.at(s.BinDirs[0]) + "/" + binaryName }

// removeReports takes away the socket, what was kept for whoever listens there,
// and what the guard kept.
func (n *Node) removeReports() error {
	run, err := n.open(n.settings.RunDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = run.Remove(config.AgentSocketName)
	for _, folder := range []string{record.Spool(config.AgentSocketName), history.Directory(config.AgentSocketName), guardName} {
		err = errors.Join(err, empty(run, filepath.Base(folder)))
	}
	return errors.Join(err, run.Close())
}

// empty deletes a folder of files.
func empty(dir *host.Dir, name string) error {
	folder, err := dir.Sub(name, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	names, err := folder.Names()
	errs := []error{err}
	for _, file := range names {
		errs = append(errs, folder.Remove(file))
	}
	return errors.Join(append(errs, folder.Close(), dir.RemoveDir(name))...)
}
