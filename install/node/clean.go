// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/backend"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/credentials"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// CheckRemovable returns an error while meshed pods run on the node, because a pod that gets a new
// sandbox without the entry would run uncaptured. It also returns an error if it can't list the pods or
// look for an entry. With force, if NetDir does not exist, or if the node has had no entry since the last
// Clean, it returns nil. Errors: conflist.Waiting while meshed pods run.
func (n *Node) CheckRemovable(ctx context.Context, force bool) error {
	if force {
		return nil
	}
	var found bool
	err := n.inDirectory(n.Settings.NetDir, func(net *host.Dir) (err error) {
		if found, err = conflist.IsPlaced(conflist.Net{Dir: net}); err == nil && !found {
			found, err = n.isMarked()
		}
		return err
	})
	if err != nil || !found {
		return err
	}
	if n.Runtime == nil {
		return errors.New("with --cri-socket none the agent can't list meshed pods: set --cri-socket, or use --force")
	}
	sandboxes, err := n.Runtime.Sandboxes(ctx)
	var pods []string
	for _, sandbox := range sandboxes {
		if capture.Meshed(sandbox.Annotations, n.Settings.Entry.Conf.Capture.Meshes) {
			pods = append(pods, sandbox.Namespace+"/"+sandbox.Name)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: the entry stays while the runtime does not list its pods: check the runtime, or use --force", err)
	}
	if len(pods) > 0 {
		return conflist.Waiting(fmt.Sprintf("%d meshed pods still run on the node (%s): the entry stays until they end; "+
			"drain the node, or use --force", len(pods), strings.Join(pods, ", ")))
	}
	return nil
}

// Clean removes capture-cni from the node. It removes the boot files and the entry first, so that no new
// pod needs the plugin, and then the other files. It removes the files in BinDirs only with purge,
// because the runtime executes the plugin to delete pods that started with it. A missing file is no
// error.
func (n *Node) Clean(purge bool) error {
	s := n.Settings
	n.syncNames() // an agent that was killed may have removed an entry without syncing its directory
	if err := n.removeBootFiles(); err != nil {
		return err
	}
	err := n.written(s.NetDir, n.inDirectory(s.NetDir, func(net *host.Dir) error {
		return errors.Join(net.ClearTemps(), conflist.RemoveExcept(conflist.Net{Dir: net}, ""))
	}))
	if err == nil {
		err = n.removeFiles(s.CredentialDirs(), credentials.Names()...)
	}
	if err != nil {
		return err
	}
	errs := []error{n.inDirectory(s.RunDir, removeRecords)}
	if purge {
		errs = append(errs, n.removeFiles(s.BinDirs, purged()...))
	}
	state := []string{lastGood(conflist.PluginType), lastGood(config.LookupProgram), ownerName, holderName, placedName}
	return n.written(s.StateDir, errors.Join(append(errs, n.removeFiles([]string{s.StateDir}, state...))...))
}

// purged returns the names of the files in BinDirs that Clean removes only with purge.
func purged() []string {
	return []string{conflist.PluginType, config.LookupProgram, config.DirectoriesFile}
}

// Left returns a note that names the files which Clean leaves on the node without purge, or nothing if
// there are none.
func (n *Node) Left() (notes report.Findings) {
	if left := n.present(n.Settings.BinDirs, purged()...); len(left) > 0 {
		notes = report.Findings{{Code: report.LeftOnNode, Severity: report.Note, Reason: "left on the node, so that the runtime " +
			"can delete the pods that were started with the plugin: " + strings.Join(left, ", ")}}
	}
	return notes
}

// removeRecords deletes, in the run directory, the agent's sockets, the spool, the history, the guard's
// files, and the result of the backend's test.
func removeRecords(run *host.Dir) error {
	err := run.Remove(config.AgentSocketName)
	for _, path := range []string{
		config.SocketsName, record.Spool(config.AgentSocketName), telemetry.HistoryDirectory(config.AgentSocketName),
		guardName, backend.DirectoryName,
	} {
		err = errors.Join(err, removeDirectory(run, filepath.Base(path)))
	}
	return err
}

// removeDirectory deletes a subdirectory that contains only files. A missing one is no error.
func removeDirectory(parent *host.Dir, name string) error {
	directory, err := parent.Sub(name, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	names, err := directory.Names()
	return errors.Join(err, directory.Remove(names...), directory.Close(), parent.RemoveDir(name))
}

// present returns the paths of the existing files with these names in the directories.
func (n *Node) present(directories []string, names ...string) (paths []string) {
	for _, directory := range directories {
		for _, name := range names {
			if _, err := os.Lstat(n.Settings.At(directory) + "/" + name); !errors.Is(err, fs.ErrNotExist) {
				paths = append(paths, directory+"/"+name)
			}
		}
	}
	return paths
}

// removeFiles removes the files with these names, and temporary files, from the directories.
func (n *Node) removeFiles(directories []string, names ...string) (err error) {
	for _, directory := range directories {
		err = errors.Join(err, n.inDirectory(directory, func(dir *host.Dir) error {
			return errors.Join(dir.ClearTemps(), dir.Remove(names...))
		}))
	}
	return err
}

// inDirectory calls do with a directory, as within does. If the directory is missing, it does nothing.
func (n *Node) inDirectory(path string, do func(*host.Dir) error) error {
	if _, err := os.Stat(n.Settings.At(path)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return n.within(path, do)
}
