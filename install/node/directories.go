// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/host"
)

// deletedMount returns an error if a directory was deleted on the node while the agent's
// container has it mounted. The mount shows the deleted directory until the container is
// started again, whatever takes its place on the node.
func (s Settings) deletedMount() error {
	for _, directory := range append([]string{s.NetDir, s.StateDir, s.RunDir, s.TmpfilesDir}, s.BinDirs...) {
		if host.IsDeleted(s.at(directory)) {
			return fmt.Errorf("%s was deleted on the node, and the agent's mount still shows the deleted directory: restart the agent's container", directory)
		}
	}
	return nil
}

// writtenDirectories returns the directories of the node that the agent writes to and that
// others own.
func (s Settings) writtenDirectories() []string {
	directories := append([]string{s.NetDir}, s.BinDirs...)
	if s.keepsBootFiles() {
		directories = append(directories, s.TmpfilesDir)
	}
	return directories
}

// ownDirectories returns the directories of the credentials and the agent's socket
// that the plugin does not allow by default.
func (s Settings) ownDirectories() []string {
	wanted := []string{s.StateDir, s.RunDir}
	if socket := s.Entry.Conf.AgentSocket; socket != "" {
		wanted = append(wanted, filepath.Dir(socket))
	}
	var own []string
	for _, directory := range wanted {
		directory = filepath.Clean(directory)
		if !slices.Contains(config.Directories(), directory) && !slices.Contains(own, directory) {
			own = append(own, directory)
		}
	}
	return own
}

// listDirectories adds our directories to the list next to the plugin. It keeps the
// others, which the node's image may list.
func (s Settings) listDirectories(bin *host.Dir) error {
	listed, missing, err := s.missingDirectories(bin)
	if err != nil || len(missing) == 0 {
		return err
	}
	return bin.Replace(config.DirectoriesFile, config.FormatDirectories(append(listed, missing...)), host.As(0o600), nil)
}

// directoriesFault returns which of our directories the plugin would refuse.
func (s Settings) directoriesFault(bin *host.Dir) error {
	_, missing, err := s.missingDirectories(bin)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("%s/%s does not list %s: the plugin would refuse the credentials there", bin.Path(), config.DirectoriesFile, strings.Join(missing, ", "))
	}
	return err
}

// missingDirectories returns the directories that are listed next to the plugin, and
// those of ours that are not.
func (s Settings) missingDirectories(bin *host.Dir) (listed, missing []string, err error) {
	own := s.ownDirectories()
	if len(own) == 0 {
		return nil, nil, nil
	}
	content, err := bin.Read(config.DirectoriesFile)
	if host.IsAbsent(err) {
		return nil, own, nil
	}
	if err != nil {
		return nil, nil, err
	}
	listed, err = config.ParseDirectories(content)
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s/%s: %w", bin.Path(), config.DirectoriesFile, err)
	}
	return listed, slices.DeleteFunc(own, func(directory string) bool { return slices.Contains(listed, directory) }), nil
}
